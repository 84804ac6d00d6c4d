/* SPDX-License-Identifier: MIT
 *
 * How fast each rank of a training job computes now, and with what it was planned: what its stage
 * counts, over so many spans of a second or a step, whichever is longer. A stall in a few of them
 * changes nothing. Pure; owned by the plan. */
#ifndef DAEMON_PACE_H
#define DAEMON_PACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/common/job_plan.h"
#include "engine/err.h"

enum { PACE_SPANS = 7 };

struct pace;

/* planned: {"units": [cost of each unit], "speeds": [of each rank]}, costs in any unit of time, of
 * that plan. −EBADMSG and a sentence. The caller frees. */
int pace_new(struct pace **ret, const json_t *planned, const struct job_plan *plan, struct err *err);
void pace_free(struct pace *p); /* NULL: does nothing */

const double *pace_unit_cost(const struct pace *p); /* [layers + 2] */
const double *pace_speed(const struct pace *p);     /* [ranks] */

/* The "made" of a rank's timeline: [microbatches, µs computing, µs in all] since it runs.
 * −EBADMSG: nonsense. */
int pace_hear(struct pace *p, size_t rank, const json_t *made);

/* ret_computes [ranks]: seconds a microbatch computes there; ret_step: seconds that a microbatch
 * takes in all. False: some rank has not said enough yet. */
bool pace_read(const struct pace *p, double *ret_computes, double *ret_takes);

#endif
