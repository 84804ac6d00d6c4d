/* SPDX-License-Identifier: MIT
 *
 * The queue's side of dossiers: who may have one of a job, and what those nodes say. Called by
 * coord.c; loop thread. */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <string.h>

#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/deputy/recall.h"

static void on_recalled(void *owner)
{
    coord_look(owner);
}

void coord_runs(void *owner, struct job *job)
{
    struct coord *c = owner;
    job->is_asked_for = job->is_without_deputies = false;
    for (size_t i = 0; i < job->deputies.n; i++)
        if (job_nodes(job)->n < 2 || memcmp(job->deputies.id[i], job_nodes(job)->id[1], 16) != 0)
            recall_from(c->recall, job->deputies.id[i], job->id);
    dossier_send_begin(c->dossiers, job);
}

static void on_deputies(void *owner, struct job *job)
{
    const struct coord *c = owner;
    job_log_changed(&c->log, job);
}

static void on_note(void *owner, struct job *job, const char *text)
{
    const struct coord *c = owner;
    job_log_note(&c->log, job, "%s", text);
}

void coord_take_noted(struct coord *c, const uint8_t from[16], const json_t *body)
{
    dossier_send_take_noted(c->dossiers, from, body);
}

static bool is_rank_1(const struct job *job, const uint8_t id[16])
{
    return job_nodes(job)->n > 1 && !memcmp(id, job_nodes(job)->id[1], 16);
}

void coord_take_held(struct coord *c, const uint8_t from[16], const json_t *body)
{
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(body, "job"));
    struct job *job = coord_find_job(c, id);
    if (json_is_true(json_object_get(body, "kept"))) {
        if (!job || job_state_ended(job->state) || job_nodes_find(&job->deputies, from) == job->deputies.n ||
            (job->state == JOB_RUNNING && !is_rank_1(job, from)))
            recall_from(c->recall, from, id);
    } else if (job && job->state == JOB_RUNNING && is_rank_1(job, from)) {
        return; /* it said so before it got this dossier */
    } else if (job && recall_held(c->recall, job, from)) {
        dossier_send_end(c->dossiers, id); /* the next begins afresh */
        job_log_save(&c->log, job);
        coord_look(c);
    }
}

struct file_set *coord_files(struct coord *c, const uint8_t to[16], uint64_t number)
{
    return dossier_send_files(c->dossiers, to, number);
}

void coord_hear_of_best(struct coord *c, uint64_t id, const char *type)
{
    const struct job *job = coord_find_job(c, id);
    if (job && !strcmp(type, "saved"))
        dossier_send_best(c->dossiers, job);
}

static int send_for(void *owner, const uint8_t to[16], json_t *message)
{
    const struct coord *c = owner;
    return message ? c->setup.send(c->setup.owner, to, message) : -ENOMEM;
}

void coord_open_deputies(struct coord *c)
{
    const struct coord_setup *setup = &c->setup;
    c->dossiers = dossier_send_new(&(struct dossier_send_setup){.base = setup->base,
                                                                .state_dir = setup->state_dir,
                                                                .aside = setup->aside,
                                                                .members = setup->members,
                                                                .store = setup->store,
                                                                .send = send_for,
                                                                .changed = on_deputies,
                                                                .note = on_note,
                                                                .owner = c});
    c->recall = recall_new(&(struct recall_setup){.base = setup->base,
                                                  .cluster = setup->cluster,
                                                  .members = setup->members,
                                                  .send = send_for,
                                                  .look = on_recalled,
                                                  .owner = c});
}

void coord_close_deputies(struct coord *c)
{
    dossier_send_free(c->dossiers);
    recall_free(c->recall);
}
