/* SPDX-License-Identifier: MIT
 *
 * Jobs of an earlier life of the daemon: which of them go on, and what becomes of the files that
 * their clients had opened. Those that systemd has kept are here again. Others the daemon opens by
 * itself, or the job waits until a client hands them in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/json_weight.h"
#include "daemon/common/text_clean.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/coord_impl.h"
#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/survive/lent_look.h"
#include "daemon/ringd/job/survive/loan_store.h"
#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"
#include "engine/file/gguf_path.h"

/* Who speaks in a conversation is gone with the daemon. */
static bool goes_on(const struct job *job)
{
    return !job->asked.keep_alive && job->asked.on_loss != ON_LOSS_STOP;
}

/* Why it does not go on; NULL: it does, and waits, or is alive again. cause: of what interrupted
 * it. */
static const char *revive(struct coord *c, struct job *job, const char *cause, struct err *err)
{
    char why[600];
    struct job_life *life = coord_life_for(c, job->type, why, sizeof why);
    const bool has_begun =
        !job_phase(job->state)->is_aside && (job->state != JOB_QUEUED || job->interruption.count);
    if (has_begun && !goes_on(job))
        return "the daemon ended while the job was unfinished; a training job that saved its state goes on "
               "with --resume";
    if (coord_take_room(c, job->spec_bytes, err))
        return err->text;
    if (job_phase(job->state)->is_aside || job->state == JOB_QUEUED || !life) {
        /* As if it left its nodes to the other job: it has fitted on as many. */
        if (has_begun && job->state != JOB_INTERRUPTED)
            interruption_plan(&job->interruption, &job->offered, job_type_unit(job->type), job->step, cause);
        job->state = job_phase(job->state)->is_aside ? job->state : JOB_QUEUED;
        job_log_changed(&c->log, job);
        return NULL;
    }
    if (job_life_restore(life, job, cause, why, sizeof why))
        return NULL;
    ledger_give(&c->specs, job->spec_bytes);
    err_set(err, -ECANCELED, "%s", why);
    return err->text;
}

/* Its files are here again, or the daemon opens them by itself. */
static void has_files(struct coord *c, struct job *job)
{
    json_decref(job->lent);
    job->lent = NULL;
    job->wants_files = false;
    if (job->state == JOB_QUEUED)
        *job->error = 0;
    job_log_changed(&c->log, job);
    struct job_life *life = coord_life_of(c, job);
    if (life)
        job_life_changed(life);
    else
        coord_try_start(c);
}

void coord_say_wanted(struct job *job, const char *why)
{
    char text[sizeof job->error];
    snprintf(text, sizeof text,
             "%s; `ringctl attach %llu` as the user who may read its files hands them in again",
             *why ? why : "its files are closed to ringd", (unsigned long long)job->id);
    text_clean(job->error, sizeof job->error, text, true);
}

/* It leaves the nodes to other jobs until its client comes. */
static void wait_for_files(struct coord *c, struct job *job, const char *why)
{
    job->wants_files = true;
    struct job_life *life = coord_life_of(c, job);
    if (life) {
        job_life_put_back(life);
        job->state = JOB_QUEUED;
    }
    if (job->state == JOB_QUEUED) {
        const struct log_about about = {.job = job->id};
        coord_say_wanted(job, why);
        log_about(LOG_LEVEL_INFO, &about, "waits: %s", job->error);
    }
    job_log_changed(&c->log, job);
    coord_try_start(c);
}

static void on_looked(void *owner, uint64_t id, const char *why)
{
    struct coord *c = owner;
    struct job *job = coord_find_job(c, id);
    if (!job || !job->lent)
        return;
    if (*why)
        wait_for_files(c, job, why);
    else
        has_files(c, job);
}

/* What its client had opened. */
static bool is_of_model(const char *file, const char *model)
{
    const size_t n = strlen(model);
    bool is = !strncmp(file, model, n) && (!file[n] || file[n] == '/');
    for (size_t i = 0; gguf_is_path(model) && i < gguf_path_parts(model) && !is; i++) {
        char *part = gguf_path_part(model, i);
        is = part && !strcmp(part, file);
        free(part);
    }
    return is;
}

/* For a draft model no job waits: it goes on without. */
static void leave_out_draft(struct job *job)
{
    const char *draft = job->asked.draft_model, *model = job->asked.model;
    json_t *files = json_object_get(job->lent, "files"), *real = json_object_get(job->lent, "real"),
           *folders = json_object_get(job->lent, "folders");
    if (!draft || (model && !strcmp(draft, model)))
        return;
    for (size_t i = json_array_size(files); i-- > 0;)
        if (is_of_model(json_string_value(json_array_get(files, i)), draft)) {
            json_array_remove(files, i);
            json_array_remove(real, i);
        }
    for (size_t i = json_array_size(folders); i-- > 0;)
        if (is_of_model(json_string_value(json_array_get(folders, i)), draft))
            json_array_remove(folders, i);
    if (json_array_size(files))
        return;
    json_decref(job->lent);
    job->lent = NULL;
}

static void find_files(struct coord *c, struct job *job)
{
    if (job->lent && !job->loan)
        job->loan = loan_store_take(c->setup.loan_store, job->id, job->lent);
    if (job->loan) {
        json_decref(job->lent);
        job->lent = NULL;
    }
    leave_out_draft(job);
    if (!job->lent)
        return;
    if (!c->look)
        c->look = lent_look_new(&(struct lent_look_setup){.base = c->setup.base,
                                                          .aside = c->setup.aside,
                                                          .limit_ms = c->setup.limits.look_ms,
                                                          .owner = c,
                                                          .looked = on_looked});
    lent_look_add(c->look, job->id, json_object_get(job->lent, "files"));
}

int coord_lend(struct coord *c, uint64_t id, struct loan *loan, struct err *err)
{
    struct job *job = coord_find_job(c, id);
    if (!job)
        return -ENOENT;
    if (!job->lent)
        return -EALREADY;
    const int r = loan_match(loan, job->lent, err);
    if (r)
        return r;
    job->loan = loan_hold(loan);
    loan_store_add(c->setup.loan_store, id, loan);
    has_files(c, job);
    return 0;
}

/* One that was only still ending has ended as it would have. */
void coord_restore(struct coord *c, struct job *job, const char *cause, json_t *record, const json_t *texts)
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
    find_files(c, job);
}

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
            coord_restore(c, job, cause, record, json_object_get(entry, "texts"));
            continue;
        }
        snprintf(why, sizeof why,
                 "the daemon ended while the job was unfinished, and cannot go on with it: %s", err.text);
        job_log_close_record(c->setup.store, record, JOB_FAILED, why);
    }
    json_decref(list);
    free(text);
    loan_store_tidy(c->setup.loan_store);
    if (c->look)
        lent_look_begin(c->look);
}
