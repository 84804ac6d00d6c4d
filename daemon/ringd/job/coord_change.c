/* SPDX-License-Identifier: MIT
 *
 * Adapters that come to jobs that serve, and leave them, while those are at work: each such job is
 * planned again at once. Called by coord.c; loop thread. */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/survive/loan_store.h"

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
    const int r = job_change_adapter(job, &c->specs, name, path, loan, err);
    if (r)
        return r == -ENOENT ? -EINVAL : r;
    *ret_number = job->change->number;
    job_life_changed(life);
    return 0;
}

void coord_takes_change(void *owner, struct job *job)
{
    struct coord *c = owner;
    if (job->loan != job->change->loan) {
        loan_store_remove(c->setup.loan_store, job->id, job->loan);
        loan_store_add(c->setup.loan_store, job->id, job->change->loan);
    }
    job_change_take(job);
    dossier_send_end(c->dossiers, job->id); /* the next begins afresh, with other files */
}
