/* SPDX-License-Identifier: MIT
 *
 * A head with another node, made up: what it sends, what the ranks of its jobs say to it. Deadlines
 * are of a millisecond, or never come. Included after cmocka.h. */
#ifndef TESTS_HEAD_WORLD_H
#define TESTS_HEAD_WORLD_H

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/message_table.h"
#include "daemon/ringd/store/metrics.h"
#include "daemon/ringd/store/store.h"
#include "tests/lib/small_plan.h"
#include "tests/lib/own_keys.h"
#include "tests/unit/daemon/ringd/cluster/members_world.h"

enum { RANKS = 2, GUARD_S = 60 };

struct head {
    struct event_base *base;
    struct event *guard;
    bool is_stuck;
    char dir[64];
    struct keeper keeper;
    struct keys *keys;
    struct opts *opts;
    struct mailbox *mailbox;
    struct aside *aside;
    struct cluster *cluster;
    struct members *members;
    struct store *store;
    struct metrics *metrics;
    struct event_log *events;
    struct coord *coord;
    uint64_t seq;          /* of the other node's record */
    size_t answered;       /* of the messages sent, so many were looked at by `look` */
    json_t *sent;          /* owned: {"to", "kind", …} of every message */
    unsigned plans;        /* asked of the stage here, */
    json_t *planned;       /* owned: of this spec the last time, */
    size_t plan_nodes;     /* for so many nodes */
    unsigned events_of[2]; /* published: "job", "end" */
};

/* --- the world of the head -------------------------------------------------------------------- */

static inline int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct head *h = owner;
    json_object_set_new(message, "to", json_integer(to[0] - 1));
    json_array_append_new(h->sent, message);
    return 0;
}

static inline const char *last_words(void *owner, const uint8_t id[16])
{
    (void)owner, (void)id;
    return "";
}

static inline void plan(void *owner, uint64_t job, uint32_t attempt, const struct origin *origin,
                        enum job_type type, json_t *spec, json_t *nodes, struct loan *loan)
{
    struct head *h = owner;
    (void)job, (void)attempt, (void)origin, (void)type, (void)loan;
    assert_int_equal(json_array_size(nodes), h->plan_nodes);
    h->plans++;
    json_decref(h->planned);
    h->planned = spec;
    json_decref(nodes);
}

static inline void begins(void *owner)
{
    (void)owner;
}

static inline void published(void *owner, uint64_t job, const char *type)
{
    struct head *h = owner;
    (void)job;
    h->events_of[0] += !strcmp(type, "job");
    h->events_of[1] += !strcmp(type, "end");
}

static inline void on_guard(evutil_socket_t fd, short what, void *arg)
{
    struct head *h = arg;
    (void)fd, (void)what;
    h->is_stuck = true;
}

/* The other node, if the coord asks for it, lets go of its dossier. */
static inline void let_go(struct head *h)
{
    for (; h->answered < json_array_size(h->sent); h->answered++) {
        const json_t *m = json_array_get(h->sent, h->answered);
        const uint8_t from[16] = {2};
        json_t *held = json_pack("{s:O}", "job", json_object_get(m, "job"));
        if (held && !strcmp(json_string_value(json_object_get(m, "kind")), "dossier-recall"))
            coord_take_held(h->coord, from, held);
        json_decref(held);
    }
}

/* Nodes came or went. */
static inline void look(struct head *h)
{
    coord_changed(h->coord);
    let_go(h);
}

/* The other node's record; in reach while both say that they are linked. */
static inline void link_nodes(struct head *h, bool linked)
{
    struct member other = make(1, 1, ++h->seq);
    if (linked)
        link_to(&other, 0);
    assert_int_equal(learn(h->members, &other, h->seq), 1);
}

static inline void open_coord(struct head *h, unsigned settle_ms, enum job_state late)
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
                                .aside = h->aside,
                                .send = send_message,
                                .last_words = last_words,
                                .plan = plan,
                                .begins = begins,
                                .published = published,
                                .owner = h};
    setup.limits.of_state_ms[late] = late == JOB_QUEUED ? 0 : 1;
    h->coord = coord_new(&setup);
}

static inline int set_up(void **state)
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
    h->aside = aside_new(h->mailbox);
    h->keys = own_keys(&h->keeper, (const uint8_t[AUTH_SEED]){1});
    assert_int_equal(cluster_open(&h->cluster, h->dir, h->keys, &err), 0);
    assert_int_equal(store_open(&h->store, h->dir, h->mailbox, NULL, note, &err), 0);
    h->members = alone(0);
    link_to(members_self(h->members), 1);
    link_nodes(h, true);
    h->metrics = metrics_new();
    h->events = event_log_new(64, SIZE_MAX);
    h->sent = json_array();
    h->plan_nodes = RANKS;
    *state = h;
    return 0;
}

static inline int tear_down(void **state)
{
    struct head *h = *state;
    char command[100];
    coord_free(h->coord);
    event_log_free(h->events);
    metrics_free(h->metrics);
    members_free(h->members);
    store_close(h->store);
    cluster_close(h->cluster);
    keys_close(h->keys);
    aside_free(h->aside);
    mailbox_free(h->mailbox);
    opts_free(h->opts);
    event_free(h->guard);
    event_base_free(h->base);
    json_decref(h->sent);
    json_decref(h->planned);
    snprintf(command, sizeof command, "rm -r %s", h->dir);
    assert_int_equal(system(command), 0);
    free(h);
    return 0;
}

static inline const struct job *submit_spec(struct head *h, enum job_type type, json_t *spec)
{
    struct err err;
    uint64_t id;
    if (coord_submit(h->coord, type, spec, NULL, &id, &err))
        fail_msg("%s", err.text);
    return coord_find(h->coord, id);
}

static inline const struct job *submit(struct head *h)
{
    return submit_spec(h, JOB_GENERATE, json_pack("{s:s s:s}", "model", "/m", "prompt", "a"));
}

static inline const struct job *submit_training(struct head *h)
{
    return submit_spec(
        h, JOB_TRAIN,
        json_pack("{s:s s:s s:s s:i}", "model", "/m", "data", "/d", "adapter_out", "/out", "iters", 5));
}

/* As messages.c does: of another node only what is answered. */
static inline void receive(struct head *h, const uint8_t from[16], const json_t *body)
{
    static const enum message_kind kinds[JOB_WORDS] = {[JOB_WORD_PLANNED] = MESSAGE_JOB_PLANNED,
                                                       [JOB_WORD_READY] = MESSAGE_JOB_READY,
                                                       [JOB_WORD_CONNECTED] = MESSAGE_JOB_CONNECTED,
                                                       [JOB_WORD_EVENT] = MESSAGE_JOB_EVENT,
                                                       [JOB_WORD_RELAYED] = MESSAGE_JOB_RELAYED,
                                                       [JOB_WORD_FAILED] = MESSAGE_JOB_FAILED,
                                                       [JOB_WORD_DONE] = MESSAGE_JOB_DONE,
                                                       [JOB_WORD_STOPPED] = MESSAGE_JOB_STOPPED,
                                                       [JOB_WORD_LEFT] = MESSAGE_JOB_LEFT};
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
static inline void say(struct head *h, const struct job *job, unsigned rank, const char *kind, json_t *fields)
{
    uint8_t from[16] = {(uint8_t)(rank + 1)};
    json_object_set_new(fields, "job", json_integer((json_int_t)job->id));
    json_object_set_new(fields, "attempt", json_integer(job->attempt));
    json_object_set_new(fields, "rank", json_integer(rank));
    json_object_set_new(fields, "kind", json_string(kind));
    receive(h, from, fields);
    json_decref(fields);
}

static inline void all_say(struct head *h, const struct job *job, const char *kind)
{
    for (unsigned r = 0; r < RANKS; r++)
        say(h, job, r, kind, json_object());
}

/* How often that node was sent it. */
static inline unsigned told(const struct head *h, unsigned to, const char *kind)
{
    unsigned n = 0;
    size_t i;
    json_t *m;
    json_array_foreach (h->sent, i, m)
        n += json_integer_value(json_object_get(m, "to")) == (json_int_t)to &&
             !strcmp(json_string_value(json_object_get(m, "kind")), kind);
    return n;
}

static inline void say_planned(struct head *h, const struct job *job)
{
    const struct job_plan plan = small_plan(job->type, RANKS);
    say(h, job, 0, "job-planned", small_plan_told(&plan, 5));
}

static inline void say_ready(struct head *h, const struct job *job)
{
    for (unsigned r = 0; r < RANKS; r++)
        say(h, job, r, "job-ready", json_pack("{s:[[i,i]]}", "layers", r, r + 1));
}

/* A stage of that job of the other node holds memory of this one, or none does (0). */
static inline void hold_memory(struct head *h, uint64_t job)
{
    struct member *self = members_self(h->members);
    self->nstages = job > 0;
    self->stages[0] =
        (struct member_stage){.job = job, .head = {2}, .class = JOB_CLASS_INTERACTIVE, .bytes = 1 << 30};
}

/* Its plan finds that this node lacks 1 GiB. */
static inline void say_lacks(struct head *h, const struct job *job)
{
    say(h, job, 0, "job-failed",
        json_pack("{s:s s:i s:s}", "cause", "too little", "lacks", 1 << 30, "at",
                  "01000000000000000000000000000000"));
    say(h, job, 0, "job-stopped", json_object());
}

/* As far as that state, in which nobody says more. */
static inline const struct job *job_in(struct head *h, enum job_state state)
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

static inline void wait_for(struct head *h, const struct job *job, enum job_state state)
{
    while (job->state != state && !h->is_stuck) {
        event_base_loop(h->base, EVLOOP_ONCE);
        let_go(h);
    }
    assert_int_equal(job->state, state);
}

/* Rank 0 of the job is asked to stop after its next step, for the so many-th time. */
static inline void await_leave(struct head *h, unsigned times)
{
    while (told(h, 0, "job-leave") < times && !h->is_stuck)
        event_base_loop(h->base, EVLOOP_ONCE);
    assert_int_equal(told(h, 0, "job-leave"), times);
}

#endif
