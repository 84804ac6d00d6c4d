/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/json_weight.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/deputy/recall.h"
#include "daemon/ringd/job/job_ring.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/job/plan/shortage.h"
#include "daemon/ringd/timeline/timeline.h"
#include "daemon/ringd/timeline/timelines.h"
#include "daemon/ringd/job/survive/lent_look.h"
#include "daemon/ringd/job/survive/loan_store.h"
#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

enum coord_limits {
    SETTLE_MS = 30000,
    RETRY_MS = 300,
    SPEC_BYTES = 16 << 20,   /* of one job */
    SPECS_BYTES = 32 << 20,  /* of all in memory */
    TOKENS_BYTES = 16 << 20, /* of the tokens that a job has read and generated */
    KEEP_ENDED = 16,         /* ended jobs kept in memory; the store has all */
};

/* --- the end of a job ------------------------------------------------------------------------- */

/* Takes it out of memory; the store has it. */
static void forget(struct coord *c, struct job **at)
{
    struct job *job = *at;
    *at = job->next;
    ledger_give(&c->specs, job->spec_bytes);
    job_free(job);
}

/* The oldest of more than `keep` ended ones. False: there are no more. */
static bool forget_one(struct coord *c, size_t keep)
{
    struct job **oldest = NULL;
    size_t ended = 0;
    for (struct job **at = &c->jobs; *at; at = &(*at)->next)
        if (job_state_ended((*at)->state) && !coord_life_of(c, *at) && ++ended > keep)
            oldest = at;
    if (oldest)
        forget(c, oldest);
    return oldest;
}

static void trim(struct coord *c)
{
    while (forget_one(c, KEEP_ENDED))
        ;
}

int coord_take_room(struct coord *c, size_t bytes, struct err *err)
{
    if (bytes > SPEC_BYTES)
        return err_set(
            err, -EMSGSIZE,
            "this job takes %zu MiB of the daemon's memory, and %d MiB are allowed: put its text into a file",
            bytes >> 20, SPEC_BYTES >> 20);
    while (c->specs.cap - atomic_load(&c->specs.bytes) < bytes && forget_one(c, 0))
        ;
    if (ledger_take(&c->specs, bytes))
        return 0;
    return err_set(err, -ENOBUFS,
                   "the jobs that wait take all the memory there is for them, %d MiB: submit this one again "
                   "when some have ended",
                   SPECS_BYTES >> 20);
}

static void end_timeline(struct coord *c, struct job *job)
{
    json_t *timeline = job->timeline ? timeline_encode(job->timeline, job->id, job->plan->nodes.name) : NULL;
    if (timeline)
        job_log_remember(&c->log, job, "timeline", timeline);
    const uint64_t dropped = job->timeline ? timeline_end(job->timeline) : 0;
    if (job->timelines)
        timelines_end(job->timelines, dropped);
}

void coord_finish(struct coord *c, struct job *job, enum job_state state)
{
    if (state == JOB_DONE && job->asked.serve_as)
        coord_offer(c, job, job->step);
    if (job->type == JOB_SERVE)
        coord_served_ends(c, job);
    recall_all(c->recall, job);
    dossier_send_end(c->dossiers, job->id);
    char *rescue = results_rescue(c->setup.state_dir, job->id);
    store_tidy_folder(c->setup.store, rescue); /* unless a result is in it */
    free(rescue);
    loan_store_remove(c->setup.loan_store, job->id, job->loan);
    loan_drop(job->loan);
    json_decref(job->lent);
    job_drop_change(job);
    job->loan = NULL;
    job->lent = NULL;
    job->wants_files = false;
    token_log_free(job->token_log);
    job->token_log = NULL;
    job->ended = time(NULL);
    job->state = state;
    job_log_changed(&c->log, job);
    metrics_job_ended(c->setup.metrics, job_state_name(state));
    const struct log_about about = {.id = state == JOB_FAILED ? LOG_ID_JOB_FAILED : NULL, .job = job->id};
    log_about(LOG_LEVEL_INFO, &about, "%s%s%s", job_state_name(state), *job->error ? ": " : "", job->error);
    job_log_publish(&c->log, job, "end", job_encode(job));
    end_timeline(c, job);
    trim(c);
    coord_try_start(c);
}

void coord_put_aside(struct coord *c, struct job *job, enum job_state state)
{
    if (job->state != JOB_QUEUED)
        job_reset(job);
    if (state == JOB_PAUSED && job->type == JOB_SERVE)
        snprintf(
            job->error, sizeof job->error,
            "nobody has asked for %zu s, so it let its memory go: the next request loads the model again",
            job->asked.unload_after);
    else if (state == JOB_PAUSED)
        snprintf(job->error, sizeof job->error, "paused after step %llu: `ringctl continue %llu` goes on",
                 (unsigned long long)job->step, (unsigned long long)job->id);
    else
        snprintf(job->error, sizeof job->error,
                 "node %s has taken this job over, as its job %llu: its result comes here when it ends",
                 job->moved.name, (unsigned long long)job->moved.job);
    dossier_send_end(c->dossiers, job->id);
    job_log_note(&c->log, job, "%s", job->error);
    job->state = state;
    job_log_changed(&c->log, job);
    coord_land_later(c);
    if (job->has_asks)
        coord_wake(c, job->id);
    coord_try_start(c);
}

static void on_over(void *owner, struct job *job, enum job_state how)
{
    struct coord *c = owner;
    timer_stop(c->settle);
    if (how == JOB_QUEUED)
        coord_requeue(c, job);
    else if (how == JOB_PAUSED || how == JOB_MOVED)
        coord_put_aside(c, job, how);
    else
        coord_finish(c, job, how);
}

static void on_settle(void *owner)
{
    struct coord *c = owner;
    struct job *job = coord_any_lives(c) ? NULL : coord_first_queued(c);
    if (!job)
        return;
    char why[700], text[sizeof why + 100];
    members_describe(c->setup.members, why, sizeof why);
    snprintf(text, sizeof text, "no ring after %g s: %s (`ringctl links` shows the missing link)",
             c->setup.limits.settle_ms / 1e3, why);
    text_clean(job->error, sizeof job->error, text, true);
    coord_finish(c, job, JOB_FAILED);
}

/* --- what users ask for ----------------------------------------------------------------------- */

static void on_idle(void *owner)
{
    coord_give_way(owner);
}

void coord_keep_tokens(struct coord *c, struct job *job)
{
    if (job->type == JOB_GENERATE && job->asked.on_loss != ON_LOSS_STOP)
        job->token_log = token_log_new(&c->tokens);
}

int coord_submit(struct coord *c, enum job_type type, json_t *spec, struct loan *loan, uint64_t *ret_id,
                 struct err *err)
{
    struct job_spec asked;
    char name[JOB_ADAPTER_NAME + 1];
    struct coord_deployment to;
    int r = job_spec_read(&asked, type, spec, err);
    if (!r && asked.dry_run)
        r = err_set(err, -EINVAL, "a plan is no job: POST /v1/plan answers with one");
    if (!r && asked.serve_as)
        r = coord_find_deployment(c, &asked, &to, name, err);
    const size_t bytes = sizeof(struct job) + json_weight(spec);
    if (!r)
        r = coord_take_room(c, bytes, err);
    if (r) {
        json_decref(spec);
        return r;
    }
    struct job *job = job_new(store_next_job(c->setup.store), type, &asked, spec);
    job->spec_bytes = bytes;
    job->loan = loan_hold(loan);
    loan_store_add(c->setup.loan_store, job->id, loan);
    coord_keep_tokens(c, job);
    job->next = c->jobs;
    c->jobs = job;
    *ret_id = job->id;
    job_log_changed(&c->log, job);
    coord_try_start(c);
    return 0;
}

struct job *coord_find_job(const struct coord *c, uint64_t id)
{
    struct job *job = c->jobs;
    while (job && job->id != id)
        job = job->next;
    return job;
}

int coord_cancel(struct coord *c, uint64_t id)
{
    struct job *job = coord_find_job(c, id);
    if (!job)
        return -ENOENT;
    if (job_state_ended(job->state))
        return -EALREADY;
    struct job_life *life = coord_life_of(c, job);
    if (life)
        return job_life_cancel(life);
    if (job == coord_first_queued(c)) /* the next one waits for a ring from now on */
        timer_stop(c->settle);
    if (job->state == JOB_MOVED)
        snprintf(job->error, sizeof job->error,
                 "node %s, which had taken it over, ends it when it hears of that", job->moved.name);
    else
        snprintf(job->error, sizeof job->error, "%s", job->started ? "" : "it had not started yet");
    coord_finish(c, job, JOB_CANCELLED);
    return 0;
}

int coord_pause(struct coord *c, uint64_t id)
{
    struct job *job = coord_find_job(c, id);
    if (!job)
        return -ENOENT;
    if (job_state_ended(job->state) || job->state == JOB_PAUSED || job->state == JOB_MOVED)
        return -EALREADY;
    struct job_life *life = coord_life_of(c, job);
    if (life)
        return job_life_pause(life);
    if (job->type != JOB_TRAIN)
        return -EINVAL;
    if (job == coord_first_queued(c))
        timer_stop(c->settle);
    coord_put_aside(c, job, JOB_PAUSED);
    return 0;
}

int coord_continue(struct coord *c, uint64_t id)
{
    struct job *job = coord_find_job(c, id);
    if (!job)
        return -ENOENT;
    if (job->deputies.n && (job->state == JOB_INTERRUPTED || job->state == JOB_QUEUED)) {
        job->is_without_deputies = true;
        coord_look(c);
        return 0;
    }
    if (job->state != JOB_PAUSED)
        return -EALREADY;
    *job->error = 0;
    job->state = JOB_QUEUED;
    if (job->wants_files)
        coord_say_wanted(job, "");
    job_log_changed(&c->log, job);
    coord_try_start(c);
    return 0;
}

int coord_turn(struct coord *c, uint64_t id, json_t *turn)
{
    struct job *job = coord_find_job(c, id);
    const int r = !job ? -ENOENT : job_state_ended(job->state) ? -EALREADY : !job->is_idle ? -EBUSY : 0;
    struct job_life *life = r ? NULL : coord_life_of(c, job);
    if (r)
        json_decref(turn);
    else if (life)
        job_life_turn(life, turn);
    else
        job_hold_turn(job, turn); /* it was interrupted, and its nodes were busy then */
    return r;
}

/* --- what other nodes say --------------------------------------------------------------------- */

static json_int_t whole(const json_t *body, const char *key)
{
    return json_integer_value(json_object_get(body, key));
}

bool coord_is_rank(const struct coord *c, const uint8_t from[16], const json_t *body)
{
    for (size_t i = 0; i < COORD_LIVES; i++)
        if (job_life_has(c->lives[i], from, body))
            return true;
    return false;
}

void coord_take_word(struct coord *c, enum job_word word, const json_t *body)
{
    const struct job *job = coord_find(c, (uint64_t)whole(body, "job"));
    struct job_life *life = job ? coord_life_of(c, job) : NULL;
    if (life)
        job_life_hear(life, (size_t)whole(body, "rank"), word, body);
}

void coord_send_away(struct coord *c, const uint8_t from[16], const json_t *body)
{
    const struct job *job = coord_find(c, whole(body, "job"));
    job_send_away(&c->post, from, body,
                  job && !job_state_ended(job->state) &&
                      (job->state != JOB_STOPPING || !job_state_ended(job->outcome)));
}

void coord_take_wanted(struct coord *c)
{
    for (size_t i = 0; i < COORD_LIVES; i++) {
        struct job *job = job_life_job(c->lives[i]);
        if (job)
            job->is_wanted = true;
    }
    coord_give_way(c);
}

void coord_changed(struct coord *c)
{
    job_ring_changed(c->ring);
    dossier_send_changed(c->dossiers);
    coord_look(c);
}

/* --- looking up, planning --------------------------------------------------------------------- */

const struct job *coord_find(const struct coord *c, uint64_t id)
{
    return coord_find_job(c, id);
}

bool coord_ring(struct coord *c, struct members_ring *ret, char *why, size_t size)
{
    return job_ring_now(c->ring, NULL, ret, why, size);
}

const struct job *coord_first(const struct coord *c)
{
    return c->jobs;
}

static void on_plan(void *owner, const struct job *job, json_t *nodes)
{
    struct coord *c = owner;
    struct job_change *change = job->change;
    json_t *spec = results_stage_spec(c->setup.state_dir, job->id, change ? &change->asked : &job->asked);
    if (change)
        change->is_planned = true;
    json_object_set_new(spec, "changes", json_integer((json_int_t)job->changes));
    if (job->saved_step)
        json_object_set_new(spec, "goes_on", json_true());
    if (job_is_again(job))
        json_object_set_new(spec, "is_again", json_true());
    json_object_set_new(spec, "submitted", json_integer((json_int_t)job->created));
    json_object_set(spec, "said", job->said ? job->said : json_null()); /* ours to say, as what follows */
    json_t *so_far = job->token_log ? token_log_encode(job->token_log) : NULL;
    if (so_far && job->is_restored) /* nobody who follows it now has heard of them */
        json_object_set_new(so_far, "again", json_true());
    json_object_set_new(spec, "so_far", so_far ? so_far : json_null());
    json_object_set_new(spec, "log_from", json_integer((json_int_t)job->log_from));
    json_object_set_new(spec, "log_step", json_integer((json_int_t)job->log_step));
    if (job->is_spared)
        json_object_set_new(spec, "recompute", json_string("layer"));
    struct origin origin = job->origin;
    if (!origin.job) {
        origin.job = job->id;
        memcpy(origin.head, members_self(c->setup.members)->id, sizeof origin.head);
    }
    c->setup.plan(c->setup.owner, job->id, job->attempt, &origin, job->type, spec, nodes,
                  change ? change->loan : job->loan);
}

static const char *last_words(void *owner, const uint8_t id[16])
{
    const struct coord *c = owner;
    return c->setup.last_words(c->setup.owner, id);
}

static struct job_life *new_life(struct coord *c)
{
    return job_life_new(&(struct job_life_setup){.base = c->setup.base,
                                                 .opts = c->setup.opts,
                                                 .limits_ms = c->setup.limits.of_state_ms,
                                                 .cluster = c->setup.cluster,
                                                 .members = c->setup.members,
                                                 .metrics = c->setup.metrics,
                                                 .log = &c->log,
                                                 .post = &c->post,
                                                 .last_words = last_words,
                                                 .ring = coord_ring_for,
                                                 .plan = on_plan,
                                                 .idle = on_idle,
                                                 .takes_change = coord_takes_change,
                                                 .drops_change = coord_drops_change,
                                                 .runs = coord_runs,
                                                 .over = on_over,
                                                 .owner = c});
}

/* --- opening, closing ------------------------------------------------------------------------- */

static void on_published(void *owner, uint64_t job, const char *type)
{
    struct coord *c = owner;
    if (c->setup.published)
        c->setup.published(c->setup.owner, job, type);
    coord_hear_of_adapters(c, job, type);
    coord_hear_of_best(c, job, type);
}

static bool has_model(void *owner, const char *model, const struct members_ring *ring, char *why, size_t size)
{
    const struct coord *c = owner;
    return c->setup.has_model(c->setup.owner, model, ring, why, size);
}

struct coord *coord_new(const struct coord_setup *setup)
{
    struct coord *c = xcalloc(1, sizeof *c);
    c->setup = *setup;
    ledger_register(setup->ledger, &c->specs, "job_specs", SPECS_BYTES);
    ledger_register(setup->ledger, &c->tokens, "job_tokens", TOKENS_BYTES);
    c->setup.limits.settle_ms = setup->limits.settle_ms ? setup->limits.settle_ms : SETTLE_MS;
    c->setup.limits.retry_ms = setup->limits.retry_ms ? setup->limits.retry_ms : RETRY_MS;
    coord_open_deputies(c);
    c->log = (struct job_log){.events = setup->events,
                              .store = setup->store,
                              .dossiers = c->dossiers,
                              .published = on_published,
                              .owner = c};
    c->post = (struct job_post){setup->send, setup->holders, setup->owner};
    c->retry = timer_new(setup->base, coord_on_retry, c);
    c->settle = timer_new(setup->base, on_settle, c);
    c->ring = job_ring_new(&(struct job_ring_setup){.base = setup->base,
                                                    .cluster = setup->cluster,
                                                    .members = setup->members,
                                                    .stands = coord_on_ring,
                                                    .has_model = setup->has_model ? has_model : NULL,
                                                    .owner = c});
    for (size_t i = 0; i < COORD_LIVES; i++)
        c->lives[i] = new_life(c);
    coord_open_offers(c);
    coord_restore_all(c);
    return c;
}

void coord_end_streams(struct coord *c)
{
    for (struct job *job = c->jobs; job; job = job->next) {
        timelines_free(job->timelines);
        job->timelines = NULL;
    }
}

void coord_free(struct coord *c)
{
    if (!c)
        return;
    for (struct job *job = c->jobs, *next; job; job = next) {
        next = job->next;
        job_free(job);
    }
    timer_free(c->retry);
    timer_free(c->settle);
    job_ring_free(c->ring);
    for (size_t i = 0; i < COORD_LIVES; i++)
        job_life_free(c->lives[i]);
    coord_moved_free(c);
    coord_close_offers(c);
    coord_close_deputies(c);
    lent_look_free(c->look);
    free(c);
}
