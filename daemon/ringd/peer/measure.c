/* SPDX-License-Identifier: MIT
 *
 * The cables' speeds. Owns the probe and its timer; called by cables.c and peers.c, on the loop. */
#include "daemon/ringd/peer/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/probe.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/beacon.h"

enum { WARN_PERCENT = 60 };

struct known {
    struct cable cable;
    char port[16];
    enum port_kind kind;
    uint32_t negotiated; /* the lower of what the two ports say; 0 = neither does */
    bool last; /* a switch, wifi, or what leads to the rest of the world: used when there is no other */
};
struct neighbour_class {
    uint8_t id[16];
    uint32_t class_mbps; /* the last told, for the hysteresis */
};
struct measure {
    struct measure_setup s;
    struct probe *probe; /* owned */
    struct timer *timer; /* owned */
    size_t n, n_neighbours;
    struct known at[PROBE_WAYS];
    struct neighbour_class neighbour[RING_MAX_NODES];
};

static struct known *find(const struct measure *m, uint64_t cable)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].cable.id == cable)
            return (struct known *)&m->at[i];
    return NULL;
}

/* --- the probe's world --- */

static void arm(struct measure *m)
{
    struct instant due = probe_due(m->probe), now = clock_now();
    if (due.us == UINT64_MAX) {
        timer_stop(m->timer);
        return;
    }
    uint64_t us = due.us > now.us ? due.us - now.us : 0;
    timer_set_us(m->timer, us);
}

static void on_timer(void *owner)
{
    struct measure *m = owner;
    probe_tick(m->probe, clock_now());
    arm(m);
}

static int send_frame(void *owner, uint64_t path, const uint8_t *body, size_t n)
{
    struct measure *m = owner;
    return m->s.send(m->s.owner, path, body, n);
}

static bool is_idle(void *owner, const uint8_t peer[16])
{
    struct measure *m = owner;
    const struct member *other = members_find(m->s.members, peer);
    m->s.refresh_self(m->s.owner);
    return other && !other->nstages && !members_self(m->s.members)->nstages;
}

static void on_measured(void *owner, uint64_t cable)
{
    struct measure *m = owner;
    const struct known *k = find(m, cable);
    struct probe_result r;
    if (k && probe_result(m->probe, cable, &r))
        log_info("cable on %s to %s: %u Mb/s out, %u Mb/s in", k->port, k->cable.name, r.tx_mbps, r.rx_mbps);
    m->s.changed(m->s.owner);
}

static const struct probe_ops probe_ops = {send_frame, is_idle, on_measured};

struct measure *measure_new(const struct measure_setup *setup)
{
    struct measure *m = xcalloc(1, sizeof *m);
    const struct member *self = members_self(setup->members);
    m->s = *setup;
    m->probe = probe_new(self->id, self->boot, &probe_ops, m);
    m->timer = timer_new(setup->base, on_timer, m);
    return m;
}

void measure_free(struct measure *m)
{
    if (!m)
        return;
    timer_free(m->timer);
    probe_free(m->probe);
    free(m);
}

/* --- cables and links --- */

static uint32_t lower(uint32_t a, uint32_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Looks at the port again; true: what the cable can do is not what it was. */
static bool judge(struct measure *m, struct known *k)
{
    const struct port *port = m->s.port(m->s.owner, k->cable.ifindex);
    uint32_t before = k->negotiated;
    bool was_last = k->last;
    if (!port)
        return false;
    snprintf(k->port, sizeof k->port, "%s", port->name);
    k->kind = port->kind;
    k->negotiated = lower(port->speed_mbps, k->cable.speed_mbps);
    k->last = k->cable.shared || k->cable.has_default_route || k->cable.kind == PORT_WIFI ||
              port->has_default_route || port->kind == PORT_WIFI;
    if (before && before != k->negotiated)
        probe_again(m->probe, k->cable.id, clock_now());
    return before != k->negotiated || was_last != k->last;
}

void measure_cable(struct measure *m, const struct cable *cable)
{
    struct known *k = find(m, cable->id);
    bool is_new = !k;
    if (is_new && m->n < PROBE_WAYS) {
        k = &m->at[m->n++];
        memset(k, 0, sizeof *k);
    }
    if (!k)
        return;
    k->cable = *cable;
    if (judge(m, k) || is_new)
        m->s.changed(m->s.owner);
    arm(m);
}

void measure_cable_gone(struct measure *m, uint64_t cable)
{
    struct known *k = find(m, cable);
    if (k)
        *k = m->at[--m->n];
}

void measure_ports_changed(struct measure *m)
{
    bool changed = false;
    for (size_t i = 0; i < m->n; i++)
        changed |= judge(m, &m->at[i]);
    if (changed)
        m->s.changed(m->s.owner);
    arm(m);
}

void measure_link_up(struct measure *m, uint64_t cable, uint64_t path, const uint8_t peer[16])
{
    probe_up(m->probe, cable, path, peer, clock_now());
    arm(m);
}

void measure_link_down(struct measure *m, uint64_t path)
{
    probe_down(m->probe, path, clock_now());
    arm(m);
}

void measure_frame(struct measure *m, uint64_t path, const uint8_t *body, size_t n)
{
    probe_frame(m->probe, path, body, n, clock_now());
    arm(m);
}

/* --- what follows --- */

static uint32_t *class_of(struct measure *m, const uint8_t id[16])
{
    size_t i = 0;
    while (i < m->n_neighbours && memcmp(m->neighbour[i].id, id, 16))
        i++;
    if (i == m->n_neighbours) {
        i = i < RING_MAX_NODES ? m->n_neighbours++ : 0; /* whoever came first has most likely gone */
        memcpy(m->neighbour[i].id, id, 16);
        m->neighbour[i].class_mbps = 0;
    }
    return &m->neighbour[i].class_mbps;
}

static uint32_t measured(const struct measure *m, uint64_t cable)
{
    struct probe_result r;
    return probe_result(m->probe, cable, &r) ? lower(r.tx_mbps, r.rx_mbps) : 0;
}

static uint32_t rate_to(const struct measure *m, const uint8_t peer[16], bool *ret_shared)
{
    uint64_t own = 0, shared = 0;
    size_t n_own = 0, n_shared = 0;
    for (size_t i = 0; i < m->n; i++) {
        const struct known *k = &m->at[i];
        uint32_t rate = measured(m, k->cable.id);
        if (memcmp(k->cable.node_id, peer, 16) || !probe_is_up(m->probe, k->cable.id))
            continue;
        *(k->last ? &shared : &own) += rate ? rate : k->negotiated;
        *(k->last ? &n_shared : &n_own) += 1;
    }
    const uint64_t mbps = n_own ? own : shared;
    *ret_shared = !n_own && n_shared;
    return mbps < UINT32_MAX ? (uint32_t)mbps : UINT32_MAX;
}

uint32_t measure_rate(const struct measure *m, const uint8_t peer[16])
{
    bool shared;
    return rate_to(m, peer, &shared);
}

void measure_describe(struct measure *m, struct member_link *link)
{
    uint32_t *current = class_of(m, link->id);
    *current = ring_class(rate_to(m, link->id, &link->shared), *current);
    link->class_mbps = *current;
}

/* What a port of this kind does at least, if nothing is wrong with the cable; 0 = it depends. */
static uint32_t expected_of(enum port_kind kind)
{
    switch (kind) {
    case PORT_TB: return 20000;
    case PORT_ETH:
    case PORT_USB: return 1000;
    case PORT_WIFI:
    case PORT_OTHER: return 0;
    }
    return 0;
}

static void warn(const struct known *k, uint32_t mbps, char *buf, size_t n)
{
    uint32_t expected = expected_of(k->kind);
    *buf = 0;
    if (mbps && (uint64_t)mbps * 100 < (uint64_t)k->negotiated * WARN_PERCENT)
        snprintf(
            buf, n,
            "the cable on %s to %s carries %u Mb/s of the %u Mb/s that were negotiated: `ip -s link show %s` "
            "counts errors; try another cable or port",
            k->port, k->cable.name, mbps, k->negotiated, k->port);
    else if (k->negotiated && (uint64_t)k->negotiated * 100 < (uint64_t)expected * WARN_PERCENT)
        snprintf(
            buf, n,
            "the cable on %s to %s came up at %u Mb/s, and such a port does %u: try another cable or port",
            k->port, k->cable.name, k->negotiated, expected);
}

json_t *measure_encode(const struct measure *m, uint64_t cable)
{
    const struct known *k = find(m, cable);
    struct probe_result r = {0};
    char warning[256];
    if (!k)
        return NULL;
    bool known = probe_result(m->probe, cable, &r);
    warn(k, measured(m, cable), warning, sizeof warning);
    return json_pack("{s:s s:I s:I s:I s:I s:o s:b s:s}", "port", k->port, "expected_mbps",
                     (json_int_t)expected_of(k->kind), "negotiated_mbps", (json_int_t)k->negotiated,
                     "tx_mbps", (json_int_t)r.tx_mbps, "rx_mbps", (json_int_t)r.rx_mbps, "measured_seconds",
                     known ? json_real((double)clock_since_us(clock_now(), r.at) / 1e6) : json_null(),
                     "shared", (int)k->last, "warning", warning);
}
