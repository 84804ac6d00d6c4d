/* SPDX-License-Identifier: MIT
 *
 * What a step was said to take, shown: beside the plan, as a chart, and against what a step took.
 * plan: as the API has it. One thread. */
#ifndef DAEMON_CTL_FORECAST_H
#define DAEMON_CTL_FORECAST_H

#include <jansson.h>
#include <stddef.h>

/* Ranks that share a stage; 1: none do. */
size_t forecast_slices(const json_t *plan);
/* Ranks of a pipeline, which is a slice of a replica: all, where there is one. */
size_t forecast_places(const json_t *plan, size_t pipeline);
/* Which pipeline a rank is of; those of a replica are one behind the other. */
size_t forecast_pipeline(const json_t *plan, size_t rank);
/* "dp=2,pp=2", "dp=2,tp=2,pp=1", "tp=2,pp=2"; replicas with unlike numbers of ranks: "pp=1+2". */
void forecast_parallel(char *ret, size_t size, const json_t *plan);
/* Columns of the plan's table: milliseconds of F, I, W and R of a microbatch on that rank, and the
 * share of the step it stands still; each after a tab. */
void forecast_costs(char *ret, size_t size, const json_t *plan, size_t rank);

/* The same of a generation or a scoring: the names of columns, each after a tab, what is in them,
 * and the line below; nothing where no speed is foreseen. */
const char *speed_head(const json_t *plan);
void speed_costs(char *ret, size_t size, const json_t *plan, size_t rank);
void speed_print(const json_t *plan);
/* And what came of it: result, of a job that is done. */
void speed_compare(const json_t *plan, const json_t *result);

/* Lines below that table; nothing where there is no forecast. */
void forecast_print(const json_t *plan);
void forecast_chart(const json_t *plan);

/* The last step of a job, of which `timeline` tells, against the forecast. */
void forecast_compare(const json_t *plan, const json_t *timeline);

#endif
