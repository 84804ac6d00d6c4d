/* SPDX-License-Identifier: MIT
 *
 * What a stage process takes beside its model: the program with its libraries, what each of its
 * threads works in, and the messages that are on their way. With stage_measure it makes the memory
 * that a plan promises. PURE. */
#ifndef DAEMON_STAGE_ROOM_H
#define DAEMON_STAGE_ROOM_H

#include "daemon/common/job_plan.h"
#include "engine/model/stage.h"

/* Bytes of rank `rank`, which computes with `threads` threads. −ENOMEM. */
int stage_room(size_t *ret, const struct job_plan *plan, const struct config *config, size_t rank,
               size_t threads, struct err *err);

/* What the stages of a rank take together. They never compute at once: scratch counts once, that of
 * the stage that needs most. */
int stage_chunks(struct stage_bytes *ret, const struct job_plan *p, const struct config *c, size_t rank,
                 struct err *err);

#endif
