/* SPDX-License-Identifier: MIT
 *
 * Two connections with one node over one way, one of which has to go: finds them, and does what
 * peering.c decides. Called by peers.c; loop thread. */
#include <string.h>

#include "daemon/ringd/peer/peers_impl.h"
#include "daemon/ringd/peer/peers_socket.h"

struct session *peers_session_with(struct peers *p, const uint8_t id[16], const struct session *except)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (s != except && s->up && !memcmp(link_peer(s->link)->node_id, id, 16))
            return s;
    return NULL;
}

struct session *peers_session_over(struct peers *p, const uint8_t id[16], uint64_t cable)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && s->cable == cable && !memcmp(link_peer(s->link)->node_id, id, 16))
            return s;
    return NULL;
}

static bool is_over_same(const struct session *s, const struct session *other)
{
    char host[80] = "", other_host[80] = "";
    uint16_t port;
    if (peers_split_address(link_address(s->link), host, sizeof host, &port) ||
        peers_split_address(link_address(other->link), other_host, sizeof other_host, &port))
        return s->cable == other->cable;
    return session_same_way(s->cable, host, other->cable, other_host);
}

/* Another connection with that node, over the same way. */
static struct session *other_of(const struct session *s)
{
    struct session *other;
    LIST_FOREACH (other, &s->p->sessions, next)
        if (other != s && other->up &&
            !memcmp(link_peer(other->link)->node_id, link_peer(s->link)->node_id, 16) &&
            is_over_same(s, other))
            return other;
    return NULL;
}

/* What would be doubled by `news`: a connection that is up, or a dial of ours that has come as far
 * as this one. */
static const struct session *rival_of(const struct session *news)
{
    const uint8_t *id = link_peer(news->link)->node_id;
    const struct session *s = other_of(news);
    if (s || !news->dial)
        return s;
    LIST_FOREACH (s, &news->p->sessions, next)
        if (s != news && s->dial && s->agreed && !memcmp(link_peer(s->link)->node_id, id, 16) &&
            is_over_same(s, news))
            return s;
    return NULL;
}

static enum session_choice choose(const struct session *old, const struct session *news)
{
    bool smaller = memcmp(members_self(news->p->s.members)->id, link_peer(news->link)->node_id, 16) < 0;
    struct session_view mine = {.dialed = link_dialed(news->link), .boot = link_peer(news->link)->boot},
                        other;
    if (old && old->worn)
        return SESSION_REPLACE;
    if (old) {
        struct link_stats stats;
        link_stats(old->link, &stats);
        other = (struct session_view){link_dialed(old->link), link_peer(old->link)->boot, stats.silent_us};
    }
    return session_choose(smaller, old ? &other : NULL, &mine);
}

uint64_t peers_boot_of(const struct peers *p, const uint8_t id[16])
{
    const struct session *s;
    uint64_t boot = 0; /* of two lives the later one counts: the other is about to be let go */
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && !memcmp(link_peer(s->link)->node_id, id, 16) && link_peer(s->link)->boot > boot)
            boot = link_peer(s->link)->boot;
    return boot;
}

bool peers_is_refused(const struct session *s)
{
    return choose(rival_of(s), s) == SESSION_REFUSE;
}

/* The other end may have dialled as well, with both hellos taken before either connection was
 * up. */
bool peers_is_one_too_many(struct session *s)
{
    struct session *other = other_of(s);
    enum session_choice choice = choose(other, s);
    if (choice == SESSION_REPLACE) {
        other->up = false; /* nothing is sent over it any more */
        /* Who dialled it closes it: our goodbye could arrive before the other end has taken the new
         * one, and leave it without any. */
        if (link_dialed(other->link) || link_peer(other->link)->boot != link_peer(s->link)->boot)
            link_close(other->link, LINK_END_LOCAL, "replaced by a newer connection");
    } else if (choice == SESSION_REFUSE) {
        link_close(s->link, LINK_END_LOCAL, "there is a connection already");
    }
    return choice == SESSION_REFUSE;
}
