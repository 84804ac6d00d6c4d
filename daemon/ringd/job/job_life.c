/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_life_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/job_hear.h"
#include "daemon/ringd/job/plan/shortage.h"
#include "daemon/ringd/job/survive/copies.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "engine/err.h"

enum { AGAIN_MS = 3000 /* until a message that was not answered is said again */ };

/* --- states ----------------------------------------------------------------------------------- */

static unsigned limit_ms(const struct job_life *l, enum job_state state)
{
    const unsigned own = l->setup.limits_ms ? l->setup.limits_ms[state] : 0;
    return own ? own : job_phase(state)->limit_ms;
}

void life_limit(struct job_life *l, unsigned ms)
{
    timer_set_ms(l->deadline, ms);
}

void life_enter(struct job_life *l, enum job_state state)
{
    const unsigned ms = limit_ms(l, state);
    l->job->state = state;
    timer_stop(l->deadline);
    timer_stop(l->again);
    timer_stop(l->settled);
    timer_stop(l->unasked);
    if (job_phase(state)->again != JOB_AGAIN_NOTHING)
        timer_set_ms(l->again, AGAIN_MS);
    if (ms)
        life_limit(l, ms);
    job_log_changed(l->setup.log, l->job);
}

static void leave(struct job_life *l)
{
    struct job *job = l->job;
    timer_stop(l->deadline);
    if (job->outcome == JOB_INTERRUPTED) {
        life_wait(l);
        return;
    }
    l->job = NULL;
    if (job->outcome != JOB_QUEUED)
        job_drop_turn(job);
    l->setup.over(l->setup.owner, job, job->outcome);
}

/* --- ending ----------------------------------------------------------------------------------- */

static void check_stopped(struct job_life *l)
{
    const struct job *job = l->job;
    const struct job_nodes *nodes = job_nodes(job);
    for (size_t r = 0; r < nodes->n; r++)
        if (!job->stopped[r] && members_reachable(l->setup.members, nodes->id[r]))
            return;
    leave(l);
}

static bool is_to_go_on(enum job_state outcome)
{
    return outcome == JOB_QUEUED || outcome == JOB_INTERRUPTED || outcome == JOB_PAUSED;
}

/* The one way out: every node is asked to stop, and the job ends when all have, or at the deadline
 * of STOPPING. */
void life_stop(struct job_life *l, enum job_state outcome, const char *cause)
{
    struct job *job = l->job;
    const bool stopping = job->state == JOB_STOPPING;
    job_commit_forget(l->commit);
    job_watch_end(l->watch);
    /* The first word counts; but a job that was to go on may be cancelled, or another node's. */
    if (stopping && !(is_to_go_on(job->outcome) && (outcome == JOB_CANCELLED || outcome == JOB_MOVED)))
        return;
    job->outcome = outcome;
    job->is_idle = job->is_idle && is_to_go_on(outcome);
    if (outcome != JOB_DONE)
        text_clean(job->error, sizeof job->error, cause, true);
    if (stopping)
        return;
    for (size_t r = 1; r < job_nodes(job)->n && !job->opened; r++)
        job->stopped[r] = true; /* never heard of it */
    life_enter(l, JOB_STOPPING);
    if (outcome != JOB_DONE && !job->has_left) /* then stages end by themselves, once copies are whole */
        job_send_stop(l->setup.post, job);
    check_stopped(l);
}

void life_fail(struct job_life *l, const char *fmt, ...)
{
    char cause[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    life_stop(l, JOB_FAILED, cause);
}

/* --- deadlines -------------------------------------------------------------------------------- */

static void end_late(struct job_life *l, const struct job_phase *phase)
{
    const struct job *job = l->job;
    char cause[200];
    snprintf(cause, sizeof cause, "node %s: no answer within %g s while %s",
             job_nodes(job)->name[job_first_waited(job, NULL)], limit_ms(l, job->state) / 1e3, phase->doing);
    if (phase->late == JOB_LATE_LOST)
        life_interrupt(l, "", cause);
    else if (!life_barred_newcomers(l, cause))
        life_stop(l, JOB_FAILED, cause);
}

static void on_deadline(void *owner)
{
    struct job_life *l = owner;
    struct job *job = l->job;
    const struct job_phase *phase = job_phase(job->state);
    switch (phase->late) {
    case JOB_LATE_NEVER: break;
    case JOB_LATE_FAILS:
    case JOB_LATE_LOST: end_late(l, phase); break;
    case JOB_LATE_ENDED: life_lose_stage(l, NULL); break;
    case JOB_LATE_FEWER:
        job->interruption.is_waited = true;
        life_look_on(l);
        break;
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
    struct placed_plan *plan;
    struct err err;
    if (rank != 0)
        return;
    if (placed_plan_read(&plan, body, job->type, &job->offered, &err)) {
        life_fail(l, "node %s: its stage process made a plan that ringd cannot use: %s",
                  job_nodes(job)->name[0], err.text);
        return;
    }
    job_set_plan(job, plan);
    job_watch_begin(l->watch, job); /* a node without a part in it may leave */
    job->opened = true;
    job->interruption.fitted = job->offered.n;
    job_mark(job, &job->start.planned, clock_now());
    job_hear_plan(l->setup.log, job);
    life_enter(l, JOB_OPENING);
    for (size_t r = 0; r < plan->nodes.n; r++)
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
    if (copies_hear(job->copies, (uint32_t)rank, json_object_get(body, "held"), &err)) {
        life_fail(l, "node %s: %s", job_nodes(job)->name[rank], err.text);
        return;
    }
    job_hear_lines(l->setup.log, l->setup.metrics, job, rank, json_object_get(body, "lines"));
    if (job_opened_as_planned(job, rank, json_object_get(body, "layers"), &err)) {
        life_fail(l, "%s", err.text);
        return;
    }
    job_first_waited(job, &left);
    if (left)
        return;
    job_mark(job, &job->start.opened, clock_now());
    life_enter(l, JOB_CONNECTING);
    job_send_all(l->setup.post, job, "job-connect");
}

static void send_turn(struct job_life *l)
{
    const struct job *job = l->job;
    const int r = job_send_turn(l->setup.post, job, json_incref(job->turn.words));
    if (r)
        life_fail(l, "node %s %s", job_nodes(job)->name[0], unsent_why(r));
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
    if (job->interruption.count)
        job_hear_start(l->setup.log, job);
    job->ran = *job_nodes(job);
    life_enter(l, JOB_RUNNING);
    if (job->change && job->change->is_planned)
        life_tell_change(l, NULL);
    job_mark(job, &job->start.connected, clock_now());
    job->progressed = job->began_running = clock_now();
    job->began_step = job->step;
    for (size_t r = 0; r < job_nodes(job)->n; r++)
        job_send_run(l->setup.post, job, r);
    l->setup.runs(l->setup.owner, job);
    if (job->turn.is_here) /* said while it was interrupted, or not yet read */
        send_turn(l);
    else if (job->is_idle)
        l->setup.idle(l->setup.owner);
    job_life_asked(l);
    life_look_whether_to_leave(l);
}

static void on_kept(const struct job_life *l)
{
    const struct job *job = l->job;
    if (kept_is_whole(&job->kept))
        log_job(LOG_LEVEL_DEBUG, job->id, "copies of step %llu are on the disks of all its nodes",
                (unsigned long long)job->kept.step);
    job_send_kept(l->setup.post, job);
}

/* A large model that is read for the first time takes longer than planning and opening may, but
 * says how far it is. */
static void on_event(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    const char *kind = json_string_value(json_object_get(json_object_get(body, "event"), "ev"));
    if (rank == 0 && kind && !strcmp(kind, "commit")) {
        if (job->state == JOB_RUNNING)
            job_commit_ask(l->commit, job,
                           json_integer_value(json_object_get(json_object_get(body, "event"), "number")));
        return;
    }
    if (kind && !strcmp(kind, "kept")) {
        if (job->state == JOB_RUNNING &&
            job_hear_kept(l->setup.log, job, rank, json_object_get(body, "event")))
            on_kept(l);
        return;
    }
    if (rank == 0 && kind && !strcmp(kind, "state-lost")) {
        job_hear_state_lost(l->setup.log, job, json_object_get(body, "event"));
        return;
    }
    if (job_hear_answer(l->setup.log, job, rank, body)) {
        l->setup.idle(l->setup.owner);
        return;
    }
    job_hear_event(l->setup.log, l->setup.metrics, job, rank, body);
    if (rank == 0 && kind && !strcmp(kind, "timeline") && job->state == JOB_RUNNING)
        life_look_at_pace(l);
    if (kind && (!strcmp(kind, "reading") || !strcmp(kind, "coming")) && job_phase(job->state)->extends)
        life_limit(l, limit_ms(l, job->state));
}

static void on_relayed(struct job_life *l, size_t rank, const json_t *body)
{
    job_hear_relayed(l->setup.log, l->job, rank, body);
}

/* Its plan found too little memory, and others hold some: it waits for them. */
static bool lacks_memory(const struct job_life *l, size_t rank, const json_t *body)
{
    const struct job *job = l->job;
    const char *at = json_string_value(json_object_get(body, "at"));
    const json_int_t lacks = json_integer_value(json_object_get(body, "lacks"));
    uint8_t id[16];
    return rank == 0 && job->state == JOB_PLANNING && lacks > 0 && at && !id_parse(id, at) &&
           shortage_note(job->shortage, id, (uint64_t)lacks);
}

static void wait_for_memory(struct job_life *l)
{
    char text[400];
    shortage_describe(l->job->shortage, text, sizeof text);
    life_stop(l, JOB_QUEUED, text);
}

static void on_failed(struct job_life *l, size_t rank, const json_t *body)
{
    const struct job *job = l->job;
    const char *cause = json_string_value(json_object_get(body, "cause"));
    const char *name = job_nodes(job)->name[rank];
    char text[700];
    snprintf(text, sizeof text, "node %s: %s", name, cause ? cause : "failed");
    if (json_is_true(json_object_get(body, "busy")) &&
        (job->state == JOB_OPENING || job->state == JOB_PLANNING))
        life_stop(l, JOB_QUEUED, cause ? cause : "");
    else if (!json_is_true(json_object_get(body, "lost")) && life_gave_up_change(l, text))
        return;
    else if (lacks_memory(l, rank, body))
        wait_for_memory(l);
    else if (json_is_true(json_object_get(body, "lost")))
        life_interrupt(l, json_is_true(json_object_get(body, "kept")) ? "" : name, text);
    else if (json_is_true(json_object_get(body, "starved")))
        life_starve(l, name, text);
    else if (!life_was_too_few(l, cause ? cause : "failed") && !life_barred_newcomers(l, text))
        life_stop(l, JOB_FAILED, text);
}

static void on_done(struct job_life *l, size_t rank, const json_t *body)
{
    json_t *result = json_object_get(body, "result");
    if (rank != 0)
        return;
    json_decref(l->job->result);
    l->job->result = result && !json_is_null(result) ? json_incref(result) : NULL;
    life_stop(l, JOB_DONE, "");
}

static void on_stopped(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    (void)body;
    job->stopped[rank] = true;
    if (job->state == JOB_STOPPING)
        check_stopped(l);
    else if (job_phase(job->state)->late == JOB_LATE_ENDED) {
        /* Of a job that is done, or leaves, rank 0 says so in a moment. Its node may go now. */
        job_watch_release(l->watch, rank);
        life_limit(l, limit_ms(l, JOB_STOPPING));
    } else /* this node was out of its reach for too long, though perhaps it was not out of ours */
        life_lose_stage(l, "");
}

bool job_life_has(const struct job_life *l, const uint8_t from[16], const json_t *body)
{
    const json_int_t rank = json_integer_value(json_object_get(body, "rank"));
    return l->job && json_integer_value(json_object_get(body, "job")) == (json_int_t)l->job->id &&
           json_integer_value(json_object_get(body, "attempt")) == l->job->attempt && rank >= 0 &&
           (size_t)rank < job_nodes(l->job)->n && !memcmp(job_nodes(l->job)->id[rank], from, 16);
}

void job_life_hear(struct job_life *l, size_t rank, enum job_word word, const json_t *body)
{
    static void (*const hear[JOB_WORDS])(struct job_life * l, size_t rank, const json_t *body) = {
        [JOB_WORD_PLANNED] = on_planned, [JOB_WORD_READY] = on_ready,     [JOB_WORD_CONNECTED] = on_connected,
        [JOB_WORD_EVENT] = on_event,     [JOB_WORD_RELAYED] = on_relayed, [JOB_WORD_FAILED] = on_failed,
        [JOB_WORD_DONE] = on_done,       [JOB_WORD_STOPPED] = on_stopped, [JOB_WORD_LEFT] = life_left};
    if (l->job && rank < job_nodes(l->job)->n && job_phase_hears(l->job->state, word))
        hear[word](l, rank, body);
}

/* --- what the head does ----------------------------------------------------------------------- */

void job_life_begin(struct job_life *l, struct job *job, const struct members_ring *ring)
{
    json_t *nodes;
    job_nodes_of_ring(&job->offered, ring, job->id, &nodes);
    shortage_free(job->shortage);
    job->shortage = shortage_new(&job->offered, ring, members_self(l->setup.members)->id, job->id);
    l->job = job;
    job_watch_begin(l->watch, job);
    *job->error = 0;
    if (!job->started)
        job->started = time(NULL);
    job->start.began = clock_now();
    slow_nodes_tell(&job->slow, &job->offered, nodes);
    life_enter(l, JOB_PLANNING);
    l->setup.plan(l->setup.owner, job, nodes);
}

int job_life_cancel(struct job_life *l)
{
    const struct job *job = l->job;
    if (job->state == JOB_STOPPING && !is_to_go_on(job->outcome) && job->outcome != JOB_CANCELLED)
        return -EBUSY;
    if (job->state == JOB_INTERRUPTED)
        job_send_over(l->setup.post, job);
    life_stop(l, JOB_CANCELLED, ""); /* its state says it all */
    return 0;
}

void job_life_turn(struct job_life *l, json_t *turn)
{
    struct job *job = l->job;
    job_hold_turn(job, turn);
    job->progressed = clock_now();
    if (job->state == JOB_RUNNING)
        send_turn(l);
    else if (job->state == JOB_INTERRUPTED && life_is_over(job)) {
        job->outcome = JOB_DONE;
        leave(l);
    }
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
    case JOB_AGAIN_RUN: job_send_run(l->setup.post, l->job, rank); break;
    }
}

/* A connection may have swallowed the message, or the answer, though another way leads to the node:
 * nobody was out of reach then. */
static void on_again(void *owner)
{
    struct job_life *l = owner;
    const struct job *job = l->job;
    const struct job_nodes *nodes = job_nodes(job);
    if (job->start.first_result > 0) /* then all of them run */
        return;
    for (size_t r = 1; r < nodes->n; r++)
        if ((job->state == JOB_RUNNING || !job_has_answered(job, r)) &&
            members_reachable(l->setup.members, nodes->id[r]))
            on_back(l, r);
    timer_set_ms(l->again, AGAIN_MS);
}

static void on_gone(void *owner, const char *cause)
{
    life_interrupt(owner, "", cause);
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
    else if (l->job && l->job->state == JOB_INTERRUPTED)
        life_look_on(l);
    else if (l->job && l->job->state == JOB_RUNNING)
        life_look_whether_to_leave(l);
}

void job_life_asked(struct job_life *l)
{
    const struct job *job = l->job;
    timer_stop(l->unasked);
    if (job->state == JOB_RUNNING && job->asked.unload_after && !job->has_asks)
        timer_set_ms(l->unasked, (uint64_t)job->asked.unload_after * 1000);
}

static void on_settled(void *owner)
{
    job_life_changed(owner);
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
    l->commit = job_commit_new(setup->log->store, setup->post);
    l->again = timer_new(setup->base, on_again, l);
    l->settled = timer_new(setup->base, on_settled, l);
    l->unasked = timer_new(setup->base, life_rest, l);
    l->watch = job_watch_new(&(struct job_watch_setup){.base = setup->base,
                                                       .opts = setup->opts,
                                                       .cluster = setup->cluster,
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
    job_commit_free(l->commit);
    timer_free(l->again);
    timer_free(l->settled);
    timer_free(l->unasked);
    job_watch_free(l->watch);
    free(l);
}
