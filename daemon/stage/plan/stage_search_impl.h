/* SPDX-License-Identifier: MIT
 *
 * What stage_search.c finds out of nodes and model, and stage_forecast.c says of it. */
#ifndef DAEMON_STAGE_SEARCH_IMPL_H
#define DAEMON_STAGE_SEARCH_IMPL_H

#include "daemon/stage/plan/cost_table.h"
#include "daemon/stage/plan/stage_head.h"
#include "engine/pipe/parallel.h"

struct search {
    struct head *h;
    size_t units, lowest; /* lowest: unit the backward ends at */
    size_t nodes;         /* of the ring as it is looked at: all of the job's, or all there are */
    size_t cuts, micro[PARALLEL_MOST_CUTS]; /* rows of a microbatch */
    double tokens[PARALLEL_MOST_CUTS];      /* of a usual microbatch */
    struct parallel_cut cut[PARALLEL_MOST_CUTS];
    struct sched_cost *cost[PARALLEL_MOST_CUTS]; /* owned */
    size_t *bytes[PARALLEL_MOST_CUTS]; /* owned: [(3 + nodes) · units] slot, activations, held; then by node
                                          what of the last it does not have yet */
    struct parallel_way way[JOB_MAX_RANKS * JOB_MAX_RANKS];
    size_t *grads;                  /* owned: [units] */
    double handling[JOB_MAX_RANKS]; /* by node, as in parallel_request */
    size_t memory[JOB_MAX_RANKS];   /* for units, what `taken` is left out of */
    size_t taken[JOB_MAX_RANKS];
    struct cost_table *timed; /* owned */
    size_t *place;            /* owned: [cuts · units] of a unit at a cut in what is timed, or NOT_TIMED */
    /* Of ranks that share stages, what the planner is asked in place of the ranks' own. */
    struct {
        struct parallel_way way[JOB_MAX_RANKS * JOB_MAX_RANKS];
        double handling[JOB_MAX_RANKS];
        size_t memory[JOB_MAX_RANKS];
    } shared;
    /* The job's layout, and the planner's question about it. */
    struct parallel_layout layout;
    struct parallel_question question; /* owned */
};

/* search_slices.c: the planner's question about the job's own replicas, into `layout` and
 * `question`. has_shares: with the plan's groups of each replica. */
int search_ask(struct search *s, const struct parallel_request *req, bool has_shares, struct err *err);
/* stage_forecast.c: the rows of a microbatch, schedule and chunks that were found. */
void search_take_cut(struct head *h, const struct search *s, size_t cut, const char *schedule, size_t chunks);
/* unlike_forecast.c: what was found of replicas with unlike numbers of nodes, as the plan; the same
 * looked for on the nodes as they lie, or foreseen of the plan as it is. */
void search_take_unlike(struct head *h, const struct search *s, const struct unlike_found *found);
int search_unlike(struct search *s, const struct parallel_request *req, struct err *err);
int search_foresee_unlike(struct search *s, const struct parallel_request *req, struct err *err);

/* stage_forecast.c. A new object: what was found of the job's own layout. */
json_t *forecast_of(const struct search *s, const struct planner_found *found);
/* What the model without adapter takes before a step of --loss dpo whose pairs come for the first
 * time, of one pipeline: seconds, from the costs of its stages. */
double forecast_reference(const struct sched_cost *cost, size_t stages, const char *schedule, size_t ranks,
                          size_t microbatches);
/* Sentences about nodes that hold no layer: a new list. */
json_t *forecast_left_out(const struct search *s, const struct planner_found *found);
/* Adds to the forecast where else the job could be submitted, if that is worth a word. */
void forecast_elsewhere(const struct search *s, const struct planner_found *found);
/* Of --parallel auto the plan that was taken and the best two of other ones, and why these take
 * longer: a new list. found: [n], the best first. */
json_t *forecast_choices(const struct search *s, const struct parallel_found *taken,
                         const struct parallel_found *found, size_t n);

#endif
