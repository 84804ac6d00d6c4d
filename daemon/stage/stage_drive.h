/* SPDX-License-Identifier: MIT
 *
 * Rank 0 drives a job whose plan stands (plan/stage_head.h) over its open runner, round by round:
 * stage_train.c, stage_generate.c, stage_chat.c, stage_score.c, eval/stage_eval.c,
 * stage_load.c. Main thread of
 * ringd-stage. */
#ifndef DAEMON_STAGE_DRIVE_H
#define DAEMON_STAGE_DRIVE_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_runner.h"

/* Drives the job over an open runner; ret_result: the job's result (a new object). */
int head_train(struct head *h, struct runner *r, json_t **ret_result, struct err *err);
int head_generate(struct head *h, struct runner *r, json_t **ret_result, struct err *err);
/* Between two steps: goes on from spec.sample_prompt (h->ids) by spec.sample_tokens, each the
 * likeliest; ret_text is the caller's to free. */
int head_sample(struct head *h, struct runner *r, size_t adapter, uint64_t step, char **ret_text,
                struct err *err);
/* The same of another prompt, until one of the texts of `stop` (borrowed) is there. */
struct head_prompt {
    uint32_t *ids; /* [n] borrowed */
    size_t n;
    const json_t *stop;
};
int head_answer(struct head *h, struct runner *r, size_t adapter, uint64_t step, struct head_prompt prompt,
                char **ret_text, struct err *err);
int head_score(struct head *h, struct runner *r, json_t **ret_result, struct err *err);
int head_eval(struct head *h, struct runner *r, json_t **ret_result, struct err *err);

/* Which copies there are of a job that was interrupted: {"step", "by"}; NULL: none. */
int head_restore_read(struct head *h, const json_t *restore, struct err *err);
/* Hands the starting values (adapter, resumed state, copies) to the stages. */
int head_load(struct head *h, struct runner *r, struct err *err);

#endif
