/* SPDX-License-Identifier: MIT
 *
 * Replicas with unlike numbers of nodes: which nodes of the ring make up each, with which splits,
 * and how long a step then takes. Each replica is a pipeline that planner.h is asked about by
 * itself; a step is over with the slowest. Pure and deterministic. Called by the stage process that
 * plans a job; one thread. */
#ifndef PIPE_UNLIKE_H
#define PIPE_UNLIKE_H

#include "pipe/parallel_layout.h"

/* One pipeline among several; by place. */
struct unlike_replica {
    size_t first[PLANNER_MAX_RANKS + 1];       /* as split_layers has it */
    struct sched_cost cost[PLANNER_MAX_RANKS]; /* of a microbatch */
    bool again[PLANNER_MAX_RANKS];             /* recomputes */
    size_t bytes[PLANNER_MAX_RANKS];           /* by the sums of units */
    size_t own;                                /* microbatches of a step */
    double seconds;                            /* of a step, with the sums of gradients, norm and optimizer */
};
struct unlike_found {
    size_t replicas, size[PLAN_MAX_REPLICAS]; /* nodes of each */
    bool mirrored;                            /* rank 1 lies before the head's node in the ring */
    uint32_t mask;                            /* the nodes that take part, a bit each */
    size_t node[PLANNER_MAX_RANKS];           /* of each rank, as plan_shape_rank numbers them */
    size_t cut;                               /* of the request */
    size_t share[PLAN_MAX_REPLICAS];          /* groups of each replica */
    const char *schedule;                     /* of all of them; NULL: nothing found */
    struct unlike_replica replica[PLAN_MAX_REPLICAS];
    size_t slowest; /* replica */
    double seconds, bubble, sums;
    double missing; /* bytes of memory there are not */
    struct planner_parts parts;
};

/* The ranks of replicas with so many nodes each, of the mask's in the order of the ring. The rest
 * of ret is set to zero. */
void unlike_layout(struct unlike_found *ret, const struct parallel_request *req, uint32_t mask,
                   const size_t *size, size_t replicas, bool mirrored);

/* For nodes as they lie in `found`: cut, shares, schedule and splits. has_shares: those in `found`
 * stay. first: [replicas] lists of bounds that stay, or NULL; then the request has one cut and a
 * schedule. effort: as in planner_request. −EINVAL: a sentence. */
int unlike_judge(struct unlike_found *found, const struct parallel_request *req, bool has_shares,
                 const size_t *const *first, size_t effort, struct err *err);

/* The best of all numbers of nodes, with parts. schedule NULL: nothing can be so, for there are too
 * few nodes or groups, or several adapters. −ENOMEM. */
int unlike_search(struct unlike_found *ret, const struct parallel_request *req, struct err *err);

#endif
