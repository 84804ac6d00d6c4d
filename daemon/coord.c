/* SPDX-License-Identifier: MIT */
#include "daemon/coord.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/identity.h"
#include "daemon/job.h"
#include "daemon/job_hear.h"
#include "daemon/job_log.h"
#include "daemon/job_ring.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/node.h"
#include "daemon/peers.h"
#include "daemon/store.h"
#include "daemon/timeline.h"
#include "daemon/worker.h"
#include "daemon/xalloc.h"

enum coord_limits {
    PLAN_S = 900,    /* a large data set is tokenized here */
    OPEN_S = 600,    /* a cold model is mapped, full fine-tuning reads all of it */
    CONNECT_S = 15,  /* handshakes between neighbours */
    STOP_S = 6,      /* a stage gets 2 s to end, then SIGKILL */
    SETTLE_S = 30,   /* how long a job waits for a ring to form */
    RETRY_MS = 300,  /* between the turns of heads that collided */
    KEEP_ENDED = 50, /* ended jobs kept in memory; the store has all */
};

struct coord {
    struct node *node;      /* borrowed: owner */
    struct job *jobs;       /* owned, newest first */
    struct job *active;     /* the one between PLANNING and its end, or NULL */
    struct event *deadline; /* owned: of the active job's state */
    struct event *retry;    /* owned: a job that was refused because two heads collided waits */
    struct job_ring *ring;  /* owned: what order a job would get */
    struct event *settle;   /* owned: the first queued job has waited long enough for a ring */
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

/* Two heads reached for the same nodes at once and refused each other. Both let go and try again, in the order of their
 * ids and far enough apart that the second sees what the first has begun. */
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
    json_t *timeline = job->timeline ? timeline_encode(job->timeline, job->id, job->names) : NULL;
    if (timeline)
        job_log_remember(c->node, job, "timeline", timeline);
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

static void send_stop(struct coord *c, struct job *job)
{
    for (size_t r = 0; r < job->ranks; r++)
        if (!job->stopped[r])
            peers_send(c->node->peers, job->nodes[r],
                       json_pack("{s:s s:I s:I s:s}", "kind", "job-stop", "job", (json_int_t)job->id, "rank",
                                 (json_int_t)r, "cause", job->error));
}

/* The one way out of an active job: every node is told to stop, and the job ends when all have, or after
 * STOP_S. */
static void stop(struct coord *c, struct job *job, enum job_state outcome, const char *cause)
{
    bool stopping = job->state == JOB_STOPPING;
    job->is_idle = false;
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
        send_stop(c, job);
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
        send_stop(c, job);
        finish(c, job, job->outcome);
        return;
    }
    const bool *have = job->state == JOB_OPENING ? job->ready : job->connected;
    size_t r = 0;
    while (job->state != JOB_PLANNING && r + 1 < job->ranks && have[r])
        r++;
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
    *job->error = 0;
    job->started = time(NULL);
    job->start.began = clock_now();
    event_del(c->settle);
    set_state(c, job, JOB_PLANNING, PLAN_S);
    char rescue[3200];
    snprintf(rescue, sizeof rescue, "%s/result-%llu", c->node->state_dir, (unsigned long long)job->id);
    json_t *spec = json_deep_copy(job->spec);
    json_object_set_new(spec, "rescue_dir", json_string(rescue));
    worker_plan(c->node->worker, job->id, job->type, spec, nodes);
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

/* One of them may be the head of a model that is only kept loaded. */
static void ask_for_way(struct coord *c, const struct members_ring *ring)
{
    for (size_t r = 1; r < ring->n; r++)
        peers_send(c->node->peers, ring->at[r]->id, json_pack("{s:s}", "kind", "job-wanted"));
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
            ask_for_way(c, &ring);
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
    snprintf(job->error, sizeof job->error, "no ring after %d s: %s (`ringctl links` tells what is missing)",
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

static void send_all(struct coord *c, struct job *job, const char *kind)
{
    for (size_t r = 0; r < job->ranks; r++)
        if (peers_send(c->node->peers, job->nodes[r],
                       json_pack("{s:s s:I}", "kind", kind, "job", (json_int_t)job->id)))
            log_job(LOG_LEVEL_DEBUG, job->id, "%s cannot be told %s", job->names[r], kind);
}

static void on_planned(struct coord *c, struct job *job, const json_t *body)
{
    job->plan = json_incref(json_object_get(body, "plan"));
    if (json_is_true(json_object_get(body, "mirrored")))
        job_mirror(job);
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
    for (size_t r = 0; r < job->ranks; r++) {
        json_t *nodes = json_array();
        for (size_t i = 0; i < job->ranks; i++) {
            char hex[33];
            id_hex(hex, job->nodes[i]);
            json_array_append_new(nodes, json_string(hex));
        }
        json_t *open = json_pack("{s:s s:I s:I s:O s:o}", "kind", "job-open", "job", (json_int_t)job->id,
                                 "rank", (json_int_t)r, "plan", job->plan, "nodes", nodes);
        if (peers_send(c->node->peers, job->nodes[r], open)) {
            fail(c, job, "node %s cannot be reached", job->names[r]);
            return;
        }
    }
}

static bool all(const bool *have, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!have[i])
            return false;
    return true;
}

static void on_ready(struct coord *c, struct job *job, size_t rank, const json_t *body)
{
    struct err err;
    job->ready[rank] = true;
    if (job_opened_as_planned(job, rank, json_object_get(body, "layers"), &err)) {
        fail(c, job, "%s", err.text);
        return;
    }
    if (!all(job->ready, job->ranks))
        return;
    job_mark(job, &job->start.opened, clock_now());
    set_state(c, job, JOB_CONNECTING, CONNECT_S);
    send_all(c, job, "job-connect");
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
        rank >= job->ranks || memcmp(job->nodes[rank], from, 16))
        return;
    if (!strcmp(kind, "job-planned") && job->state == JOB_PLANNING) {
        on_planned(c, job, body);
    } else if (!strcmp(kind, "job-ready") && job->state == JOB_OPENING) {
        on_ready(c, job, rank, body);
    } else if (!strcmp(kind, "job-connected") && job->state == JOB_CONNECTING) {
        job->connected[rank] = true;
        if (all(job->connected, job->ranks)) {
            set_state(c, job, JOB_RUNNING, 0);
            job_mark(job, &job->start.connected, clock_now());
            job->progressed = clock_now();
            send_all(c, job, "job-run");
        }
    } else if (!strcmp(kind, "job-event") && job_hear_answer(c->node, job, rank, body)) {
        give_way(c);
    } else if (!strcmp(kind, "job-event")) {
        job_hear_event(c->node, job, rank, body);
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

void coord_changed(struct coord *c)
{
    struct job *job = c->active;
    job_ring_changed(c->ring);
    for (size_t r = 1; job && job->state != JOB_STOPPING && r < job->ranks; r++)
        if (!members_reachable(c->node->members, job->nodes[r])) {
            const struct member *first = members_cut_off(c->node->members);
            const size_t gone = first ? job_rank_of(job, first->id) : job->ranks,
                         who = gone < job->ranks ? gone : r;
            const char *words = peers_last_words(c->node->peers, job->nodes[who]);
            fail(c, job, "node %s is gone%s%s", job->names[who], *words ? ": " : "", words);
            break;
        }
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
    job_log_close_unfinished(node->store);
    return c;
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
    free(c);
}
