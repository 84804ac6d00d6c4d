/* SPDX-License-Identifier: MIT */
#include "daemon/job_ring.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node.h"
#include "daemon/xalloc.h"

enum { CHAIN_S = 3 };

struct job_ring {
    struct node *node;   /* borrowed */
    struct event *chain; /* owned: the chain has stood for long enough */
    bool chain_stands;
    void (*stands)(void *owner);
    void *owner;
};

static void on_chain(evutil_socket_t fd, short what, void *arg)
{
    struct job_ring *j = arg;
    (void)fd;
    (void)what;
    j->chain_stands = true;
    j->stands(j->owner);
}

void job_ring_changed(struct job_ring *j)
{
    struct members_ring ring;
    struct timeval in = {CHAIN_S, 0};
    members_ring(j->node->members, NULL, &ring);
    if (ring.shape != RING_CHAIN) {
        event_del(j->chain);
        j->chain_stands = false;
    } else if (!j->chain_stands && !event_pending(j->chain, EV_TIMEOUT, NULL)) {
        event_add(j->chain, &in);
    }
}

bool job_ring_now(struct job_ring *j, struct members_ring *ret, char *why, size_t size)
{
    const uint8_t *self = members_self(j->node->members)->id;
    struct members_ring ring;
    size_t at = 0;
    members_ring(j->node->members, self, &ring);
    while (at < ring.n && memcmp(ring.at[at]->id, self, 16))
        at++;
    *ret = ring;
    for (size_t i = 0; i < ring.n;
         i++) /* what is relayed closes the ring, so a chain may begin in its middle too */
        ret->at[i] = ring.at[(at + i) % ring.n];
    *why = 0;
    if (ring.shape == RING_BROKEN || (ring.shape == RING_CHAIN && !j->chain_stands)) {
        members_describe(j->node->members, why, size);
        return false;
    }
    for (size_t r = 0; r < ring.n && !*why; r++)
        if (ret->at[r]->job)
            snprintf(why, size, "node %s is busy with job %llu", ret->at[r]->name,
                     (unsigned long long)ret->at[r]->job);
    return true;
}

struct job_ring *job_ring_new(struct node *node, void (*stands)(void *owner), void *owner)
{
    struct job_ring *j = xcalloc(1, sizeof *j);
    *j = (struct job_ring){.node = node, .stands = stands, .owner = owner};
    j->chain = event_new(node->base, -1, 0, on_chain, j);
    return j;
}

void job_ring_free(struct job_ring *j)
{
    if (!j)
        return;
    event_free(j->chain);
    free(j);
}
