/* SPDX-License-Identifier: MIT
 *
 * All sequences of a job that evaluates on their way through the stages, rows of several in a
 * microbatch. The bits of a row depend on its own sequence alone (engine/model/stage.h), so what is
 * heard of each is the same in every company and on every ring. Main thread of rank 0. */
#ifndef DAEMON_EVAL_RUN_H
#define DAEMON_EVAL_RUN_H

#include "daemon/stage/eval/eval_work.h"
#include "daemon/stage/serve/rows_ring.h"

struct eval_run_setup {
    const struct eval_work *work; /* borrowed, as all here */
    const struct job_plan *plan;  /* its `seqs` sequences have room at once */
    const struct tokenizer *tok;
    const struct job_spec *spec; /* max_tokens, stop */
    const struct config *config; /* whose tokens end an answer */
    struct rows_ring *ring;
    /* A row is over: [nanswers] sums of log-probabilities, of a generation what was written [n].
     * Rows come in the order in which they end. */
    void (*scored)(void *owner, size_t row);
    void (*written)(void *owner, size_t row, const char *text, size_t n, size_t tokens);
    void *owner;
};

/* ret_logprobs [work->nseqs]: sums of the tokens that count, in their order; 0 of a prompt. */
int eval_run(const struct eval_run_setup *setup, double *ret_logprobs, struct err *err);

#endif
