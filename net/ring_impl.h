/* SPDX-License-Identifier: MIT
 *
 * Inside of the ring order, shared by ring.c (exact) and ring_large.c (local search), and by nobody
 * else. */
#ifndef NET_RING_IMPL_H
#define NET_RING_IMPL_H

#include "ring.h"

/* One hop over a shared segment outweighs all the bandwidth a ring of RING_MAX_NODES can have, in
 * 100 Mb/s.
 */
enum { RING_SHARED_COST = 1 << 16 };

struct ring_sorted { /* the graph with nodes in order of ids: rank 0 is the smallest */
    size_t n;
    size_t index[RING_MAX_NODES];    /* rank → index in the caller's graph */
    uint32_t linked[RING_MAX_NODES]; /* neighbours of a rank, as a set of ranks */
    uint32_t near[RING_MAX_NODES];   /* those that may be used at the level being tried */
    uint8_t level[RING_MAX_NODES][RING_MAX_NODES];
    uint32_t cost[RING_MAX_NODES][RING_MAX_NODES];
};

/* A good ring (or chain) of ranks over `near`; returns how many of its hops are not in there: 0 = a
 * real one.
 */
size_t ring_large_search(size_t *ranks, const struct ring_sorted *s, bool closed);

#endif
