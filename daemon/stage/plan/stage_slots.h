/* SPDX-License-Identifier: MIT
 *
 * Planning, before memory counts: which stages there are, on which ranks they lie, and how many
 * microbatches each has in flight. Called by stage_split.c, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_SLOTS_H
#define DAEMON_STAGE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/stage/plan/stage_head.h"
#include "engine/pipe/sched.h"

/* Stages, their places and slots, before anything is known of memory. ret_sched: the caller frees
 * it; left alone if nothing is trained, or replicas have splits of their own. ret_handed as
 * below. */
int stage_slots_begin(struct head *h, struct sched **ret_sched, size_t *ret_handed, struct err *err);

/* sched: NULL where each replica has a split of its own, and its stages are placed already. Slots
 * and activations, and what is between two stages of a rank at most (ret_handed [ranks]), with the
 * stages that `recompute` [JOB_MAX_STAGES] names doing forwards again. */
int stage_slots_count(struct job_plan *p, const struct sched *sched, const bool *recompute,
                      size_t *ret_handed, struct err *err);

#endif
