/* SPDX-License-Identifier: MIT
 *
 * Microbatches of a job that serves, as a neighbour's rank may send them: what is taken can be
 * computed by this rank's stage, whatever it says, and is sent on as it came. Input: a message. */
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/serve/rows_batch.h"
#include "daemon/stage/stage_go.h"
#include "tests/fuzz/lib/input.h"

static const struct job_plan plan = {.type = JOB_SERVE,
                                     .ranks = 2,
                                     .stages = 2,
                                     .kv = true,
                                     .kv_blocks = 8,
                                     .kept_states = 3,
                                     .guesses = 2,
                                     .seqs = 4,
                                     .tokens = 24,
                                     .positions = 64,
                                     .vocab = 100,
                                     .dim = 8,
                                     .nmore = 1,
                                     .tune = {.kind = TUNE_LORA, .rank = 2}};

static void check_piece(const struct stage_piece *p)
{
    expect(p->n && p->at + p->n <= plan.positions);
    expect(p->nblocks * STAGE_KV_BLOCK >= p->at + p->n);
    for (size_t i = 0; i < p->nblocks; i++)
        expect(p->blocks[i] < plan.kv_blocks);
    expect(p->state < job_plan_states(&plan));
    expect(p->from <= plan.kept_states && p->keep <= plan.kept_states && p->guessed <= plan.guesses);
    expect(p->adapter == STAGE_NO_ADAPTER || p->adapter <= plan.nmore);
}

static void check_choice(const struct rows_choice *c, size_t nrows)
{
    expect(c->row < nrows && c->top <= plan.vocab);
    expect(c->how.temperature >= 0 && c->how.top_p >= 0 && c->how.top_p <= 1);
    for (size_t i = 0; i < c->how.nadjust; i++)
        expect(c->how.adjust[i].id < plan.vocab && c->how.adjust[i].repeat > 0);
    if (c->how.allowed)
        expect((c->how.allowed[0] | c->how.allowed[1]) && !(c->how.allowed[1] >> (plan.vocab % 64)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct rows_batch b;
    struct err err;
    size_t rows = 0;
    if (rows_batch_decode(&b, data, n, &plan, 0, &err))
        return 0;
    for (size_t i = 0; i < b.npieces; i++) {
        check_piece(&b.pieces[i]);
        rows += b.pieces[i].n;
    }
    for (size_t i = 0; i < b.nchoices; i++)
        check_choice(&b.choices[i], b.nrows);
    expect(b.is_end || (rows == b.nrows && rows <= plan.tokens));
    expect(b.first_hidden + b.nhidden <= b.nrows);
    expect(n <= rows_batch_most(&plan) && n == rows_batch_size(&b, plan.vocab));
    uint8_t *again = malloc(n);
    expect(again != NULL);
    rows_batch_encode(again, &b, plan.vocab);
    free(again);
    rows_batch_done(&b);
    return 0;
}
