/* SPDX-License-Identifier: MIT
 *
 * What a round does on every rank, from what the job's plan says and what GO says: the request for
 * the compiler of plans, and its answer. Rank 0 and all others so come to the same. Called by the
 * runner, and by who looks at a plan before it is opened. PURE; any thread. */
#ifndef DAEMON_STAGE_ROUND_PLAN_H
#define DAEMON_STAGE_ROUND_PLAN_H

#include "daemon/common/job_plan.h"
#include "daemon/stage/stage_go.h"

/* Without schedule, recompute and adapter_of_step. Borrows from `plan`. `pieces`: of SAVE and LOAD,
 * as in plan_request; borrowed. */
struct plan_request round_request(const struct job_plan *plan, const struct config *config,
                                  const struct go *go, const size_t *pieces);

/* The tasks of that round; plan_free frees them. Refuses as sched_make and plan_compile do, and
 * −ENOMEM. */
int round_compile(struct plan **ret, const struct job_plan *plan, const struct config *config,
                  const struct go *go, const size_t *pieces, struct err *err);

#endif
