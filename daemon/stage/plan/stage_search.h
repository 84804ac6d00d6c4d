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

/* What --parallel auto has found: plans for nodes of the ring, the best first. */
struct layouts;
struct parallel_found;
/* Of a training job on all nodes there are, before they are taken. h: borrowed until it is
 * freed. */
int layouts_find(struct layouts **ret, struct head *h, struct err *err);
void layouts_free(struct layouts *layouts);
size_t layouts_count(const struct layouts *layouts);
const struct parallel_found *layouts_at(const struct layouts *layouts, size_t i);
/* Once the job has the nodes of that plan, in the order of the ring, and as many replicas: all else
 * of it, and the forecast. */
int layouts_take(struct layouts *layouts, size_t i, struct head *h, struct err *err);

/* The ranks the other way round, the head remaining the first. */
void head_mirror(struct head *h);

#endif
