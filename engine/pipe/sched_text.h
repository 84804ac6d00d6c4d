/* SPDX-License-Identifier: MIT
 *
 * Schedules as text, in the form torch.distributed.pipelining reads and writes: one line for each
 * rank, cells separated by commas, "1F3" in a cell being stage 1, forward, microbatch 3. */
#ifndef PIPE_SCHED_TEXT_H
#define PIPE_SCHED_TEXT_H

#include <stdio.h>

#include "pipe/sched.h"

enum { SCHED_TEXT_MAX = 4 << 20 /* bytes */ };

/* Reads both dialects. Kinds of tasks: F, I, W, B, R. Left out, as they follow from the others:
 * SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD, empty cells and "None";
 * "(0F7;7B3)OVERLAP_F_B" is its tasks one after the other. O, a stage's optimizer step, may stand
 * after all of the stage's other tasks and is left out as well. Ranks are the lines, stages and
 * microbatches as many as there are numbers, and a stage lies on the rank where it comes first;
 * whether all that can run is for plan_check and sched_simulate to say. Refusals (−EINVAL) name
 * line and column, which is the cell, both from 1, and what stands there. */
int sched_read(struct sched **ret, const char *text, struct err *err);

/* Writes the tasks alone, or with every SEND and RECV where a run in which all tasks take the same
 * time puts them: in that order even a transport without any buffer gets to the end. −ENOMEM, −EIO
 * (what fprintf made of it), or a refusal of sched_simulate. */
int sched_write(FILE *to, const struct sched *sched, bool messages, struct err *err);

/* A chart of what sched_simulate found, a line for each rank and a column for each `unit` of time:
 * "F3" where a task begins, "--" while it goes on, "." while the rank waits; every other stage of a
 * rank in lower case. */
void sched_chart(FILE *to, const struct sched *sched, const struct sched_sim *sim, double unit);

#endif
