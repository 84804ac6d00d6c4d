/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_life.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_hear.h"
#include "daemon/ringd/job/job_watch.h"
#include "daemon/ringd/job/timeline.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "engine/err.h"

struct job_life {
    struct job_life_setup setup;
    struct job *job;         /* borrowed: coord's; NULL: none */
    struct timer *deadline;  /* owned: of its state */
    struct job_watch *watch; /* owned: its nodes, while they are needed */
};

/* --- states ----------------------------------------------------------------------------------- */

static unsigned limit_ms(const struct job_life *l, enum job_state state)
{
    const unsigned own = l->setup.limits_ms ? l->setup.limits_ms[state] : 0;
    return own ? own : job_phase(state)->limit_ms;
}

static void limit_to(struct job_life *l, unsigned ms)
{
    timer_set_ms(l->deadline, ms);
}

static void enter(struct job_life *l, enum job_state state)
{
    const unsigned ms = limit_ms(l, state);
    l->job->state = state;
    timer_stop(l->deadline);
    if (ms)
        limit_to(l, ms);
    job_log_changed(l->setup.log, l->job);
}

static void leave(struct job_life *l)
{
    struct job *job = l->job;
    timer_stop(l->deadline);
    l->job = NULL;
    l->setup.over(l->setup.owner, job, job->outcome);
}

/* --- ending ----------------------------------------------------------------------------------- */

static void check_stopped(struct job_life *l)
{
    const struct job *job = l->job;
    for (size_t r = 0; r < job->ranks; r++)
        if (!job->stopped[r] && members_reachable(l->setup.members, job->nodes[r]))
            return;
    leave(l);
}

/* The one way out: every node is asked to stop, and the job ends when all have, or at the deadline
 * of STOPPING. */
static void stop(struct job_life *l, enum job_state outcome, const char *cause)
{
    struct job *job = l->job;
    const bool stopping = job->state == JOB_STOPPING;
    job->is_idle = false;
    job_watch_end(l->watch);
    /* The first word counts; but a job that was to be tried again may be cancelled. */
    if (stopping && !(job->outcome == JOB_QUEUED && outcome == JOB_CANCELLED))
        return;
    job->outcome = outcome;
    if (outcome != JOB_DONE)
        text_clean(job->error, sizeof job->error, cause, true);
    if (stopping)
        return;
    for (size_t r = 1; r < job->ranks && !job->opened; r++)
        job->stopped[r] = true; /* never heard of it */
    enter(l, JOB_STOPPING);
    if (outcome != JOB_DONE) /* the stages of a job that is done end by themselves */
        job_send_stop(l->setup.post, job);
    check_stopped(l);
}

static void fail(struct job_life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct job_life *l, const char *fmt, ...)
{
    char cause[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    stop(l, JOB_FAILED, cause);
}

static void fail_ended(struct job_life *l)
{
    const struct job *job = l->job;
    size_t r = 0;
    while (r + 1 < job->ranks && !job->stopped[r])
        r++;
    fail(l, "node %s: its stage process ended before the job did", job->names[r]);
}

static void on_deadline(void *owner)
{
    struct job_life *l = owner;
    struct job *job = l->job;
    const struct job_phase *phase = job_phase(job->state);
    switch (phase->late) {
    case JOB_LATE_NEVER: break;
    case JOB_LATE_FAILS:
        fail(l, "node %s: no answer within %g s while %s", job->names[job_first_waited(job, NULL)],
             limit_ms(l, job->state) / 1e3, phase->doing);
        break;
    case JOB_LATE_ENDED: fail_ended(l); break;
    case JOB_LATE_GONE: /* it should have ended by itself; its worker kills it now */
        job_send_stop(l->setup.post, job);
        leave(l);
        break;
    }
}

/* --- what ranks say --------------------------------------------------------------------------- */

static void on_planned(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    if (rank != 0)
        return;
    job->plan = json_incref(json_object_get(body, "plan"));
    job_choose(job, (uint32_t)json_integer_value(json_object_get(body, "chosen")));
    if (json_is_true(json_object_get(body, "mirrored")))
        job_mirror(job);
    job_watch_begin(l->watch, job); /* a node without a part in it may leave */
    job->steps = (uint64_t)json_integer_value(json_object_get(body, "steps"));
    job->opened = true;
    job_mark(job, &job->start.planned, clock_now());
    const char *schedule = json_string_value(json_object_get(job->plan, "schedule"));
    if (job->type == JOB_TRAIN && schedule && !job->timeline)
        job->timeline = timeline_new(
            &(struct timeline_job){.schedule = schedule,
                                   .order = json_string_value(json_object_get(job->plan, "order")),
                                   .ranks = job->ranks,
                                   .stages = json_array_size(json_object_get(job->plan, "places")),
                                   .activations = json_object_get(job->plan, "activations")});
    job_hear_plan(l->setup.log, job);
    enter(l, JOB_OPENING);
    for (size_t r = 0; r < job->ranks; r++)
        job_send_open(l->setup.post, job, r);
}

/* Of a job that stops: the rank was out of reach when it was told to, or the word that it had
 * stopped was of an attempt before this one. It would keep its lease, and refuse all other jobs. */
static bool stop_again(struct job_life *l, size_t rank)
{
    struct job *job = l->job;
    if (job->state != JOB_STOPPING)
        return false;
    job->stopped[rank] = false;
    job_send_stop(l->setup.post, job);
    return true;
}

static void on_ready(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    struct err err;
    size_t left;
    if (stop_again(l, rank))
        return;
    job->ready[rank] = true;
    if (job_opened_as_planned(job, rank, json_object_get(body, "layers"), &err)) {
        fail(l, "%s", err.text);
        return;
    }
    job_first_waited(job, &left);
    if (left)
        return;
    job_mark(job, &job->start.opened, clock_now());
    enter(l, JOB_CONNECTING);
    job_send_all(l->setup.post, job, "job-connect");
}

static void on_connected(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    size_t left;
    (void)body;
    if (stop_again(l, rank))
        return;
    job->connected[rank] = true;
    job_first_waited(job, &left);
    if (left)
        return;
    enter(l, JOB_RUNNING);
    job_mark(job, &job->start.connected, clock_now());
    job->progressed = clock_now();
    job_send_all(l->setup.post, job, "job-run");
}

/* A large model that is read for the first time takes longer than planning and opening may, but
 * says how far it is. */
static void on_event(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    const char *kind = json_string_value(json_object_get(json_object_get(body, "event"), "ev"));
    if (job_hear_answer(l->setup.log, job, rank, body)) {
        l->setup.idle(l->setup.owner);
        return;
    }
    job_hear_event(l->setup.log, l->setup.metrics, job, rank, body);
    if (kind && !strcmp(kind, "reading") && job_phase(job->state)->extends)
        limit_to(l, limit_ms(l, job->state));
}

static void on_relayed(struct job_life *l, size_t rank, const json_t *body)
{
    job_hear_relayed(l->setup.log, l->job, rank, body);
}

static void on_failed(struct job_life *l, size_t rank, const json_t *body)
{
    const struct job *job = l->job;
    const char *cause = json_string_value(json_object_get(body, "cause"));
    if (json_is_true(json_object_get(body, "busy")) && job->state == JOB_OPENING)
        stop(l, JOB_QUEUED, cause ? cause : "");
    else
        fail(l, "node %s: %s", job->names[rank], cause ? cause : "failed");
}

static void on_done(struct job_life *l, size_t rank, const json_t *body)
{
    json_t *result = json_object_get(body, "result");
    if (rank != 0)
        return;
    json_decref(l->job->result);
    l->job->result = result && !json_is_null(result) ? json_incref(result) : NULL;
    stop(l, JOB_DONE, "");
}

static void on_stopped(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    (void)body;
    job->stopped[rank] = true;
    if (job->state == JOB_STOPPING)
        check_stopped(l);
    else if (job_phase(job->state)->late ==
             JOB_LATE_ENDED) /* of a job that is done rank 0 says so in a moment */
        limit_to(l, limit_ms(l, JOB_STOPPING));
}

bool job_life_has(const struct job_life *l, const uint8_t from[16], json_int_t job, json_int_t rank)
{
    return l->job && job == (json_int_t)l->job->id && rank >= 0 && (size_t)rank < l->job->ranks &&
           !memcmp(l->job->nodes[rank], from, 16);
}

void job_life_hear(struct job_life *l, size_t rank, enum job_word word, const json_t *body)
{
    static void (*const hear[JOB_WORDS])(struct job_life * l, size_t rank, const json_t *body) = {
        [JOB_WORD_PLANNED] = on_planned, [JOB_WORD_READY] = on_ready,     [JOB_WORD_CONNECTED] = on_connected,
        [JOB_WORD_EVENT] = on_event,     [JOB_WORD_RELAYED] = on_relayed, [JOB_WORD_FAILED] = on_failed,
        [JOB_WORD_DONE] = on_done,       [JOB_WORD_STOPPED] = on_stopped};
    if (l->job && rank < l->job->ranks && job_phase_hears(l->job->state, word))
        hear[word](l, rank, body);
}

/* --- what the head does ----------------------------------------------------------------------- */

void job_life_begin(struct job_life *l, struct job *job, const struct members_ring *ring)
{
    json_t *nodes = job_take_nodes(job, ring);
    l->job = job;
    job_watch_begin(l->watch, job);
    *job->error = 0;
    job->started = time(NULL);
    job->start.began = clock_now();
    enter(l, JOB_PLANNING);
    l->setup.plan(l->setup.owner, job, nodes);
}

int job_life_cancel(struct job_life *l)
{
    const struct job *job = l->job;
    if (job->state == JOB_STOPPING && job->outcome != JOB_QUEUED && job->outcome != JOB_CANCELLED)
        return -EBUSY;
    stop(l, JOB_CANCELLED, ""); /* its state says it all */
    return 0;
}

void job_life_turn(struct job_life *l, json_t *turn)
{
    struct job *job = l->job;
    job->is_idle = false;
    job->progressed = clock_now();
    if (job_send_turn(l->setup.post, job, turn))
        fail(l, "node %s cannot be reached", job->names[0]);
}

/* --- nodes out of reach ----------------------------------------------------------------------- */

/* The last message may be lost with the connection that broke. A rank that has it already repeats
 * its answer. */
static void on_back(void *owner, size_t rank)
{
    struct job_life *l = owner;
    switch (job_phase(l->job->state)->again) {
    case JOB_AGAIN_NOTHING: break;
    case JOB_AGAIN_OPEN: job_send_open(l->setup.post, l->job, rank); break;
    case JOB_AGAIN_CONNECT: job_send(l->setup.post, l->job, rank, "job-connect"); break;
    case JOB_AGAIN_RUN: job_send(l->setup.post, l->job, rank, "job-run"); break;
    }
}

static void on_gone(void *owner, const char *cause)
{
    fail(owner, "%s", cause);
}

static const char *words_of(void *owner, const uint8_t id[16])
{
    const struct job_life *l = owner;
    return l->setup.last_words(l->setup.owner, id);
}

void job_life_changed(struct job_life *l)
{
    job_watch_look(l->watch);
    if (l->job && l->job->state == JOB_STOPPING)
        check_stopped(l);
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct job *job_life_job(const struct job_life *l)
{
    return l->job;
}

struct job_life *job_life_new(const struct job_life_setup *setup)
{
    struct job_life *l = xcalloc(1, sizeof *l);
    l->setup = *setup;
    l->deadline = timer_new(setup->base, on_deadline, l);
    l->watch = job_watch_new(&(struct job_watch_setup){.base = setup->base,
                                                       .opts = setup->opts,
                                                       .members = setup->members,
                                                       .last_words = words_of,
                                                       .log = setup->log,
                                                       .back = on_back,
                                                       .gone = on_gone,
                                                       .owner = l});
    return l;
}

void job_life_free(struct job_life *l)
{
    if (!l)
        return;
    timer_free(l->deadline);
    job_watch_free(l->watch);
    free(l);
}
