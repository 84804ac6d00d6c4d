/* SPDX-License-Identifier: MIT
 *
 * The order of nodes that a job submitted here would get now, or why it would get none. A ring is
 * taken as it is; a chain, whose closing hop is then relayed, once it has stood for a moment: it
 * may be a ring that is still forming. In the first seconds of the daemon, members that the roster
 * names and nobody has heard of yet are waited for. Owned by coord; loop thread. */
#ifndef DAEMON_JOB_RING_H
#define DAEMON_JOB_RING_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/cluster/members.h"

struct job;
struct job_ring;
struct event_base;
struct cluster;

struct job_ring_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct cluster *cluster;
    struct members *members;
    void (*stands)(void *owner); /* time alone has made a ring or chain usable */
    /* Have all these nodes the job's model? Without a ring: has this node all of it, as it needs of
     * an adapter? False: `why` is a sentence. NULL: it is not asked. */
    bool (*has_model)(void *owner, const char *model, const struct members_ring *ring, char *why,
                      size_t size);
    void *owner;
};
struct job_ring *job_ring_new(const struct job_ring_setup *setup);
void job_ring_free(struct job_ring *j);
void job_ring_changed(struct job_ring *j); /* nodes or links are others */
/* Ranks from us on, and in `why` what is in the way of the job (NULL: of any), "" if nothing is.
 * True if a ring stands, though its nodes may be busy. */
bool job_ring_now(struct job_ring *j, const struct job *job, struct members_ring *ret, char *why,
                  size_t size);

#endif
