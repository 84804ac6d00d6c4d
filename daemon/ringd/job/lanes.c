/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/log.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/timer.h"
#include "daemon/common/xalloc.h"

enum {
    REDIAL_MS = 300,
    ANSWER_MS =
        2000, /* whoever is there answers in milliseconds, or after the second that one lost packet costs */
};

struct lane_dial {
    struct lanes *l;       /* borrowed: owner */
    uint64_t path;         /* 0 = this place is free */
    struct link *link;     /* owned while it is being made, then NULL */
    bool up;               /* handed over, or come from the other end */
    bool unanswered;       /* the last attempt met with no answer: the other end is to dial */
    struct timer *again;   /* owned: the next attempt, or the end of waiting for an answer */
    bool is_via;           /* the one through other nodes, whose path is that to the first of them: */
    bool retired;          /* up, but a direct one is too */
    struct relay_ask *ask; /* owned while we wait for the answer */
};
struct lanes {
    struct lanes_setup setup;
    bool started, relays;
    uint8_t to[16];
    struct link_hello hello; /* only what it says of the job */
    struct lane_dial dials[PEERS_MAX_PATHS], via;
    char through[256]; /* names of the nodes that via goes through */
    char why[256];     /* it was not to be had */
};

static void dial(struct lane_dial *d);
static void update_via(struct lanes *l);

static void dial_later(struct lane_dial *d)
{
    timer_set_ms(d->again, REDIAL_MS);
}

static int on_hello(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct lane_dial *d = owner;
    (void)link;
    if (!memcmp(peer->node_id, d->l->to, 16))
        return 0;
    snprintf(why, size, "%s is not the node of rank %u of the job", peer->name, d->l->hello.to_rank);
    return -1;
}

static void on_up(void *owner, struct link *link)
{
    struct lane_dial *d = owner;
    d->link = NULL;
    d->up = true;
    d->l->setup.ops->up(d->l->setup.owner, link, d->l->hello.to_rank, d->path);
    if (d->is_via)
        d->l->setup.ops->relayed(d->l->setup.owner, d->l->hello.to_rank, d->l->through);
    else
        update_via(d->l);
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct lane_dial *d = owner;
    d->link = NULL;
    d->unanswered = end == LINK_END_CONNECT && !d->is_via;
    dial_later(d);
    if (end == LINK_END_REFUSED)
        d->l->setup.ops->refused(d->l->setup.owner, d->l->hello.to_rank, text);
    link_free(link);
}

static const struct link_ops link_ops = {.hello = on_hello, .up = on_up, .down = on_down};

static bool find_path(struct lanes *l, uint64_t id, struct path *ret)
{
    struct path paths[PEERS_MAX_PATHS];
    size_t n = peers_paths(l->setup.peers, l->to, paths);
    for (size_t i = 0; i < n; i++)
        if (paths[i].id == id) {
            *ret = paths[i];
            return true;
        }
    return false;
}

static void make_link(struct lane_dial *d, const char *host, uint16_t port, uint16_t max_segment,
                      const uint8_t *preamble)
{
    struct lanes *l = d->l;
    struct link_setup setup;
    peers_setup(l->setup.peers, &setup);
    setup.kind = LINK_DATA;
    setup.ops = &link_ops;
    setup.owner = d;
    setup.preamble = preamble;
    setup.max_segment = max_segment;
    setup.hello.job = l->hello.job;
    setup.hello.from_rank = l->hello.from_rank;
    setup.hello.to_rank = l->hello.to_rank;
    setup.hello.dim = l->hello.dim;
    memcpy(setup.hello.head_id, l->hello.head_id, sizeof l->hello.head_id);
    memcpy(setup.hello.fingerprint, l->hello.fingerprint, sizeof l->hello.fingerprint);
    if (link_dial(&d->link, &setup, host, port))
        dial_later(d);
    else if (!d->is_via)
        timer_set_ms(d->again, ANSWER_MS);
}

/* A control connection stands over the path, so the node is there and listens: a firewall swallows
 * or refuses the call. */
static void tell_unanswered(struct lanes *l, const struct path *path)
{
    struct path_name name = {0};
    char text[300];
    peers_path_name(l->setup.peers, path->id, &name);
    snprintf(text, sizeof text,
             "%s does not answer on TCP port %u%s%s, and %s does not answer it either: a firewall there or "
             "here drops new connections; let TCP port %u in on both, `ringctl doctor` shows where",
             name.peer, path->port, *name.port ? " over " : "", name.port,
             members_self(l->setup.members)->name, path->port);
    l->setup.ops->refused(l->setup.owner, l->hello.to_rank, text);
}

static void leave_to_peer(struct lane_dial *d)
{
    struct lanes *l = d->l;
    struct path path;
    const bool known = find_path(l, d->path, &path);
    link_free(d->link);
    d->link = NULL;
    d->path = 0;
    d->unanswered = false;
    if (!known)
        return;
    log_job(LOG_LEVEL_INFO, l->hello.job,
            "rank %u does not answer a data connection to %s: its node dials instead", l->hello.to_rank,
            path.host);
    peers_turn_path(l->setup.peers, path.id);
    if (path.peer_unanswered)
        tell_unanswered(l, &path);
}

static void dial(struct lane_dial *d)
{
    struct lanes *l = d->l;
    struct path path;
    if (!l->started || d->link || d->up)
        return;
    if (d->is_via) {
        update_via(l);
        return;
    }
    if (!find_path(l, d->path, &path) || !path.ours) { /* its place is free for another */
        d->path = 0;
        return;
    }
    make_link(d, path.host, path.port, path.max_segment, NULL);
}

static void on_again(void *owner)
{
    struct lane_dial *d = owner;
    if (d->unanswered || (!d->is_via && d->link && link_state(d->link) == LINK_DIALING))
        leave_to_peer(d);
    else
        dial(d);
}

/* --- the long way round --- */

static void on_way_ready(void *owner, const struct relay_way *answer)
{
    struct lanes *l = owner;
    struct relay_way way = *answer;
    relay_ask_free(l->via.ask);
    l->via.ask = NULL;
    l->via.path = way.hop.path;
    memcpy(l->through, way.through, sizeof l->through);
    make_link(&l->via, way.hop.host, way.hop.port, way.hop.max_segment, way.relayed ? way.preamble : NULL);
}

static void on_way_refused(void *owner, const char *why)
{
    struct lanes *l = owner;
    if (strcmp(l->why, why)) /* asked again and again, said once */
        log_job(LOG_LEVEL_INFO, l->hello.job,
                l->hello.job ? "the next rank cannot be reached through other nodes: %s"
                             : "a node that has a model cannot be reached through other nodes: %s",
                why);
    snprintf(l->why, sizeof l->why, "%s", why);
    relay_ask_free(l->via.ask); /* and `why` with it */
    l->via.ask = NULL;
    dial_later(&l->via);
}

static const struct relay_ask_ops ask_ops = {on_way_ready, on_way_refused};

static void drop(struct lane_dial *d)
{
    relay_ask_free(d->ask);
    link_free(d->link);
    timer_stop(d->again);
    d->ask = NULL;
    d->link = NULL;
    d->up = d->retired = d->unanswered = false;
    d->path = 0;
}

/* A direct connection is better than a relayed one, and a relayed one better than none. */
static void update_via(struct lanes *l)
{
    struct lane_dial *v = &l->via;
    struct path paths[PEERS_MAX_PATHS];
    bool direct = false;
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        direct = direct || l->dials[k].up;
    if (direct && v->up && !v->retired) {
        v->retired = true;
        l->setup.ops->relayed(l->setup.owner, l->hello.to_rank, NULL);
    } else if (direct && !v->up) {
        drop(v);
    }
    if (!l->started || !l->relays || direct || v->up || v->link || v->ask || timer_is_pending(v->again) ||
        peers_paths(l->setup.peers, l->to, paths))
        return;
    struct relay_want want = {.job = l->hello.job};
    memcpy(want.from, members_self(l->setup.members)->id, sizeof want.from);
    memcpy(want.to, l->to, sizeof want.to);
    memcpy(want.head, l->hello.head_id, sizeof want.head);
    v->ask = relay_ask(l->setup.relay, &want, &ask_ops, l);
}

bool lanes_keeps(const struct lanes *l, uint64_t path)
{
    return !l->via.retired || l->via.path != path;
}

void lanes_changed(struct lanes *l)
{
    struct path paths[PEERS_MAX_PATHS];
    size_t n = l->started ? peers_paths(l->setup.peers, l->to, paths) : 0;
    for (size_t i = 0; i < n; i++) {
        struct lane_dial *place = NULL;
        for (size_t k = 0; k < PEERS_MAX_PATHS; k++) {
            if (l->dials[k].path == paths[i].id) {
                place = &l->dials[k];
                break;
            }
            if (!place && !l->dials[k].path)
                place = &l->dials[k];
        }
        if (place && !place->path && paths[i].ours) {
            place->path = paths[i].id;
            dial(place);
        }
    }
    update_via(l);
}

void lanes_start(struct lanes *l, const uint8_t to[16], const struct link_hello *hello, bool relays)
{
    lanes_stop(l);
    memcpy(l->to, to, 16);
    l->hello = *hello;
    l->started = true;
    l->relays = relays;
    lanes_changed(l);
}

void lanes_came(struct lanes *l, uint64_t path)
{
    struct lane_dial *place = NULL;
    for (size_t k = 0; k < PEERS_MAX_PATHS && path; k++)
        if (l->dials[k].path == path || (!place && !l->dials[k].path))
            place = &l->dials[k];
    if (!place)
        return;
    drop(place);
    place->path = path;
    place->up = true;
    update_via(l);
}

void lanes_stop(struct lanes *l)
{
    l->started = false;
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        drop(&l->dials[k]);
    drop(&l->via);
    *l->why = 0;
}

void lanes_lost(struct lanes *l, uint64_t path)
{
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        if (path && l->dials[k].path == path && l->dials[k].up) {
            l->dials[k].up = false;
            dial(&l->dials[k]);
        }
    if (path && l->via.up && l->via.path == path)
        drop(&l->via);
    lanes_changed(l);
}

struct lanes *lanes_new(const struct lanes_setup *setup)
{
    struct lanes *l = xcalloc(1, sizeof *l);
    l->setup = *setup;
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++) {
        l->dials[k].l = l;
        l->dials[k].again = timer_new(setup->base, on_again, &l->dials[k]);
    }
    l->via = (struct lane_dial){.l = l, .is_via = true, .again = timer_new(setup->base, on_again, &l->via)};
    return l;
}

void lanes_free(struct lanes *l)
{
    if (!l)
        return;
    lanes_stop(l);
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        timer_free(l->dials[k].again);
    timer_free(l->via.again);
    free(l);
}
