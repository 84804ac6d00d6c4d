/* SPDX-License-Identifier: MIT
 *
 * A head and its jobs, with two nodes made up: what it tells them, what it makes of their words,
 * and what happens when they say nothing. Deadlines are of a millisecond, or never come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/message_table.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/store/store.h"
#include "tests/unit/daemon/ringd/cluster/members_world.h"

enum { RANKS = 2, GUARD_S = 60 };

struct head {
    struct event_base *base;
    struct event *guard;
    bool is_stuck;
    char dir[64];
    struct auth_identity id;
    struct opts *opts;
    struct mailbox *mailbox;
    struct cluster *cluster;
    struct members *members;
    struct store *store;
    struct metrics *metrics;
    struct event_log *events;
    struct coord *coord;
    uint64_t seq;          /* of the other node's record */
    json_t *sent;          /* owned: {"to", "kind", …} of every message */
    unsigned plans;        /* asked of the stage here */
    unsigned events_of[2]; /* published: "job", "end" */
};

/* --- the world of the head -------------------------------------------------------------------- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct head *h = owner;
    json_object_set_new(message, "to", json_integer(to[0] - 1));
    json_array_append_new(h->sent, message);
    return 0;
}

static const char *last_words(void *owner, const uint8_t id[16])
{
    (void)owner, (void)id;
    return "";
}

static void plan(void *owner, uint64_t job, const char *type, json_t *spec, json_t *nodes)
{
    struct head *h = owner;
    (void)job, (void)type;
    assert_int_equal(json_array_size(nodes), RANKS);
    h->plans++;
    json_decref(spec);
    json_decref(nodes);
}

static void begins(void *owner)
{
    (void)owner;
}

static void published(void *owner, uint64_t job, const char *type)
{
    struct head *h = owner;
    (void)job;
    h->events_of[0] += !strcmp(type, "job");
    h->events_of[1] += !strcmp(type, "end");
}

static void on_guard(evutil_socket_t fd, short what, void *arg)
{
    struct head *h = arg;
    (void)fd, (void)what;
    h->is_stuck = true;
}

/* The other node's record; in reach while both say that they are linked. */
static void link_nodes(struct head *h, bool linked)
{
    struct member other = make(1, 1, ++h->seq);
    if (linked)
        link_to(&other, 0);
    assert_int_equal(learn(h->members, &other, h->seq), 1);
}

static void open_coord(struct head *h, unsigned settle_ms, enum job_state late)
{
    struct coord_setup setup = {.base = h->base,
                                .opts = h->opts,
                                .limits = {.settle_ms = settle_ms, .retry_ms = 1},
                                .state_dir = h->dir,
                                .cluster = h->cluster,
                                .members = h->members,
                                .store = h->store,
                                .metrics = h->metrics,
                                .events = h->events,
                                .send = send_message,
                                .last_words = last_words,
                                .plan = plan,
                                .begins = begins,
                                .published = published,
                                .owner = h};
    setup.limits.of_state_ms[late] = late == JOB_QUEUED ? 0 : 1;
    h->coord = coord_new(&setup);
}

static int set_up(void **state)
{
    struct head *h = calloc(1, sizeof *h);
    struct err err;
    char note[256];
    strcpy(h->dir, "/tmp/ringd-coord-XXXXXX");
    assert_non_null(mkdtemp(h->dir));
    h->base = event_base_new();
    h->guard = evtimer_new(h->base, on_guard, h);
    event_add(h->guard, &(struct timeval){GUARD_S, 0});
    h->opts = opts_new(conf_table);
    assert_int_equal(mailbox_new(&h->mailbox, h->base), 0);
    assert_int_equal(cluster_open(&h->cluster, h->dir, &h->id, &err), 0);
    assert_int_equal(store_open(&h->store, h->dir, h->mailbox, note, &err), 0);
    h->members = alone(0);
    link_to(members_self(h->members), 1);
    link_nodes(h, true);
    h->metrics = metrics_new();
    h->events = event_log_new(64, SIZE_MAX);
    h->sent = json_array();
    *state = h;
    return 0;
}

static int tear_down(void **state)
{
    struct head *h = *state;
    char command[100];
    coord_free(h->coord);
    event_log_free(h->events);
    metrics_free(h->metrics);
    members_free(h->members);
    store_close(h->store);
    cluster_close(h->cluster);
    mailbox_free(h->mailbox);
    opts_free(h->opts);
    event_free(h->guard);
    event_base_free(h->base);
    json_decref(h->sent);
    snprintf(command, sizeof command, "rm -r %s", h->dir);
    assert_int_equal(system(command), 0);
    free(h);
    return 0;
}

static const struct job *submit(struct head *h)
{
    struct err err;
    uint64_t id;
    assert_int_equal(
        coord_submit(h->coord, JOB_GENERATE, json_pack("{s:s s:s}", "model", "/m", "prompt", "a"), &id, &err),
        0);
    return coord_find(h->coord, id);
}

/* As messages.c does: of another node only what is answered. */
static void receive(struct head *h, const uint8_t from[16], const json_t *body)
{
    static const enum message_kind kinds[JOB_WORDS] = {
        [JOB_WORD_PLANNED] = MESSAGE_JOB_PLANNED,     [JOB_WORD_READY] = MESSAGE_JOB_READY,
        [JOB_WORD_CONNECTED] = MESSAGE_JOB_CONNECTED, [JOB_WORD_EVENT] = MESSAGE_JOB_EVENT,
        [JOB_WORD_RELAYED] = MESSAGE_JOB_RELAYED,     [JOB_WORD_FAILED] = MESSAGE_JOB_FAILED,
        [JOB_WORD_DONE] = MESSAGE_JOB_DONE,           [JOB_WORD_STOPPED] = MESSAGE_JOB_STOPPED};
    enum message_kind kind;
    struct err err;
    if (message_check(&kind, body, &err))
        fail_msg("%s", err.text);
    const bool is_rank = coord_is_rank(h->coord, from, body);
    for (enum job_word w = 0; is_rank && w < JOB_WORDS; w++)
        if (kinds[w] == kind)
            coord_take_word(h->coord, w, body);
    if (!is_rank && (kind == MESSAGE_JOB_READY || kind == MESSAGE_JOB_CONNECTED))
        coord_send_away(h->coord, from, body);
}

/* That rank says so; takes over `fields`. */
static void say(struct head *h, const struct job *job, unsigned rank, const char *kind, json_t *fields)
{
    uint8_t from[16] = {(uint8_t)(rank + 1)};
    json_object_set_new(fields, "job", json_integer((json_int_t)job->id));
    json_object_set_new(fields, "rank", json_integer(rank));
    json_object_set_new(fields, "kind", json_string(kind));
    receive(h, from, fields);
    json_decref(fields);
}

static void all_say(struct head *h, const struct job *job, const char *kind)
{
    for (unsigned r = 0; r < RANKS; r++)
        say(h, job, r, kind, json_object());
}

/* How often that node was sent it. */
static unsigned told(const struct head *h, unsigned to, const char *kind)
{
    unsigned n = 0;
    size_t i;
    json_t *m;
    json_array_foreach (h->sent, i, m)
        n += json_integer_value(json_object_get(m, "to")) == (json_int_t)to &&
             !strcmp(json_string_value(json_object_get(m, "kind")), kind);
    return n;
}

static void say_planned(struct head *h, const struct job *job)
{
    say(h, job, 0, "job-planned",
        json_pack("{s:{s:[i,i,i], s:[i,i]}, s:i}", "plan", "first", 0, 1, 2, "places", 0, 1, "steps", 5));
}

static void say_ready(struct head *h, const struct job *job)
{
    for (unsigned r = 0; r < RANKS; r++)
        say(h, job, r, "job-ready", json_pack("{s:[[i,i]]}", "layers", r, r + 1));
}

/* As far as that state, in which nobody says more. */
static const struct job *job_in(struct head *h, enum job_state state)
{
    const struct job *job = submit(h);
    if (state > JOB_PLANNING)
        say_planned(h, job);
    if (state > JOB_OPENING)
        say_ready(h, job);
    if (state > JOB_CONNECTING)
        all_say(h, job, "job-connected");
    if (state > JOB_RUNNING)
        say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "its disk is full"));
    assert_int_equal(job->state, state);
    return job;
}

static void wait_for(struct head *h, const struct job *job, enum job_state state)
{
    while (job->state != state && !h->is_stuck)
        event_base_loop(h->base, EVLOOP_ONCE);
    assert_int_equal(job->state, state);
}

/* --- what is tested --------------------------------------------------------------------------- */

static void a_job_goes_through_its_states(void **state)
{
    struct head *h = *state;
    char text[200];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 1);
    say_planned(h, job);
    assert_int_equal(job->state, JOB_OPENING);
    assert_int_equal(told(h, 0, "job-open"), 1);
    assert_int_equal(told(h, 1, "job-open"), 1);
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "node n0 is opening its layers, and 1 more node is");
    say_ready(h, job);
    assert_int_equal(job->state, JOB_CONNECTING);
    assert_int_equal(told(h, 1, "job-connect"), 1);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
    assert_int_equal(told(h, 1, "job-run"), 1);
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "");
    say(h, job, 0, "job-done", json_pack("{s:{s:s}}", "result", "text", "b"));
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 0, "job-stopped", json_object());
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "node n1 is ending its stage process");
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_DONE);
    assert_int_equal(told(h, 1, "job-stop"), 0);
    assert_string_equal(json_string_value(json_object_get(job->result, "text")), "b");
    assert_int_equal(h->events_of[1], 1);
    assert_int_equal(metrics_counts(h->metrics)->ended[0], 1);
}

static void what_is_no_job_is_refused(void **state)
{
    struct head *h = *state;
    struct err err;
    uint64_t id;
    open_coord(h, 0, JOB_QUEUED);
    json_t *plan_only = json_pack("{s:s s:s s:b}", "model", "/m", "prompt", "a", "dry_run", 1);
    assert_int_equal(coord_submit(h->coord, JOB_GENERATE, plan_only, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "POST /v1/plan"));
    json_t *untyped = json_pack("{s:s s:s s:s}", "model", "/m", "prompt", "a", "max_tokens", "many");
    assert_int_equal(coord_submit(h->coord, JOB_GENERATE, untyped, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"max_tokens\" must be a whole number"));
    assert_int_equal(coord_submit(h->coord, JOB_TRAIN, json_object(), &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--model DIR is needed"));
    assert_null(coord_first(h->coord));
    assert_int_equal(h->events_of[0], 0);
    assert_int_equal(coord_cancel(h->coord, 77), -ENOENT);
}

static void a_queued_job_can_be_cancelled(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *first = submit(h), *second = submit(h);
    assert_int_equal(second->state, JOB_QUEUED);
    assert_string_equal(second->error, "there are jobs before it");
    assert_int_equal(coord_cancel(h->coord, second->id), 0);
    assert_int_equal(second->state, JOB_CANCELLED);
    assert_string_equal(second->error, "it had not started yet");
    assert_int_equal(coord_cancel(h->coord, second->id), -EALREADY);
    assert_int_equal(first->state, JOB_PLANNING);
    assert_int_equal(h->plans, 1);
}

static void a_running_job_can_be_cancelled(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_RUNNING), *next = submit(h);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(told(h, 0, "job-stop"), 1);
    assert_int_equal(told(h, 1, "job-stop"), 1);
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_CANCELLED);
    assert_int_equal(next->state, JOB_PLANNING); /* its turn */
}

static void the_first_failure_is_the_cause(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-failed", json_pack("{s:s}", "cause", "its disk is full"));
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "the next rank is gone"));
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(told(h, 1, "job-stop"), 1);
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: its disk is full");
    assert_int_equal(coord_cancel(h->coord, job->id), -EALREADY);
}

static void a_state_hears_what_belongs_to_it(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say_planned(h, job);
    all_say(h, job, "job-connected");
    say(h, job, 0, "job-done", json_object());
    assert_int_equal(job->state, JOB_OPENING);
    say_ready(h, job);
    say(h, job, 1, "job-done", json_object()); /* rank 0's to say */
    assert_int_equal(job->state, JOB_CONNECTING);
}

static void other_layers_than_planned_end_it(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 0, 2));
    assert_int_equal(job->state, JOB_STOPPING);
    assert_string_equal(job->error, "node n1 opened other layers than planned: 0 where 1 was due");
}

/* A stage that reports a job that is over is told to end. */
static void a_late_stage_is_sent_away(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_STOPPING);
    all_say(h, job, "job-stopped");
    const unsigned before = told(h, 1, "job-stop");
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 0, 1));
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
    say(h, job, 1, "job-event", json_pack("{s:{}}", "event"));
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
}

/* Two heads reached for the same nodes: both let go, and try again. */
/* Its first word is of an attempt before; a lease that is kept refuses all other jobs. */
static void a_rank_that_missed_the_stop_is_told_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(told(h, 1, "job-stop"), 0);
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 1, 2));
    assert_int_equal(told(h, 1, "job-stop"), 1);
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_CANCELLED);
}

static void a_collision_is_tried_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "busy with job 3 of n7", "busy", 1));
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_QUEUED);
    assert_string_equal(job->error, "busy with job 3 of n7");
    assert_true(job->spec_bytes > 0); /* what its spec takes is given back in the end */
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    assert_int_equal(h->events_of[1], 0);
}

static void every_wait_has_a_deadline(void **state)
{
    struct head *h = *state;
    static const struct {
        enum job_state state;
        const char *error;
    } waits[] = {{JOB_PLANNING, "node n0: no answer within 0.001 s while reading model and data"},
                 {JOB_OPENING, "node n0: no answer within 0.001 s while opening its layers"},
                 {JOB_CONNECTING, "node n0: no answer within 0.001 s while connecting to the next node"}};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        open_coord(h, 0, waits[i].state);
        const struct job *job = job_in(h, waits[i].state);
        wait_for(h, job, JOB_STOPPING);
        assert_string_equal(job->error, waits[i].error);
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* The stages of a job are told to end, and after a while not waited for. */
static void nobody_holds_up_the_end(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_STOPPING);
    const struct job *job = job_in(h, JOB_STOPPING);
    const unsigned before = told(h, 1, "job-stop");
    wait_for(h, job, JOB_FAILED);
    assert_string_equal(job->error, "node n0: its disk is full");
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
}

/* While a job runs, heartbeats watch it; once a stage is gone, rank 0 has a moment to say why. */
static void a_stage_that_ends_early_ends_the_job(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_STOPPING);
    const struct job *job = job_in(h, JOB_RUNNING);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_RUNNING);
    wait_for(h, job, JOB_FAILED);
    assert_string_equal(job->error, "node n1: its stage process ended before the job did");
}

static void a_job_without_a_ring_waits_for_a_while(void **state)
{
    struct head *h = *state;
    open_coord(h, 1, JOB_QUEUED);
    struct member *self = members_self(h->members);
    link_to(self, 2); /* a third node that answers neither of the two */
    struct member third = make(2, 1, 1);
    link_to(&third, 0);
    assert_int_equal(learn(h->members, &third, 1), 1);
    const struct job *job = submit(h);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_true(*job->error);
    wait_for(h, job, JOB_FAILED);
    assert_non_null(strstr(job->error, "no ring after 0.001 s"));
    assert_int_equal(h->plans, 0);
}

/* What a node may have missed while it was out of reach is said again. */
static void a_node_that_is_back_is_told_again(void **state)
{
    struct head *h = *state;
    static const struct {
        enum job_state state;
        const char *kind;
    } again[] = {{JOB_OPENING, "job-open"}, {JOB_CONNECTING, "job-connect"}, {JOB_RUNNING, "job-run"}};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        open_coord(h, 0, JOB_QUEUED);
        job_in(h, again[i].state);
        const unsigned before = told(h, 1, again[i].kind);
        link_nodes(h, false);
        coord_changed(h->coord);
        assert_int_equal(told(h, 1, again[i].kind), before);
        link_nodes(h, true);
        coord_changed(h->coord);
        assert_int_equal(told(h, 1, again[i].kind), before + 1);
        coord_free(h->coord);
    }
    h->coord = NULL;
}

int main(void)
{
#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_HEAD(a_job_goes_through_its_states),
        WITH_HEAD(what_is_no_job_is_refused),
        WITH_HEAD(a_queued_job_can_be_cancelled),
        WITH_HEAD(a_running_job_can_be_cancelled),
        WITH_HEAD(the_first_failure_is_the_cause),
        WITH_HEAD(a_state_hears_what_belongs_to_it),
        WITH_HEAD(other_layers_than_planned_end_it),
        WITH_HEAD(a_late_stage_is_sent_away),
        WITH_HEAD(a_rank_that_missed_the_stop_is_told_again),
        WITH_HEAD(a_collision_is_tried_again),
        WITH_HEAD(every_wait_has_a_deadline),
        WITH_HEAD(nobody_holds_up_the_end),
        WITH_HEAD(a_stage_that_ends_early_ends_the_job),
        WITH_HEAD(a_job_without_a_ring_waits_for_a_while),
        WITH_HEAD(a_node_that_is_back_is_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
