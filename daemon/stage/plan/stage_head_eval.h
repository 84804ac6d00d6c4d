/* SPDX-License-Identifier: MIT
 *
 * Planning a job that evaluates: its questions as sequences, and how many of them are under way at
 * once. Rank 0, main thread. */
#ifndef DAEMON_STAGE_HEAD_EVAL_H
#define DAEMON_STAGE_HEAD_EVAL_H

#include "daemon/stage/plan/stage_head.h"

/* Reads head->eval, with the tokenizer that is open, and says what is there. Once for all attempts
 * at a job: a file that changed meanwhile changes no row. */
int head_read_questions(struct head *h, struct err *err);

/* Fills the plan's sizes. */
void head_plan_questions(struct head *h);

#endif
