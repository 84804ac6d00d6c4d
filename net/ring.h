/* SPDX-License-Identifier: MIT
 *
 * PURE: from who is linked to whom, the order of nodes. Every node computes the same from the same records.
 */
#ifndef NET_RING_H
#define NET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_MAX_NODES = 16 };

struct ring_graph {
    size_t n;
    uint8_t id[RING_MAX_NODES][16];
    bool linked[RING_MAX_NODES][RING_MAX_NODES]; /* both ends agree; symmetric */
};
enum ring_shape { RING_ALONE, RING_CLOSED, RING_CHAIN, RING_BROKEN };
struct ring_order {
    enum ring_shape shape; /* CLOSED also for two linked nodes; BROKEN (n = 0): no path visits all nodes */
    size_t n;
    size_t at[RING_MAX_NODES]; /* indices into the graph; smallest id first, then its smaller-id neighbour */
};
/* A Hamiltonian cycle, else a Hamiltonian path, the first in order of ids; by bounded search (n ≤ 16). */
void ring_compute(struct ring_order *ret, const struct ring_graph *graph);
const char *ring_shape_name(enum ring_shape shape);

/* The same ring turned so that it starts at `head` (a job's rank 0); −ENOENT if head is not in it,
 * −EHOSTUNREACH if it is in the middle of a chain, which can only start at one of its ends. */
int ring_rotate(struct ring_order *ret, const struct ring_order *ring, size_t head);

/* Next hop on a shortest path from → to (breadth first, ties by id), or −1 (no path, or from = to). */
int ring_next_hop(const struct ring_graph *graph, size_t from, size_t to);

#endif
