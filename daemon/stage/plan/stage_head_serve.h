/* SPDX-License-Identifier: MIT
 *
 * The part of stage_head.h that plans a job that serves: its adapters, its pool, and the draft
 * model that the head has beside its stage. Called by head_plan. Main thread of rank 0. */
#ifndef DAEMON_STAGE_HEAD_SERVE_H
#define DAEMON_STAGE_HEAD_SERVE_H

#include "daemon/stage/plan/stage_head.h"

/* Fills head->plan but for its layers. A refusal is a sentence that says what to change. */
int head_plan_serve(struct head *h, struct err *err);
/* As head_split. A job that has served before does not wait for the memory of its draft model. */
int head_split_served(struct head *h, struct err *err);

#endif
