/* SPDX-License-Identifier: MIT
 *
 * Looks for the order of work and the split of the layers with which a training step is over first,
 * or with which the fullest node is least full. What it compares are runs on paper (sched_simulate)
 * with the costs of each unit on each rank. Pure and deterministic: no clock, the effort is bounded
 * by counting tasks. Called by the stage process that plans a job; one thread. */
#ifndef PIPE_PLANNER_H
#define PIPE_PLANNER_H

#include "pipe/sched.h"

enum {
    PLANNER_MAX_RANKS = 16,
    PLANNER_MAX_CHUNKS = 4, /* tried where the caller does not say how many */
    PLANNER_MAX_STAGES = PLANNER_MAX_RANKS * SCHED_MAX_CHUNKS,
};

enum planner_objective { PLANNER_TIME, PLANNER_MEMORY };
/* Which stages keep inputs alone and do forwards again: none, all, or those of ranks that are short
 * of memory. */
enum planner_again { PLANNER_AGAIN_NONE, PLANNER_AGAIN_ALL, PLANNER_AGAIN_AUTO };

/* One way to cut the rows of a step into microbatches (of several adapters, of a step of each), and
 * what a microbatch then costs. Units as in split.h. Nodes are numbered along the ring; rank 0 is
 * node 0, and rank r node r, unless what is found says otherwise. */
struct planner_cut {
    size_t microbatches;
    const struct sched_cost
        *cost; /* [ranks · (layers + 2)], node after node: seconds; i = w = 0: no backward */
    const struct sched_link
        *link; /* [2 · ranks] of node n to the next, 2n, and to the one before; or NULL = free */
    const size_t
        *held; /* [ranks · (layers + 2)], node after node: bytes of a unit there whatever is in flight */
    const size_t *slot;        /* [layers + 2] and of each microbatch in flight, kept anyway */
    const size_t *activations; /* [layers + 2] and of each, kept unless the stage recomputes */
};

struct planner_request {
    size_t ranks, layers;
    const struct planner_cut *cut; /* [cuts] */
    size_t cuts;
    size_t adapters;      /* trained at once, whose steps take turns; 0 or 1 = one alone */
    const size_t *memory; /* [ranks] bytes each node has, or NULL = enough */
    const char *schedule; /* only this one, or NULL = all that give the same bits */
    size_t chunks;        /* only so many, or 0 = any */
    const size_t *first; /* this split alone, borrowed, or NULL; then `schedule` and `chunks` are given too */
    enum planner_objective objective;
    enum planner_again again;
    bool mirror; /* the ranks may also go round the other way: nodes 0, n − 1, …, 1; with `first`, they do */
};

struct planner_found {
    const char *schedule; /* NULL: nothing found */
    size_t chunks, stages, cut;
    size_t turns;                               /* steps of each adapter in a round */
    size_t start;                               /* the node that is rank 0 */
    bool mirrored;                              /* rank 1 is the node before it, not the next */
    size_t first[PLANNER_MAX_STAGES + 1];       /* as split_layers has it */
    bool again[PLANNER_MAX_STAGES];             /* recomputes */
    struct sched_cost cost[PLANNER_MAX_STAGES]; /* of a microbatch on the stage's rank */
    double seconds, bubble;                     /* of a step; of several adapters, in the mean of a round */
    size_t bytes[PLANNER_MAX_RANKS];            /* by the sums of units */
    bool fits;                                  /* within memory, by those sums */
    size_t stepped; /* tasks stepped on paper to find it, all candidates together */
};
size_t planner_node(const struct planner_found *found, size_t ranks, size_t rank);

/* The best and, if there are two, the best with another schedule, number of chunks, or cut. Where
 * nothing fits into memory, the one that misses it by least is found, and `fits` is false. */
int planner_search(struct planner_found *ret_best, struct planner_found *ret_second,
                   const struct planner_request *req, struct err *err);

/* The same order, chunks and cut with another node as rank 0: the best of them, either way round.
 * ret->schedule is NULL where there is one node only. */
int planner_turn(struct planner_found *ret, const struct planner_found *found,
                 const struct planner_request *req, struct err *err);

#endif
