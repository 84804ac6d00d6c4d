/* SPDX-License-Identifier: MIT
 *
 * The neighbours of a port and what they are. Owned by struct beacons; called by beacon.c. PURE.
 *
 * What may be believed: a beacon that opens was made by a member, at some time. That it was made
 * now is proved only by the number of a beacon of ours that it names. So whatever takes something
 * away from others (a restart ends the old boot's cables, a second machine blocks both, a second
 * neighbour makes a segment shared) happens on proof alone. */
#include "beacon_impl.h"

#include <errno.h>
#include <string.h>

static bool is_cloned(const struct beacons *b, const uint8_t *node_id, struct instant now,
                      struct instant *ret_until)
{
    for (size_t i = 0; i < BEACON_NODES; i++) {
        if (b->nodes[i].used && memcmp(b->nodes[i].node_id, node_id, 16) == 0) {
            *ret_until = b->nodes[i].cloned_until;
            return now.us < ret_until->us;
        }
    }
    return false;
}

static bool shares_version(const struct beacons *b, const struct beacon_neighbour *n)
{
    return n->proto_min <= b->self.proto_max && n->proto_max >= b->self.proto_min;
}

static bool is_connected(const struct beacons *b, const uint8_t *node_id, uint64_t boot)
{
    return b->ops->proved_boot && b->ops->proved_boot(b->owner, node_id) == boot;
}

static bool is_another_connected(const struct beacons *b, const uint8_t *node_id, uint64_t boot)
{
    const uint64_t proved = b->ops->proved_boot ? b->ops->proved_boot(b->owner, node_id) : 0;

    return proved && proved != boot;
}

/* How long a proof holds: the slower of both ends sets the pace. */
static uint64_t proof_us(const struct beacon_port *port, const struct beacon_neighbour *n)
{
    uint64_t ours = beacon_port_hold_us(port);

    return ours > n->hold_us ? ours : n->hold_us;
}

static struct instant proof_ends(const struct beacon_port *port, const struct beacon_neighbour *n)
{
    return (struct instant){(n->is_proved ? n->proved.us : n->first.us) + proof_us(port, n)};
}

/* Every state a neighbour can be in, decided in one place. */
static enum neighbour_state beacon_judge(const struct beacons *b, const struct beacon_port *port,
                                         const struct beacon_neighbour *n, struct instant now)
{
    struct instant until;

    if (is_cloned(b, n->cable.node_id, now, &until))
        return NEIGHBOUR_CLONED;
    if (!shares_version(b, n))
        return NEIGHBOUR_VERSION;
    if (now.us >= proof_ends(port, n).us)
        return NEIGHBOUR_ONE_WAY;
    return n->is_proved ? NEIGHBOUR_TWO_WAY : NEIGHBOUR_HEARD;
}

static size_t count_cables(const struct beacon_port *port)
{
    size_t n = 0;

    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++)
        n += port->neighbours[i].used && port->neighbours[i].state == NEIGHBOUR_TWO_WAY;
    return n;
}

static enum cable_end end_of(enum neighbour_state state)
{
    return state == NEIGHBOUR_CLONED    ? CABLE_END_CLONED
           : state == NEIGHBOUR_VERSION ? CABLE_END_VERSION
                                        : CABLE_END_ONE_WAY;
}

static void judge(struct beacons *b, struct beacon_port *port, struct beacon_neighbour *n, struct instant now)
{
    enum neighbour_state was = n->state, state = beacon_judge(b, port, n, now);

    if (state == was)
        return;
    n->state = state;
    beacon_port_kick(port, now);
    if (was == NEIGHBOUR_TWO_WAY)
        b->ops->cable_down(b->owner, &n->cable, end_of(state));
    if (state == NEIGHBOUR_TWO_WAY) {
        n->cable.shared = port->shared || count_cables(port) > 1;
        b->ops->cable_up(b->owner, &n->cable);
    } else if (state != NEIGHBOUR_HEARD) {
        b->ops->trouble(b->owner, &n->cable, state);
    }
}

static void bury(struct beacon_port *port, const uint8_t *node_id, uint32_t port_id, uint64_t boot,
                 uint64_t seq)
{
    struct tomb *tomb = &port->tombs[port->next_tomb++ % BEACON_TOMBS];

    *tomb = (struct tomb){.used = true, .port_id = port_id, .boot = boot, .seq = seq};
    memcpy(tomb->node_id, node_id, sizeof tomb->node_id);
}

static void drop(struct beacons *b, struct beacon_port *port, struct beacon_neighbour *n, enum cable_end end,
                 struct instant now)
{
    bury(port, n->cable.node_id, n->cable.peer_port_id, n->cable.boot, n->seq);
    n->used = false;
    beacon_port_kick(port, now);
    if (n->state == NEIGHBOUR_TWO_WAY)
        b->ops->cable_down(b->owner, &n->cable, end);
}

static void refresh_shared(struct beacons *b, struct beacon_port *port, struct instant now)
{
    bool shared;

    if (now.us >= port->loop_until.us)
        port->loop_until.us = 0;
    shared = port->loop_until.us > 0 || count_cables(port) > 1;

    if (shared != port->shared) {
        port->shared = shared;
        beacon_port_kick(port, now);
    }
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        struct beacon_neighbour *n = &port->neighbours[i];

        if (!n->used || n->cable.shared == shared)
            continue;
        n->cable.shared = shared;
        if (n->state == NEIGHBOUR_TWO_WAY)
            b->ops->cable_changed(b->owner, &n->cable);
    }
}

static void review_neighbours(struct beacons *b, struct beacon_port *port, struct instant now)
{
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        struct beacon_neighbour *n = &port->neighbours[i];

        if (!n->used)
            continue;
        if (now.us >= n->heard.us + n->hold_us)
            drop(b, port, n, CABLE_END_SILENT, now);
        else if (n->is_leaving && !is_connected(b, n->cable.node_id, n->cable.boot))
            drop(b, port, n, CABLE_END_LEFT, now);
        else
            judge(b, port, n, now);
    }
}

void beacon_table_review(struct beacons *b, struct beacon_port *port, struct instant now)
{
    const bool was_shared = port->shared;

    review_neighbours(b, port, now);
    refresh_shared(b, port, now);
    if (!was_shared || port->shared)
        return;
    review_neighbours(b, port, now); /* proofs end earlier now: some may be over */
    refresh_shared(b, port, now);
}

void beacon_table_clear(struct beacons *b, struct beacon_port *port, struct instant now)
{
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++)
        if (port->neighbours[i].used)
            drop(b, port, &port->neighbours[i], CABLE_END_PORT, now);
}

static void earlier(struct instant *at, uint64_t us)
{
    if (us < at->us)
        at->us = us;
}

struct instant beacon_table_due(const struct beacons *b, const struct beacon_port *port)
{
    struct instant due = {UINT64_MAX}, until;

    if (port->loop_until.us > 0)
        earlier(&due, port->loop_until.us);
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        const struct beacon_neighbour *n = &port->neighbours[i];

        if (!n->used)
            continue;
        earlier(&due, n->heard.us + n->hold_us);
        if (n->state == NEIGHBOUR_HEARD || n->state == NEIGHBOUR_TWO_WAY)
            earlier(&due, proof_ends(port, n).us);
        else if (n->state == NEIGHBOUR_CLONED && is_cloned(b, n->cable.node_id, (struct instant){0}, &until))
            earlier(&due, until.us);
    }
    return due;
}

/* --- boots --- */

static struct node_boots *find_node(struct beacons *b, const uint8_t *node_id)
{
    struct node_boots *oldest = &b->nodes[1];

    for (size_t i = 0; i < BEACON_NODES; i++) {
        struct node_boots *node = &b->nodes[i];

        if (node->used && memcmp(node->node_id, node_id, sizeof node->node_id) == 0)
            return node;
        if (i > 0 && oldest->used && (!node->used || node->proved.us < oldest->proved.us))
            oldest = node;
    }
    *oldest = (struct node_boots){.used = false};
    memcpy(oldest->node_id, node_id, sizeof oldest->node_id);
    return oldest;
}

static void review_all(struct beacons *b, struct instant now)
{
    for (size_t i = 0; i < BEACON_PORTS; i++)
        if (b->ports[i])
            beacon_table_review(b, b->ports[i], now);
}

static void supersede(struct beacons *b, struct node_boots *node, uint64_t boot, struct instant now)
{
    uint64_t old = node->boot;

    node->old[node->nold % BEACON_OLD_BOOTS].boot = old;
    node->old[node->nold++ % BEACON_OLD_BOOTS].until = now;
    node->boot = boot;
    node->proved = now;
    for (size_t i = 0; i < BEACON_PORTS; i++) {
        for (size_t k = 0; b->ports[i] && k < BEACON_NEIGHBOURS; k++) {
            struct beacon_neighbour *n = &b->ports[i]->neighbours[k];

            if (n->used && n->cable.boot == old && memcmp(n->cable.node_id, node->node_id, 16) == 0)
                drop(b, b->ports[i], n, CABLE_END_RESTARTED, now);
        }
    }
    review_all(b, now);
}

/* `boot` of the node has shown that it was alive at `alive`: whether it is the one to believe. */
static bool prove_boot(struct beacons *b, const uint8_t *node_id, uint64_t boot, struct instant alive,
                       struct instant now)
{
    struct node_boots *node = find_node(b, node_id);
    bool was_there = false;

    if (is_another_connected(b, node_id, boot))
        return false;
    if (!node->used) {
        node->used = true;
        node->boot = boot;
    }
    if (node->boot == boot) {
        node->proved = now;
        return true;
    }
    for (size_t i = 0; i < node->nold && i < BEACON_OLD_BOOTS; i++) {
        if (node->old[i].boot != boot)
            continue;
        was_there = true;
        if (alive.us <= node->old[i].until.us) /* its last words before the restart, late */
            return false;
    }
    if (node != &b->nodes[0] && (!was_there || clock_since_us(now, node->proved) >= BEACON_CLONE_US)) {
        supersede(b, node, boot, now);
        return true;
    }
    node->cloned_until.us = now.us + BEACON_CLONE_US;
    review_all(b, now);
    return false;
}

/* --- learning --- */

static bool names_us(const struct beacons *b, const struct beacon_port *port, const struct beacon *beacon,
                     struct instant now, struct instant *ret_sent)
{
    for (size_t i = 0; i < beacon->nheard; i++) {
        const struct beacon_heard *h = &beacon->heard[i];

        if (h->boot == b->self.boot && h->port_id == port->port.port_id &&
            memcmp(h->node_id, b->self.node_id, sizeof h->node_id) == 0)
            return beacon_port_sent(port, h->seq, now, ret_sent);
    }
    return false;
}

static bool is_from(const struct beacon *beacon, const uint8_t *node_id, uint32_t port_id, uint64_t boot)
{
    return beacon->boot == boot && beacon->port_id == port_id && memcmp(beacon->node_id, node_id, 16) == 0;
}

static struct beacon_neighbour *find(struct beacon_port *port, const struct beacon *beacon)
{
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        struct beacon_neighbour *n = &port->neighbours[i];

        if (n->used && is_from(beacon, n->cable.node_id, n->cable.peer_port_id, n->cable.boot))
            return n;
    }
    return NULL;
}

static bool is_buried(const struct beacon_port *port, const struct beacon *beacon)
{
    for (size_t i = 0; i < BEACON_TOMBS; i++) {
        const struct tomb *tomb = &port->tombs[i];

        if (tomb->used && is_from(beacon, tomb->node_id, tomb->port_id, tomb->boot) &&
            beacon->seq <= tomb->seq)
            return true;
    }
    return false;
}

/* A free place, or that of whoever has never proved anything for longest: recordings cannot fill
 * the table.
 */
static struct beacon_neighbour *make_room(struct beacons *b, struct beacon_port *port, struct instant now)
{
    struct beacon_neighbour *victim = NULL;

    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++) {
        struct beacon_neighbour *n = &port->neighbours[i];

        if (!n->used)
            return n;
        if (!n->is_proved && (!victim || n->heard.us < victim->heard.us))
            victim = n;
    }
    if (victim)
        drop(b, port, victim, CABLE_END_SILENT, now);
    return victim;
}

/* What the beacon says of the other end; true if any of it is new. */
static bool take_in(struct beacon_neighbour *n, const struct beacon *beacon, const struct in6_addr *from)
{
    struct cable *c = &n->cable, was = *c;

    strcpy(c->name, beacon->name);
    c->address = *from;
    c->tcp_port = beacon->tcp_port;
    c->kind =
        beacon->kind >= PORT_TB && beacon->kind <= PORT_OTHER ? (enum port_kind)beacon->kind : PORT_OTHER;
    c->speed_mbps = beacon->speed_mbps;
    c->mtu = beacon->mtu;
    c->max_mtu = beacon->max_mtu;
    c->pool = beacon->pool;
    strcpy(c->port_name, beacon->port_name);
    c->attempt = beacon->attempt;
    c->has_default_route = beacon->flags & BEACON_HAS_DEFAULT_ROUTE;
    n->proto_min = beacon->proto_min;
    n->proto_max = beacon->proto_max;
    n->seq = beacon->seq;
    n->hold_us = beacon->hold_ms * UINT64_C(1000);
    return strcmp(c->name, was.name) != 0 || memcmp(&c->address, &was.address, sizeof was.address) != 0 ||
           c->tcp_port != was.tcp_port || c->kind != was.kind || c->speed_mbps != was.speed_mbps ||
           c->mtu != was.mtu || c->max_mtu != was.max_mtu || !prefix_equal(&c->pool, &was.pool) ||
           strcmp(c->port_name, was.port_name) != 0 || c->attempt != was.attempt ||
           c->has_default_route != was.has_default_route;
}

static void begin(struct beacons *b, struct beacon_port *port, struct beacon_neighbour *n,
                  const struct beacon *beacon, struct instant now)
{
    *n = (struct beacon_neighbour){.used = true, .first = now};
    n->cable.id = cable_id(b->self.node_id, port->port.port_id, beacon->node_id, beacon->port_id);
    n->cable.ifindex = port->port.ifindex;
    n->cable.port_id = port->port.port_id;
    memcpy(n->cable.port, port->port.name, sizeof n->cable.port);
    n->cable.shared = port->shared;
    memcpy(n->cable.node_id, beacon->node_id, sizeof n->cable.node_id);
    n->cable.boot = beacon->boot;
    n->cable.peer_port_id = beacon->port_id;
    beacon_port_kick(port, now); /* an answer, so that it need not wait for us */
}

int beacon_table_learn(struct beacons *b, struct beacon_port *port, const struct beacon *beacon,
                       const struct in6_addr *from, struct instant now)
{
    struct beacon_neighbour *n = find(port, beacon);
    struct instant alive;
    bool news, was_cable;

    if (n ? beacon->seq <= n->seq : is_buried(port, beacon))
        return -ESTALE;
    if (beacon->type == BEACON_GOODBYE) {
        if (n) {
            n->seq = beacon->seq;
            n->is_leaving = true;
            if (!is_connected(b, beacon->node_id, beacon->boot))
                drop(b, port, n, CABLE_END_LEFT, now);
        } else {
            bury(port, beacon->node_id, beacon->port_id, beacon->boot, beacon->seq);
        }
        refresh_shared(b, port, now);
        return 0;
    }
    if (!n) {
        n = make_room(b, port, now);
        if (!n)
            return -ENOSPC;
        begin(b, port, n, beacon, now);
    }
    was_cable = n->state == NEIGHBOUR_TWO_WAY;
    n->heard = now;
    n->is_leaving = false;
    news = take_in(n, beacon, from);
    if (names_us(b, port, beacon, now, &alive) && prove_boot(b, beacon->node_id, beacon->boot, alive, now)) {
        n->is_proved = true;
        n->proved = now;
    }
    judge(b, port, n, now);
    if (news && was_cable && n->state == NEIGHBOUR_TWO_WAY)
        b->ops->cable_changed(b->owner, &n->cable);
    refresh_shared(b, port, now);
    return 0;
}
