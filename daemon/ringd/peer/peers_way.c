/* SPDX-License-Identifier: MIT
 *
 * Carries out what peering.c decides about the ways to other nodes: dials, sets their timers, and
 * tells them which connections came and went. Loop thread. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers_impl.h"
#include "net/base/reason.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/port.h"

enum { SILENCE_US = 3500000 };

/* What computes is another process, so a node misses three heartbeats in a row only if it stands
 * still, has ended, or cannot be heard. Jobs wait for such a node all the same, until --dead-after.
 * Where there are beacons, they notice it. Heartbeats may then be late, as they are under a flood
 * of packets from strangers. */
uint64_t peers_silence_us(const struct peers *p)
{
    uint64_t patience_us = (uint64_t)opts_int(p->s.opts, "dead-after") * 1000000;
    bool has_no_beacons = !strcmp(opts_str(p->s.opts, "discover"), "off");
    return has_no_beacons && SILENCE_US < patience_us ? SILENCE_US : patience_us;
}

static void on_timer(void *owner)
{
    struct dial *d = owner;
    bool is_first = d->way.timer == WAY_TIMER_NONE; /* set off by hand */
    peers_way_step(d, &(struct way_news){.event = is_first && d->way.has_cluster ? WAY_OPENED : WAY_FIRED});
}

struct dial *peers_way_new(struct peers *p)
{
    struct dial *d = xcalloc(1, sizeof *d);
    uint64_t seed;
    randombytes_buf(&seed, sizeof seed);
    d->p = p;
    way_init(&d->way, seed, cluster_state(p->s.cluster) == CLUSTER_MEMBER, clock_now());
    d->timer = timer_new(p->s.base, on_timer, d);
    LIST_INSERT_HEAD(&p->dials, d, next);
    return d;
}

void peers_way_free(struct dial *d)
{
    struct session *s;
    LIST_FOREACH (s, &d->p->sessions, next)
        if (s->dial == d)
            s->dial = NULL;
    LIST_REMOVE(d, next);
    timer_free(d->timer);
    free(d);
}

/* --- doing ------------------------------------------------------------------------------------ */

static int dial(struct dial *d)
{
    struct peers *p = d->p;
    struct link_setup setup;
    peers_setup(p, &setup);
    int r = cluster_psk(p->s.cluster, d->way.key_age, p->psk);
    if (r)
        return r;
    struct session *s = peers_session_new(p, d);
    setup.owner = s;
    setup.max_segment = peers_max_segment(d);
    d->way.session = s->number;
    r = link_dial(&s->link, &setup, d->host, d->port);
    if (r) {
        LIST_REMOVE(s, next);
        free(s);
    }
    return r;
}

uint16_t peers_max_segment(const struct dial *d)
{
    const struct port *port = d->cable ? d->p->s.ops->port(d->p->s.owner, d->ifindex) : NULL;
    return port && d->packet && d->packet < port->mtu ? (uint16_t)(d->packet - LINK_SEGMENT_HEADS) : 0;
}

void peers_way_renew(struct dial *d)
{
    const uint64_t stands = d->way.session;
    if (d->way.state == WAY_UP && dial(d))
        d->way.session = stands;
}

static void drop(struct dial *d)
{
    struct session *s, *next;
    for (s = LIST_FIRST(&d->p->sessions); s; s = next) {
        next = LIST_NEXT(s, next);
        if (s->dial == d || (d->cable && s->cable == d->cable))
            peers_end_session(s, d->way.words);
    }
}

/* A dial that has been answered may be up at the other end already, in place of the connection that
 * is up here: session_choose decides. */
static void hang_up(struct dial *d)
{
    struct session *s, *next;
    for (s = LIST_FIRST(&d->p->sessions); s; s = next) {
        next = LIST_NEXT(s, next);
        if (s->dial == d && link_state(s->link) == LINK_DIALING)
            peers_end_session(s, "the other end made the connection");
    }
}

static void arm(struct dial *d)
{
    uint64_t us = clock_since_us(d->way.due, clock_now());
    if (d->way.timer == WAY_TIMER_NONE || d->way.timer == WAY_TIMER_DEAD)
        timer_stop(d->timer);
    else
        timer_set_us(d->timer, us);
}

/* A cable that comes and goes is better left alone, but not if the node is out of reach without
 * it. */
static bool is_only(const struct dial *d)
{
    struct session *s;
    LIST_FOREACH (s, &d->p->sessions, next)
        if (s->up && s->number != d->way.session && d->known &&
            !memcmp(link_peer(s->link)->node_id, d->id, 16))
            return false;
    return true;
}

void peers_way_step(struct dial *d, const struct way_news *news)
{
    d->way.is_only = is_only(d);
    enum way_action action = way_step(&d->way, news, clock_now());
    if (action == WAY_FORGOTTEN) {
        peers_way_free(d);
        return;
    }
    if (action == WAY_DROP)
        drop(d);
    if (action == WAY_HANG_UP)
        hang_up(d);
    int r = action == WAY_DIAL ? dial(d) : 0;
    if (r)
        way_step(&d->way, &(struct way_news){.event = WAY_FAILED, .text = reason_of(r).text}, clock_now());
    arm(d);
}

/* --- what connections say --------------------------------------------------------------------- */

/* A cable wants a connection of its own; a configured peer is content with any. */
static bool carries(const struct session *s, const struct dial *d)
{
    if (!s->up)
        return false;
    if (d->cable)
        return s->cable == d->cable;
    return d->known && !memcmp(link_peer(s->link)->node_id, d->id, 16);
}

static void connected(struct dial *d, const struct session *s)
{
    peers_way_step(d, &(struct way_news){
                          .event = WAY_CONNECTED, .session = s->number, .boot = link_peer(s->link)->boot});
}

void peers_ways_joined(struct peers *p, const struct session *s)
{
    struct dial *d;
    LIST_FOREACH (d, &p->dials, next)
        if (d->way.state != WAY_UP && carries(s, d))
            connected(d, s);
}

void peers_ways_parted(struct peers *p, uint64_t session, const uint8_t *id, const struct way_news *news)
{
    struct dial *d;
    LIST_FOREACH (d, &p->dials, next) {
        struct session *s;
        if (d->way.session != session)
            continue;
        LIST_FOREACH (s, &p->sessions, next)
            if (carries(s, d))
                break;
        if (s)
            connected(d, s);
        else
            peers_way_step(d, news);
    }
    LIST_FOREACH (d, &p->dials, next)
        if (d->way.state == WAY_FLAPPING && d->known && !memcmp(d->id, id, 16) && is_only(d))
            peers_way_step(d, &(struct way_news){.event = WAY_NEEDED});
}
