/* SPDX-License-Identifier: MIT
 *
 * What a rank opens of a plan. */
#ifndef DAEMON_STAGE_OF_PLAN_H
#define DAEMON_STAGE_OF_PLAN_H

#include <stddef.h>

#include "daemon/common/job_plan.h"
#include "engine/err.h"
#include "engine/model/stage.h"

/* The model on this node must be the one the head planned with: files of the same names are easily
 * of another version. `config` is what was read of it, once, and is used from then on. */
int job_plan_check_model(const struct job_plan *plan, const struct config *config, struct err *err);
/* What is opened for a stage, by the rank it lies on. */
struct stage_spec job_plan_stage(const struct job_plan *plan, const struct config *config, size_t stage,
                                 size_t replica);
/* Of a plan with blocks: rows whose logits are made at once, at least plan->seqs. Else 0. */
size_t job_plan_logit_rows(const struct job_plan *plan);

#endif
