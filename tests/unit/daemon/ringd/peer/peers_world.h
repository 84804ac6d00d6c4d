/* SPDX-License-Identifier: MIT
 *
 * Two nodes with control connections on one loop: anna, who may have a cluster, and bert, who may
 * join it. Loopback TCP alone; every wait is for an event, and a guard timer fails what never
 * comes. */
#ifndef TESTS_UNIT_PEERS_WORLD_H
#define TESTS_UNIT_PEERS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/timer.h"
#include "tests/lib/own_keys.h"

enum { GUARD_MS = 60000, A = 0, B = 1, NODES = 2 };

struct world;
struct node {
    struct world *world;
    const char *name;
    char dir[32], listen[32];
    struct keeper keeper;
    struct keys *keys;
    struct auth_identity id;
    uint8_t node_id[16];
    struct opts *opts;
    struct cluster *cluster;
    struct enrol *enrol;
    struct members *members;
    struct records *records;
    struct mailbox *mailbox;
    struct measure *measure;
    struct peers *peers;
    unsigned messages, ended;
    uint8_t from[16];
    char text[64]; /* of the last message */
    char error[300];
    bool is_joined;
};
struct world {
    struct event_base *base;
    struct timer *guard;
    bool is_stuck;
    struct node at[NODES];
};

/* --- what peers tells ------------------------------------------------------------------------- */

static inline void nothing(void *owner)
{
    (void)owner;
}

static inline void of_node(void *owner, const uint8_t id[16])
{
    (void)owner, (void)id;
}

static inline void of_cable(void *owner, uint64_t cable)
{
    (void)owner, (void)cable;
}

static inline void of_beat(void *owner, struct instant beat)
{
    (void)owner, (void)beat;
}

static inline const struct port *no_port(void *owner, unsigned ifindex)
{
    (void)owner, (void)ifindex;
    return NULL;
}

static inline void no_trouble(void *owner, uint64_t cable, char *ret, size_t size)
{
    (void)owner, (void)cable, (void)size;
    *ret = '\0';
}

static inline void on_message(void *owner, const uint8_t from[16], const json_t *body)
{
    struct node *n = owner;
    const char *text = json_string_value(json_object_get(body, "text"));
    n->messages++;
    memcpy(n->from, from, 16);
    snprintf(n->text, sizeof n->text, "%s", text ? text : "");
}

static inline void on_ended(void *owner)
{
    struct node *n = owner;
    n->ended++;
}

static inline void on_membership(void *owner)
{
    struct node *n = owner;
    peers_membership_changed(n->peers);
}

static const struct peers_ops ops = {.refresh_self = nothing,
                                     .refresh_doings = nothing,
                                     .changed = nothing,
                                     .changed_soon = nothing,
                                     .membership_changed = on_membership,
                                     .record = of_node,
                                     .message = on_message,
                                     .cable_heard = of_cable,
                                     .connection_ended = on_ended,
                                     .beat_changed = of_beat,
                                     .port = no_port,
                                     .cable_trouble = no_trouble};

static inline int send_to(void *owner, const uint8_t to[16], json_t *message)
{
    struct node *n = owner;
    return peers_send(n->peers, to, message);
}

static inline void send_to_all(void *owner, json_t *message)
{
    struct node *n = owner;
    peers_broadcast(n->peers, message);
}

static inline int send_measure(void *owner, uint64_t path, const uint8_t *body, size_t n)
{
    struct node *node = owner;
    return peers_send_measure(node->peers, path, body, n);
}

/* --- the world -------------------------------------------------------------------------------- */

static inline void node_open(struct node *n)
{
    struct err err = {""};
    struct member self = {.boot = (uint64_t)(n - n->world->at) + 100, .seq = 1};
    n->opts = opts_new(conf_table);
    assert_int_equal(opts_set(n->opts, "listen", n->listen, &err), 0);
    assert_int_equal(opts_set(n->opts, "discover", "off", &err), 0);
    const uint8_t seed[AUTH_SEED] = {(uint8_t)(n - n->world->at + 1)};
    n->keys = own_keys(&n->keeper, seed);
    assert_non_null(n->keys);
    n->id = *keys_identity(n->keys);
    assert_int_equal(cluster_open(&n->cluster, n->dir, n->keys, &err), 0);
    assert_int_equal(mailbox_new(&n->mailbox, n->world->base), 0);
    auth_node_id(n->node_id, n->id.pub);
    memcpy(self.id, n->node_id, 16);
    snprintf(self.name, sizeof self.name, "%s", n->name);
    n->members = members_new(&self);
    n->records = records_new(&n->id, n->members);
    n->enrol = enrol_new(&(struct enrol_setup){.base = n->world->base,
                                               .id = &n->id,
                                               .cluster = n->cluster,
                                               .version = "1",
                                               .send = send_to,
                                               .broadcast = send_to_all,
                                               .changed = on_membership,
                                               .owner = n});
    n->measure = measure_new(&(struct measure_setup){.base = n->world->base,
                                                     .members = n->members,
                                                     .send = send_measure,
                                                     .refresh_self = nothing,
                                                     .port = no_port,
                                                     .changed = nothing,
                                                     .owner = n});
}

/* `peers`: what --peer says, or NULL. */
static inline int node_start(struct node *n, const char *peers, struct err *err)
{
    if (peers)
        assert_int_equal(opts_set(n->opts, "peer", peers, err), 0);
    return peers_open(&n->peers,
                      &(struct peers_setup){.base = n->world->base,
                                            .opts = n->opts,
                                            .id = &n->id,
                                            .name = n->name,
                                            .state_dir = n->dir,
                                            .cluster = n->cluster,
                                            .enrol = n->enrol,
                                            .members = n->members,
                                            .records = n->records,
                                            .mailbox = n->mailbox,
                                            .measure = n->measure,
                                            .ops = &ops,
                                            .owner = n},
                      err);
}

static inline void node_close(struct node *n)
{
    peers_close(n->peers);
    n->peers = NULL;
    measure_free(n->measure);
    enrol_free(n->enrol);
    records_free(n->records);
    members_free(n->members);
    mailbox_free(n->mailbox);
    cluster_close(n->cluster);
    keys_close(n->keys);
    opts_free(n->opts);
}

static inline void on_guard(void *owner)
{
    struct world *w = owner;
    w->is_stuck = true;
}

static inline int set_up(void **state)
{
    static const char *const names[] = {"anna", "bert"};
    struct world *w = calloc(1, sizeof *w);
    signal(SIGPIPE, SIG_IGN);
    log_set_level("error");
    assert_true(sodium_init() >= 0);
    w->base = event_base_new();
    w->guard = timer_new(w->base, on_guard, w);
    timer_set_ms(w->guard, GUARD_MS);
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &w->at[i];
        n->world = w;
        n->name = names[i];
        strcpy(n->listen, "127.0.0.1:0");
        strcpy(n->dir, "/tmp/ringd-peers-XXXXXX");
        assert_non_null(mkdtemp(n->dir));
        node_open(n);
    }
    *state = w;
    return 0;
}

static inline int tear_down(void **state)
{
    struct world *w = *state;
    char command[100];
    int r = 0;
    for (size_t i = 0; i < NODES; i++) {
        node_close(&w->at[i]);
        snprintf(command, sizeof command, "rm -r %s", w->at[i].dir);
        r |= system(command);
    }
    timer_free(w->guard);
    event_base_free(w->base);
    free(w);
    return r;
}

/* Until it holds. */
#define AWAIT(w, holds)                                                                                      \
    do {                                                                                                     \
        while (!(holds) && !(w)->is_stuck)                                                                   \
            event_base_loop((w)->base, EVLOOP_ONCE);                                                         \
        if (!(holds))                                                                                        \
            fail_msg("never: %s", #holds);                                                                   \
    } while (0)

static inline void starts(struct node *n, const char *peers)
{
    struct err err = {""};
    if (node_start(n, peers, &err))
        fail_msg("%s", err.text);
}

static inline void on_joined(void *arg, const char *error)
{
    struct node *n = arg;
    n->is_joined = true;
    snprintf(n->error, sizeof n->error, "%s", error ? error : "");
}

static inline bool has_path(struct node *from, const struct node *to)
{
    struct path path[PEERS_MAX_PATHS];
    return peers_paths(from->peers, to->node_id, path) > 0;
}

/* Anna has a cluster, and Bert, who knows her by --peer, joins it: then they are connected. */
static inline void come_together(struct world *w)
{
    struct node *a = &w->at[A], *b = &w->at[B];
    char token[TOKEN_TEXT], peer[40];
    struct err err = {""};
    assert_int_equal(cluster_init(a->cluster, "home", a->name, (uint64_t)time(NULL), &err), 0);
    starts(a, NULL);
    snprintf(peer, sizeof peer, "127.0.0.1:%u", peers_port(a->peers));
    starts(b, peer);
    assert_int_equal(cluster_invite(a->cluster, 600, (uint64_t)time(NULL), token, &err), 0);
    enrol_share(a->enrol);
    assert_int_equal(
        enrol_join(b->enrol, token, b->name, "127.0.0.1", peers_port(a->peers), on_joined, b, &err), 0);
    AWAIT(w, b->is_joined);
    assert_string_equal(b->error, "");
    AWAIT(w, has_path(a, b) && has_path(b, a) && members_reachable(a->members, b->node_id) &&
                 members_reachable(b->members, a->node_id));
}

/* The entry of GET /v1/links at that place. */
static inline json_t *shown(struct node *n, size_t at)
{
    json_t *all = peers_encode(n->peers), *one = json_incref(json_array_get(all, at));
    json_decref(all);
    return one;
}

static inline void expect_shown(struct node *n, size_t at, const char *key, const char *words)
{
    json_t *one = shown(n, at);
    const char *is = json_string_value(json_object_get(one, key));
    if (!is || !strstr(is, words))
        fail_msg("entry %zu has the %s \"%s\", not \"%s\"", at, key, is ? is : "-", words);
    json_decref(one);
}

static inline size_t count_shown(struct node *n)
{
    json_t *all = peers_encode(n->peers);
    const size_t count = json_array_size(all);
    json_decref(all);
    return count;
}

static inline json_t *letter(const char *text)
{
    return json_pack("{s:s s:s}", "kind", "letter", "text", text);
}

#endif
