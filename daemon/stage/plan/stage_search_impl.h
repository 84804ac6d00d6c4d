/* SPDX-License-Identifier: MIT
 *
 * What stage_search.c and stage_layouts.c find, and stage_forecast.c says of it. */
#ifndef DAEMON_STAGE_SEARCH_IMPL_H
#define DAEMON_STAGE_SEARCH_IMPL_H

#include "daemon/stage/plan/stage_survey.h"

/* About all nodes; how many replicas and slices there are to be, the caller says. */
struct parallel_request search_request(const struct search *s);
/* What was found of s->layout, with its shares, becomes the plan. */
void search_take(struct head *h, const struct search *s, const struct planner_found *found);
/* Has nobody set the order of the ring by hand? */
bool search_may_mirror(const struct head *h);

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
 * longer: a new list. found: [n], the best first. timed: by how many nodes share a stage, whether
 * what these compute was timed. */
json_t *forecast_choices(const struct search *s, const struct parallel_found *taken,
                         const struct parallel_found *found, size_t n, const bool *timed);

#endif
