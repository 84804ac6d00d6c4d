/* SPDX-License-Identifier: MIT
 *
 * What each task of a plan computes on this rank. A task takes its messages (message.h), calls its
 * stage and sends what it made. Called by stage_runner.c, which decides when; main thread of
 * ringd-stage. */
#ifndef DAEMON_STAGE_TASK_H
#define DAEMON_STAGE_TASK_H

#include "daemon/stage/task/rank_state.h"

/* The adapter of the task's step, which another task may have changed. */
void task_select_adapter(struct rank_state *r, const struct task *task);
int task_run(struct rank_state *r, const struct task *task, struct err *err);

#endif
