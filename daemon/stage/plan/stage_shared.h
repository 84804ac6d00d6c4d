/* SPDX-License-Identifier: MIT
 *
 * What of a job's weights its nodes have in memory already, because stages of other jobs map the
 * same files there: that memory is not taken twice. Every node tells what its stages map, in its
 * record; head->planning.nodes has it as `mapped`. Called while a job is planned, in the stage
 * process of rank 0; reads nothing but the head of the job, but for stage_shared_note. */
#ifndef DAEMON_STAGE_SHARED_H
#define DAEMON_STAGE_SHARED_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/stage/plan/stage_head.h"

/* Notes in the plan what its ranks will map of the model's files, unit by unit. */
int stage_shared_note(struct head *h, struct err *err);

/* Bytes that a stage of that unit alone maps and the node at `place` of `nodes` has already. */
size_t stage_shared_unit(const struct head *h, const json_t *nodes, size_t place, size_t unit);
/* Bytes of all units of a rank, as the plan shares them out, that its node has already. */
size_t stage_shared_rank(const struct head *h, uint32_t rank);

/* For a sentence about that rank's memory: ", beside 2.0 GiB that it shares with job 4,"; "" where
 * it shares nothing. */
void stage_shared_say(char *text, size_t size, const struct head *h, uint32_t rank);
/* By rank: {"bytes", "jobs"}; NULL: nothing is shared. A new object. */
json_t *stage_shared_show(const struct head *h);

#endif
