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
 * node 0, and rank r node r, unless what is found says otherwise. Of several replicas the nodes of
 * the first come first, then those of the second, and so on, each by their places in the pipeline;
 * all arrays by node are so many times as long. */
struct planner_cut {
    size_t microbatches; /* of the replica that has most */
    const size_t *own;   /* of several replicas: [replicas] microbatches of each */
    const struct sched_cost
        *cost; /* [ranks · (layers + 2)], node after node: seconds; i = w = 0: no backward */
    const struct sched_link
        *link; /* [2 · ranks] of node n to the next, 2n, and to the one before; or NULL = free */
    const size_t
        *held; /* [ranks · (layers + 2)], node after node: bytes of a unit there whatever is in flight */
    const size_t *slot;        /* [layers + 2] and of each microbatch in flight, kept anyway */
    const size_t *activations; /* [layers + 2] and of each, kept unless the stage recomputes */
    /* Of several replicas, or of one of unlike ones: [ranks] by place, how long a byte of gradients
     * is on its way until all replicas have the sum; the latency comes on top once. Else NULL. */
    const struct sched_link *sum;
    /* With `sum`: [ranks] by place, seconds that the CPUs of a rank are busy with a byte of its
     * gradients: they pack, seal and add it, and compute nothing meanwhile. NULL: none. */
    const double *handling;
    /* By node, or NULL: what a byte of `copied` costs a node. */
    const struct planner_copy {
        double cpu, cable; /* seconds: to seal, send and take one; on the cable to the next rank */
    } * copy;
};

struct planner_request {
    size_t ranks, layers; /* ranks of a replica */
    size_t replicas;      /* of the pipeline; 0 = 1. Of several, ranks stay on their nodes */
    const size_t *grads;  /* with `sum`: [layers + 2] bytes of a unit's gradients */
    /* [layers + 2] bytes of a unit of which each rank gives the next one a copy after each round,
     * while the round that follows is under way; or NULL. */
    const size_t *copied;
    const struct planner_cut *cut; /* [cuts] */
    size_t cuts;
    size_t adapters;      /* trained at once, whose steps take turns; 0 or 1 = one alone */
    const size_t *memory; /* by node: bytes it has, or NULL = enough */
    const char *schedule; /* only this one, or NULL = all that give the same bits */
    size_t chunks;        /* only so many, or 0 = any */
    const size_t *first; /* this split alone, borrowed, or NULL; then `schedule` and `chunks` are given too */
    enum planner_objective objective;
    enum planner_again again;
    size_t effort; /* tasks that may be stepped to improve splits, about; 0 = as usual, 1: none */
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
    struct sched_cost cost[PLANNER_MAX_STAGES]; /* of a microbatch on the stage's rank; of several replicas,
                                                   on that of the one that takes longest */
    double seconds, bubble;                     /* of a step; of several adapters, in the mean of a round */
    double sums; /* of `seconds` those for adding up gradients: on the CPUs, and behind the last backward */
    size_t bytes[PLANNER_MAX_RANKS]; /* by rank, of each replica in turn: by the sums of units */
    bool fits;                       /* within memory, by those sums */
    size_t stepped;                  /* tasks stepped on paper to find it, all candidates together */
};
size_t planner_node(const struct planner_found *found, size_t ranks, size_t rank);

/* What the seconds of a step are made of; they add up to it. */
struct planner_parts {
    double work;   /* tasks of the rank that has most to do */
    double bubble; /* in which it waits for others because of the order of work */
    double cables; /* longer, because messages take time */
    double sums;   /* as planner_found has it */
    double update; /* norm and optimizer, and copies of what is trained */
    double gather; /* nodes that share a stage gather outputs; planner_explain does not know it: 0 */
};
int planner_explain(struct planner_parts *ret, const struct planner_found *found,
                    const struct planner_request *req, struct err *err);

/* The best and, if there are two, the best with another schedule, number of chunks, or cut. Where
 * nothing fits into memory, the one that misses it by least is found, and `fits` is false. */
int planner_search(struct planner_found *ret_best, struct planner_found *ret_second,
                   const struct planner_request *req, struct err *err);

/* The same order, chunks and cut with another node as rank 0: the best of them, either way round.
 * ret->schedule is NULL where there is one node only, or several replicas. */
int planner_turn(struct planner_found *ret, const struct planner_found *found,
                 const struct planner_request *req, struct err *err);

/* Of splits of what was found whose step is longer by that part at most: one for which fewer bytes
 * have to come to the nodes, as far as single layers that move lead to it. lacks: [ranks], by node,
 * lists of [layers + 2]: bytes of a unit that the node lacks. Where memory is the objective, or
 * nothing better is near, nothing changes. ret_spared: so many bytes fewer. */
int planner_prefer(struct planner_found *found, size_t *ret_spared, const size_t *const *lacks, double slack,
                   const struct planner_request *req, struct err *err);

#endif
