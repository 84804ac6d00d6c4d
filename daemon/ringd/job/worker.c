/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/worker_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/cgroup.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/cost_query.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

enum {
    RETURN_US = 2000000, /* from the plug to a data connection, at most: no part of the outage */
    LATE_US = 500000     /* our own lateness from which on the time does not count */
};

/* --- telling the head ------------------------------------------------------------------------- */

/* What the head waits for. An outage may swallow it, so it is told again when the head is back;
 * heard twice it does no harm. */
static bool is_report(const char *kind)
{
    return !strcmp(kind, "job-ready") || !strcmp(kind, "job-connected") || !strcmp(kind, "job-failed") ||
           !strcmp(kind, "job-stopped");
}

void worker_tell(struct worker *w, const char *kind, json_t *fields)
{
    json_object_set_new(fields, "kind", json_string(kind));
    json_object_set_new(fields, "job", json_integer((json_int_t)w->job));
    json_object_set_new(fields, "rank", json_integer(w->rank));
    if (is_report(kind))
        json_array_append_new(w->reports, json_deep_copy(fields));
    if (peers_send(w->setup.peers, w->head, fields) == -EHOSTUNREACH)
        log_stage(LOG_LEVEL_DEBUG, w->job, w->rank, "the message %s cannot be sent to the head", kind);
}

static void tell_again(struct worker *w)
{
    size_t i;
    json_t *report;
    json_array_foreach (w->reports, i, report)
        peers_send(w->setup.peers, w->head, json_deep_copy(report));
}

/* A job begins here: of what was said before nothing counts. */
static void begin(struct worker *w, const uint8_t head[16], uint64_t job)
{
    memcpy(w->head, head, 16);
    w->job = job;
    w->is_connecting = false;
    json_array_clear(w->reports);
    absence_watch(&w->absent, w->setup.members, (const uint8_t(*)[16])w->head, 1);
}

static void tell_failed(struct worker *w, const char *cause)
{
    if (w->reported)
        return;
    w->reported = true;
    struct log_about about = {.id = LOG_ID_STAGE_FAILED, .job = w->job, .stage = w->rank + 1};
    log_about(LOG_LEVEL_WARNING, &about, "the stage on this node fails: %s", cause);
    worker_tell(w, "job-failed", json_pack("{s:s}", "cause", cause));
}

/* --- the stage process ------------------------------------------------------------------------ */

static void stop_dialing(struct worker *w)
{
    for (size_t i = 0; i < 2; i++)
        lanes_stop(w->lanes[i]);
    timer_stop(w->patience);
}

static void end_stage(struct worker *w)
{
    if (w->state == WORKER_IDLE)
        return;
    w->state = WORKER_ENDING;
    stop_dialing(w);
    if (w->stage)
        spawn_end(w->stage);
    else
        timer_set_us(w->release, 0);
}

static void add_stage(const struct spawn *stage, struct worker_totals *to)
{
    if (!stage)
        return;
    const struct progress *p = spawn_progress(stage);
    to->busy_seconds += (double)atomic_load_explicit(&p->busy_us, memory_order_relaxed) / 1e6;
    to->wait_seconds += (double)atomic_load_explicit(&p->wait_us, memory_order_relaxed) / 1e6;
    to->tx_bytes += atomic_load_explicit(&p->tx_bytes, memory_order_relaxed);
    to->rx_bytes += atomic_load_explicit(&p->rx_bytes, memory_order_relaxed);
}

bool worker_is_idle(const struct worker *w)
{
    return w->state == WORKER_IDLE;
}

void worker_totals(const struct worker *w, struct worker_totals *ret)
{
    *ret = w->past;
    ret->running = w->stage != NULL;
    ret->memory_bytes = spawner_lingering(w->setup.spawner) + (w->stage ? spawn_memory(w->stage) : 0);
    ret->planned_bytes = w->stage ? w->planned_bytes : 0;
    add_stage(w->stage, ret);
}

json_t *worker_lanes(const struct worker *w)
{
    return lane_counts_encode(w->counts, w->stage ? spawn_progress(w->stage) : NULL);
}

/* After the process is gone, or was given up: the lease is free again. */
static void on_release(void *owner)
{
    struct worker *w = owner;
    add_stage(w->stage, &w->past);
    if (w->stage)
        lane_counts_keep(w->counts, spawn_progress(w->stage));
    cost_query_forget(w->setup.cost_query, w->stage);
    spawn_free(w->stage);
    w->stage = NULL;
    w->state = WORKER_IDLE;
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "the stage on this node has ended");
    worker_tell(w, "job-stopped", json_object());
    peers_flood_self(w->setup.peers);
    w->setup.changed(w->setup.owner);
}

void worker_wait(struct worker *w, uint64_t us)
{
    w->patience_due.us = clock_now().us + us;
    timer_set_us(w->patience, us);
}

/* A data connection broke under a running job. The end that made it makes another, over whatever
 * path there is; with none left, both ends wait for as long as a silent node is given. If the cause
 * was the other node's end, its daemon or its absence says so before. */
static void lane_lost(struct worker *w, uint32_t rank, uint64_t path, const char *why)
{
    const long long seconds = opts_int(w->setup.opts, "dead-after");
    if (w->state != WORKER_RUNNING || rank >= w->ranks || !w->alive[rank])
        return;
    w->alive[rank]--;
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "a data connection to rank %u broke, %u left: %s", rank,
              w->alive[rank], why);
    if (!w->alive[rank] && !timer_is_pending(w->patience)) {
        snprintf(w->why_lost, sizeof w->why_lost, "no data connection to rank %u for %lld s: %s", rank,
                 seconds, why);
        worker_wait(w, (uint64_t)seconds * 1000000 + RETURN_US);
    }
    for (size_t i = 0; i < 2; i++)
        lanes_lost(w->lanes[i], path);
}

static void on_patience(void *owner)
{
    struct worker *w = owner;
    if (clock_since_us(clock_now(), w->patience_due) > LATE_US) { /* it was we who stood still */
        worker_wait(w, RETURN_US);
        return;
    }
    tell_failed(w, w->why_lost);
    end_stage(w);
}

static void stage_event(void *owner, const char *kind, json_t *event)
{
    struct worker *w = owner;
    if (w->state == WORKER_ENDING)
        return;
    if (!strcmp(kind, "planned")) {
        worker_tell(w, "job-planned", json_deep_copy(event));
    } else if (!strcmp(kind, "survey")) {
        cost_query_ask(w->setup.cost_query, w->stage, event);
    } else if (!strcmp(kind, "ready")) {
        w->state = WORKER_READY;
        worker_tell(w, "job-ready", json_deep_copy(event));
    } else if (!strcmp(kind, "done")) {
        w->reported = true;
        worker_tell(w, "job-done", json_deep_copy(event));
    } else if (!strcmp(kind, "failed")) {
        tell_failed(w, json_string_value(json_object_get(event, "error")));
    } else if (!strcmp(kind, "reading")) {
        w->read_bytes = (uint64_t)json_integer_value(json_object_get(event, "done"));
        w->read_total = (uint64_t)json_integer_value(json_object_get(event, "total"));
        worker_tell(w, "job-event", json_pack("{s:O}", "event", event));
    } else if (!strcmp(kind, "lane-lost")) {
        const char *why = json_string_value(json_object_get(event, "why"));
        lane_lost(w, (uint32_t)json_integer_value(json_object_get(event, "rank")),
                  (uint64_t)json_integer_value(json_object_get(event, "path")), why ? why : "");
    } else if (!strcmp(kind, "timeline")) {
        /* its times are of this node's clock: with them goes what is known here of the other
         * nodes' */
        json_t *told = json_copy(event);
        json_object_set_new(told, "clocks", peers_clocks(w->setup.peers, w->nodes, w->ranks));
        worker_tell(w, "job-event", json_pack("{s:o}", "event", told));
    } else {
        worker_tell(w, "job-event", json_pack("{s:O}", "event", event));
    }
}

static void stage_ended(void *owner, const char *text)
{
    struct worker *w = owner;
    char cause[700];
    if (w->state != WORKER_ENDING) {
        cgroup_why_ended(cause, sizeof cause, spawn_group(w->stage), w->planned_bytes, spawn_peak(w->stage),
                         text);
        tell_failed(w, cause);
    }
    w->state = WORKER_ENDING;
    stop_dialing(w);
    timer_set_us(w->release, 0);
}

/* Its own group, limited once there is a plan. Without one it runs all the same. */
static void confine(struct worker *w)
{
    int r = spawn_confine(w->stage, w->job);
    if (r)
        log_stage(LOG_LEVEL_DEBUG, w->job, w->rank, "stage cgroup unavailable, no memory limit: %s",
                  strerror(-r));
}

static const struct spawn_ops spawn_ops = {stage_event, stage_ended};

static int start_stage(struct worker *w)
{
    struct err err;
    w->reported = false;
    w->read_bytes = w->read_total = 0;
    w->setup.stage_begins(w->setup.owner);
    memset(w->alive, 0, sizeof w->alive);
    int r = spawn_start(&w->stage, w->setup.spawner, 0, &spawn_ops, w, &err);
    if (r) {
        tell_failed(w, err.text);
        end_stage(w);
    } else {
        confine(w);
    }
    return r;
}

void worker_check_taken(struct worker *w, int r)
{
    if (r == -EAGAIN || r == -ENOMEM) {
        tell_failed(w, "the stage process does not take messages");
        end_stage(w);
    }
}

void worker_say(struct worker *w, json_t *message)
{
    if (w->stage)
        worker_check_taken(w, spawn_send(w->stage, message));
    else
        json_decref(message);
}

void worker_plan(struct worker *w, uint64_t job, const char *type, json_t *spec, json_t *nodes)
{
    json_t *message =
        json_pack("{s:s s:s s:o s:o}", "do", "plan", "type", type, "spec", spec, "nodes", nodes);
    begin(w, members_self(w->setup.members)->id, job);
    w->rank = 0;
    w->state = WORKER_PLANNING;
    if (!start_stage(w))
        worker_say(w, message);
    else
        json_decref(message);
    peers_flood_self(w->setup.peers);
}

/* --- the head's messages ---------------------------------------------------------------------- */

/* The nodes of the job by rank, of which we are the one at `rank`. */
static bool read_nodes(struct worker *w, const json_t *nodes, json_int_t rank)
{
    const size_t n = json_array_size(nodes);
    w->ranks = 0;
    w->rank = rank < 0 || rank >= RING_MAX_NODES ? 0 : (int)rank;
    if (n > RING_MAX_NODES || rank < 0 || (size_t)rank >= n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (id_parse(w->nodes[i], json_string_value(json_array_get(nodes, i))))
            return false;
    w->ranks = n;
    return !memcmp(w->nodes[rank], members_self(w->setup.members)->id, 16);
}

/* Refusing leaves the job that holds the lease alone, so it does not go through `tell`. */
static void refuse(struct worker *w, const uint8_t head[16], json_int_t job, json_int_t rank)
{
    char cause[160];
    const struct member *other = members_find(w->setup.members, w->head);
    snprintf(cause, sizeof cause, "busy with job %llu of %s", (unsigned long long)w->job,
             other ? other->name : "another node");
    peers_send(w->setup.peers, head,
               json_pack("{s:s s:I s:I s:s s:b}", "kind", "job-failed", "job", job, "rank", rank, "cause",
                         cause, "busy", 1));
}

void worker_take_open(struct worker *w, const uint8_t head[16], const json_t *body)
{
    json_int_t job = json_integer_value(json_object_get(body, "job")),
               rank = json_integer_value(json_object_get(body, "rank"));
    json_t *plan = json_object_get(body, "plan");
    bool planned_here = w->state == WORKER_PLANNING && w->job == (uint64_t)job && !memcmp(head, w->head, 16);
    if ((w->state == WORKER_OPENING || w->state == WORKER_READY) && w->job == (uint64_t)job &&
        !memcmp(head, w->head, 16)) {
        tell_again(w); /* the head does not know that it was heard */
        return;
    }
    if (w->state != WORKER_IDLE && !planned_here) {
        refuse(w, head, job, rank);
        return;
    }
    begin(w, head, (uint64_t)job);
    w->reported = false;
    w->state = WORKER_OPENING;
    const char *fingerprint = json_string_value(json_object_get(plan, "fingerprint"));
    snprintf(w->fingerprint, sizeof w->fingerprint, "%s", fingerprint ? fingerprint : "");
    w->planned_bytes =
        (uint64_t)json_integer_value(json_array_get(json_object_get(plan, "bytes"), (size_t)rank));
    w->dim = (uint32_t)json_integer_value(json_object_get(plan, "dim"));
    if (!read_nodes(w, json_object_get(body, "nodes"), rank)) {
        tell_failed(w, "the head's message cannot be read: same version on all nodes?");
        end_stage(w);
        return;
    }
    /* Said on every node, so that each one's journal knows of the job. */
    const struct member *of = members_find(w->setup.members, head);
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "this node is rank %d of %zu; the job was submitted on %s",
              w->rank, w->ranks, of ? of->name : "another node");
    if (!planned_here && start_stage(w))
        return;
    if (spawn_group(w->stage) && w->planned_bytes)
        cgroup_limit(spawn_group(w->stage), cgroup_with_headroom(w->planned_bytes));
    worker_say(w, json_pack("{s:s s:O s:I s:i}", "do", "open", "plan", plan, "rank", rank, "threads",
                            *w->setup.threads));
    peers_flood_self(w->setup.peers);
}

void worker_take_lane_turn(struct worker *w, const uint8_t from[16], const json_t *body)
{
    const char *cable = json_string_value(json_object_get(body, "cable"));
    peers_path_turned(w->setup.peers, from, strtoull(cable, NULL, 16));
    for (size_t i = 0; i < 2; i++)
        lanes_changed(w->lanes[i]);
}

bool worker_is_head(const struct worker *w, const uint8_t from[16], const json_t *body)
{
    return w->state != WORKER_IDLE && !memcmp(from, w->head, 16) &&
           json_integer_value(json_object_get(body, "job")) == (json_int_t)w->job;
}

void worker_say_stopped(struct worker *w, const uint8_t head[16], const json_t *body)
{
    peers_send(w->setup.peers, head,
               json_pack("{s:s s:O s:O}", "kind", "job-stopped", "job", json_object_get(body, "job"), "rank",
                         json_object_get(body, "rank")));
}

void worker_take_stop(struct worker *w, const json_t *body)
{
    const char *cause = json_string_value(json_object_get(body, "cause"));
    if (cause && *cause && w->state != WORKER_ENDING)
        log_stage(LOG_LEVEL_INFO, w->job, w->rank, "the head stops this job: %s", cause);
    w->reported = true;
    end_stage(w);
}

void worker_take_connect(struct worker *w)
{
    if (w->state != WORKER_READY || w->is_connecting) {
        tell_again(w);
        return;
    }
    w->is_connecting = true;
    worker_connect(w);
}

void worker_take_run(struct worker *w)
{
    if (w->state != WORKER_READY)
        return;
    w->state = WORKER_RUNNING;
    worker_say(w, json_pack("{s:s}", "do", "run"));
    if (w->ranks > 1)
        worker_cut_lanes(w);
}

void worker_take_turn(struct worker *w, const json_t *body)
{
    if (w->state == WORKER_RUNNING)
        worker_say(w, json_pack("{s:s s:O*}", "do", "turn", "turn", json_object_get(body, "turn")));
}

static void leave_head(struct worker *w)
{
    const struct member *head = members_find(w->setup.members, w->head);
    if (w->state == WORKER_IDLE || w->state == WORKER_ENDING)
        return;
    log_stage(LOG_LEVEL_WARNING, w->job, w->rank,
              "the head %s is lost (%s): the stage on this node is stopped", head ? head->name : "?",
              peers_last_words(w->setup.peers, w->head));
    w->reported = true;
    end_stage(w);
}

/* A head that is out of reach is waited for, as it waits for us. Also when the job is over here: it
 * may not have heard that. */
static void look_for_head(struct worker *w)
{
    const uint64_t patience_us = (uint64_t)opts_int(w->setup.opts, "dead-after") * 1000000;
    const struct instant now = clock_now();
    enum absence_news news;
    size_t i;
    while ((news = absence_next(&w->absent, w->setup.members, patience_us, now, &i))) {
        if (news == ABSENCE_BACK)
            tell_again(w);
        if (news < ABSENCE_TOO_LONG)
            continue;
        leave_head(w);
        if (news == ABSENCE_TOO_LONG) /* should it come back, it hears how this ended */
            absence_watch(&w->absent, w->setup.members, (const uint8_t(*)[16])w->head, 1);
        else
            w->absent.n = 0;
    }
    const uint64_t due = absence_due(&w->absent, patience_us).us, us = due > now.us ? due - now.us : 0;
    timer_stop(w->missed);
    if (due != UINT64_MAX)
        timer_set_us(w->missed, us);
}

static void on_missed(void *owner)
{
    look_for_head(owner);
}

void worker_changed(struct worker *w)
{
    if (w->state == WORKER_RUNNING && w->ranks > 1 && w->stage)
        worker_cut_lanes(w);
    for (size_t i = 0; i < 2; i++)
        lanes_changed(w->lanes[i]);
    look_for_head(w);
}

void worker_describe(const struct worker *w, struct member *self)
{
    self->job = w->state == WORKER_IDLE ? 0 : w->job;
    self->rank = w->rank;
    self->seconds = 0;
    memcpy(self->head, w->head, 16);
    if (w->state == WORKER_RUNNING && w->stage) {
        progress_describe(spawn_progress(w->stage), self->doing, sizeof self->doing);
        self->seconds = progress_seconds(spawn_progress(w->stage));
        return;
    }
    static const char *const doing[] = {"idle",  "reading model and data", "opening its layers", "ready", "",
                                        "ending"};
    if (w->read_total && (w->state == WORKER_PLANNING || w->state == WORKER_OPENING))
        snprintf(self->doing, sizeof self->doing, "reading weights to compare them: %.1f of %.1f GiB",
                 (double)w->read_bytes / (1 << 30), (double)w->read_total / (1 << 30));
    else
        snprintf(self->doing, sizeof self->doing, "%s", doing[w->state]);
}

struct worker *worker_new(const struct worker_setup *setup)
{
    struct worker *w = xcalloc(1, sizeof *w);
    w->setup = *setup;
    w->release = timer_new(setup->base, on_release, w);
    for (size_t i = 0; i < 2; i++)
        w->lanes[i] = lanes_new(&(struct lanes_setup){.base = setup->base,
                                                      .members = setup->members,
                                                      .peers = setup->peers,
                                                      .relay = setup->relay,
                                                      .ops = &worker_lanes_ops,
                                                      .owner = w});
    w->counts = lane_counts_new();
    w->patience = timer_new(setup->base, on_patience, w);
    w->missed = timer_new(setup->base, on_missed, w);
    w->reports = json_array();
    return w;
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < 2; i++)
        lanes_free(w->lanes[i]);
    lane_counts_free(w->counts);
    spawn_free(w->stage);
    timer_free(w->release);
    timer_free(w->patience);
    timer_free(w->missed);
    json_decref(w->reports);
    free(w);
}
