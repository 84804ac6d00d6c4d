/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/coord.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_hear.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/ringd/job/job_ring.h"
#include "daemon/ringd/job/job_send.h"
#include "daemon/ringd/job/job_watch.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/job/timeline.h"
#include "daemon/ringd/job/timelines.h"
#include "daemon/ringd/job/worker.h"
#include "daemon/common/xalloc.h"

enum coord_limits {
    PLAN_S = 900,    /* a large data set is tokenized here */
    OPEN_S = 600,    /* a cold model is mapped, full fine-tuning reads all of it */
    CONNECT_S = 15,  /* handshakes between neighbours */
    STOP_S = 6,      /* a stage gets 2 s to end, then SIGKILL */
    SETTLE_S = 30,   /* how long a job waits for a ring to form */
    RETRY_MS = 300,  /* between the turns of heads that collided */
    KEEP_ENDED = 16, /* ended jobs kept in memory; the store has all */
};

struct coord {
    struct node *node;       /* borrowed: owner */
    struct job *jobs;        /* owned, newest first */
    struct job *active;      /* the one between PLANNING and its end, or NULL */
    struct event *deadline;  /* owned: of the active job's state */
    struct event *retry;     /* owned: a job that was refused because two heads collided waits */
    struct job_ring *ring;   /* owned: what order a job would get */
    struct event *settle;    /* owned: the first queued job has waited long enough for a ring */
    struct job_watch *watch; /* owned: the nodes of the active job, while they are needed */
};

static void try_start(struct coord *c);
static void give_way(struct coord *c);

/* --- telling the world ------------------------------------------------------------------------ */

static void set_state(struct coord *c, struct job *job, enum job_state state, unsigned deadline_s)
{
    job->state = state;
    if (job == c->active || !c->active) /* the deadline is the active job's */
        event_del(c->deadline);
    if (deadline_s) {
        struct timeval in = {deadline_s, 0};
        event_add(c->deadline, &in);
    }
    job_log_save(c->node, job);
    job_log_publish(c->node, job, "job", job_encode_short(job));
}

/* --- ending ----------------------------------------------------------------------------------- */

static void trim(struct coord *c)
{
    size_t ended = 0;
    for (struct job **at = &c->jobs; *at;) {
        struct job *job = *at;
        if (job_state_ended(job->state) && ++ended > KEEP_ENDED) {
            *at = job->next;
            job_free(job);
        } else {
            at = &job->next;
        }
    }
}

/* Two heads reached for the same nodes at once and refused each other. Both let go and try again,
 * in the order of their ids and far enough apart that the second sees what the first has begun. */
static void requeue(struct coord *c, struct job *job)
{
    const struct members *all = c->node->members;
    uint64_t wait_us = RETRY_MS * 1000;
    for (size_t i = 1; i < members_count(all); i++)
        if (memcmp(members_at(all, i)->id, members_at(all, 0)->id, 16) < 0)
            wait_us += RETRY_MS * 1000;
    struct timeval in = {(time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000)};
    job_reset(job);
    event_add(c->retry, &in);
    set_state(c, job, JOB_QUEUED, 0);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    try_start(arg);
}

static void end_timeline(struct coord *c, struct job *job)
{
    json_t *timeline = job->timeline ? timeline_encode(job->timeline, job->id, job->names) : NULL;
    if (timeline)
        job_log_remember(c->node, job, "timeline", timeline);
    const uint64_t dropped = job->timeline ? timeline_end(job->timeline) : 0;
    if (job->timelines)
        timelines_end(job->timelines, dropped);
}

static void finish(struct coord *c, struct job *job, enum job_state state)
{
    if (job == c->active) {
        c->active = NULL;
        event_del(c->settle);
    }
    if (state == JOB_QUEUED) {
        requeue(c, job);
        return;
    }
    job->ended = time(NULL);
    set_state(c, job, state, 0);
    metrics_job_ended(c->node->metrics, job_state_name(state));
    struct log_about about = {.id = state == JOB_FAILED ? LOG_ID_JOB_FAILED : NULL, .job = job->id};
    log_about(LOG_LEVEL_INFO, &about, "%s%s%s", job_state_name(state), *job->error ? ": " : "", job->error);
    job_log_publish(c->node, job, "end", job_encode(job));
    end_timeline(c, job);
    trim(c);
    try_start(c);
}

static void check_stopped(struct coord *c, struct job *job)
{
    for (size_t r = 0; r < job->ranks; r++)
        if (!job->stopped[r] && members_reachable(c->node->members, job->nodes[r]))
            return;
    finish(c, job, job->outcome);
}

/* The one way out of an active job: every node is told to stop, and the job ends when all have, or
 * after STOP_S. */
static void stop(struct coord *c, struct job *job, enum job_state outcome, const char *cause)
{
    bool stopping = job->state == JOB_STOPPING;
    job->is_idle = false;
    job_watch_end(c->watch);
    /* The first word counts; but a job that was to be tried again may be cancelled. */
    if (stopping && !(job->outcome == JOB_QUEUED && outcome == JOB_CANCELLED))
        return;
    job->outcome = outcome;
    if (outcome != JOB_DONE)
        snprintf(job->error, sizeof job->error, "%s", cause);
    if (stopping)
        return;
    set_state(c, job, JOB_STOPPING, STOP_S);
    for (size_t r = 1; r < job->ranks && !job->opened; r++)
        job->stopped[r] = true; /* never heard of it */
    if (outcome != JOB_DONE)    /* the stages of a job that is done end by themselves */
        job_send_stop(c->node, job);
    check_stopped(c, job);
}

static void fail(struct coord *c, struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(struct coord *c, struct job *job, const char *fmt, ...)
{
    char cause[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    stop(c, job, JOB_FAILED, cause);
}

static size_t first_without(const bool *have, size_t n)
{
    size_t i = 0;
    while (i < n && have[i])
        i++;
    return i;
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct coord *c = arg;
    struct job *job = c->active;
    (void)fd;
    (void)what;
    if (!job)
        return;
    if (job->state ==
        JOB_STOPPING) { /* a stage that should have ended by itself is told; its worker kills it */
        job_send_stop(c->node, job);
        finish(c, job, job->outcome);
        return;
    }
    size_t r = 0;
    if (job->state == JOB_RUNNING) {
        while (r + 1 < job->ranks && !job->stopped[r])
            r++;
        fail(c, job, "node %s: its stage process ended before the job did", job->names[r]);
        return;
    }
    if (job->state != JOB_PLANNING)
        r = first_without(job->state == JOB_OPENING ? job->ready : job->connected, job->ranks - 1);
    fail(c, job, "node %s: no answer within %d s while %s", job->names[r],
         job->state == JOB_PLANNING  ? PLAN_S
         : job->state == JOB_OPENING ? OPEN_S
                                     : CONNECT_S,
         job->state == JOB_PLANNING  ? "reading model and data"
         : job->state == JOB_OPENING ? "opening its layers"
                                     : "connecting to the next node");
}

/* --- starting --------------------------------------------------------------------------------- */

static void start(struct coord *c, struct job *job, const struct members_ring *ring)
{
    json_t *nodes = job_take_nodes(job, ring);
    c->active = job;
    job_watch_begin(c->watch, job);
    *job->error = 0;
    job->started = time(NULL);
    job->start.began = clock_now();
    event_del(c->settle);
    set_state(c, job, JOB_PLANNING, PLAN_S);
    worker_plan(c->node->worker, job->id, job->type,
                results_stage_spec(c->node->state_dir, job->id, job->spec), nodes);
}

static void on_ring(void *owner)
{
    try_start(owner);
}

static struct job *first_queued(struct coord *c)
{
    struct job *oldest = NULL;
    for (struct job *job = c->jobs; job; job = job->next)
        if (job->state == JOB_QUEUED)
            oldest = job;
    return oldest;
}

static void try_start(struct coord *c)
{
    struct job *job = c->active || event_pending(c->retry, EV_TIMEOUT, NULL) ? NULL : first_queued(c);
    if (!job)
        return;
    struct members_ring ring;
    char why[700];
    node_refresh_self(c->node);
    bool stands = job_ring_now(c->ring, &ring, why, sizeof why);
    if (!*why) {
        start(c, job, &ring);
        return;
    }
    if (!stands && !event_pending(c->settle, EV_TIMEOUT, NULL)) {
        struct timeval in = {SETTLE_S, 0};
        event_add(c->settle, &in);
    } else if (stands) {
        event_del(c->settle);
    }
    if (strcmp(job->error, why)) {
        snprintf(job->error, sizeof job->error, "%s", why);
        job_log_publish(c->node, job, "job", job_encode_short(job));
        if (stands)
            job_send_wanted(c->node, &ring);
    }
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
    struct coord *c = arg;
    struct job *job = c->active ? NULL : first_queued(c);
    (void)fd;
    (void)what;
    if (!job)
        return;
    char why[700];
    members_describe(c->node->members, why, sizeof why);
    snprintf(job->error, sizeof job->error, "no ring after %d s: %s (`ringctl links` shows the missing link)",
             SETTLE_S, why);
    finish(c, job, JOB_FAILED);
}

int coord_check_type(const char *type, struct err *err)
{
    if (strcmp(type, "train") && strcmp(type, "generate") && strcmp(type, "score"))
        return err_set(err, -EINVAL, "a job is of type train, generate or score, not \"%s\"", type);
    return 0;
}

int coord_submit(struct coord *c, const char *type, json_t *spec, uint64_t *ret_id, struct err *err)
{
    int r = coord_check_type(type, err);
    if (r) {
        json_decref(spec);
        return r;
    }
    if (json_is_true(json_object_get(spec, "dry_run"))) {
        json_decref(spec);
        return err_set(err, -EINVAL, "a plan is no job: POST /v1/plan answers with one");
    }
    struct job *job = job_new(store_next_job(c->node->store), type, spec);
    if (c->active)
        snprintf(job->error, sizeof job->error, "there are jobs before it");
    job->next = c->jobs;
    c->jobs = job;
    *ret_id = job->id;
    job_log_save(c->node, job);
    job_log_publish(c->node, job, "job", job_encode_short(job));
    try_start(c);
    give_way(c);
    return 0;
}

int coord_cancel(struct coord *c, uint64_t id)
{
    struct job *job = (struct job *)coord_find(c, id);
    if (!job)
        return -ENOENT;
    if (job_state_ended(job->state))
        return -EALREADY;
    if (job->state == JOB_STOPPING && job->outcome != JOB_QUEUED && job->outcome != JOB_CANCELLED)
        return -EBUSY;
    if (job == c->active) {
        stop(c, job, JOB_CANCELLED, ""); /* its state says it all */
    } else {
        snprintf(job->error, sizeof job->error, "it had not started yet");
        finish(c, job, JOB_CANCELLED);
    }
    return 0;
}

/* --- conversations ---------------------------------------------------------------------------- */

static void send_turn(struct coord *c, struct job *job, json_t *turn)
{
    job->is_idle = false;
    job->progressed = clock_now();
    if (peers_send(c->node->peers, job->nodes[0],
                   json_pack("{s:s s:I s:o*}", "kind", "job-turn", "job", (json_int_t)job->id, "turn", turn)))
        fail(c, job, "node %s cannot be reached", job->names[0]);
}

int coord_turn(struct coord *c, uint64_t id, json_t *turn)
{
    struct job *job = (struct job *)coord_find(c, id);
    int r = !job ? -ENOENT : job_state_ended(job->state) ? -EALREADY : !job->is_idle ? -EBUSY : 0;
    if (r)
        json_decref(turn);
    else
        send_turn(c, job, turn);
    return r;
}

/* A model that is only kept loaded gives way to work, of this node or another. */
static void give_way(struct coord *c)
{
    if (c->active && c->active->is_idle && (c->active->is_wanted || first_queued(c)))
        send_turn(c, c->active, NULL);
}

/* --- what the workers say --------------------------------------------------------------------- */

static void on_planned(struct coord *c, struct job *job, const json_t *body)
{
    job->plan = json_incref(json_object_get(body, "plan"));
    job_choose(job, (uint32_t)json_integer_value(json_object_get(body, "chosen")));
    if (json_is_true(json_object_get(body, "mirrored")))
        job_mirror(job);
    job_watch_begin(c->watch, job); /* whoever has no part in it may leave */
    job->steps = (uint64_t)json_integer_value(json_object_get(body, "steps"));
    job->opened = true;
    job_mark(job, &job->start.planned, clock_now());
    const char *schedule = json_string_value(json_object_get(job->plan, "schedule"));
    if (!strcmp(job->type, "train") && schedule && !job->timeline)
        job->timeline = timeline_new(
            &(struct timeline_job){.schedule = schedule,
                                   .order = json_string_value(json_object_get(job->plan, "order")),
                                   .ranks = job->ranks,
                                   .stages = json_array_size(json_object_get(job->plan, "places")),
                                   .areas = json_object_get(job->plan, "areas")});
    job_hear_plan(c->node, job);
    set_state(c, job, JOB_OPENING, OPEN_S);
    for (size_t r = 0; r < job->ranks; r++)
        job_send_open(c->node, job, r);
}

static void on_ready(struct coord *c, struct job *job, size_t rank, const json_t *body)
{
    struct err err;
    job->ready[rank] = true;
    if (job_opened_as_planned(job, rank, json_object_get(body, "layers"), &err)) {
        fail(c, job, "%s", err.text);
        return;
    }
    if (first_without(job->ready, job->ranks) < job->ranks)
        return;
    job_mark(job, &job->start.opened, clock_now());
    set_state(c, job, JOB_CONNECTING, CONNECT_S);
    job_send_all(c->node, job, "job-connect");
}

static void on_failed(struct coord *c, struct job *job, size_t rank, const json_t *body)
{
    const char *cause = json_string_value(json_object_get(body, "cause"));
    if (json_is_true(json_object_get(body, "busy")) && job->state == JOB_OPENING)
        stop(c, job, JOB_QUEUED, cause ? cause : "");
    else
        fail(c, job, "node %s: %s", job->names[rank], cause ? cause : "failed");
}

static void on_done(struct coord *c, struct job *job, size_t rank, const json_t *body)
{
    if (rank == 0 && job->state == JOB_RUNNING) {
        json_t *result = json_object_get(body, "result");
        json_decref(job->result);
        job->result = result && !json_is_null(result) ? json_incref(result) : NULL;
        stop(c, job, JOB_DONE, "");
    }
}

static void on_stopped(struct coord *c, struct job *job, size_t rank)
{
    job->stopped[rank] = true;
    if (job->state == JOB_STOPPING)
        check_stopped(c, job);
    else if (job->state == JOB_RUNNING) /* of a job that is done rank 0 says so in a moment */
        event_add(c->deadline, &(struct timeval){STOP_S, 0});
}

/* A large model that is read for the first time takes longer than planning and opening may, but
 * says how far it is. */
static void hear_reading(struct coord *c, const struct job *job, const json_t *body)
{
    const char *kind = json_string_value(json_object_get(json_object_get(body, "event"), "ev"));
    struct timeval in = {job->state == JOB_PLANNING ? PLAN_S : OPEN_S, 0};
    if (kind && !strcmp(kind, "reading") && (job->state == JOB_PLANNING || job->state == JOB_OPENING))
        event_add(c->deadline, &in);
}

void coord_message(struct coord *c, const uint8_t from[16], const char *kind, const json_t *body)
{
    struct job *job = c->active;
    size_t rank = (size_t)json_integer_value(json_object_get(body, "rank"));
    if (job && !strcmp(kind, "job-wanted")) {
        job->is_wanted = true;
        give_way(c);
        return;
    }
    if (!job || json_integer_value(json_object_get(body, "job")) != (json_int_t)job->id ||
        rank >= job->ranks || memcmp(job->nodes[rank], from, 16)) {
        if (!strcmp(kind, "job-ready") || !strcmp(kind, "job-connected"))
            job_send_away(c->node, from, body);
        return;
    }
    if (!strcmp(kind, "job-planned") && rank == 0 && job->state == JOB_PLANNING) {
        on_planned(c, job, body);
    } else if (!strcmp(kind, "job-ready") && job->state == JOB_OPENING) {
        on_ready(c, job, rank, body);
    } else if (!strcmp(kind, "job-connected") && job->state == JOB_CONNECTING) {
        job->connected[rank] = true;
        if (first_without(job->connected, job->ranks) == job->ranks) {
            set_state(c, job, JOB_RUNNING, 0);
            job_mark(job, &job->start.connected, clock_now());
            job->progressed = clock_now();
            job_send_all(c->node, job, "job-run");
        }
    } else if (!strcmp(kind, "job-event") && job_hear_answer(c->node, job, rank, body)) {
        give_way(c);
    } else if (!strcmp(kind, "job-event")) {
        job_hear_event(c->node, job, rank, body);
        hear_reading(c, job, body);
    } else if (!strcmp(kind, "job-relayed")) {
        job_hear_relayed(c->node, job, rank, body);
    } else if (!strcmp(kind, "job-failed")) {
        on_failed(c, job, rank, body);
    } else if (!strcmp(kind, "job-done")) {
        on_done(c, job, rank, body);
    } else if (!strcmp(kind, "job-stopped")) {
        on_stopped(c, job, rank);
    }
}

/* --- nodes out of reach ----------------------------------------------------------------------- */

/* What it was told in vain, or on a connection that broke under it. Whoever has heard it already
 * repeats its answer. */
static void remind(struct coord *c, struct job *job, size_t rank)
{
    if (job->state == JOB_OPENING)
        job_send_open(c->node, job, rank);
    else if (job->state == JOB_CONNECTING)
        job_send(c->node, job, rank, "job-connect");
    else if (job->state == JOB_RUNNING)
        job_send(c->node, job, rank, "job-run");
}

static void on_back(void *owner, size_t rank)
{
    struct coord *c = owner;
    remind(c, c->active, rank);
}

static void on_gone(void *owner, const char *cause)
{
    struct coord *c = owner;
    fail(c, c->active, "%s", cause);
}

static const struct job_watch_ops watch_ops = {on_back, on_gone};

void coord_changed(struct coord *c)
{
    job_ring_changed(c->ring);
    job_watch_look(c->watch);
    if (c->active && c->active->state == JOB_STOPPING)
        check_stopped(c, c->active);
    try_start(c);
}

/* --- looking up, opening, closing ------------------------------------------------------------- */

const struct job *coord_find(const struct coord *c, uint64_t id)
{
    for (const struct job *job = c->jobs; job; job = job->next)
        if (job->id == id)
            return job;
    return NULL;
}

bool coord_ring(struct coord *c, struct members_ring *ret, char *why, size_t size)
{
    return job_ring_now(c->ring, ret, why, size);
}

const struct job *coord_first(const struct coord *c)
{
    return c->jobs;
}

struct coord *coord_new(struct node *node)
{
    struct coord *c = xcalloc(1, sizeof *c);
    c->node = node;
    c->retry = event_new(node->base, -1, 0, on_retry, c);
    c->deadline = event_new(node->base, -1, 0, on_deadline, c);
    c->ring = job_ring_new(node, on_ring, c);
    c->settle = event_new(node->base, -1, 0, on_settle, c);
    c->watch = job_watch_new(node, &watch_ops, c);
    job_log_close_unfinished(node->store);
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
    event_free(c->retry);
    event_free(c->deadline);
    job_ring_free(c->ring);
    event_free(c->settle);
    job_watch_free(c->watch);
    free(c);
}
