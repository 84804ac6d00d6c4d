/* SPDX-License-Identifier: MIT
 *
 * Evaluations between the steps of a training: --valid and all of --eval-data, in file order, each
 * through the same pipeline. Main thread of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_VALID_H
#define DAEMON_STAGE_TRAIN_VALID_H

#include "daemon/stage/train/train_report.h"

/* Evaluates an adapter as it is after `step`, and says what came of all sets in one event: so they
 * are said together or not at all. The loss of --valid is run->of[adapter].last_valid. */
int train_evaluate(struct train_run *run, size_t adapter, uint64_t step, struct err *err);

#endif
