/* SPDX-License-Identifier: MIT
 *
 * Which nodes of a ring train a model, as how many replicas of how long a pipeline, how many of
 * them sharing each stage, in which order of work and with which split of the layers: what is over
 * first, or fills the fullest node least, as planner.h says of one pipeline. Pure and
 * deterministic, the effort is bounded by counting tasks. Called by the stage process that plans a
 * job; one thread. */
#ifndef PIPE_PARALLEL_H
#define PIPE_PARALLEL_H

#include "pipe/parallel_layout.h"
#include "pipe/unlike.h"

enum { PARALLEL_MOST_FOUND = 8 };

struct parallel_found {
    size_t replicas, slices, places; /* slices: nodes that share a stage, ≥ 1 */
    bool mirrored;                   /* rank 1 lies before the head's node in the ring */
    uint32_t mask;                   /* the nodes that take part, a bit each */
    size_t node[PLANNER_MAX_RANKS];  /* of each rank, as plan_rank_at numbers them */
    size_t share[PLAN_MAX_REPLICAS]; /* groups of each replica */
    struct planner_found plan;       /* of one pipeline: start 0, not mirrored */
    struct planner_parts parts;
    /* Replicas with unlike numbers of nodes: `places` is 0, and `plan` has schedule, chunks, cut,
     * seconds, fits and bytes (by rank) alone. */
    bool is_unlike;
    struct unlike_found unlike;
};

/* The best first; any two differ in replicas, slices, places, schedule, chunks or cut. One at most
 * has replicas with unlike numbers of nodes. Where no plan fits into memory, what misses it by
 * least comes first, and `fits` is false. −EINVAL: a sentence. */
int parallel_search(struct parallel_found ret[PARALLEL_MOST_FOUND], size_t *ret_n,
                    const struct parallel_request *req, struct err *err);

#endif
