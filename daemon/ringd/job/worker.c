/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/worker_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/machine/cgroup.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/machine/yield_cpu.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/job_plan.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

enum { LATE_US = 500000 /* our own lateness that does not count */ };

/* --- telling the head ------------------------------------------------------------------------- */

/* What the head waits for. An outage may swallow it, so it is told again when the head is back;
 * heard twice it does no harm. */
static bool is_report(const char *kind)
{
    return !strcmp(kind, "job-ready") || !strcmp(kind, "job-connected") || !strcmp(kind, "job-failed") ||
           !strcmp(kind, "job-stopped") || !strcmp(kind, "job-left");
}

void worker_tell(struct worker *w, const char *kind, json_t *fields)
{
    json_object_set_new(fields, "kind", json_string(kind));
    json_object_set_new(fields, "job", json_integer((json_int_t)w->job));
    json_object_set_new(fields, "attempt", json_integer(w->attempt));
    json_object_set_new(fields, "rank", json_integer(w->rank));
    if (is_report(kind))
        json_array_append_new(w->reports, json_deep_copy(fields));
    const int r = peers_send(w->setup.peers, w->head, fields);
    if (r)
        log_stage(r == -EHOSTUNREACH ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, w->job, w->rank,
                  "the message %s was not sent: the head %s", kind, unsent_why(r));
}

void worker_tell_again(struct worker *w)
{
    size_t i;
    json_t *report;
    json_array_foreach (w->reports, i, report)
        peers_send(w->setup.peers, w->head, json_deep_copy(report));
}

/* What it said may be lost with a connection, though another way leads to the head. So may the word
 * that the job is over: then this rank would wait for ever, and with it all jobs that need it. */
static void on_again(void *owner)
{
    struct worker *w = owner;
    if (w->state != WORKER_READY)
        return;
    worker_tell_again(w);
    timer_set_ms(w->again, WORKER_AGAIN_MS);
}

/* A job begins here: of what was said before nothing counts. */
static void begin(struct worker *w, const uint8_t head[16], uint64_t job, json_int_t attempt,
                  const struct origin *origin)
{
    if (job != w->job || memcmp(head, w->head, 16) != 0)
        worker_drop_stage(w);
    memcpy(w->head, head, 16);
    w->job = job;
    w->attempt = attempt;
    w->origin = *origin;
    *w->lacks = '\0';
    json_decref(w->holders);
    w->holders = NULL;
    w->is_connecting = false;
    json_array_clear(w->reports);
    absence_watch(&w->absent, w->setup.members, (const uint8_t(*)[16])w->head, 1);
}

/* Lost: through no fault of the job, which may go on with another stage process. said: its event
 * "failed", NULL: none. */
static void tell_end(struct worker *w, const char *cause, enum spawn_fate fate, const json_t *said)
{
    if (w->reported)
        return;
    const bool kept = json_is_true(json_object_get(said, "kept"));
    w->reported = true;
    struct log_about about = {.id = LOG_ID_STAGE_FAILED, .job = w->job, .stage = w->rank + 1};
    log_about(LOG_LEVEL_WARNING, &about, "the stage on this node fails: %s", cause);
    worker_tell(w, "job-failed",
                json_pack("{s:s s:b s:b s:b s:O* s:O*}", "cause", cause, "lost",
                          fate == SPAWN_WAS_KILLED || kept, "starved", fate == SPAWN_WAS_STARVED, "kept",
                          (int)kept, "lacks", json_object_get(said, "lacks"), "at",
                          json_object_get(said, "at")));
}

/* --- the stage process ------------------------------------------------------------------------ */

static void stop_dialing(struct worker *w)
{
    worker_stop_lanes(w);
    timer_stop(w->patience);
}

void worker_end_stage(struct worker *w, bool goes_on)
{
    if (w->state == WORKER_IDLE || (w->state == WORKER_ENDING && goes_on))
        return;
    const bool rests = goes_on && worker_rest_ask(w);
    w->rest = rests ? w->rest : REST_NONE;
    w->state = WORKER_ENDING;
    stop_dialing(w);
    if (rests)
        return;
    if (w->stage)
        spawn_end(w->stage);
    else
        timer_set_us(w->release, 0);
}

bool worker_is_idle(const struct worker *w)
{
    return w->state == WORKER_IDLE;
}

bool worker_works_on(const struct worker *w, const struct origin *of)
{
    return w->state != WORKER_IDLE && origin_is(&w->origin, of);
}

/* After the process is gone, was given up, or rests: the lease is free again. */
static void on_release(void *owner)
{
    struct worker *w = owner;
    const bool rests = w->rest == REST_KEPT;
    if (rests)
        worker_rest_begin(w);
    else
        worker_drop_stage(w);
    w->state = WORKER_IDLE;
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "the stage on this node %s",
              rests ? "waits for its job to go on" : "has ended");
    worker_tell(w, "job-stopped", json_object());
    peers_flood_self(w->setup.peers);
    w->setup.changed(w->setup.owner);
}

void worker_wait(struct worker *w, uint64_t us)
{
    w->patience_due.us = clock_now().us + us;
    timer_set_us(w->patience, us);
}

static void on_patience(void *owner)
{
    struct worker *w = owner;
    if (clock_since_us(clock_now(), w->patience_due) > LATE_US) { /* it was we who stood still */
        worker_wait(w, WORKER_RETURN_US);
        return;
    }
    tell_end(w, w->why_lost, SPAWN_WAS_KILLED, NULL);
    worker_end_stage(w, false);
}

/* The rest of what was planned for it is still to come: others may not have it. */
static void note_memory(struct worker *w, const json_t *event)
{
    const json_int_t own = json_integer_value(json_object_get(event, "anon"));
    w->own_bytes = own > 0 ? (uint64_t)own : 0;
}

static void stage_event(void *owner, const char *kind, json_t *event)
{
    struct worker *w = owner;
    if (!strcmp(kind, "resting"))
        worker_rest_heard(w);
    if (!strcmp(kind, "whole")) { /* counts even while it ends: others let go of theirs by it */
        held_files_whole(&w->held);
        return;
    }
    if (!strcmp(kind, "lines")) { /* so do these: of the last steps there are copies */
        line_log_add(&w->lines, event);
        return;
    }
    if (w->state == WORKER_ENDING || w->state == WORKER_IDLE)
        return;
    if (w->state == WORKER_RUNNING && !w->rank && w->setup.served &&
        w->setup.served(w->setup.owner, w->job, kind, event))
        return;
    if (!strcmp(kind, "memory"))
        note_memory(w, event);
    if (!strcmp(kind, "planned")) {
        worker_tell(w, "job-planned", json_deep_copy(event));
    } else if (!strcmp(kind, "lacks")) {
        worker_hear_lacks(w, event);
    } else if (!strcmp(kind, "survey")) {
        cost_query_ask(w->setup.cost_query, w->stage, event);
    } else if (!strcmp(kind, "travel")) {
        worker_hear_travel(w, event);
    } else if (!strcmp(kind, "ready")) {
        worker_hear_ready(w, event);
    } else if (!strcmp(kind, "settled")) {
        worker_settle_copies(w, event);
    } else if (!strcmp(kind, "kept")) {
        worker_name_copies(w, event);
    } else if (!strcmp(kind, "done")) {
        worker_drop_copies(w);
        ballots_ended(w->setup.ballots, &w->origin, time(NULL));
        w->reported = true;
        worker_tell(w, "job-done", json_deep_copy(event));
    } else if (!strcmp(kind, "left")) {
        w->reported = true;
        worker_tell(w, "job-left", json_object());
        worker_end_stage(w, true);
    } else if (!strcmp(kind, "failed")) {
        tell_end(w, json_string_value(json_object_get(event, "error")), SPAWN_HAS_FAILED, event);
    } else if (!strcmp(kind, "reading")) {
        w->read_bytes = (uint64_t)json_integer_value(json_object_get(event, "done"));
        w->read_total = (uint64_t)json_integer_value(json_object_get(event, "total"));
        worker_tell(w, "job-event", json_pack("{s:O}", "event", event));
    } else if (!strcmp(kind, "lane-lost")) {
        worker_lane_lost(w, event);
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
    if (w->state == WORKER_IDLE) { /* at once: its job may go on before any timer runs */
        worker_drop_stage(w);
        return;
    }
    if (w->state != WORKER_ENDING) {
        cgroup_why_ended(cause, sizeof cause, spawn_group(w->stage), w->planned_bytes, spawn_peak(w->stage),
                         text);
        tell_end(w, cause, spawn_fate(w->stage), NULL);
    }
    w->rest = REST_NONE;
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
    cgroup_weigh(spawn_group(w->stage), w->class);
}

/* Without weights: a stage whose processors others want stays behind until its process ends. */
void worker_yield(const struct worker *w)
{
    if (!w->stage || cgroup_is_weighed(spawn_group(w->stage)))
        return;
    const int r = yield_cpu(spawn_pid(w->stage));
    if (r)
        log_stage(LOG_LEVEL_DEBUG, w->job, w->rank, "its stage keeps its share of the processors: %s",
                  strerror(-r));
}

static const struct spawn_ops spawn_ops = {stage_event, stage_ended};

/* loan: of the head's node; NULL: there is none. One that rested has it. */
static int start_stage(struct worker *w, struct loan *loan)
{
    struct err err;
    w->reported = false;
    w->read_bytes = w->read_total = w->own_bytes = 0;
    w->setup.stage_begins(w->setup.owner);
    memset(w->alive, 0, sizeof w->alive);
    if (worker_rest_wake(w)) {
        worker_check_taken(w, worker_give_files(w));
        return 0;
    }
    int r = spawn_start(&w->stage, w->setup.spawner, 0, &spawn_ops, w, &err);
    if (r) {
        worker_fail(w, err.text);
    } else {
        confine(w);
        worker_check_taken(w, worker_give_files(w));
        worker_check_taken(w, spawn_lend(w->stage, loan));
    }
    return r;
}

void worker_fail(struct worker *w, const char *cause)
{
    tell_end(w, cause, SPAWN_HAS_FAILED, NULL);
    worker_end_stage(w, false);
}

void worker_check_taken(struct worker *w, int r)
{
    if (r == -EAGAIN || r == -ENOMEM)
        worker_fail(w, "the stage process does not take messages");
}

void worker_say(struct worker *w, json_t *message)
{
    if (w->stage)
        worker_check_taken(w, spawn_send(w->stage, message));
    else
        json_decref(message);
}

void worker_plan(struct worker *w, uint64_t job, uint32_t attempt, const struct origin *origin,
                 enum job_type type, json_t *spec, json_t *nodes, struct loan *loan)
{
    json_t *message = json_pack("{s:s s:s s:o s:o s:b}", "do", "plan", "type", job_type_name(type), "spec",
                                spec, "nodes", nodes, "may_time", (int)!w->has_company);
    worker_add_content(w, message, json_string_value(json_object_get(spec, "model")));
    begin(w, members_self(w->setup.members)->id, job, attempt, origin);
    w->rank = 0;
    w->trains = type == JOB_TRAIN;
    w->class = job_class_of(type);
    w->planned_bytes = 0;
    mapped_done(&w->mapped);
    w->submitted = (uint64_t)json_integer_value(json_object_get(spec, "submitted"));
    const uint64_t changes = (uint64_t)json_integer_value(json_object_get(spec, "changes"));
    if (changes != w->changes) /* one that rests may open the files that there were before, and no others */
        worker_drop_stage(w);
    w->changes = changes;
    w->state = WORKER_PLANNING;
    if (!start_stage(w, loan))
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

/* This attempt was begun here, and has ended: its head may not know. It is not begun twice, or a
 * word of the first time would count for the second. */
static bool is_over_here(const struct worker *w, const uint8_t head[16], const json_t *body)
{
    const json_t *submitted = json_object_get(json_object_get(body, "plan"), "submitted");
    return w->state == WORKER_IDLE && !memcmp(head, w->head, 16) && json_array_size(w->reports) &&
           (uint64_t)json_integer_value(submitted) == w->submitted &&
           json_integer_value(json_object_get(body, "job")) == (json_int_t)w->job &&
           json_integer_value(json_object_get(body, "attempt")) == w->attempt;
}

void worker_refuse(const struct worker_setup *s, const uint8_t head[16], const json_t *body,
                   const char *cause)
{
    peers_send(s->peers, head,
               json_pack("{s:s s:O s:O* s:O s:s s:b}", "kind", "job-failed", "job",
                         json_object_get(body, "job"), "attempt", json_object_get(body, "attempt"), "rank",
                         json_object_get(body, "rank"), "cause", cause, "busy", 1));
}

/* The plan is the stage's to obey; of it the daemon needs little, of a plan that is whole. */
static int read_open(struct worker *w, const json_t *body, json_int_t rank, struct err *err)
{
    struct job_plan *plan = xcalloc(1, sizeof *plan);
    int r = read_nodes(w, json_object_get(body, "nodes"), rank)
                ? 0
                : err_set(err, -EBADMSG, "the head's message cannot be read: same version on all nodes?");
    if (!r)
        r = job_plan_decode(plan, json_object_get(body, "plan"), err);
    if (!r && plan->ranks != w->ranks)
        r = err_set(err, -EBADMSG,
                    "the head sent a plan of %zu ranks for %zu nodes: same version on all nodes?",
                    plan->ranks, w->ranks);
    if (!r) {
        snprintf(w->fingerprint, sizeof w->fingerprint, "%s", plan->fingerprint);
        w->talks = job_plan_talks(plan, (size_t)rank);
        w->planned_bytes = plan->bytes[rank];
        mapped_done(&w->mapped);
        if (mapped_of_plan(&w->mapped, plan, (size_t)rank))
            r = err_set(err, -ENOMEM, "out of memory");
        w->dim = (uint32_t)plan->dim;
        w->trains = plan->type == JOB_TRAIN;
        w->class = job_class_of(plan->type);
        w->submitted = plan->submitted;
    }
    job_plan_done(plan);
    free(plan);
    return r;
}

static bool describe_busy(const struct worker *w, char *cause, size_t size)
{
    const struct member *other = members_find(w->setup.members, w->head);
    snprintf(cause, size, "busy with job %llu of %s", (unsigned long long)w->job,
             other ? other->name : "another node");
    return true;
}

void worker_take_open(struct worker *w, const uint8_t head[16], const json_t *body)
{
    struct err err;
    const json_int_t rank = json_integer_value(json_object_get(body, "rank"));
    const bool is_mine = worker_is_head(w, head, body), planned_here = is_mine && w->state == WORKER_PLANNING;
    if ((is_mine && !planned_here) ||
        is_over_here(w, head, body)) { /* said again, by a head that may not know how far it is here */
        worker_tell_again(w);
        return;
    }
    struct origin origin;
    char cause[300];
    if ((w->state != WORKER_IDLE && !planned_here && describe_busy(w, cause, sizeof cause)) ||
        !worker_may_open(w, head, body, &origin, cause, sizeof cause)) {
        worker_refuse(&w->setup, head, body, cause);
        return;
    }
    begin(w, head, (uint64_t)json_integer_value(json_object_get(body, "job")),
          json_integer_value(json_object_get(body, "attempt")), &origin);
    w->reported = false;
    w->holders = json_incref(json_object_get(body, "holders"));
    w->parts = json_is_true(json_object_get(body, "parts"));
    w->said = (uint64_t)json_integer_value(json_object_get(body, "said"));
    w->state = WORKER_OPENING;
    if (read_open(w, body, rank, &err)) {
        worker_fail(w, err.text);
        return;
    }
    worker_note_attempt(w);
    /* Said on every node, so that each one's journal knows of the job. */
    const struct member *of = members_find(w->setup.members, head);
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "this node is rank %d of %zu; the job was submitted on %s",
              w->rank, w->ranks, of ? of->name : "another node");
    if (!planned_here && start_stage(w, NULL))
        return;
    if (spawn_group(w->stage) && w->planned_bytes)
        cgroup_limit(spawn_group(w->stage), cgroup_with_headroom(w->planned_bytes));
    json_t *plan = json_object_get(body, "plan"),
           *order = json_pack("{s:s s:O s:I s:i}", "do", "open", "plan", plan, "rank", rank, "threads",
                              *w->setup.threads);
    worker_add_content(w, order, json_string_value(json_object_get(plan, "model")));
    worker_say(w, order);
    peers_flood_self(w->setup.peers);
}

bool worker_is_head(const struct worker *w, const uint8_t from[16], const json_t *body)
{
    return w->state != WORKER_IDLE && !memcmp(from, w->head, 16) &&
           json_integer_value(json_object_get(body, "job")) == (json_int_t)w->job &&
           json_integer_value(json_object_get(body, "attempt")) == w->attempt;
}

void worker_stop_again(struct worker *w, const json_t *body)
{
    worker_let_go(w, body);
    if (w->state == WORKER_IDLE && !json_is_true(json_object_get(body, "keep")))
        worker_drop_stage(w);
}

void worker_answer_stop(const struct worker_setup *s, const uint8_t head[16], const json_t *body)
{
    peers_send(s->peers, head,
               json_pack("{s:s s:O s:O* s:O}", "kind", "job-stopped", "job", json_object_get(body, "job"),
                         "attempt", json_object_get(body, "attempt"), "rank", json_object_get(body, "rank")));
}

void worker_take_stop(struct worker *w, const json_t *body)
{
    const char *cause = json_string_value(json_object_get(body, "cause"));
    if (cause && *cause && w->state != WORKER_ENDING)
        log_stage(LOG_LEVEL_INFO, w->job, w->rank, "the head stops this job: %s", cause);
    worker_let_go(w, body);
    w->reported = true;
    worker_end_stage(w, json_is_true(json_object_get(body, "keep")));
}

void worker_take_connect(struct worker *w)
{
    if (w->state != WORKER_READY || w->is_connecting) {
        worker_tell_again(w);
        return;
    }
    w->is_connecting = true;
    worker_connect(w);
}

void worker_take_run(struct worker *w, const json_t *body)
{
    if (w->state != WORKER_READY)
        return;
    w->state = WORKER_RUNNING;
    if (w->trains)
        held_files_run(&w->held);
    worker_say(w, json_pack("{s:s s:O* s:O*}", "do", "run", "restore", json_object_get(body, "restore"),
                            "said", json_object_get(body, "said")));
    if (w->ranks > 1)
        worker_cut_lanes(w);
}

void worker_take_turn(struct worker *w, const json_t *body)
{
    if (w->state == WORKER_RUNNING)
        worker_say(w, json_pack("{s:s s:O*}", "do", "turn", "turn", json_object_get(body, "turn")));
}

int worker_ask(struct worker *w, json_t *message)
{
    if (w->state == WORKER_RUNNING && !w->rank) {
        worker_say(w, message);
        return 0;
    }
    json_decref(message);
    return -ENOTCONN;
}

void worker_take_leave(struct worker *w, const json_t *body)
{
    if (w->state == WORKER_RUNNING)
        worker_say(w, json_pack("{s:s s:O*}", "do", "leave", "save", json_object_get(body, "save")));
}

struct worker *worker_new(const struct worker_setup *setup)
{
    struct worker *w = xcalloc(1, sizeof *w);
    w->setup = *setup;
    w->release = timer_new(setup->base, on_release, w);
    worker_rest_init(w);
    worker_absence_init(w);
    w->counts = lane_counts_new();
    w->patience = timer_new(setup->base, on_patience, w);
    w->again = timer_new(setup->base, on_again, w);
    w->reports = json_array();
    return w;
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    worker_free_lanes(w);
    lane_counts_free(w->counts);
    spawn_free(w->stage);
    held_files_drop(&w->held);
    line_log_clear(&w->lines);
    worker_forget_noting(w);
    timer_free(w->release);
    timer_free(w->rest_over);
    timer_free(w->patience);
    timer_free(w->missed);
    timer_free(w->again);
    json_decref(w->reports);
    json_decref(w->holders);
    mapped_done(&w->mapped);
    free(w);
}
