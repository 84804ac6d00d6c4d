/* SPDX-License-Identifier: MIT
 *
 * What jobs that serve do beyond others. Adapters come to them and leave them while they are at
 * work: each is planned again at once. With --keep-alive they let their nodes go while nobody asks,
 * and begin again with the next request. Called by coord.c; loop thread. */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/survive/loan_store.h"

/* One that is not planned yet has both. */
static int change(struct coord *c, struct job *job, const char *name, const char *path,
                  const struct loan *more, struct err *err)
{
    const struct job_change *had = job->change;
    struct job_change *made;
    if (had && had->is_planned)
        return err_set(err, -EBUSY, "job %llu is being planned again %s: try again in a moment",
                       (unsigned long long)job->id, had->why);
    const int r = job_change_new(&made,
                                 &(struct job_change_request){.number = job->changes + 1,
                                                              .spec = had ? had->spec : job->spec,
                                                              .had = had ? had->loan : job->loan,
                                                              .more = more,
                                                              .name = name,
                                                              .path = path,
                                                              .room = &c->specs},
                                 err);
    if (r)
        return r;
    job_drop_change(job);
    job->change = made;
    job->changes++;
    return 0;
}

int coord_change_adapter(struct coord *c, uint64_t id, const char *name, const char *path, struct loan *loan,
                         uint64_t *ret_number, struct err *err)
{
    struct job *job = coord_find_job(c, id);
    struct job_life *life = job ? coord_life_of(c, job) : NULL;
    char why[sizeof job->error];
    if (!job)
        return -ENOENT;
    if (job_state_ended(job->state) || job->type != JOB_SERVE)
        return err_set(err, -EALREADY, "job %llu serves no model%s", (unsigned long long)id,
                       job->type == JOB_SERVE ? " any more" : "");
    job_waits_for(job, why, sizeof why);
    if (!life)
        return err_set(err, -EBUSY, "job %llu does not serve yet: %s", (unsigned long long)id,
                       *why ? why : job_state_name(job->state));
    const int r = change(c, job, name, path, loan, err);
    if (r)
        return r == -ENOENT ? -EINVAL : r;
    *ret_number = job->change->number;
    job_life_changed(life);
    return 0;
}

void coord_takes_change(void *owner, struct job *job)
{
    struct coord *c = owner;
    loan_store_remove(c->setup.loan_store, job->id, job->loan);
    loan_store_add(c->setup.loan_store, job->id, job->change->loan);
    job_take_change(job);
    dossier_send_end(c->dossiers, job->id); /* the next begins afresh, with other files */
}

static bool fits(const struct job *job, const struct job_spec *asked, const char *deployment)
{
    if (job->type != JOB_SERVE || job_state_ended(job->state))
        return false;
    return *deployment ? !strcmp(deployment, job_served_name(&job->asked))
                       : !strcmp(asked->model, job->asked.model);
}

struct job *coord_deployment(const struct coord *c, const struct job_spec *asked,
                             char ret_name[JOB_ADAPTER_NAME + 1], struct err *err)
{
    const char *deployment;
    struct job *found = NULL;
    size_t n = 0;
    if (!job_read_serve_as(asked->serve_as, ret_name, &deployment))
        return NULL; /* job_spec_read has refused it */
    for (struct job *job = c->jobs; job; job = job->next)
        if (fits(job, asked, deployment) && !n++)
            found = job;
    if (n == 1)
        return found;
    if (n)
        err_set(err, -EINVAL, "--serve-as %s: %zu deployments of this node have %s: give --serve-as %s@NAME",
                asked->serve_as, n, *deployment ? "that name" : "this model", ret_name);
    else
        err_set(err, -EINVAL,
                "--serve-as %s: this node is the head of no deployment of %s; `ringctl serve list` shows the "
                "deployments and their nodes: train on that node, or add the adapter there afterwards",
                asked->serve_as, *deployment ? deployment : asked->model);
    return NULL;
}

void coord_serve_result(struct coord *c, struct job *job)
{
    const struct job_spec *asked = &job->asked;
    char name[JOB_ADAPTER_NAME + 1];
    struct err err = {""};
    uint64_t number;
    const struct job *to = coord_deployment(c, asked, name, &err);
    if (!to || coord_change_adapter(c, to->id, name, asked->kept_in ? asked->kept_in : asked->adapter_out,
                                    NULL, &number, &err))
        job_log_note(&c->log, job, "its adapter is not served: %s", err.text);
    else
        job_log_note(&c->log, job, "its adapter goes to job %llu, which serves it as %s from now on",
                     (unsigned long long)to->id, name);
}

/* --- --keep-alive ---------------------------------------------------------------------------- */

void coord_asked(struct coord *c, uint64_t id, bool has_asks)
{
    struct job *job = coord_find_job(c, id);
    if (!job || !job->asked.unload_after)
        return;
    job->has_asks = has_asks;
    struct job_life *life = coord_life_of(c, job);
    if (life)
        job_life_asked(life);
    else if (has_asks)
        coord_wake(c, id);
}

void coord_wake(struct coord *c, uint64_t id)
{
    const struct job *job = coord_find_job(c, id);
    if (job && job->asked.unload_after && job->state == JOB_PAUSED)
        coord_continue(c, id);
}
