/* SPDX-License-Identifier: MIT */
#include "daemon/lanes.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node.h"
#include "daemon/peers.h"
#include "daemon/xalloc.h"

enum { REDIAL_MS = 300 };

struct lane_dial {
    struct lanes *l;     /* borrowed: owner */
    uint64_t path;       /* 0 = this place is free */
    struct link *link;   /* owned while it is being made, then NULL */
    bool up;             /* handed over */
    struct event *again; /* owned: the next attempt */
};
struct lanes {
    struct node *node; /* borrowed, as the next two */
    const struct lanes_ops *ops;
    void *owner;
    bool started;
    uint8_t to[16];
    struct link_hello hello; /* only what it says of the job */
    struct lane_dial dials[PEERS_MAX_PATHS];
};

static void dial(struct lane_dial *d);

static void dial_later(struct lane_dial *d)
{
    struct timeval in = {0, REDIAL_MS * 1000};
    event_add(d->again, &in);
}

static int on_hello(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct lane_dial *d = owner;
    (void)link;
    if (!memcmp(peer->node_id, d->l->to, 16))
        return 0;
    snprintf(why, size, "%s is not the next node of the job", peer->name);
    return -1;
}

static void on_up(void *owner, struct link *link)
{
    struct lane_dial *d = owner;
    d->link = NULL;
    d->up = true;
    d->l->ops->up(d->l->owner, link, d->path);
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct lane_dial *d = owner;
    d->link = NULL;
    dial_later(d);
    if (end == LINK_END_REFUSED)
        d->l->ops->refused(d->l->owner, text);
    link_free(link);
}

static const struct link_ops link_ops = {.hello = on_hello, .up = on_up, .down = on_down};

static bool find_path(struct lanes *l, uint64_t id, struct path *ret)
{
    struct path paths[PEERS_MAX_PATHS];
    size_t n = peers_paths(l->node->peers, l->to, paths);
    for (size_t i = 0; i < n; i++)
        if (paths[i].id == id) {
            *ret = paths[i];
            return true;
        }
    return false;
}

static void dial(struct lane_dial *d)
{
    struct lanes *l = d->l;
    struct path path;
    struct link_setup setup;
    if (!l->started || d->link || d->up)
        return;
    if (!find_path(l, d->path, &path)) { /* the path is gone: its place is free for another */
        d->path = 0;
        return;
    }
    peers_setup(l->node->peers, &setup);
    setup.kind = LINK_DATA;
    setup.ops = &link_ops;
    setup.owner = d;
    setup.hello.job = l->hello.job;
    setup.hello.from_rank = l->hello.from_rank;
    setup.hello.to_rank = l->hello.to_rank;
    setup.hello.dim = l->hello.dim;
    memcpy(setup.hello.head_id, l->hello.head_id, sizeof l->hello.head_id);
    memcpy(setup.hello.fingerprint, l->hello.fingerprint, sizeof l->hello.fingerprint);
    if (link_dial(&d->link, &setup, path.host, path.port))
        dial_later(d);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    dial(arg);
}

void lanes_changed(struct lanes *l)
{
    struct path paths[PEERS_MAX_PATHS];
    size_t n = l->started ? peers_paths(l->node->peers, l->to, paths) : 0;
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
        if (place && !place->path) {
            place->path = paths[i].id;
            dial(place);
        }
    }
}

void lanes_start(struct lanes *l, const uint8_t to[16], const struct link_hello *hello)
{
    lanes_stop(l);
    memcpy(l->to, to, 16);
    l->hello = *hello;
    l->started = true;
    lanes_changed(l);
}

void lanes_stop(struct lanes *l)
{
    l->started = false;
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++) {
        link_free(l->dials[k].link);
        event_del(l->dials[k].again);
        l->dials[k].link = NULL;
        l->dials[k].up = false;
        l->dials[k].path = 0;
    }
}

void lanes_lost(struct lanes *l, uint64_t path)
{
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        if (path && l->dials[k].path == path && l->dials[k].up) {
            l->dials[k].up = false;
            dial(&l->dials[k]);
        }
    lanes_changed(l);
}

struct lanes *lanes_new(struct node *node, const struct lanes_ops *ops, void *owner)
{
    struct lanes *l = xcalloc(1, sizeof *l);
    *l = (struct lanes){.node = node, .ops = ops, .owner = owner};
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++) {
        l->dials[k].l = l;
        l->dials[k].again = event_new(node->base, -1, 0, on_again, &l->dials[k]);
    }
    return l;
}

void lanes_free(struct lanes *l)
{
    if (!l)
        return;
    lanes_stop(l);
    for (size_t k = 0; k < PEERS_MAX_PATHS; k++)
        event_free(l->dials[k].again);
    free(l);
}
