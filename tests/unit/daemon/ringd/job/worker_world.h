/* SPDX-License-Identifier: MIT
 *
 * A worker on a node that is alone: with all that it borrows, and no neighbour. What it tells its
 * own node, whose id is 1 and which may be its head, arrives at `told` from the loop. */
#ifndef TESTS_UNIT_WORKER_WORLD_H
#define TESTS_UNIT_WORKER_WORLD_H

#include <event2/event.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/conf.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/store/store.h"
#include "tests/lib/own_keys.h"

struct alone {
    struct event_base *base;
    struct opts *opts;
    struct keeper keeper;
    struct keys *keys;
    struct cluster *cluster;
    struct members *members;
    struct records *records;
    struct mailbox *mailbox;
    struct peers *peers;
    struct relay *relay;
    struct cost_query *cost_query;
    struct spawner *spawner;
    struct ballots *ballots;
    int threads;
    uint64_t free_memory;    /* beside all stages, as workers hear */
    unsigned begun, changed; /* how often the worker said so */
    json_t *brings;          /* owned: what a stage lacks: model, blocks, holders or null, parts; or NULL */
    void (*told)(struct alone *a, const char *kind, const json_t *body);
};

/* A disk that is fast, and forgets. */
void store_put_note(struct store *s, const char *key, const char *json)
{
    (void)s, (void)key, (void)json;
}
void store_sync(struct store *s, void (*done)(void *arg, const char *json), void *arg)
{
    (void)s;
    done(arg, NULL);
}
const char *store_trouble(const struct store *s)
{
    (void)s;
    return NULL;
}

static inline void alone_message(void *owner, const uint8_t from[16], const json_t *body)
{
    struct alone *a = owner;
    (void)from;
    if (a->told)
        a->told(a, json_string_value(json_object_get(body, "kind")), body);
}

static inline void alone_nothing(void *owner)
{
    (void)owner;
}

static inline int alone_send(void *owner, const uint8_t to[16], json_t *message)
{
    struct alone *a = owner;
    return peers_send(a->peers, to, message);
}

static inline int alone_next(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    (void)owner, (void)to, (void)ret;
    return -EHOSTUNREACH;
}

static inline const char *alone_name(void *owner, const uint8_t *id)
{
    (void)owner;
    return id ? "other" : "self";
}

static inline void alone_log(void *owner, const char *text)
{
    (void)owner, (void)text;
}

static inline void alone_stage_begins(void *owner)
{
    struct alone *a = owner;
    a->begun++;
}

/* The loop ends. */
static inline void alone_bring(void *owner, const char *model, const json_t *blocks, const json_t *holders,
                               bool parts)
{
    struct alone *a = owner;
    json_decref(a->brings);
    a->brings = json_pack("[s,O,o,b]", model, blocks,
                          holders ? json_incref((json_t *)(uintptr_t)holders) : json_null(), (int)parts);
    event_base_loopbreak(a->base);
}

static inline const char *alone_content(void *owner, const char *model)
{
    (void)owner, (void)model;
    return "c0ffee";
}

static inline void alone_changed(void *owner)
{
    struct alone *a = owner;
    a->changed++;
}

/* false: a part cannot be opened, and `err` says why. */
static inline bool alone_open(struct alone *a, struct err *err)
{
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    static const struct peers_ops ops = {.refresh_self = alone_nothing,
                                         .refresh_doings = alone_nothing,
                                         .changed = alone_nothing,
                                         .changed_soon = alone_nothing,
                                         .message = alone_message};
    *a = (struct alone){
        .base = event_base_new(), .opts = opts_new(conf_table), .threads = 1, .free_memory = 1 << 30};
    a->keys = own_keys(&a->keeper, (const uint8_t[AUTH_SEED]){1});
    if (!a->keys || !a->base || opts_set(a->opts, "listen", "127.0.0.1:0", err) ||
        cluster_open(&a->cluster, "/nonexistent", a->keys, err) || mailbox_new(&a->mailbox, a->base))
        return false;
    a->members = members_new(&self);
    a->records = records_new(keys_identity(a->keys), a->members);
    if (peers_open(&a->peers,
                   &(struct peers_setup){.base = a->base,
                                         .opts = a->opts,
                                         .id = keys_identity(a->keys),
                                         .name = "self",
                                         .state_dir = "/nonexistent",
                                         .cluster = a->cluster,
                                         .members = a->members,
                                         .records = a->records,
                                         .mailbox = a->mailbox,
                                         .ops = &ops,
                                         .owner = a},
                   err))
        return false;
    a->relay = relay_new(&(struct relay_setup){.base = a->base,
                                               .owner = a,
                                               .send = alone_send,
                                               .next = alone_next,
                                               .name = alone_name,
                                               .log = alone_log});
    a->cost_query =
        cost_query_new(&(struct cost_query_setup){.base = a->base, .members = a->members, .peers = a->peers});
    a->spawner = spawner_new(&(struct spawner_setup){.base = a->base,
                                                     .opts = a->opts,
                                                     .threads = &a->threads,
                                                     .kill_after_us = 50000,
                                                     .give_up_us = 200000});
    a->ballots = ballots_new(NULL, NULL, 0);
    return true;
}

static inline struct worker_setup alone_setup(struct alone *a)
{
    return (struct worker_setup){.base = a->base,
                                 .cluster = a->cluster,
                                 .opts = a->opts,
                                 .threads = &a->threads,
                                 .spawner = a->spawner,
                                 .members = a->members,
                                 .peers = a->peers,
                                 .relay = a->relay,
                                 .cost_query = a->cost_query,
                                 .ballots = a->ballots,
                                 .owner = a,
                                 .stage_begins = alone_stage_begins,
                                 .content = alone_content,
                                 .bring = alone_bring,
                                 .changed = alone_changed};
}

static inline struct worker *alone_worker(struct alone *a)
{
    const struct worker_setup setup = alone_setup(a);
    return worker_new(&setup);
}

static inline uint64_t alone_free_memory(void *owner)
{
    const struct alone *a = owner;
    return a->free_memory;
}

static inline struct workers *alone_workers(struct alone *a)
{
    return workers_new(&(struct workers_setup){.each = alone_setup(a), .free_memory = alone_free_memory});
}

/* After the worker. */
static inline void alone_close(struct alone *a)
{
    a->told = NULL; /* what is still under way goes */
    json_decref(a->brings);
    event_base_loop(a->base, EVLOOP_NONBLOCK);
    ballots_free(a->ballots);
    spawner_free(a->spawner);
    cost_query_free(a->cost_query);
    peers_close(a->peers);
    relay_free(a->relay);
    mailbox_free(a->mailbox);
    records_free(a->records);
    members_free(a->members);
    cluster_close(a->cluster);
    keys_close(a->keys);
    opts_free(a->opts);
    event_base_free(a->base);
}

#endif
