/* SPDX-License-Identifier: MIT
 *
 * Jobs that change hands: those of this node that another one has taken over, whose results come
 * home; and those that this node takes over. */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/job/job_life.h"
#include "daemon/ringd/job/deputy/landing.h"
#include "daemon/ringd/job/deputy/recall.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/timer.h"

enum { LAND_AGAIN_MS = 30000 };

static const char *text_of(const json_t *body, const char *key)
{
    const char *text = json_string_value(json_object_get(body, key));
    return text ? text : "";
}

/* is_over: the job had ended here, and need not be done again. */
static void send_landed(const struct coord *c, const uint8_t to[16], uint64_t job, uint64_t as, bool is_over)
{
    c->setup.send(c->setup.owner, to,
                  json_pack("{s:s s:I s:I s:b}", "kind", "job-landed", "job", (json_int_t)job, "as",
                            (json_int_t)as, "over", (int)is_over));
}

/* --- the end ---------------------------------------------------------------------------------- */

static enum job_state state_of(const char *shown)
{
    return !strcmp(shown, job_state_name(JOB_DONE))     ? JOB_DONE
           : !strcmp(shown, job_state_name(JOB_FAILED)) ? JOB_FAILED
                                                        : JOB_CANCELLED;
}

static void end(struct coord *c, struct job *job, const json_t *message)
{
    const enum job_state state = state_of(text_of(message, "state"));
    const json_t *result = json_object_get(message, "result");
    char why[sizeof job->error];
    snprintf(why, sizeof why, "%s", state == JOB_DONE ? "" : text_of(message, "error"));
    text_clean(job->error, sizeof job->error, why, true);
    json_decref(job->result);
    job->result = json_is_object(result) ? json_deep_copy(result) : NULL;
    send_landed(c, job->moved.id, job->id, job->moved.job, false);
    coord_finish(c, job, state);
}

/* The result that is under way. */
struct coming {
    struct coord *coord; /* borrowed: owner */
    struct landing *landing;
    uint64_t job;
    json_t *message; /* owned: "job-adopted" */
};

static void on_landed(void *owner, const char *folder, const char *why)
{
    struct coming *m = owner;
    struct coord *c = m->coord;
    struct job *job = coord_find_job(c, m->job);
    c->coming = NULL;
    if (job && job->state == JOB_MOVED && folder) {
        job_log_note(&c->log, job, "its result is in %s%s%s", folder, *why ? ": " : "", why);
        end(c, job, m->message);
    } else if (job && job->state == JOB_MOVED) {
        job_log_note(&c->log, job, "its result could not be fetched from %s: %s", job->moved.name, why);
    }
    json_decref(m->message);
    free(m);
    coord_land_later(c);
}

/* The new head of such a job names it again, as an answer. */
static void on_land_again(void *owner)
{
    struct coord *c = owner;
    for (const struct job *job = c->jobs; job; job = job->next)
        if (job->state == JOB_MOVED && !c->coming)
            recall_from(c->recall, job->moved.id, job->id);
    coord_land_later(c);
}

void coord_land_later(struct coord *c)
{
    const struct job *job = c->jobs;
    while (job && job->state != JOB_MOVED)
        job = job->next;
    if (!c->land_again)
        c->land_again = timer_new(c->setup.base, on_land_again, c);
    if (job && !timer_is_pending(c->land_again))
        timer_set_ms(c->land_again, LAND_AGAIN_MS);
}

/* One at a time: the others are named again. */
static void land(struct coord *c, struct parts *parts, struct job *job, const json_t *message)
{
    const json_t *files = json_object_get(message, "files");
    struct err err;
    if (!json_array_size(files)) {
        if (*text_of(message, "unsent"))
            job_log_note(&c->log, job, "its result stays on %s, as that of its job %llu: %s", job->moved.name,
                         (unsigned long long)job->moved.job, text_of(message, "unsent"));
        end(c, job, message);
        return;
    }
    if (c->coming)
        return;
    if (file_set_check(files, true, &err)) {
        job_log_note(&c->log, job, "its result cannot be fetched from %s: %s", job->moved.name, err.text);
        return;
    }
    struct coming *m = xcalloc(1, sizeof *m);
    *m = (struct coming){.coord = c, .job = job->id, .message = json_deep_copy(message)};
    c->coming = m;
    char *way = xasprintf("%s/results/.coming-%llu", c->setup.state_dir, (unsigned long long)job->id),
         *rescue = results_rescue(c->setup.state_dir, job->id),
         *kept = job->asked.kept_in ? results_folder(c->setup.state_dir, job->asked.adapter_out) : NULL;
    results_make(c->setup.state_dir);
    m->landing =
        landing_start(&(struct landing_request){.parts = parts,
                                                .aside = c->setup.aside,
                                                .from = job->moved.id,
                                                .job = job->moved.job,
                                                .files = files,
                                                .way = way,
                                                .to = kept                     ? kept
                                                      : job->asked.adapter_out ? job->asked.adapter_out
                                                                               : rescue,
                                                .else_to = rescue,
                                                .done = on_landed,
                                                .owner = m});
    free(way);
    free(rescue);
    free(kept);
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void move(struct coord *c, struct job *job, const uint8_t to[16], uint64_t as)
{
    const struct member *m = members_find(c->setup.members, to);
    char cause[200];
    job->moved = (struct job_head){.job = as};
    memcpy(job->moved.id, to, sizeof job->moved.id);
    snprintf(job->moved.name, sizeof job->moved.name, "%s", m ? m->name : "?");
    snprintf(cause, sizeof cause, "node %s has taken this job over", job->moved.name);
    struct job_life *life = coord_life_of(c, job);
    if (life)
        job_life_move(life, cause);
    else
        coord_put_aside(c, job, JOB_MOVED);
}

void coord_take_adopted(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body)
{
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(body, "job")),
                   as = (uint64_t)json_integer_value(json_object_get(body, "as"));
    const char *state = text_of(body, "state");
    struct job *job = coord_find_job(c, id);
    if (!job || job_state_ended(job->state)) {
        send_landed(c, from, id, as, true);
        return;
    }
    /* Nobody may who could not have a dossier of it. */
    if (job_nodes_find(&job->deputies, from) == job->deputies.n)
        return;
    const bool is_its = !memcmp(job->moved.id, from, sizeof job->moved.id) && job->moved.job == as;
    if (!is_its)
        move(c, job, from, as);
    if (job->state == JOB_MOVED &&
        (!strcmp(state, job_state_name(JOB_DONE)) || !strcmp(state, job_state_name(JOB_FAILED)) ||
         !strcmp(state, job_state_name(JOB_CANCELLED))))
        land(c, parts, job, body);
}

static bool is_of(const struct coord *c, const struct job *job, const struct origin *of)
{
    return job->origin.job
               ? origin_is(&job->origin, of)
               : job->id == of->job && !memcmp(of->head, members_self(c->setup.members)->id, sizeof of->head);
}

void coord_take_head_ask(struct coord *c, const uint8_t from[16], const json_t *body)
{
    struct origin of;
    if (!origin_read(&of, json_object_get(body, "origin")))
        return;
    for (const struct job *job = c->jobs; job; job = job->next)
        if (job->state == JOB_MOVED && is_of(c, job, &of)) {
            c->setup.send(c->setup.owner, from,
                          json_pack("{s:s s:o s:o}", "kind", "head-answer", "origin", origin_encode(&of),
                                    "head", id_json(job->moved.id)));
            return;
        }
}

/* --- jobs of another head --------------------------------------------------------------------- */

/* What the old head had saved and written lies there. Here the result stays with the daemon. */
static void make_own(const struct coord *c, json_t *entry)
{
    json_t *spec = json_object_get(json_object_get(entry, "record"), "spec");
    const char *out = json_string_value(json_object_get(spec, "adapter_out"));
    if (out) {
        char *folder = results_folder(c->setup.state_dir, out);
        results_make(c->setup.state_dir);
        json_object_set_new(spec, "kept_in", json_string(folder));
        free(folder);
    }
    json_object_del(spec, "log");
}

int coord_take_over(struct coord *c, const json_t *entry, struct loan *loan, const struct job_head *from,
                    struct err *err)
{
    json_t *own = json_deep_copy(entry);
    struct job *job;
    char cause[200];
    make_own(c, own);
    const int r = job_keep_read(&job, own, err);
    if (r) {
        json_decref(own);
        return r;
    }
    if (!job->origin.job) {
        job->origin.job = from->job;
        memcpy(job->origin.head, from->id, sizeof job->origin.head);
    }
    job->taken = (struct job_former){
        .from = *from,
        .attempt = (uint32_t)json_integer_value(json_object_get(json_object_get(own, "life"), "attempt"))};
    job->deputies.n = 0;
    json_decref(job->lent);
    job->lent = NULL;
    job->wants_files = false;
    job->loan = loan_hold(loan);
    snprintf(cause, sizeof cause, "node %s has taken the job over from %s, where it was job %llu",
             members_self(c->setup.members)->name, from->name, (unsigned long long)from->job);
    coord_restore(c, job, cause, json_object_get(own, "record"), json_object_get(own, "texts"));
    json_decref(own);
    coord_look(c);
    return 0;
}

void coord_moved_free(struct coord *c)
{
    timer_free(c->land_again);
    if (!c->coming)
        return;
    landing_stop(c->coming->landing);
    json_decref(c->coming->message);
    free(c->coming);
}
