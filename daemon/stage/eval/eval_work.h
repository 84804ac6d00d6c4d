/* SPDX-License-Identifier: MIT
 *
 * The questions of a job that evaluates as tokens: which sequences go through the stages, and which
 * of their tokens count. It follows from the file, the model and the options alone. Rank 0, main
 * thread. */
#ifndef DAEMON_EVAL_WORK_H
#define DAEMON_EVAL_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "engine/file/config.h"
#include "engine/text/tokenizer.h"
#include "engine/train/eval_set.h"

/* Where an answer ends if nothing else is said, as in lm-evaluation-harness. */
#define EVAL_STOP "\n\n"

/* Tokens of which those from `from` on are scored, each by what stands before it. Of a generation,
 * from == n: the prompt. */
struct eval_seq {
    size_t at;      /* of its tokens in ids */
    size_t n, from; /* 1 ≤ from ≤ n */
    size_t row, answer;
    bool follows; /* another choice of the same row: most of its tokens are those of the one before */
};

struct eval_work {
    struct eval_set set;
    uint32_t *ids;         /* owned: of all sequences */
    size_t nids, ids_room; /* nids: tokens */
    struct eval_seq *seqs; /* owned [nseqs], those of a row behind one another */
    size_t nseqs, seqs_room;
    size_t positions; /* that the longest takes, with its answer */
    size_t seq_len;   /* tokens that a sequence may have */
    size_t cut;       /* rows whose beginning was cut off, so that they have no more */
};

/* Reads spec->data. The choices are scored behind their context as lm-evaluation-harness does
 * (`_encode_pair` in lm_eval/api/model.py), texts in windows as there
 * (`get_rolling_token_windows` in lm_eval/utils.py). But contexts and prompts get the special
 * tokens that the model's tokenizer puts before a text. */
int eval_work_new(struct eval_work **ret, const struct job_spec *spec, const struct config *config,
                  const struct tokenizer *tok, struct err *err);
void eval_work_free(struct eval_work *work);

#endif
