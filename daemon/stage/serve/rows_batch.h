/* SPDX-License-Identifier: MIT
 *
 * A microbatch of a job that serves: rows of many sequences, and what is wanted of them. It goes
 * from rank to rank ahead of its activations. PURE; any thread. */
#ifndef DAEMON_ROWS_BATCH_H
#define DAEMON_ROWS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "engine/err.h"
#include "engine/model/stage.h"
#include "engine/text/sample.h"

/* A token is to be chosen behind a row. */
struct rows_choice {
    uint32_t row, top; /* top: of so many likeliest tokens as well */
    bool wants_logprob;
    uint64_t index;           /* of the token in its answer */
    struct sample_params how; /* its bits of tokens that are allowed: [sample_words(vocab)] */
};

/* How likely this token is behind a row, which is one of a text's that is there already. */
struct rows_score {
    uint32_t row, token, top; /* top: of so many likeliest tokens as well */
};

struct rows_batch {
    bool is_end; /* no more follow; there is nothing else in it */
    struct stage_piece *pieces;
    size_t npieces, nrows;
    struct rows_choice *choices;
    size_t nchoices;
    struct rows_score *scores; /* by their rows, at most one of each */
    size_t nscores;
    uint32_t first_hidden, nhidden; /* rows whose hidden values are wanted */
    void *room;                     /* owned: of a decoded one, all arrays */
};

/* Bytes of the largest that a plan allows, and of this one. */
size_t rows_batch_most(const struct job_plan *plan);
size_t rows_batch_size(const struct rows_batch *batch, size_t vocab);
/* out [rows_batch_size]. */
void rows_batch_encode(uint8_t *out, const struct rows_batch *batch, size_t vocab);
/* Everything is held against the plan: what it says can be computed. `from`: the rank that sent
 * it. rows_batch_done frees. −EBADMSG, −ENOMEM. */
int rows_batch_decode(struct rows_batch *ret, const uint8_t *in, size_t n, const struct job_plan *plan,
                      uint32_t from, struct err *err);
void rows_batch_done(struct rows_batch *batch);

/* What the last rank answers: for each choice a token, its log-probability and the likeliest; for
 * each score the same, of the token that was given; then the hidden values [nhidden, dim]. */
struct rows_token {
    uint32_t token;
    float logprob;
};
size_t rows_answer_size(const struct rows_batch *batch, size_t dim);

#endif
