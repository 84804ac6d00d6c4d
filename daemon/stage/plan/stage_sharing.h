/* SPDX-License-Identifier: MIT
 *
 * Stages that several nodes share, as the search looks at them: what a slice costs on each node,
 * and what those nodes gather. A slice is timed only where it could be the fastest: until then it
 * counts as its part of a whole layer, which is less than any slice takes. For stage_search.c, in
 * the stage process of rank 0; main thread. */
#ifndef DAEMON_STAGE_SHARING_H
#define DAEMON_STAGE_SHARING_H

#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_survey.h"

struct sharing_slices {
    struct search *search; /* owned: with what a slice costs; NULL: so many nodes cannot share a stage */
    struct slice_trains *gathers; /* owned: [cuts · units] */
    bool is_timed;
};
struct sharing_table {
    const struct search *whole;                           /* borrowed: what a whole layer costs */
    struct gather_way way[JOB_MAX_RANKS * JOB_MAX_RANKS]; /* between two nodes */
    struct sharing_slices of[SLICE_MOST + 1];             /* by how many nodes share a stage */
    struct parallel_sharing ask;                          /* as parallel_request wants it */
};

/* Of all numbers of nodes that may share a stage of this job; they may be none. whole: borrowed
 * until it is freed; its costs are there. NULL: out of memory. */
struct sharing_table *sharing_new(const struct search *whole);
/* Of a job whose plan says how many: `whole` has costs of a slice already. */
struct sharing_table *sharing_of_plan(const struct search *whole);
void sharing_free(struct sharing_table *sharing);

/* Has the nodes time what a slice costs. Where they cannot, so many do not share a stage. */
void sharing_time(struct sharing_table *sharing, size_t slices);

#endif
