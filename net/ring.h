/* SPDX-License-Identifier: MIT
 *
 * PURE: from who is linked to whom and how fast, the order of nodes. Every node computes the same
 * from the same records, however it numbers them. Called by the daemon on its loop.
 *
 * The best ring, the first difference deciding: its slowest hop is of the fastest class; fewest
 * hops over shared segments; most bandwidth in all; smallest sequence of ids. Rates count by class,
 * so that a measurement that wobbles does not reorder the ring. */
#ifndef NET_RING_H
#define NET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RING_MAX_NODES = 32,
    RING_EXACT_NODES = 16, /* beyond, a deterministic local search finds a good ring, not surely the best */
};

struct ring_edge {
    bool linked;
    bool shared;         /* over a switch or radio that others use too */
    uint32_t class_mbps; /* ring_class of the best cable between the two; 0 = not known, the last choice */
};
struct ring_graph {
    size_t n;
    uint8_t id[RING_MAX_NODES][16];
    /* What each end says of the way to the other. Linked when both say so, shared when either does,
     * as fast as the slower word. */
    struct ring_edge edge[RING_MAX_NODES][RING_MAX_NODES];
};
enum ring_shape { RING_ALONE, RING_CLOSED, RING_CHAIN, RING_BROKEN };
struct ring_order {
    enum ring_shape shape; /* CLOSED also for two linked nodes; BROKEN (n = 0): no path visits all nodes */
    size_t n;
    size_t at[RING_MAX_NODES]; /* indices into the graph; smallest id first, then its smaller-id neighbour; a
                                  chain begins at its smaller-id end */
    uint32_t class_mbps;       /* of the slowest hop; 0 = not known, or no hop */
    uint64_t total_mbps;       /* of all hops' classes */
    size_t shared;             /* hops over shared segments */
};

/* The class (100 … 40000 Mb/s; what is slower counts as 100, nothing measured as 0) of a measured
 * rate. A cable that has a class already keeps it until the rate is well outside: `current`, 0 =
 * none yet. */
uint32_t ring_class(uint32_t measured_mbps, uint32_t current);

/* The best cycle, else the best chain (cable between its ends missing: ring_missing), else BROKEN.
 * 0 or −ENOMEM, −E2BIG (more than RING_MAX_NODES), and the order is BROKEN then. */
int ring_compute(struct ring_order *ret, const struct ring_graph *graph);
const char *ring_shape_name(enum ring_shape shape);

struct ring_pair {
    size_t a, b; /* indices into the graph */
};
/* Fewest cables (up to `cap` of them told) that would close the ring: for a chain the one between
 * its ends. Returns how many, or −errno as above. */
int ring_missing(const struct ring_graph *graph, const struct ring_order *order, struct ring_pair *ret,
                 size_t cap);

/* An order given by hand (`ring = a,b,c`), checked: 0, and *ret starts where it does, closed or a
 * chain; −EINVAL a node twice or unknown, −EHOSTUNREACH no cable to the next one (both: *ret_at =
 * its place in the list), −ENOENT a node of the graph is left out (*ret_at = its index in the
 * graph). */
int ring_verify(struct ring_order *ret, const struct ring_graph *graph, const size_t *list, size_t n,
                size_t *ret_at);

/* The same ring turned so that it starts at `head` (a job's rank 0); −ENOENT if head is not in it,
 * −EHOSTUNREACH if it is in the middle of a chain, which can only start at one of its ends. */
int ring_rotate(struct ring_order *ret, const struct ring_order *ring, size_t head);

/* Next hop on a shortest path from → to (breadth first, ties by id), or −1 (no path, or from =
 * to). */
int ring_next_hop(const struct ring_graph *graph, size_t from, size_t to);

#endif
