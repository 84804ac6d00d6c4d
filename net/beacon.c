/* SPDX-License-Identifier: MIT
 *
 * Ports and their beacons: what is sent when, what is let in. Owns the table of ports; called by
 * finder.c on the loop, and by tests. PURE. */
#include "beacon_impl.h"

#include "buf.h"
#include "base/secret.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {[NEIGHBOUR_HEARD] = "heard",
                                          [NEIGHBOUR_ONE_WAY] = "one-way",
                                          [NEIGHBOUR_TWO_WAY] = "two-way",
                                          [NEIGHBOUR_VERSION] = "version",
                                          [NEIGHBOUR_CLONED] = "cloned"};

const char *neighbour_state_name(enum neighbour_state state)
{
    return state <= NEIGHBOUR_CLONED ? state_names[state] : "unknown";
}

/* --- time --- */

struct instant beacons_clock(struct beacons *b, struct instant now)
{
    bool stood_still = b->wanted.us > 0 && now.us > b->wanted.us && now.us - b->wanted.us > BEACON_LATE_US;
    struct instant ours;

    if (stood_still)
        b->slept_us += clock_since_us(now, b->seen);
    b->seen = now;
    ours.us = now.us - b->slept_us;
    if (!stood_still)
        return ours;
    b->wanted.us = 0;
    for (size_t i = 0; i < BEACON_PORTS; i++)
        if (b->ports[i])
            beacon_port_kick(b->ports[i], ours);
    return ours;
}

/* --- life --- */

int beacons_new(struct beacons **ret, const struct beacons_self *self, uint64_t seed,
                const struct beacons_ops *ops, void *owner)
{
    struct beacons *b;

    if (sodium_init() < 0)
        return -EIO;
    b = calloc(1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->key = secret_new(sizeof *b->key);
    if (!b->key) {
        free(b);
        return -ENOMEM;
    }
    b->self = *self;
    b->self.name[sizeof b->self.name - 1] = '\0';
    b->random = seed;
    b->ops = ops;
    b->owner = owner;
    b->nodes[0] = (struct node_boots){.used = true, .boot = self->boot};
    memcpy(b->nodes[0].node_id, self->node_id, sizeof self->node_id);
    *ret = b;
    return 0;
}

void beacons_free(struct beacons *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < BEACON_PORTS; i++)
        free(b->ports[i]);
    secret_free(b->key);
    free(b);
}

void beacons_set_key(struct beacons *b, const struct beacon_key *key, struct instant now)
{
    const struct beacon_key none = {.id = 0}, *next = key ? key : &none;

    now = beacons_clock(b, now);
    if (b->has_key != (key != NULL) || b->key->id != next->id ||
        sodium_memcmp(b->key->key, next->key,
                      sizeof next->key)) /* what could not be opened before may be our own */
        b->stats = (struct beacons_stats){.sent = b->stats.sent};
    *b->key = *next;
    b->has_key = key;
    for (size_t i = 0; i < BEACON_PORTS; i++)
        if (b->ports[i])
            beacon_port_kick(b->ports[i], now);
}

/* --- ports --- */

static struct beacon_port *find_port(const struct beacons *b, unsigned ifindex)
{
    for (size_t i = 0; i < BEACON_PORTS; i++)
        if (b->ports[i] && b->ports[i]->port.ifindex == ifindex)
            return b->ports[i];
    return NULL;
}

static bool says_the_same(const struct port *a, const struct port *b)
{
    return a->kind == b->kind && a->speed_mbps == b->speed_mbps && a->mtu == b->mtu &&
           a->max_mtu == b->max_mtu && strcmp(a->name, b->name) == 0 &&
           a->has_default_route == b->has_default_route &&
           memcmp(&a->link_local, &b->link_local, sizeof a->link_local) == 0;
}

static void remove_port(struct beacons *b, unsigned ifindex, struct instant now)
{
    for (size_t i = 0; i < BEACON_PORTS; i++) {
        struct beacon_port *p = b->ports[i];

        if (!p || p->port.ifindex != ifindex)
            continue;
        b->last_seq = p->seq > b->last_seq ? p->seq : b->last_seq;
        beacon_table_clear(b, p, now);
        free(p);
        b->ports[i] = NULL;
    }
}

int beacons_port_add(struct beacons *b, const struct port *port, struct instant now)
{
    struct beacon_port *p = find_port(b, port->ifindex);
    size_t i = 0;

    now = beacons_clock(b, now);
    if (p && p->port.port_id != port->port_id) { /* another card under an old number */
        remove_port(b, port->ifindex, now);
        p = NULL;
    }
    if (p) {
        if (!says_the_same(&p->port, port))
            beacon_port_kick(p, now);
        p->port = *port;
        for (size_t k = 0; k < BEACON_NEIGHBOURS; k++) /* the port may have been renamed */
            memcpy(p->neighbours[k].cable.port, port->name, sizeof port->name);
        return 0;
    }
    while (i < BEACON_PORTS && b->ports[i])
        i++;
    if (i == BEACON_PORTS)
        return -ENOSPC;
    p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->port = *port;
    p->first_seq = p->seq = b->last_seq + 1;
    p->due.us = UINT64_MAX;
    beacon_port_kick(p, now);
    b->ports[i] = p;
    return 0;
}

void beacons_port_remove(struct beacons *b, unsigned ifindex, struct instant now)
{
    remove_port(b, ifindex, beacons_clock(b, now));
}

int beacons_set_attempt(struct beacons *b, unsigned ifindex, uint8_t attempt, struct instant now)
{
    struct beacon_port *p = find_port(b, ifindex);

    if (!p)
        return -ENODEV;
    now = beacons_clock(b, now);
    if (p->attempt != attempt)
        beacon_port_kick(p, now);
    p->attempt = attempt;
    return 0;
}

/* --- receiving --- */

/* Everybody without a cable shares one allowance. */
static bool is_allowed(struct beacon_port *port, const struct in6_addr *from, struct instant now)
{
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        struct beacon_neighbour *n = &port->neighbours[i];

        if (n->used && n->state == NEIGHBOUR_TWO_WAY && memcmp(&n->cable.address, from, sizeof *from) == 0)
            return bucket_take(&n->bucket, BEACON_ACQUAINTANCE_PER_S, now);
    }
    return bucket_take(&port->strangers, BEACON_STRANGERS_PER_S, now);
}

/* Our own beacon: two ports of ours are on one segment. */
static int meet_ourselves(struct beacons *b, struct beacon_port *port, const struct beacon *beacon,
                          struct instant now)
{
    for (size_t i = 0; i < BEACON_PORTS; i++) {
        struct beacon_port *other = b->ports[i];
        struct instant sent;

        if (!other || other->port.port_id != beacon->port_id ||
            !beacon_port_sent(other, beacon->seq, now, &sent))
            continue;
        port->loop_until.us = other->loop_until.us = now.us + BEACON_HOLD_SLOW_US;
        beacon_table_review(b, port, now);
        beacon_table_review(b, other, now);
        return 0;
    }
    return -ESTALE;
}

static int take(struct beacons *b, struct beacon_port *port, const struct in6_addr *from, const void *data,
                size_t n, struct instant now)
{
    int type = beacon_peek(data, n), r;
    struct beacon beacon;

    if (type < 0)
        return type;
    if (!is_allowed(port, from, now)) {
        port->crowded = now;
        return -EBUSY;
    }
    if (type == BEACON_JOINQ || type == BEACON_JOINA)
        return 1;
    r = beacon_decode(&beacon, b->has_key ? b->key : NULL, from, data, n);
    if (r < 0)
        return r;
    if (beacon.boot == b->self.boot && memcmp(beacon.node_id, b->self.node_id, sizeof beacon.node_id) == 0)
        return meet_ourselves(b, port, &beacon, now);
    return beacon_table_learn(b, port, &beacon, from, now);
}

int beacons_receive(struct beacons *b, unsigned ifindex, const struct in6_addr *from, const void *data,
                    size_t n, struct instant now)
{
    struct beacon_port *port = find_port(b, ifindex);
    int r;

    if (!port)
        return -ENODEV;
    now = beacons_clock(b, now);
    r = take(b, port, from, data, n, now);
    if (r == -ESTALE) /* somebody repeats beacons, or makes them: what connections say counts as well */
        port->crowded = now;
    if (r >= 0)
        b->stats.taken++;
    else if (r == -EBADMSG)
        b->stats.garbage++;
    else if (r == -ENOKEY || r == -EKEYREJECTED)
        b->stats.foreign++;
    else if (r == -ESTALE)
        b->stats.stale++;
    else
        b->stats.limited++;
    return r;
}

void beacons_heard(struct beacons *b, uint64_t cable, struct instant now)
{
    now = beacons_clock(b, now);
    for (size_t i = 0; i < BEACON_PORTS; i++) {
        struct beacon_port *port = b->ports[i];

        if (!port || !port->crowded.us || clock_since_us(now, port->crowded) > BEACON_HOLD_US)
            continue;
        for (size_t k = 0; k < BEACON_NEIGHBOURS; k++) {
            struct beacon_neighbour *n = &port->neighbours[k];

            if (n->used && n->state == NEIGHBOUR_TWO_WAY && n->cable.id == cable)
                n->heard = n->proved = now;
        }
    }
}

/* --- sending --- */

void beacons_keep_step(struct beacons *b, struct instant beat)
{
    b->self.beat = beat;
}

static uint64_t next_random(struct beacons *b) /* splitmix64: only spreads times */
{
    uint64_t x = b->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static size_t count_neighbours(const struct beacon_port *port)
{
    size_t n = 0;

    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++)
        n += port->neighbours[i].used;
    return n;
}

static uint64_t interval_us(struct beacons *b, const struct beacon_port *port, struct instant now)
{
    uint64_t us = BEACON_INTERVAL_US;

    if (port->quick == 0 && !port->shared)
        return clock_until_beat_us((struct instant){now.us + b->slept_us}, us, b->self.beat);
    if (port->quick > 0)
        us = BEACON_QUICK_US;
    else if (port->shared && clock_since_us(now, port->changed) >= BEACON_SETTLED_US &&
             count_neighbours(port) <= BEACON_HEARD_MAX) /* else naming all of them would take too long */
        us = BEACON_SLOW_US;
    return us * 4 / 5 + next_random(b) % (us * 2 / 5 + 1);
}

static void name_neighbours(struct beacon *ret, struct beacon_port *port)
{
    size_t i, seen;

    for (i = port->rotate, seen = 0; seen < BEACON_NEIGHBOURS && ret->nheard < BEACON_HEARD_MAX;
         i++, seen++) {
        const struct beacon_neighbour *n = &port->neighbours[i % BEACON_NEIGHBOURS];
        struct beacon_heard *h = &ret->heard[ret->nheard];

        if (!n->used)
            continue;
        ret->nheard++;
        *h = (struct beacon_heard){.boot = n->cable.boot, .port_id = n->cable.peer_port_id, .seq = n->seq};
        memcpy(h->node_id, n->cable.node_id, sizeof h->node_id);
    }
    port->rotate = i % BEACON_NEIGHBOURS;
}

static int make(struct beacons *b, struct beacon_port *port, enum beacon_type type, struct instant now,
                const uint8_t *nonce, uint8_t *out, size_t cap)
{
    struct beacon beacon = {
        .type = type,
        .boot = b->self.boot,
        .seq = port->seq,
        .port_id = port->port.port_id,
        .hold_ms = (uint16_t)(beacon_port_hold_us(port) / 1000),
        .flags = port->port.has_default_route ? BEACON_HAS_DEFAULT_ROUTE : 0,
        .kind = (uint8_t)port->port.kind,
        .speed_mbps = port->port.speed_mbps,
        .mtu = port->port.mtu,
        .tcp_port = b->self.tcp_port,
        .proto_min = b->self.proto_min,
        .proto_max = b->self.proto_max,
        .attempt = port->attempt,
        .max_mtu = port->port.max_mtu,
        .pool = b->self.pool,
    };
    int n;

    memcpy(beacon.node_id, b->self.node_id, sizeof beacon.node_id);
    strcpy(beacon.name, b->self.name);
    strcpy(beacon.port_name, port->port.name);
    name_neighbours(&beacon, port);
    n = beacon_encode(&beacon, b->key, &port->port.link_local, nonce, out, cap);
    if (n < 0)
        return n;
    port->sent[port->seq++ % BEACON_SENT] = now;
    b->stats.sent++;
    return n;
}

int beacons_next_send(struct beacons *b, unsigned ifindex, struct instant now,
                      const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap)
{
    struct beacon_port *port = find_port(b, ifindex);

    if (!port)
        return -ENODEV;
    now = beacons_clock(b, now);
    if (!b->has_key || now.us + BEACON_EARLY_US < port->due.us)
        return 0;
    if (port->quick > 0)
        port->quick--;
    port->due.us = now.us + interval_us(b, port, now);
    return make(b, port, BEACON_HELLO, now, nonce, out, cap);
}

int beacons_goodbye(struct beacons *b, unsigned ifindex, struct instant now,
                    const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap)
{
    struct beacon_port *port = find_port(b, ifindex);

    if (!port)
        return -ENODEV;
    return !b->has_key ? 0 : make(b, port, BEACON_GOODBYE, beacons_clock(b, now), nonce, out, cap);
}

/* --- what is due --- */

void beacons_expire(struct beacons *b, struct instant now)
{
    now = beacons_clock(b, now);
    for (size_t i = 0; i < BEACON_PORTS; i++)
        if (b->ports[i])
            beacon_table_review(b, b->ports[i], now);
}

struct instant beacons_due(struct beacons *b)
{
    struct instant due = {UINT64_MAX};

    for (size_t i = 0; i < BEACON_PORTS; i++) {
        struct instant at;

        if (!b->ports[i])
            continue;
        at = beacon_table_due(b, b->ports[i]);
        if (at.us < due.us)
            due = at;
        if (b->has_key && b->ports[i]->due.us < due.us)
            due = b->ports[i]->due;
    }
    if (due.us < UINT64_MAX)
        due.us += b->slept_us;
    b->wanted.us = due.us < UINT64_MAX ? due.us : 0;
    return due;
}

size_t beacons_neighbours(const struct beacons *b, struct instant now, struct neighbour_view *out, size_t cap)
{
    size_t n = 0;

    now.us -= b->slept_us;
    for (size_t i = 0; i < BEACON_PORTS; i++) {
        for (size_t k = 0; b->ports[i] && k < BEACON_NEIGHBOURS; k++) {
            const struct beacon_neighbour *at = &b->ports[i]->neighbours[k];

            if (!at->used)
                continue;
            if (n < cap)
                out[n] = (struct neighbour_view){at->cable, at->state, clock_since_us(now, at->heard),
                                                 clock_since_us(now, at->first)};
            n++;
        }
    }
    return n;
}

void beacons_stats(const struct beacons *b, struct beacons_stats *ret)
{
    *ret = b->stats;
}
