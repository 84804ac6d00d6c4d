/* SPDX-License-Identifier: MIT
 *
 * The fake network of whole nodes: time, ports, beacons, starting and stopping. What a node does
 * with its connections is in ring_sessions.c. */
#include "tests/lib/ring_world_impl.h"

#include <stdlib.h>
#include <string.h>

enum { START_WALL_S = 1700000000, S = 1000000, PATIENCE_US = 30 * S };

uint64_t ring_world_random(struct ring_world *w, uint64_t below)
{
    uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return below ? x % below : x;
}

void ring_wrong(struct ring_world *w, const char *what)
{
    if (!w->error)
        w->error = what;
}

struct instant ring_local(const struct ring_node *n)
{
    return (struct instant){n->world->now_us + n->clock_us};
}

/* --- events: a heap by time, then by age ------------------------------------------------------ */

static bool is_before(const struct ring_event *a, const struct ring_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct ring_world *w, struct ring_event event)
{
    if (w->nevents == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 256;
        w->events = realloc(w->events, w->cap * sizeof *w->events);
        if (!w->events)
            abort();
    }
    size_t i = w->nevents++;
    for (; i && is_before(&event, &w->events[(i - 1) / 2]); i = (i - 1) / 2)
        w->events[i] = w->events[(i - 1) / 2];
    w->events[i] = event;
}

static struct ring_event pop(struct ring_world *w)
{
    struct ring_event first = w->events[0], last = w->events[--w->nevents];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->nevents) {
        if (child + 1 < w->nevents && is_before(&w->events[child + 1], &w->events[child]))
            child++;
        if (!is_before(&w->events[child], &last))
            break;
        w->events[i] = w->events[child];
        i = child;
    }
    w->events[i] = last;
    return first;
}

void ring_later(struct ring_node *n, uint64_t in_us, enum ring_event_kind kind, size_t at, uint64_t due)
{
    push(n->world, (struct ring_event){.at_us = n->world->now_us + in_us,
                                       .order = ++n->world->order,
                                       .kind = kind,
                                       .node = n->number,
                                       .life = n->life,
                                       .at = at,
                                       .due = due});
}

uint64_t ring_delay(struct ring_world *w)
{
    return 20 + ring_world_random(w, w->delay_us);
}

/* --- ports and beacons ------------------------------------------------------------------------ */

bool ring_passes(const struct ring_world *w, size_t from, size_t to)
{
    const struct ring_port *p = &w->ports[from], *q = &w->ports[to];
    return p->plugged && q->plugged && p->segment == q->segment && !p->mute && !q->deaf;
}

static void send_datagram(struct ring_world *w, size_t from, const uint8_t *data, size_t n)
{
    for (size_t to = 0; to < w->nports; to++) {
        if (to == from || !ring_passes(w, from, to) || ring_world_random(w, 100) < w->loss_percent)
            continue;
        struct ring_datagram *d = malloc(sizeof *d + n);
        if (!d)
            abort();
        *d = (struct ring_datagram){.source = w->ports[from].port.link_local, .n = n};
        memcpy(d->data, data, n);
        push(w, (struct ring_event){.at_us = w->now_us + ring_delay(w),
                                    .order = ++w->order,
                                    .kind = RING_DATAGRAM,
                                    .node = w->ports[to].node,
                                    .life = w->nodes[w->ports[to].node].life,
                                    .at = to,
                                    .datagram = d});
    }
}

static void draw_nonce(struct ring_world *w, uint8_t nonce[static BEACON_NONCE])
{
    for (size_t i = 0; i < BEACON_NONCE; i += sizeof(uint64_t)) {
        uint64_t x = ring_world_random(w, 0);
        memcpy(nonce + i, &x, sizeof x);
    }
}

/* Something may be due earlier than before. */
static void set_tick(struct ring_node *n)
{
    uint64_t due = beacons_due(n->beacons).us, now = ring_local(n).us;
    if (due == UINT64_MAX || due == n->tick_at)
        return;
    n->tick_at = due;
    ring_later(n, due > now ? due - now : 0, RING_TICK, 0, due);
}

static void tick(struct ring_node *n)
{
    uint8_t nonce[BEACON_NONCE], data[BEACON_MAX];
    struct ring_world *w = n->world;
    n->tick_at = 0;
    beacons_expire(n->beacons, ring_local(n));
    for (size_t i = 0; i < w->nports; i++) {
        if (w->ports[i].node != n->number || !w->ports[i].plugged)
            continue;
        draw_nonce(w, nonce);
        int len =
            beacons_next_send(n->beacons, w->ports[i].port.ifindex, ring_local(n), nonce, data, sizeof data);
        if (len > 0)
            send_datagram(w, i, data, (size_t)len);
    }
}

size_t ring_world_segment(struct ring_world *w)
{
    return w->nsegments++;
}

size_t ring_world_port(struct ring_world *w, size_t node, size_t segment)
{
    size_t i = w->nports++;
    if (i >= RING_PORTS)
        abort();
    w->ports[i] = (struct ring_port){.node = node, .segment = segment, .plugged = true};
    struct port *p = &w->ports[i].port;
    *p = (struct port){.ifindex = (unsigned)i + 1,
                       .kind = PORT_ETH,
                       .up = true,
                       .carrier = true,
                       .mtu = 1500,
                       .has_link_local = true,
                       .port_id = (uint32_t)ring_world_random(w, 0)};
    p->link_local.s6_addr[0] = 0xfe;
    p->link_local.s6_addr[1] = 0x80;
    p->link_local.s6_addr[15] = (uint8_t)i;
    if (w->nodes[node].is_on && beacons_port_add(w->nodes[node].beacons, p, ring_local(&w->nodes[node])))
        abort();
    return i;
}

void ring_world_cable(struct ring_world *w, size_t a, size_t b)
{
    size_t segment = ring_world_segment(w);
    ring_world_port(w, a, segment);
    ring_world_port(w, b, segment);
}

static void set_carrier(struct ring_world *w, size_t segment, bool carrier)
{
    for (size_t i = 0; i < w->nports; i++) {
        struct ring_port *p = &w->ports[i];
        struct ring_node *n = &w->nodes[p->node];
        if (p->segment != segment || p->plugged == carrier)
            continue;
        p->plugged = carrier;
        if (!n->is_on)
            continue;
        if (!carrier)
            beacons_port_remove(n->beacons, p->port.ifindex, ring_local(n));
        else if (beacons_port_add(n->beacons, &p->port, ring_local(n)))
            abort();
        set_tick(n);
    }
}

void ring_world_pull(struct ring_world *w, size_t segment)
{
    set_carrier(w, segment, false);
}

void ring_world_plug(struct ring_world *w, size_t segment)
{
    set_carrier(w, segment, true);
}

/* --- nodes ------------------------------------------------------------------------------------ */

void ring_world_start(struct ring_world *w, size_t node)
{
    struct ring_node *n = &w->nodes[node];
    struct member self = {.seq = 1, .cores = 1, .threads = 1};
    n->is_on = true;
    n->life++;
    n->busy_until = n->tick_at = 0;
    n->nways = 0;
    n->self.boot = (uint64_t)((int64_t)(w->now_us + START_WALL_S * UINT64_C(1000000)) + n->wall_us);
    if (beacons_new(&n->beacons, &n->self, ring_world_random(w, 0), &ring_beacons_ops, n))
        abort();
    beacons_set_key(n->beacons, &w->key, ring_local(n));
    for (size_t i = 0; i < w->nports; i++)
        if (w->ports[i].node == node && w->ports[i].plugged &&
            beacons_port_add(n->beacons, &w->ports[i].port, ring_local(n)))
            abort();
    memcpy(self.id, n->self.node_id, 16);
    memcpy(self.name, n->self.name, 2);
    self.boot = n->self.boot;
    n->members = members_new(&self);
    members_set_patience(n->members, PATIENCE_US);
    set_tick(n);
    ring_later(n, ring_world_random(w, S), RING_BEAT, 0, 0);
}

void ring_world_stop(struct ring_world *w, size_t node, enum ring_stop how)
{
    uint8_t nonce[BEACON_NONCE], data[BEACON_MAX];
    struct ring_node *n = &w->nodes[node];
    for (size_t i = 0; how == RING_LEAVE && i < w->nports; i++) {
        if (w->ports[i].node != node || !w->ports[i].plugged)
            continue;
        draw_nonce(w, nonce);
        int len =
            beacons_goodbye(n->beacons, w->ports[i].port.ifindex, ring_local(n), nonce, data, sizeof data);
        if (len > 0)
            send_datagram(w, i, data, (size_t)len);
    }
    ring_sessions_stop(n, how != RING_POWER);
    beacons_free(n->beacons);
    members_free(n->members);
    n->beacons = NULL;
    n->members = NULL;
    n->is_on = false;
}

struct ring_world *ring_world_new(uint64_t seed, size_t nodes)
{
    struct ring_world *w = calloc(1, sizeof *w);
    uint8_t network_key[32];
    if (!w)
        abort();
    w->random = seed;
    w->now_us = S;
    w->delay_us = 2000;
    memset(network_key, 7, sizeof network_key);
    w->key.id = 1;
    beacon_key_derive(w->key.key, network_key);
    for (w->nnodes = 0; w->nnodes < nodes; w->nnodes++) {
        struct ring_node *n = &w->nodes[w->nnodes];
        n->world = w;
        n->number = w->nnodes;
        n->clock_us = ring_world_random(w, UINT64_C(1000000000000));
        n->wall_us = (int64_t)ring_world_random(w, 20 * S) - 10 * S;
        for (size_t i = 0; i < sizeof n->self.node_id; i++)
            n->self.node_id[i] = (uint8_t)ring_world_random(w, 256);
        n->self.name[0] = (char)('a' + n->number);
        n->self.tcp_port = 17464;
        n->self.proto_min = n->self.proto_max = 1;
        ring_world_start(w, n->number);
    }
    return w;
}

void ring_world_free(struct ring_world *w)
{
    for (size_t i = 0; i < w->nnodes; i++) {
        beacons_free(w->nodes[i].beacons);
        members_free(w->nodes[i].members);
    }
    for (size_t i = 0; i < w->nevents; i++)
        free(w->events[i].datagram);
    ring_sessions_free(w);
    free(w->events);
    free(w);
}

/* --- time ------------------------------------------------------------------------------------- */

static void receive(struct ring_node *n, const struct ring_event *e)
{
    const struct ring_port *p = &n->world->ports[e->at];
    n->world->datagrams++;
    if (p->plugged)
        beacons_receive(n->beacons, p->port.ifindex, &e->datagram->source, e->datagram->data, e->datagram->n,
                        ring_local(n));
}

static void handle(struct ring_node *n, const struct ring_event *e)
{
    switch (e->kind) {
    case RING_DATAGRAM: receive(n, e); break;
    case RING_TICK:
        if (e->due == n->tick_at)
            tick(n);
        break;
    case RING_TIMER: ring_way_fired(n, e->at, e->due); break;
    case RING_FLOW: ring_session_flow(n, e->at, e->due); break;
    case RING_BEAT: ring_sessions_beat(n); break;
    case RING_SETTLE: ring_settle_fired(n, e->due); break;
    }
    if (n->slow_us && !ring_world_random(n->world, 40))
        n->busy_until = n->world->now_us + ring_world_random(n->world, n->slow_us);
    set_tick(n);
}

void ring_world_run(struct ring_world *w, uint64_t us)
{
    uint64_t end = w->now_us + us;
    while (w->nevents && w->events[0].at_us <= end) {
        struct ring_event e = pop(w);
        struct ring_node *n = &w->nodes[e.node];
        bool is_void = e.kind != RING_FLOW && (!n->is_on || n->life != e.life);
        w->now_us = e.at_us;
        if (!is_void && n->is_on && n->busy_until > w->now_us) {
            e.at_us = n->busy_until;
            push(w, e);
            continue;
        }
        if (!is_void && n->is_on)
            handle(n, &e);
        else if (!is_void)
            ring_session_flow(n, e.at, e.due);
        free(e.datagram);
    }
    w->now_us = end;
}
