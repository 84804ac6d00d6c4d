/* SPDX-License-Identifier: MIT
 *
 * Nodes of one or more clusters on one loop, for the tests of trust and enrolment: each has a state
 * directory, an identity, a cluster, both ends of enrolment, and a listener on loopback TCP that
 * lets in whom peers.c would. Messages between members are delivered from the loop. Every wait is
 * for an event; a guard timer fails what never comes. */
#ifndef TESTS_UNIT_TRUST_WORLD_H
#define TESTS_UNIT_TRUST_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/log.h"
#include "tests/lib/own_keys.h"
#include "tests/lib/roster_count.h"

enum { ENDS = 5, GUARD_S = 30, LINKS = 64 };

struct world;
struct end { /* one node */
    struct world *world;
    const char *name;
    char dir[64];
    uint8_t seed[AUTH_SEED]; /* of its identity */
    struct keeper keeper;
    struct keys *keys;
    struct auth_identity id;
    uint8_t node_id[16];
    struct cluster *cluster;
    struct enrol *enrol;
    int listener;
    uint16_t port;
    struct event *incoming;
    struct link *links[LINKS]; /* owned: accepted */
    struct link_seen seen;
    unsigned accepted, hellos, ups, downs, changes;
    char last_down[600];
    bool deaf; /* gets no messages */
    /* its join */
    bool joined, over;
    char error[600];
    /* its control link, when it dials one */
    struct link *control;
    bool control_up, control_down;
    char control_text[600];
};
struct world {
    struct event_base *base;
    struct event *guard;
    bool stuck;
    uint64_t now_s;
    struct end ends[ENDS];
};

static inline struct end *end_with(struct world *w, const uint8_t id[16])
{
    for (size_t i = 0; i < ENDS; i++)
        if (!memcmp(w->ends[i].node_id, id, 16))
            return &w->ends[i];
    return NULL;
}

/* --- messages --- */

struct letter {
    struct end *from, *to;
    json_t *body;
};

static inline void deliver(evutil_socket_t fd, short what, void *arg)
{
    struct letter *l = arg;

    (void)fd;
    (void)what;
    const char *kind = json_string_value(json_object_get(l->body, "kind"));
    struct enrol *e = l->to->enrol;
    if (l->to->deaf)
        ;
    else if (!strcmp(kind, "tokens"))
        enrol_take_tokens(e, l->from->node_id, l->body);
    else if (!strcmp(kind, "join-ask"))
        enrol_take_join_ask(e, l->from->node_id, l->body);
    else
        enrol_take_join_answer(e, l->body);
    json_decref(l->body);
    free(l);
}

static inline int end_send(void *owner, const uint8_t to[16], json_t *message)
{
    struct end *from = owner, *target = end_with(from->world, to);
    struct letter *l = calloc(1, sizeof *l);

    assert_non_null(target);
    if (target->deaf) {
        free(l);
        json_decref(message);
        return -EHOSTUNREACH;
    }
    *l = (struct letter){from, target, message};
    assert_int_equal(event_base_once(from->world->base, -1, EV_TIMEOUT, deliver, l, NULL), 0);
    return 0;
}

static inline bool same_cluster(const struct end *a, const struct end *b)
{
    return cluster_key(a->cluster) && cluster_key(b->cluster) &&
           !memcmp(cluster_key(a->cluster), cluster_key(b->cluster), CERT_CLUSTER_KEY);
}

static inline void end_broadcast(void *owner, json_t *message)
{
    struct end *from = owner;

    for (size_t i = 0; i < ENDS; i++) {
        struct end *to = &from->world->ends[i];

        if (to != from && same_cluster(from, to) && !to->deaf)
            end_send(from, to->node_id, json_incref(message));
    }
    json_decref(message);
}

/* What peers.c does with news, without wires. */
static inline void spread(struct end *from)
{
    size_t n;
    const uint8_t *roster = cluster_roster_bytes(from->cluster, &n);
    struct err err;

    for (size_t i = 0; i < ENDS; i++) {
        struct end *to = &from->world->ends[i];

        if (to != from && same_cluster(from, to) && !to->deaf &&
            cluster_learn(to->cluster, roster, n, &err) == 1)
            spread(to);
    }
}

static inline void end_changed(void *owner)
{
    struct end *end = owner;

    end->changes++;
    spread(end);
}

static inline uint64_t end_now(void *owner)
{
    return ((struct end *)owner)->world->now_s;
}

/* --- links that come in --- */

static inline int in_hello(void *owner, struct link *link, const struct link_hello *peer, char *why,
                           size_t size)
{
    struct end *end = owner;

    end->hellos++;
    if (enrol_is_key(link_key_tag(link)) != (link_kind(link) == LINK_JOIN)) {
        snprintf(why, size, "a token's secret only lets a node join");
        return -EPERM;
    }
    return link_kind(link) == LINK_JOIN ? enrol_hello(end->enrol, link, peer, why, size)
                                        : cluster_judge(end->cluster, link_peer_key(link), peer, why, size);
}

static inline void in_up(void *owner, struct link *link)
{
    struct end *end = owner;

    end->ups++;
    if (link_kind(link) == LINK_JOIN)
        enrol_serve(end->enrol, link);
}

static inline void in_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct end *end = owner;

    if (link_kind(link) == LINK_JOIN)
        enrol_frame(end->enrol, link, type, body, n);
}

static inline void in_down(void *owner, struct link *link, enum link_end why, const char *text)
{
    struct end *end = owner;

    (void)why;
    end->downs++;
    snprintf(end->last_down, sizeof end->last_down, "%s", text);
    enrol_left(end->enrol, link);
    for (size_t i = 0; i < LINKS; i++)
        if (end->links[i] == link)
            end->links[i] = NULL;
    link_free(link);
    event_base_loopbreak(end->world->base);
}

static const struct link_ops in_ops = {.hello = in_hello, .up = in_up, .frame = in_frame, .down = in_down};

static inline struct link_setup setup_of(struct end *end)
{
    struct link_setup s = {.base = end->world->base, .id = &end->id, .owner = end};

    s.hello.proto_min = s.hello.proto_max = 1;
    strcpy(s.hello.version, "0.1.0");
    snprintf(s.hello.name, sizeof s.hello.name, "%s",
             cluster_cert(end->cluster) ? cluster_cert(end->cluster)->name : end->name);
    if (cluster_cert_bytes(end->cluster)) {
        memcpy(s.hello.cert, cluster_cert_bytes(end->cluster), CERT_BYTES);
        memcpy(s.hello.cluster_key, cluster_key(end->cluster), CERT_CLUSTER_KEY);
    }
    return s;
}

static inline void on_incoming(evutil_socket_t listener, short what, void *arg)
{
    struct end *end = arg;
    int fd = accept(listener, NULL, NULL);
    struct link_key keys[LINK_KEYS_MAX];
    struct link_setup s = setup_of(end);
    size_t place = 0;

    (void)what;
    assert_true(fd >= 0);
    end->accepted++;
    if (cluster_state(end->cluster) != CLUSTER_MEMBER) {
        close(fd);
        return;
    }
    while (end->links[place])
        assert_true(++place < LINKS);
    s.ops = &in_ops;
    s.keys = keys;
    s.seen = &end->seen;
    s.n_keys = cluster_link_keys(end->cluster, keys, LINK_KEYS_MAX);
    s.n_keys += enrol_link_keys(end->enrol, keys + s.n_keys, LINK_KEYS_MAX - s.n_keys);
    assert_int_equal(link_accept(&end->links[place], &s, fd), 0);
}

/* --- the world --- */

static inline int bind_loopback(uint16_t *ret_port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sin;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
    *ret_port = ntohs(sin.sin_port);
    return fd;
}

static inline void end_open(struct end *end)
{
    struct err err = {""};

    end->keys = own_keys(&end->keeper, end->seed);
    assert_non_null(end->keys);
    end->id = *keys_identity(end->keys);
    if (cluster_open(&end->cluster, end->dir, end->keys, &err))
        fail_msg("%s", err.text);
    cluster_set_kept(end->cluster, end_changed, end);
    auth_node_id(end->node_id, end->id.pub);
    end->enrol = enrol_new(&(struct enrol_setup){.base = end->world->base,
                                                 .id = &end->id,
                                                 .cluster = end->cluster,
                                                 .version = "0.1.0",
                                                 .send = end_send,
                                                 .broadcast = end_broadcast,
                                                 .changed = end_changed,
                                                 .owner = end,
                                                 .now_s = end_now,
                                                 .search_ms = 1000,
                                                 .answer_ms = 3000});
}

static inline void end_shut(struct end *end)
{
    for (size_t i = 0; i < LINKS; i++)
        link_free(end->links[i]);
    memset(end->links, 0, sizeof end->links);
    link_free(end->control);
    end->control = NULL;
    enrol_free(end->enrol);
    cluster_close(end->cluster);
    keys_close(end->keys);
}

static inline void on_guard(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;

    (void)fd;
    (void)what;
    w->stuck = true;
    event_base_loopbreak(w->base);
}

static inline int world_setup(void **state)
{
    static const char *const names[ENDS] = {"anna", "bert", "cleo", "dora", "emil"};
    struct world *w = calloc(1, sizeof *w);

    signal(SIGPIPE, SIG_IGN);
    log_set_level("error");
    w->base = event_base_new();
    w->guard = evtimer_new(w->base, on_guard, w);
    w->now_s = 1000000;
    for (size_t i = 0; i < ENDS; i++) {
        struct end *end = &w->ends[i];

        end->world = w;
        end->name = names[i];
        snprintf(end->dir, sizeof end->dir, "/tmp/ringd-test-XXXXXX");
        assert_non_null(mkdtemp(end->dir));
        randombytes_buf(end->seed, sizeof end->seed);
        end_open(end);
        end->listener = bind_loopback(&end->port);
        end->incoming = event_new(w->base, end->listener, EV_READ | EV_PERSIST, on_incoming, end);
        event_add(end->incoming, NULL);
    }
    *state = w;
    return 0;
}

static inline int world_teardown(void **state)
{
    static const char *const files[] = {"cluster", "tokens"};
    struct world *w = *state;
    char path[128];

    for (size_t i = 0; i < ENDS; i++) {
        struct end *end = &w->ends[i];

        end_shut(end);
        event_free(end->incoming);
        close(end->listener);
        for (size_t f = 0; f < 2; f++) {
            snprintf(path, sizeof path, "%s/%s", end->dir, files[f]);
            unlink(path);
        }
        rmdir(end->dir);
    }
    event_base_loop(w->base, EVLOOP_NONBLOCK); /* letters under way */
    event_free(w->guard);
    event_base_free(w->base);
    free(w);
    return 0;
}

/* Runs the loop until *flag, or a callback breaks it (flag NULL). */
static inline void run_until(struct world *w, const bool *flag)
{
    evtimer_add(w->guard, &(struct timeval){.tv_sec = GUARD_S});
    do
        event_base_dispatch(w->base);
    while (flag && !*flag && !w->stuck);
    event_del(w->guard);
    assert_false(w->stuck);
}

static inline void run_until_downs(struct end *end, unsigned downs)
{
    while (end->downs < downs)
        run_until(end->world, NULL);
}

/* Everything that can happen at once has happened. */
static inline void settle(struct world *w)
{
    for (int i = 0; i < 50; i++)
        event_base_loop(w->base, EVLOOP_NONBLOCK);
}

/* --- what tests do --- */

static inline void must(int r, const struct err *err)
{
    if (r)
        fail_msg("%s", err->text);
}

static inline void init(struct end *end)
{
    struct err err;

    must(cluster_init(end->cluster, "home", end->name, end->world->now_s, &err), &err);
}

static inline void invite(struct end *end, uint64_t ttl_s, char token[static TOKEN_TEXT])
{
    struct err err;

    must(cluster_invite(end->cluster, ttl_s, end->world->now_s, token, &err), &err);
    enrol_share(end->enrol);
    settle(end->world);
}

static inline void on_joined(void *arg, const char *error)
{
    struct end *end = arg;

    end->over = true;
    end->joined = !error;
    snprintf(end->error, sizeof end->error, "%s", error ? error : "");
    event_base_loopbreak(end->world->base);
}

/* Joins by a port on loopback, 0 = by discovery; "" or what it was told. */
static inline const char *join(struct end *end, const char *token, uint16_t port)
{
    struct err err;

    end->over = end->joined = false;
    if (enrol_join(end->enrol, token, end->name, port ? "127.0.0.1" : NULL, port, on_joined, end, &err))
        fail_msg("%s", err.text);
    run_until(end->world, &end->over);
    return end->error;
}

static inline void admit(struct end *authority, struct end *newcomer)
{
    char token[TOKEN_TEXT];

    invite(authority, 60, token);
    assert_string_equal(join(newcomer, token, authority->port), "");
    settle(authority->world);
}

static inline void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in \"%s\"", part, text);
}

/* A control link from one to the other, by the secret of `age` generations back: up, or what it was
 * told. */
static inline int dial_hello(void *owner, struct link *link, const struct link_hello *peer, char *why,
                             size_t size)
{
    struct end *end = owner;

    if (cluster_state(end->cluster) == CLUSTER_NONE) /* an attacker is not particular */
        return 0;
    return cluster_judge(end->cluster, link_peer_key(link), peer, why, size);
}

static inline void dial_up(void *owner, struct link *link)
{
    struct end *end = owner;

    (void)link;
    end->control_up = true;
    event_base_loopbreak(end->world->base);
}

static inline void dial_down(void *owner, struct link *link, enum link_end why, const char *text)
{
    struct end *end = owner;

    (void)why;
    end->control_down = true;
    snprintf(end->control_text, sizeof end->control_text, "%s", text);
    link_free(link);
    end->control = NULL;
    event_base_loopbreak(end->world->base);
}

static const struct link_ops dial_ops = {
    .hello = dial_hello, .up = dial_up, .frame = in_frame, .down = dial_down};

static inline const char *dial_member(struct end *from, uint16_t port, const uint8_t psk[static AUTH_PSK])
{
    struct link_setup s = setup_of(from);

    from->control_up = from->control_down = false;
    s.kind = LINK_CONTROL;
    s.psk = psk;
    s.ops = &dial_ops;
    assert_int_equal(link_dial(&from->control, &s, "127.0.0.1", port), 0);
    while (!from->control_up && !from->control_down)
        run_until(from->world, NULL);
    if (from->control_up)
        from->control_text[0] = '\0';
    link_free(from->control);
    from->control = NULL;
    return from->control_text;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
