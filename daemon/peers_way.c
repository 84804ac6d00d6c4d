/* SPDX-License-Identifier: MIT
 *
 * Carries out what peering.c decides about the ways to other nodes: dials, sets their timers, and tells them which connections
 * came and went. Loop thread. */
#include <event2/event.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster.h"
#include "daemon/node.h"
#include "daemon/peers_impl.h"
#include "daemon/xalloc.h"

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct dial *d = arg;
    (void)fd;
    (void)what;
    bool is_first = d->way.timer == WAY_TIMER_NONE; /* set off by hand */
    peers_way_step(d, &(struct way_news){.event = is_first && d->way.has_cluster ? WAY_OPENED : WAY_FIRED});
}

struct dial *peers_way_new(struct peers *p)
{
    struct dial *d = xcalloc(1, sizeof *d);
    uint64_t seed;
    randombytes_buf(&seed, sizeof seed);
    d->p = p;
    way_init(&d->way, seed, cluster_state(p->node->cluster) == CLUSTER_MEMBER, clock_now());
    d->timer = event_new(p->node->base, -1, 0, on_timer, d);
    LIST_INSERT_HEAD(&p->dials, d, next);
    return d;
}

void peers_way_free(struct dial *d)
{
    struct session *s;
    LIST_FOREACH(s, &d->p->sessions, next)
    if (s->dial == d)
        s->dial = NULL;
    LIST_REMOVE(d, next);
    event_free(d->timer);
    free(d);
}

/* --- doing ------------------------------------------------------------------------------------ */

static int dial(struct dial *d)
{
    struct peers *p = d->p;
    struct link_setup setup;
    peers_setup(p, &setup);
    int r = cluster_psk(p->node->cluster, d->way.key_age, p->psk);
    if (r)
        return r;
    struct session *s = peers_session_new(p, d);
    setup.owner = s;
    d->way.session = s->number;
    r = link_dial(&s->link, &setup, d->host, d->port);
    if (r) {
        LIST_REMOVE(s, next);
        free(s);
    }
    return r;
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

static void arm(struct dial *d)
{
    uint64_t us = clock_since_us(d->way.due, clock_now());
    struct timeval in = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    if (d->way.timer == WAY_TIMER_NONE || d->way.timer == WAY_TIMER_DEAD)
        event_del(d->timer);
    else
        event_add(d->timer, &in);
}

void peers_way_step(struct dial *d, const struct way_news *news)
{
    enum way_action action = way_step(&d->way, news, clock_now());
    if (action == WAY_FORGOTTEN) {
        peers_way_free(d);
        return;
    }
    if (action == WAY_DROP)
        drop(d);
    int r = action == WAY_DIAL ? dial(d) : 0;
    if (r)
        way_step(&d->way, &(struct way_news){.event = WAY_FAILED, .text = strerror(-r)}, clock_now());
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
    LIST_FOREACH(d, &p->dials, next)
    if (d->way.state != WAY_UP && carries(s, d))
        connected(d, s);
}

void peers_ways_parted(struct peers *p, uint64_t session, enum way_event event, const char *text)
{
    struct dial *d;
    LIST_FOREACH(d, &p->dials, next)
    {
        struct session *s;
        if (d->way.session != session)
            continue;
        LIST_FOREACH(s, &p->sessions, next)
        if (carries(s, d))
            break;
        if (s)
            connected(d, s);
        else
            peers_way_step(d, &(struct way_news){.event = event, .text = text});
    }
}
