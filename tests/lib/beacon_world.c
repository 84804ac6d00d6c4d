/* SPDX-License-Identifier: MIT
 *
 * The fake network of beacon tests. */
#include "tests/lib/beacon_world.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_US = 20000 };

uint64_t world_random(struct world *w)
{
    uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void wrong(struct world *w, const char *what)
{
    if (!w->error)
        w->error = what;
}

/* --- what a node is told --- */

static size_t find_cable(const struct world_node *node, const struct cable *c)
{
    size_t i = 0;

    while (i < node->ncables && (node->cables[i].id != c->id || node->cables[i].ifindex != c->ifindex))
        i++;
    return i;
}

static void on_up(void *owner, const struct cable *c)
{
    struct world_node *node = owner;

    node->ups++;
    if (find_cable(node, c) < node->ncables)
        wrong(node->world, "a cable came up twice");
    else if (node->ncables == WORLD_CABLES)
        wrong(node->world, "more cables than the test has room for");
    else
        node->cables[node->ncables++] = *c;
}

static void on_changed(void *owner, const struct cable *c)
{
    struct world_node *node = owner;
    size_t i = find_cable(node, c);

    node->changes++;
    if (i == node->ncables)
        wrong(node->world, "a cable changed that is not up");
    else if (memcmp(node->cables[i].node_id, c->node_id, 16) != 0 || node->cables[i].boot != c->boot)
        wrong(node->world, "a cable changed its other end");
    else
        node->cables[i] = *c;
}

static void on_down(void *owner, const struct cable *c, enum cable_end end)
{
    struct world_node *node = owner;
    size_t i = find_cable(node, c);

    node->downs++;
    node->last_end = end;
    if (i == node->ncables)
        wrong(node->world, "a cable went down that is not up");
    else
        node->cables[i] = node->cables[--node->ncables];
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    struct world_node *node = owner;

    (void)with;
    node->troubles[state]++;
}

static uint64_t proved_boot(void *owner, const uint8_t node_id[static 16])
{
    const struct world_node *node = owner;

    return memcmp(node->connected_id, node_id, 16) ? 0 : node->connected_boot;
}

static const struct beacons_ops ops = {on_up, on_changed, on_down, on_trouble, proved_boot};

/* --- building --- */

struct world *world_new(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    uint8_t network_key[32];

    if (!w)
        abort();
    w->random = seed;
    w->now.us = 1000000 + world_random(w) % 1000000000;
    w->delay_us = 2000;
    w->flying = calloc(WORLD_FLYING, sizeof *w->flying);
    w->tape = calloc(WORLD_TAPE, sizeof *w->tape);
    if (!w->flying || !w->tape)
        abort();
    memset(network_key, 7, sizeof network_key);
    w->key.id = 1;
    beacon_key_derive(w->key.key, network_key);
    return w;
}

struct world *world_pair(uint64_t seed)
{
    struct world *w = world_new(seed);
    size_t a = world_node(w), b = world_node(w);

    world_cable(w, a, b);
    if (world_run_until_true(w, 2000000) == UINT64_MAX)
        wrong(w, "two nodes have not found each other within two seconds");
    return w;
}

void world_free(struct world *w)
{
    for (size_t i = 0; i < w->nnodes; i++)
        beacons_free(w->nodes[i].beacons);
    free(w->flying);
    free(w->tape);
    free(w);
}

void world_start(struct world *w, size_t node)
{
    struct world_node *n = &w->nodes[node];

    n->world = w;
    n->is_on = true;
    n->ncables = 0;
    n->self.boot = world_random(w);
    if (beacons_new(&n->beacons, &n->self, world_random(w), &ops, n) < 0)
        abort();
    beacons_set_key(n->beacons, &w->key, w->now);
    for (size_t i = 0; i < w->nports; i++)
        if (w->ports[i].used && w->ports[i].node == node &&
            beacons_port_add(n->beacons, &w->ports[i].port, w->now))
            abort();
}

size_t world_node(struct world *w)
{
    size_t node = w->nnodes++;
    struct beacons_self *self = &w->nodes[node].self;

    for (size_t i = 0; i < sizeof self->node_id; i++)
        self->node_id[i] = (uint8_t)world_random(w);
    self->name[0] = (char)('a' + node);
    self->tcp_port = (uint16_t)(1000 + node);
    self->proto_min = self->proto_max = 1;
    world_start(w, node);
    return node;
}

size_t world_segment(struct world *w)
{
    return w->nsegments++;
}

size_t world_plug(struct world *w, size_t node, size_t segment)
{
    size_t i = w->nports++;
    struct world_port *p = &w->ports[i];

    if (i >= WORLD_PORTS)
        abort();
    *p = (struct world_port){.used = true, .node = node, .segment = segment};
    p->port = (struct port){.ifindex = (unsigned)i + 1,
                            .kind = PORT_ETH,
                            .up = true,
                            .carrier = true,
                            .mtu = 1500,
                            .speed_mbps = 2500,
                            .has_link_local = true,
                            .port_id = (uint32_t)world_random(w)};
    p->port.link_local.s6_addr[0] = 0xfe;
    p->port.link_local.s6_addr[1] = 0x80;
    p->port.link_local.s6_addr[15] = (uint8_t)i;
    if (w->nodes[node].is_on && beacons_port_add(w->nodes[node].beacons, &p->port, w->now) < 0)
        abort();
    return i;
}

size_t world_cable(struct world *w, size_t a, size_t b)
{
    size_t segment = world_segment(w), port = world_plug(w, a, segment);

    world_plug(w, b, segment);
    return port;
}

void world_pull(struct world *w, size_t port)
{
    struct world_port *p = &w->ports[port];

    if (p->used && w->nodes[p->node].is_on)
        beacons_port_remove(w->nodes[p->node].beacons, p->port.ifindex, w->now);
    p->used = false;
}

void world_kill(struct world *w, size_t node)
{
    beacons_free(w->nodes[node].beacons);
    w->nodes[node].beacons = NULL;
    w->nodes[node].is_on = false;
    w->nodes[node].ncables = 0;
}

/* --- datagrams --- */

static void deliver_later(struct world *w, size_t from, const uint8_t *data, size_t n)
{
    for (size_t to = 0; to < w->nports; to++) {
        struct world_datagram *d = &w->flying[w->nflying];

        if (to == from || !w->ports[to].used || w->ports[to].segment != w->ports[from].segment)
            continue;
        if (w->ports[from].mute || w->ports[to].deaf || world_random(w) % 100 < w->loss_percent)
            continue;
        if (w->nflying == WORLD_FLYING)
            abort();
        w->nflying++;
        *d = (struct world_datagram){.from = from,
                                     .to = to,
                                     .source = w->ports[from].port.link_local,
                                     .at_us = w->now.us + 10 + world_random(w) % w->delay_us,
                                     .n = n};
        memcpy(d->data, data, n);
    }
}

static void random_nonce(struct world *w, uint8_t nonce[static BEACON_NONCE])
{
    for (size_t i = 0; i < BEACON_NONCE; i++)
        nonce[i] = (uint8_t)world_random(w);
}

void world_leave(struct world *w, size_t node)
{
    uint8_t nonce[BEACON_NONCE], data[BEACON_MAX];

    for (size_t i = 0; i < w->nports; i++) {
        int n;

        if (!w->ports[i].used || w->ports[i].node != node)
            continue;
        random_nonce(w, nonce);
        n = beacons_goodbye(w->nodes[node].beacons, w->ports[i].port.ifindex, w->now, nonce, data,
                            sizeof data);
        if (n <= 0)
            abort();
        deliver_later(w, i, data, (size_t)n);
    }
    world_kill(w, node);
}

static void send_due(struct world *w)
{
    uint8_t nonce[BEACON_NONCE], data[BEACON_MAX];

    for (size_t i = 0; i < w->nports; i++) {
        const struct world_port *p = &w->ports[i];
        int n;

        if (!p->used || !w->nodes[p->node].is_on || !w->nodes[p->node].is_due)
            continue;
        random_nonce(w, nonce);
        n = beacons_next_send(w->nodes[p->node].beacons, p->port.ifindex, w->now, nonce, data, sizeof data);
        if (n > 0)
            deliver_later(w, i, data, (size_t)n);
    }
}

int world_inject(struct world *w, size_t port, const struct world_datagram *d)
{
    const struct world_port *p = &w->ports[port];

    return beacons_receive(w->nodes[p->node].beacons, p->port.ifindex, &d->source, d->data, d->n, w->now);
}

static void deliver_due(struct world *w)
{
    for (size_t i = 0; i < w->nflying;) {
        struct world_datagram d;

        if (w->flying[i].at_us > w->now.us || w->nodes[w->ports[w->flying[i].to].node].is_stopped) {
            i++;
            continue;
        }
        d = w->flying[i];
        w->flying[i] = w->flying[--w->nflying];
        if (!w->ports[d.to].used || !w->nodes[w->ports[d.to].node].is_on)
            continue;
        w->delivered++;
        w->bytes += d.n;
        if (w->is_taping)
            w->tape[w->ntape++ % WORLD_TAPE] = d;
        world_inject(w, d.to, &d);
    }
}

static uint64_t next_time(const struct world *w)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < w->nnodes; i++) {
        struct instant due;

        if (!w->nodes[i].is_on || w->nodes[i].is_stopped)
            continue;
        due = beacons_due(w->nodes[i].beacons);
        next = due.us < next ? due.us : next;
    }
    for (size_t i = 0; i < w->nflying; i++)
        if (!w->nodes[w->ports[w->flying[i].to].node].is_stopped)
            next = w->flying[i].at_us < next ? w->flying[i].at_us : next;
    return next;
}

void world_run(struct world *w, uint64_t us)
{
    uint64_t end = w->now.us + us, next;

    for (unsigned idle = 0; (next = next_time(w)) <= end;) {
        idle = next <= w->now.us ? idle + 1 : 0;
        if (idle > 1000) { /* due, called, and still due */
            wrong(w, "time stands still");
            return;
        }
        w->now.us = next > w->now.us ? next : w->now.us;
        deliver_due(w);
        for (size_t i = 0; i < w->nnodes; i++) {
            struct world_node *node = &w->nodes[i];

            node->is_due = node->is_on && !node->is_stopped && beacons_due(node->beacons).us <= w->now.us;
            if (node->is_due)
                beacons_expire(node->beacons, w->now);
        }
        send_due(w);
    }
    w->now.us = end;
}

/* --- what should be --- */

static bool is_there(const struct world *w, size_t port)
{
    return w->ports[port].used && w->nodes[w->ports[port].node].is_on;
}

static bool hear_each_other(const struct world *w, size_t a, size_t b)
{
    const struct world_port *p = &w->ports[a], *q = &w->ports[b];

    return a != b && is_there(w, a) && is_there(w, b) && p->segment == q->segment && p->node != q->node &&
           !p->deaf && !p->mute && !q->deaf && !q->mute;
}

/* More than one foreign port, or another of the same node: one of the two hears the other and so
 * knows of both. */
static bool should_share(const struct world *w, size_t port)
{
    const struct world_port *p = &w->ports[port];
    size_t foreign = 0, own = 0;

    for (size_t i = 0; i < w->nports; i++) {
        const struct world_port *q = &w->ports[i];

        foreign += hear_each_other(w, port, i);
        own += i != port && is_there(w, i) && q->segment == p->segment && q->node == p->node &&
               ((!p->mute && !q->deaf) || (!q->mute && !p->deaf));
    }
    return foreign > 1 || own > 0;
}

static bool sees(const struct world *w, size_t a, size_t b)
{
    const struct world_port *p = &w->ports[a], *q = &w->ports[b];
    const struct world_node *node = &w->nodes[p->node], *other = &w->nodes[q->node];
    uint64_t id = cable_id(other->self.node_id, q->port.port_id, node->self.node_id, p->port.port_id);

    for (size_t i = 0; i < node->ncables; i++) {
        const struct cable *c = &node->cables[i];

        if (c->id == id && c->ifindex == p->port.ifindex)
            return c->boot == other->self.boot && c->peer_port_id == q->port.port_id &&
                   c->tcp_port == other->self.tcp_port && strcmp(c->name, other->self.name) == 0 &&
                   memcmp(&c->address, &q->port.link_local, sizeof c->address) == 0 &&
                   c->shared == should_share(w, a);
    }
    return false;
}

bool world_is_true(const struct world *w)
{
    size_t expected = 0, seen = 0;

    for (size_t a = 0; a < w->nports; a++) {
        for (size_t b = 0; b < w->nports; b++) {
            if (!hear_each_other(w, a, b))
                continue;
            expected++;
            if (!sees(w, a, b))
                return false;
        }
    }
    for (size_t i = 0; i < w->nnodes; i++)
        seen += w->nodes[i].is_on ? w->nodes[i].ncables : 0;
    return seen == expected;
}

uint64_t world_run_until_true(struct world *w, uint64_t most_us)
{
    for (uint64_t took = 0; took <= most_us; took += STEP_US) {
        if (world_is_true(w))
            return took;
        world_run(w, STEP_US);
    }
    return UINT64_MAX;
}
