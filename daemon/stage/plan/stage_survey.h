/* SPDX-License-Identifier: MIT
 *
 * What the search finds out of nodes and model before it looks for a plan: ways to cut a step, what
 * units cost and take on each node, the ways between nodes. For stage_search.c and its neighbours,
 * in the stage process of rank 0; main thread. */
#ifndef DAEMON_STAGE_SURVEY_H
#define DAEMON_STAGE_SURVEY_H

#include "daemon/stage/plan/cost_table.h"
#include "daemon/stage/plan/stage_head.h"
#include "engine/pipe/parallel.h"

struct search {
    struct head *h;
    size_t units, lowest; /* lowest: unit the backward ends at */
    size_t nodes;         /* of the ring as it is looked at: all of the job's, or all there are */
    size_t slices;        /* of a layer, whose costs these are; 0: as the plan says */
    size_t cuts, micro[PARALLEL_MOST_CUTS]; /* rows of a microbatch */
    double tokens[PARALLEL_MOST_CUTS];      /* of a usual microbatch */
    struct parallel_cut cut[PARALLEL_MOST_CUTS];
    struct sched_cost *cost[PARALLEL_MOST_CUTS]; /* owned */
    size_t *bytes[PARALLEL_MOST_CUTS]; /* owned: [(3 + nodes) · units] slot, activations, held; then by node
                                          what of the last it does not have yet */
    struct parallel_way way[JOB_MAX_RANKS * JOB_MAX_RANKS];
    size_t *grads;  /* owned: [units] of a whole layer, or of `slices` */
    size_t *copied; /* owned: [units] of copies after a round; NULL: of slices beside whole layers */
    double handling[JOB_MAX_RANKS]; /* by node, as in parallel_request */
    double passing[JOB_MAX_RANKS];  /* by node: of a byte that is gathered */
    size_t memory[JOB_MAX_RANKS];   /* for units, what `taken` is left out of */
    size_t taken[JOB_MAX_RANKS];
    struct cost_table *timed; /* owned */
    size_t *place;            /* owned: [cuts · units] of a unit at a cut in what is timed, or NOT_TIMED */
    /* The job's layout, and the planner's question about it. */
    struct parallel_layout layout;
    struct parallel_question question; /* owned */
};

/* What nodes and model are like: ways to cut a step (all: any rows of a microbatch), what units
 * cost and take, the ways between nodes. Its end is search_done, also after an error. */
int search_init(struct search *s, struct head *h, bool all, struct err *err);

/* What is there of a search for the whole layers, with a slice of each in their place, of which so
 * many make a layer: a part of what a layer costs. −ENOMEM. */
int search_part(struct search *ret, const struct search *whole, size_t slices, struct err *err);
/* Then what slices cost where they are timed; else nothing changes. */
int search_time_slices(struct search *s, struct err *err);
void search_done(struct search *s);

#endif
