/* SPDX-License-Identifier: MIT
 *
 * Nodes in their places of a plan with one replica or several, as a question to planner.h. Pure;
 * asked by parallel.c, and by the stage process about a job whose replicas were given. */
#ifndef PIPE_PARALLEL_LAYOUT_H
#define PIPE_PARALLEL_LAYOUT_H

#include "pipe/plan.h"
#include "pipe/planner.h"

enum { PARALLEL_MOST_CUTS = 8, PARALLEL_MOST_SLICES = 8 };

/* The way from one node to another, in seconds: what a byte takes, what a message takes beside its
 * bytes, and from its end until it is taken. */
struct parallel_way {
    double byte, message, latency;
};

/* One way to cut the rows of a step, as planner_cut has it, but of all nodes and all replicas. */
struct parallel_cut {
    size_t microbatches;              /* of a step */
    size_t groups;                    /* in which their gradients are added up; a replica has one at least */
    double message;                   /* bytes of what a microbatch sends from stage to stage */
    const struct sched_cost *cost;    /* [nodes · (layers + 2)], node after node */
    const size_t *held;               /* [nodes · (layers + 2)], node after node */
    const size_t *slot, *activations; /* [layers + 2] */
};

/* Stages that several nodes share (tensor parallelism): each computes a slice of every layer, and
 * they gather the outputs. */
struct parallel_sharing {
    /* By how many nodes share a stage, from 2 on: the cuts of the request, with what a slice costs
     * and takes; NULL: so many cannot share one. */
    const struct parallel_cut *cut[PARALLEL_MOST_SLICES + 1];
    /* With `cut`: [layers + 2] bytes of a slice's gradients. NULL: as many as of whole units. */
    const size_t *grads[PARALLEL_MOST_SLICES + 1];
    /* Seconds in which those nodes (node: [slices]) gather what they compute of a unit, of a
     * microbatch; u: of a step. NULL: that takes no time. */
    struct sched_cost (*gathering)(const void *owner, size_t slices, size_t cut, size_t unit,
                                   const size_t *node);
    const void *owner; /* borrowed */
    uint32_t apart;    /* nodes, a bit each, that share no stage; not node 0 */
};
/* A job has no more pipelines: each slice of a replica is one. */
static inline bool parallel_can_run(size_t replicas, size_t slices)
{
    return replicas * slices <= PLAN_MAX_REPLICAS;
}

struct parallel_request {
    size_t nodes, layers; /* in the order of the ring; node 0 is rank 0 of whatever is found */
    const struct parallel_cut *cut;
    size_t cuts;                    /* 1 to PARALLEL_MOST_CUTS */
    const struct parallel_way *way; /* [nodes · nodes], from · nodes + to */
    const size_t *grads;            /* [layers + 2] bytes of a unit's gradients */
    const size_t *copied;           /* [layers + 2] as in planner_request, or NULL */
    const double *handling;  /* [nodes] seconds of the CPUs for a byte that is sent, and one that comes */
    const size_t *memory;    /* [nodes], or NULL = enough */
    uint32_t apart;          /* nodes, a bit each, in no plan of several replicas; not node 0 */
    size_t replicas, places; /* only so many, and stages of each; 0 = any */
    size_t slices;           /* only so many nodes share a stage; 0 = any */
    const struct parallel_sharing *sharing; /* borrowed; NULL: no nodes share a stage */
    size_t adapters, chunks;                /* as in planner_request, and so on */
    const char *schedule;
    enum planner_objective objective;
    enum planner_again again;
    bool mirror; /* ranks may also go round the other way */
};

/* The nodes of a plan in their places. Slices lie as replicas do: slice t of replica d is pipeline
 * d · slices + t. */
struct parallel_layout {
    size_t replicas, slices, places; /* slices ≥ 1 */
    bool mirrored;
    uint32_t mask;
    size_t node[PLANNER_MAX_RANKS];       /* by rank */
    size_t cuts, cut[PARALLEL_MOST_CUTS]; /* those of the request with groups for all replicas */
    size_t share[PARALLEL_MOST_CUTS][PLAN_MAX_REPLICAS]; /* groups, of each of these cuts */
};

/* One pipeline of a layout, as the planner is asked: nodes that share a stage count as one. The
 * arrays belong to it. */
struct parallel_question {
    struct planner_request req;
    struct planner_cut cut[PARALLEL_MOST_CUTS];
    size_t own[PARALLEL_MOST_CUTS][PLAN_MAX_REPLICAS];
    struct sched_link link[PARALLEL_MOST_CUTS][2 * PLANNER_MAX_RANKS],
        sum[PARALLEL_MOST_CUTS][PLANNER_MAX_RANKS];
    double handling[PARALLEL_MOST_CUTS][PLANNER_MAX_RANKS];
    struct planner_copy copy[PLANNER_MAX_RANKS];
    size_t memory[PLANNER_MAX_RANKS];
    struct sched_cost *cost; /* owned */
    size_t *held;            /* owned */
};

/* False: there are too few groups in any cut. */
bool parallel_layout_make(struct parallel_layout *ret, const struct parallel_request *req, uint32_t mask,
                          size_t replicas, size_t slices, bool mirrored);
/* From the layout's shares. −ENOMEM. */
int parallel_ask(struct parallel_question *ret, const struct parallel_layout *layout,
                 const struct parallel_request *req, struct err *err);
void parallel_question_done(struct parallel_question *question);

/* Deals groups of microbatches out: each goes to the replica that would be through with it first.
 * speed: [replicas]. ret: [replicas], each at least 1; groups ≥ replicas. */
void parallel_deal_out(size_t *ret, const double *speed, size_t replicas, size_t groups);
/* Nodes of the tree of sums (num/sum_tree.h) that a replica sends, of the one that sends most. */
size_t parallel_most_sums(const size_t *share, size_t replicas, size_t groups);
/* Of a byte that a rank gives the next one a copy of; node: [ranks], of each rank. A ring may be
 * gone round either way: of both neighbours it is the farther. One rank alone gives none. */
struct planner_copy parallel_copy(const struct parallel_request *req, const size_t *node, size_t ranks,
                                  size_t rank);
/* Bytes that a rank sends for each byte of its gradients, and gets. */
double parallel_sent(size_t sums, size_t replicas);

#endif
