/* SPDX-License-Identifier: MIT
 *
 * Microbatches of rows on their way through the stages: rank 0 sends one while later ranks work on
 * those before it, and the last rank answers with the tokens it has chosen. Their order is the
 * same on every rank, so blocks that one lets go of may be another's at once. It lies between two
 * rounds of the runner (runner_serve). Main thread of ringd-stage. */
#ifndef DAEMON_ROWS_RING_H
#define DAEMON_ROWS_RING_H

#include "daemon/common/progress.h"
#include "daemon/stage/exchange/exchange.h"
#include "daemon/stage/serve/rows_batch.h"

struct rows_ring {
    const struct job_plan *plan; /* borrowed, as all below */
    struct stage *stage;         /* of this rank */
    struct exchange *exchange;
    struct progress *progress;
    struct sample_scratch *scratch; /* [vocab] of the last rank */
    uint32_t rank, round;
    /* Set by rows_ring_place: neighbours in the pipeline of its slice, whose first rank hears rank
     * 0, and whose last one answers it where it is the first slice. */
    uint32_t place, slice, prev, next;
    void (*rounded)(void *owner); /* after each microbatch */
    void *owner;
};

/* From the plan and the rank: where it stands. */
void rows_ring_place(struct rows_ring *r);

/* What the last rank has chosen. */
struct rows_answer {
    void *room; /* owned: release with rows_ring_release */
    size_t n;
};

/* Rank 0: computes microbatch number `mb`, from 1 on, and sends it; with one stage, `ret` is its
 * answer, else it is left alone. ids [nrows]. The batch is borrowed. */
int rows_ring_send(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, const uint32_t *ids,
                   struct rows_answer *ret, struct err *err);
/* Rank 0, of several stages: is the answer of a microbatch that was sent here? 1 and `ret`; 0: not
 * yet. */
int rows_ring_answer(struct rows_ring *r, uint32_t mb, struct rows_answer *ret, struct err *err);
/* The same: sleeps until something has changed. */
void rows_ring_wait(struct rows_ring *r, uint32_t mb);
/* Both: waits for the answer. */
int rows_ring_hear(struct rows_ring *r, uint32_t mb, struct rows_answer *ret, struct err *err);
/* Choice i of an answer; the scores stand behind the last choice. */
const struct rows_token *rows_answer_token(const struct rows_answer *a, const struct rows_batch *batch,
                                           size_t i);
/* How likely the first `top` at its place are [top], and the token of the next place. */
static inline const struct likely *rows_token_likely(const struct rows_token *token)
{
    return (const struct likely *)(const void *)(token + 1);
}
static inline const struct rows_token *rows_token_next(const struct rows_token *token, size_t top)
{
    return (const struct rows_token *)(const void *)(rows_token_likely(token) + top);
}
const float *rows_answer_hidden(const struct rows_answer *a, const struct rows_batch *batch);
void rows_ring_release(struct rows_ring *r, struct rows_answer *a);
/* Rank 0: no more follow `mb` − 1. */
int rows_ring_end(struct rows_ring *r, uint32_t mb, struct err *err);

/* Other ranks: microbatches as they come, until the end. */
int rows_ring_follow(struct rows_ring *r, struct err *err);

#endif
