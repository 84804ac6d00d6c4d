/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/json_weight.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/job/job_life.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/job/token_log.h"
#include "daemon/ringd/store/store.h"

/* --- jobs of an earlier life of the daemon ---------------------------------------------------- */

/* Who speaks in a conversation is gone with the daemon. */
static bool goes_on(const struct job *job)
{
    return !job->asked.keep_alive && job->asked.on_loss != ON_LOSS_STOP;
}

/* It waits without nodes, for the queue or for a word. */
static bool is_aside(const struct job *job)
{
    return job->state == JOB_PAUSED || job->state == JOB_MOVED;
}

/* Why it does not go on; NULL: it does, and waits, or is alive again. cause: of its interruption. */
static const char *revive(struct coord *c, struct job *job, const char *cause, struct err *err)
{
    char why[600];
    const bool has_begun = !is_aside(job) && (job->state != JOB_QUEUED || job->interruption.count);
    if (has_begun && !goes_on(job))
        return "the daemon ended while the job was unfinished; a training job that saved its state goes on "
               "with --resume";
    if (coord_take_room(c, job->spec_bytes, err))
        return err->text;
    if (is_aside(job) || job->state == JOB_QUEUED || coord_active(c)) {
        job->state = is_aside(job) ? job->state : JOB_QUEUED;
        job_log_changed(&c->log, job);
        return NULL;
    }
    if (job_life_restore(c->life, job, cause, why, sizeof why))
        return NULL;
    ledger_give(&c->specs, job->spec_bytes);
    err_set(err, -ECANCELED, "%s", why);
    return err->text;
}

/* Takes over the job. One that was only still ending has ended as it would have. texts: what was
 * kept of a generation. */
static void restore(struct coord *c, struct job *job, const char *cause, json_t *record, const json_t *texts)
{
    const bool is_over = job->state == JOB_STOPPING && job_state_ended(job->outcome);
    struct err err;
    job->is_restored = true;
    job->spec_bytes = sizeof(struct job) + json_weight(job->spec);
    coord_keep_tokens(c, job);
    if (job->token_log)
        job->tokens = token_log_restore(job->token_log, texts);
    const char *refusal = is_over ? NULL : revive(c, job, cause, &err);
    if (is_over || refusal) {
        job_log_close_record(c->setup.store, record, is_over ? job->outcome : JOB_FAILED, refusal);
        job_free(job);
        return;
    }
    job->next = c->jobs;
    c->jobs = job;
}

/* What has not ended goes on by itself. No ring is looked at yet: the node is not open. */
void coord_restore_all(struct coord *c)
{
    char *text = store_unfinished(c->setup.store), why[700], cause[200];
    json_t *list = text ? json_loads(text, 0, NULL) : NULL, *entry;
    size_t i;
    snprintf(cause, sizeof cause, "node %s: its ringd was started again",
             members_self(c->setup.members)->name);
    json_array_foreach (list, i, entry) {
        json_t *record = json_object_get(entry, "record");
        struct job *job;
        struct err err;
        if (!job_keep_read(&job, entry, &err)) {
            job->is_asked_for = job->deputies.n > 0;
            restore(c, job, cause, record, json_object_get(entry, "texts"));
            continue;
        }
        snprintf(why, sizeof why,
                 "the daemon ended while the job was unfinished, and cannot go on with it: %s", err.text);
        job_log_close_record(c->setup.store, record, JOB_FAILED, why);
    }
    json_decref(list);
    free(text);
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
    json_object_set_new(entry, "saved", json_null());
    json_object_set_new(entry, "logged", json_null());
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
    job->taken = (struct job_taken){
        .from = *from,
        .attempt = (uint32_t)json_integer_value(json_object_get(json_object_get(own, "life"), "attempt"))};
    job->deputies.n = 0;
    job->was_lent = false;
    job->loan = loan_hold(loan);
    snprintf(cause, sizeof cause, "node %s has taken the job over from %s, where it was job %llu",
             members_self(c->setup.members)->name, from->name, (unsigned long long)from->job);
    restore(c, job, cause, json_object_get(own, "record"), json_object_get(own, "texts"));
    json_decref(own);
    coord_look(c);
    return 0;
}

void coord_lend(struct coord *c, struct loan *(*lend)(void *owner, uint64_t job), void *owner)
{
    for (struct job *job = c->jobs; job; job = job->next)
        if (job->taken.from.job && !job->loan)
            job->loan = lend(owner, job->id);
}
