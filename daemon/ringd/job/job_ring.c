/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_ring.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/common/xalloc.h"
#include "net/roster.h"

enum {
    CHAIN_S = 3,
    START_S = 6, /* after the start of the daemon, for members that come up with it */
};

struct job_ring {
    struct job_ring_setup setup;
    struct event *chain; /* owned: the chain has stood for long enough */
    bool chain_stands;
    struct event *begun; /* owned: whoever has not come by now is not waited for */
    bool is_starting;
};

static void on_chain(evutil_socket_t fd, short what, void *arg)
{
    struct job_ring *j = arg;
    (void)fd;
    (void)what;
    j->chain_stands = true;
    j->setup.stands(j->setup.owner);
}

static void on_begun(evutil_socket_t fd, short what, void *arg)
{
    struct job_ring *j = arg;
    (void)fd;
    (void)what;
    j->is_starting = false;
    j->setup.stands(j->setup.owner);
}

/* Who belongs to the cluster and cannot be reached: how many, and in `names` the first of them. */
static size_t missing_members(const struct job_ring_setup *n, char *names, size_t size)
{
    const struct roster *r = cluster_roster(n->cluster);
    size_t missing = 0;
    for (size_t i = 0; r && i < r->n; i++) {
        if (r->at[i].status != ROSTER_ACTIVE || members_reachable(n->members, r->at[i].id))
            continue;
        if (!missing++)
            snprintf(names, size, "%s", r->at[i].name);
    }
    return missing;
}

void job_ring_changed(struct job_ring *j)
{
    struct members_ring ring;
    struct timeval in = {CHAIN_S, 0};
    members_ring(j->setup.members, NULL, &ring);
    if (ring.shape != RING_CHAIN) {
        event_del(j->chain);
        j->chain_stands = false;
    } else if (!j->chain_stands && !event_pending(j->chain, EV_TIMEOUT, NULL)) {
        event_add(j->chain, &in);
    }
}

bool job_ring_now(struct job_ring *j, struct members_ring *ret, char *why, size_t size)
{
    const uint8_t *self = members_self(j->setup.members)->id;
    struct members_ring ring;
    size_t at = 0;
    members_ring(j->setup.members, self, &ring);
    while (at < ring.n && memcmp(ring.at[at]->id, self, 16))
        at++;
    *ret = ring;
    for (size_t i = 0; i < ring.n;
         i++) /* what is relayed closes the ring, so a chain may begin in its middle too */
        ret->at[i] = ring.at[(at + i) % ring.n];
    *why = 0;
    char name[CERT_NAME];
    size_t missing = j->is_starting ? missing_members(&j->setup, name, sizeof name) : 0;
    if (missing == 1)
        snprintf(why, size, "%s may still come: the daemon here has just started", name);
    else if (missing)
        snprintf(why, size, "%s and %zu more may still come: the daemon here has just started", name,
                 missing - 1);
    if (missing)
        return false;
    if (ring.shape == RING_BROKEN || (ring.shape == RING_CHAIN && !j->chain_stands)) {
        members_describe(j->setup.members, why, size);
        return false;
    }
    for (size_t r = 0; r < ring.n && !*why; r++)
        if (ret->at[r]->job)
            snprintf(why, size, "node %s is busy with job %llu", ret->at[r]->name,
                     (unsigned long long)ret->at[r]->job);
    return true;
}

struct job_ring *job_ring_new(const struct job_ring_setup *setup)
{
    struct job_ring *j = xcalloc(1, sizeof *j);
    struct timeval in = {START_S, 0};
    *j = (struct job_ring){.setup = *setup, .is_starting = true};
    j->chain = event_new(setup->base, -1, 0, on_chain, j);
    j->begun = event_new(setup->base, -1, 0, on_begun, j);
    event_add(j->begun, &in);
    return j;
}

void job_ring_free(struct job_ring *j)
{
    if (!j)
        return;
    event_free(j->chain);
    event_free(j->begun);
    free(j);
}
