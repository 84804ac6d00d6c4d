/* SPDX-License-Identifier: MIT
 *
 * The schedule of a training job: one that ringd has, or one that its user wrote. Called by
 * stage_split.c, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_SCHEDULE_H
#define DAEMON_STAGE_SCHEDULE_H

#include "daemon/stage/plan/stage_head.h"
#include "engine/pipe/sched.h"

/* Reads the file that --schedule names into h->plan.order. −errno, −EINVAL if it is too long or no
 * text, −ENOMEM. */
int stage_schedule_read(struct head *h, struct err *err);

/* The schedule of a step, for the ranks and microbatches of h->plan; the caller frees it. If the
 * user wrote it, h->plan.order becomes what all nodes get: nothing but its tasks. */
int stage_schedule_make(struct head *h, struct sched **ret, struct err *err);

#endif
