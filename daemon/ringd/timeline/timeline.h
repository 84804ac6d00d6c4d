/* SPDX-License-Identifier: MIT
 *
 * The last step of a training job as all its ranks tell of it: who computed what and when, against
 * what the plan would give without any message's time, and how far the clocks of the nodes are
 * apart. PURE: no clock, no sockets. Owned by the job; loop thread. */
#ifndef DAEMON_TIMELINE_H
#define DAEMON_TIMELINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct job_plan;
struct timeline;

/* Of that plan, which is borrowed and outlives it. */
struct timeline *timeline_new(const struct job_plan *plan);
void timeline_free(struct timeline *t);

/* A rank's "timeline" event. Ranks may be some steps ahead of each other: up to eight steps wait
 * for their last rank. 1: all ranks have reported that step, which now is the last one; 0: some
 * have not. −EBADMSG: nonsense; −ESTALE: of a step that is complete or dropped. */
int timeline_add(struct timeline *t, size_t rank, const json_t *event);
/* The job has ended: steps that still wait are dropped, and the memory of the plan is freed.
 * Returns how many steps were dropped in all: some rank reported them, and they did not become
 * complete. */
uint64_t timeline_end(struct timeline *t);

/* The last complete step as docs/API.md has it, NULL before the first one. names: [ranks]. The plan
 * of a step is kept for the next one of the same shape. */
json_t *timeline_encode(struct timeline *t, uint64_t job, const char (*names)[64]);

#endif
