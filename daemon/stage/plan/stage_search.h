/* SPDX-License-Identifier: MIT
 *
 * Planning, the half that looks ahead: --schedule auto, and what a step of any plan will take.
 * Called by head_split, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_SEARCH_H
#define DAEMON_STAGE_SEARCH_H

#include "daemon/stage/plan/stage_head.h"

/* Of a training job with --schedule auto, before anything else is decided: schedule, chunks,
 * microbatches and layers, and which way round the ranks go. */
int head_search(struct head *h, struct err *err);

/* Of a training job whose plan stands: what its step will take, into head->forecast. Leaves it out
 * where a schedule of the user's own is run, and where nothing could be measured. */
void head_forecast(struct head *h);

/* The ranks the other way round, the head remaining the first. */
void head_mirror(struct head *h);

#endif
