/* SPDX-License-Identifier: MIT
 *
 * What has to come to the ranks of a plan before they can begin, from where, and how long that
 * takes: what each lacks of its share comes from the nearest nodes that have it, as bring.h has it
 * brought, and the cable that takes longest decides. PURE; any thread. */
#ifndef DAEMON_TRAVEL_H
#define DAEMON_TRAVEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/ring.h"

/* A node; the ranks are the first of them. Lists of blocks are [[file, first, the one after the
 * last], …], of 4 MiB each. All is borrowed. */
struct travel_node {
    const json_t *share; /* of a rank: the blocks that its tensors touch */
    bool is_known;       /* it has said what it has */
    bool has_outline, is_whole;
    const json_t *blocks; /* that it has, if it is not whole */
};
struct travel_world {
    size_t ranks, n;
    struct travel_node node[RING_MAX_NODES];
    bool joined[RING_MAX_NODES][RING_MAX_NODES];
    double mbps[RING_MAX_NODES][RING_MAX_NODES]; /* from one to the other; 0: not known */
    const json_t *sizes;                         /* {file: bytes}: of all files of weights */
};

struct travel_rank {
    bool is_known; /* the rest is, but for share */
    uint64_t share, lacks;
    uint64_t from[RING_MAX_NODES], hub; /* bytes of that; hub: no node has them */
};
struct travel {
    struct travel_rank rank[RING_MAX_NODES];
    uint64_t lacks, hub; /* of all ranks */
    bool is_timed;       /* of all that comes from other nodes is known how fast it comes */
    double seconds;      /* until the last byte of that is there */
    double mbps;         /* of the cable that takes longest; 0: none carries anything */
};

/* −EINVAL: more blocks than a model can have. */
int travel_foresee(struct travel *ret, const struct travel_world *world);

/* What the ranks lack of parts of a model, for a plan that may prefer who has them: ret [ranks ·
 * parts], rank after rank, bytes. parts: a list of lists of blocks. Of a rank that has not said
 * what it has, all of it. −EINVAL as above. */
int travel_lacks(uint64_t *ret, const struct travel_world *world, const json_t *parts);

/* Both are to come, of the same ranks: bytes add up, and so do the times, for the same cables may
 * carry both. */
void travel_add(struct travel *to, const struct travel *more);

#endif
