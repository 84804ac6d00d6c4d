/* SPDX-License-Identifier: MIT
 *
 * The last step of a training job as all its ranks tell of it: who computed what and when, against what the plan would give without
 * any message's time, and how far the clocks of the nodes are apart. PURE: no clock, no sockets. Owned by the job; loop thread. */
#ifndef DAEMON_TIMELINE_H
#define DAEMON_TIMELINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct timeline;

struct timeline_job {
    const char *schedule; /* its name */
    const char *order;    /* the schedule as its user wrote it; "" or NULL where it is a built-in one */
    size_t ranks, stages; /* ranks: at most RING_MAX_NODES; stages 0 = one per rank */
    const json_t
        *areas; /* borrowed: of the plan, by stage: those with any do forwards again; NULL = none does */
};
struct timeline *timeline_new(const struct timeline_job *job);
void timeline_free(struct timeline *t);

/* A rank's "timeline" event. 1: all ranks have told of that step, which now is the last one; 0: some have not. −EBADMSG: nonsense, or
 * not what the job's plan has; −ESTALE: of an earlier step. */
int timeline_add(struct timeline *t, size_t rank, const json_t *event);

/* As docs/API.md has it, NULL before the first step. names: [ranks]. */
json_t *timeline_encode(const struct timeline *t, uint64_t job, const char (*names)[64]);

#endif
