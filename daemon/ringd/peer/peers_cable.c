/* SPDX-License-Identifier: MIT
 *
 * Control connections over cables: one over each, ended at once when the cable is out; and the
 * paths they are for data connections. Called by cables.c, lanes and worker; loop thread. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/peers_impl.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "net/beacon.h"

static struct dial *find_cable(struct peers *p, uint64_t cable)
{
    struct dial *d;
    LIST_FOREACH (d, &p->dials, next)
        if (cable && d->cable == cable)
            return d;
    return NULL;
}

/* Whether the address of the connection is that of the other end of the cable, on the port the
 * cable is on. */
static bool is_from(struct link *link, const struct dial *d)
{
    char host[sizeof d->host];
    uint16_t port;
    return d->cable && !peers_split_address(link_address(link), host, sizeof host, &port) &&
           !strcmp(host, d->host);
}

uint64_t peers_cable_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    const struct dial *d;
    LIST_FOREACH (d, &p->dials, next)
        if (is_from(link, d) && !memcmp(d->id, id, 16))
            return d->cable;
    return 0;
}

uint64_t peers_path_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    const struct session *s = peers_session_over(p, id, peers_cable_of(p, link, id));
    return s ? s->number : 0;
}

size_t peers_paths(struct peers *p, const uint8_t id[16], struct path ret[PEERS_MAX_PATHS])
{
    struct session *s;
    size_t n = 0;
    LIST_FOREACH (s, &p->sessions, next) {
        uint16_t ephemeral;
        if (n == PEERS_MAX_PATHS || !s->up || memcmp(link_peer(s->link)->node_id, id, 16) ||
            peers_split_address(link_address(s->link), ret[n].host, sizeof ret[n].host, &ephemeral))
            continue;
        ret[n].id = s->number;
        ret[n].cable = s->cable;
        ret[n].ours = s->dials_lanes;
        const struct dial *way = find_cable(p, s->cable);
        ret[n].max_segment = way ? peers_max_segment(way) : 0;
        ret[n].peer_unanswered = s->peer_unanswered;
        ret[n++].port = s->dial ? s->dial->port : link_peer(s->link)->listen_port;
    }
    return n;
}

void peers_cable_size(struct peers *p, uint64_t cable, uint32_t packet)
{
    struct dial *d = find_cable(p, cable);
    struct session *s;
    struct link_stats is;
    if (!d)
        return;
    d->packet = packet;
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && s->cable == cable)
            break;
    if (!s || !link_dialed(s->link) || (link_stats(s->link, &is), is.packet <= packet))
        return;
    s->worn = true;
    peers_way_renew(d);
}

void peers_turn_path(struct peers *p, uint64_t path)
{
    struct session *s;
    char cable[17];
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && s->number == path)
            break;
    if (!s)
        return;
    s->dials_lanes = false;
    snprintf(cable, sizeof cable, "%016llx", (unsigned long long)s->cable);
    peers_send(p, link_peer(s->link)->node_id, json_pack("{s:s s:s}", "kind", "lane-turn", "cable", cable));
}

void peers_path_turned(struct peers *p, const uint8_t from[16], uint64_t cable)
{
    struct session *s = peers_session_over(p, from, cable);
    if (s)
        s->dials_lanes = s->peer_unanswered = true;
}

/* The other end may have called before we had heard its beacon: then its connection is already
 * here, or has said hello, without a cable. */
static void adopt_session(struct peers *p, const struct dial *d)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (!s->cable && s->agreed && is_from(s->link, d) && !memcmp(link_peer(s->link)->node_id, d->id, 16))
            s->cable = d->cable;
}

/* A connection over the cable with this life of the other end, if it has called already. */
static const struct session *session_of(struct peers *p, const struct cable *cable)
{
    const struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && s->cable == cable->id && link_peer(s->link)->boot == cable->boot)
            return s;
    return NULL;
}

/* Cables that are out are remembered, but not those that went between the same port and node, nor
 * without end. */
static void forget_others(struct peers *p, const struct dial *present)
{
    struct dial *d, *next;
    size_t out = 0;
    for (d = LIST_FIRST(&p->dials); d; d = next) { /* new ones are put in front */
        next = LIST_NEXT(d, next);
        if (d == present || d->way.state != WAY_OUT)
            continue;
        if (++out > PEERS_MAX_OUT || (!strcmp(d->on, present->on) && !memcmp(d->id, present->id, 16)))
            peers_way_free(d);
    }
}

static void describe(struct dial *d, const struct cable *cable)
{
    char address[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, &cable->address, address, sizeof address);
    snprintf(d->host, sizeof d->host, "%s%%%u", address, cable->ifindex);
    snprintf(d->name, sizeof d->name, "%s", cable->name);
    memcpy(d->id, cable->node_id, 16);
    d->port = cable->tcp_port;
    d->ifindex = cable->ifindex;
    d->known = true;
    snprintf(d->on, sizeof d->on, "%s", cable->port);
}

void peers_cable_up(struct peers *p, const struct cable *cable)
{
    struct dial *d = find_cable(p, cable->id);
    if (!d)
        d = peers_way_new(p);
    d->cable = cable->id;
    describe(d, cable);
    d->way.waits = memcmp(members_self(p->s.members)->id, cable->node_id, 16) > 0;
    adopt_session(p, d);
    const struct session *s = session_of(p, cable);
    if (s && d->way.state != WAY_UP)
        peers_way_step(d,
                       &(struct way_news){.event = WAY_CONNECTED, .session = s->number, .boot = cable->boot});
    peers_way_step(d, &(struct way_news){.event = WAY_PLUGGED, .boot = cable->boot});
    forget_others(p, d);
}

/* What is still on its way over a cable that is out will not arrive: there is no use in a goodbye.
 * Of a node that was restarted, the old connections are reset by its kernel, and a new one may
 * already stand. */
void peers_cable_down(struct peers *p, uint64_t cable, const char *why, enum cable_end end)
{
    struct dial *d = find_cable(p, cable);
    char text[160];
    if (!d)
        return;
    if (end == CABLE_END_LEFT)
        peers_note_ended(p, d->id);
    snprintf(text, sizeof text, "the cable on %s is out: %s", d->on, why);
    peers_way_step(d, &(struct way_news){.event = end == CABLE_END_RESTARTED ? WAY_RESTARTED : WAY_UNPLUGGED,
                                         .is_silent = end == CABLE_END_SILENT || end == CABLE_END_LEFT,
                                         .text = text});
}

/* A connection may come over a cable before its beacons do, and the cable be out before they
 * have. */
static bool is_over_lost_port(const struct session *s)
{
    char host[128];
    uint16_t port;
    const char *scope = s->link && !peers_split_address(link_address(s->link), host, sizeof host, &port)
                            ? strchr(host, '%')
                            : NULL;
    const struct port *at =
        scope ? s->p->s.ops->port(s->p->s.owner, (unsigned)strtoul(scope + 1, NULL, 10)) : NULL;
    return scope && (!at || !port_is_usable(at));
}

void peers_ports_changed(struct peers *p)
{
    struct session *s, *next;
    for (s = LIST_FIRST(&p->sessions); s; s = next) {
        next = LIST_NEXT(s, next);
        if (!s->cable && s->up && is_over_lost_port(s))
            peers_end_session(s, "the port it ran over is gone");
    }
}
