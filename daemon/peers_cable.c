/* SPDX-License-Identifier: MIT
 *
 * Control connections over cables: one over each, made by the smaller node id, ended at once when the cable is out. */
#include <arpa/inet.h>
#include <event2/event.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node.h"
#include "daemon/peers_impl.h"
#include "daemon/xalloc.h"
#include "net/beacon.h"

static struct dial *find_cable(struct peers *p, uint64_t cable)
{
    struct dial *d;
    LIST_FOREACH(d, &p->dials, next)
    if (cable && d->cable == cable)
        return d;
    return NULL;
}

/* The number behind the % of a link-local address; 0 = there is none. */
static unsigned scope_of(const char *address)
{
    const char *percent = strchr(address, '%');
    return percent ? (unsigned)strtoul(percent + 1, NULL, 10) : 0;
}

uint64_t peers_cable_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    unsigned ifindex = scope_of(link_address(link));
    const struct dial *d;
    LIST_FOREACH(d, &p->dials, next)
    if (ifindex && d->ifindex == ifindex && !memcmp(d->id, id, 16))
        return d->cable;
    return 0;
}

uint64_t peers_path_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    const struct session *s = peers_session_over(p, id, peers_cable_of(p, link, id), NULL);
    return s ? s->number : 0;
}

/* The other end may have called before we had heard its beacon: then its connection is already here, without a cable. */
static void adopt_session(struct peers *p, const struct cable *cable)
{
    struct session *s;
    LIST_FOREACH(s, &p->sessions, next)
    if (!s->cable && s->up && scope_of(link_address(s->link)) == cable->ifindex &&
        !memcmp(link_peer(s->link)->node_id, cable->node_id, 16))
        s->cable = cable->id;
}

void peers_cable_up(struct peers *p, const struct cable *cable)
{
    struct dial *d = find_cable(p, cable->id);
    char address[INET6_ADDRSTRLEN];
    if (!d) {
        d = xcalloc(1, sizeof *d);
        *d = (struct dial){.p = p, .backoff_ms = BACKOFF_FIRST_MS, .cable = cable->id, .known = true};
        d->timer = event_new(p->node->base, -1, 0, peers_dial_now, d);
        LIST_INSERT_HEAD(&p->dials, d, next);
    }
    memcpy(d->id, cable->node_id, 16);
    d->ifindex = cable->ifindex;
    inet_ntop(AF_INET6, &cable->address, address, sizeof address);
    snprintf(d->host, sizeof d->host, "%s%%%u", address, cable->ifindex);
    d->port = cable->tcp_port;
    adopt_session(p, cable);
    d->waits = memcmp(members_self(p->node->members)->id, cable->node_id, 16) > 0;
    snprintf(d->why, sizeof d->why, "%s", d->waits ? "the other end makes the connection" : "not tried yet");
    if (!d->waits && !d->link)
        event_active(d->timer, EV_TIMEOUT, 0);
}

/* What is still on its way over a cable that is out will not arrive: there is no use in a goodbye. */
void peers_cable_down(struct peers *p, uint64_t cable, const char *why, bool restarted)
{
    struct dial *d = find_cable(p, cable);
    struct session *s, *next;
    char text[160], name[IF_NAMESIZE];
    if (!d)
        return;
    snprintf(text, sizeof text, "the cable on %s is out: %s",
             if_indextoname(d->ifindex, name) ? name : "a port that is gone", why);
    for (s = LIST_FIRST(&p->sessions); s; s = next) {
        next = LIST_NEXT(s, next);
        if (s->dial != d && s->cable != cable)
            continue;
        s->dial = NULL;
        if (!restarted) /* else its old connections are reset by its kernel, and a new one may already stand */
            peers_end_session(s, text);
    }
    LIST_REMOVE(d, next);
    event_free(d->timer);
    free(d);
}
