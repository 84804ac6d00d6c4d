/* SPDX-License-Identifier: MIT
 *
 * Microbatches of rows as messages: what was sent is what comes, and what does not fit the plan is
 * refused, whatever it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/serve/rows_batch.h"

static struct job_plan plan;
static uint32_t blocks[2][2] = {{3, 1}, {7, 0}};
static struct sample_adjust adjust[2] = {{5, 1.5F, 0}, {9, 1, -2}};
static uint64_t allowed[2] = {6, 1}; /* of 100 tokens: 1, 2 and 64 */

/* Two sequences: one goes on from a token, of the other 18 positions are read. */
struct sent {
    struct stage_piece pieces[2];
    struct rows_choice choices[2];
    struct rows_score scores[3];
    struct rows_batch batch;
};

static struct sent sent_one(void)
{
    return (struct sent){
        .pieces = {{blocks[0], 2, 20, 1, STAGE_NO_ADAPTER, 7, 0, 3, 1},
                   {blocks[1], 2, 0, 18, STAGE_NO_ADAPTER, 0, 2, 0, 0}},
        .choices = {{.row = 0,
                     .top = 2,
                     .wants_logprob = true,
                     .index = 4,
                     .how = {.temperature = 0.5F,
                             .top_p = 0.9F,
                             .min_p = 0.1F,
                             .top_k = 40,
                             .seed = UINT64_C(1) << 50,
                             .adjust = adjust,
                             .nadjust = 2}},
                    {.row = 18, .how = {.top_p = 1, .allowed = allowed}}},
        .scores = {{1, 99, 0}, {2, 5, 3}, {7, 0, 1}},
        .batch = {.npieces = 2, .nrows = 19, .nchoices = 2, .nscores = 3, .first_hidden = 1, .nhidden = 3}};
}

static int start(void **state)
{
    (void)state;
    plan = (struct job_plan){.type = JOB_SERVE,
                             .ranks = 2,
                             .stages = 2,
                             .kv = true,
                             .kv_blocks = 8,
                             .kept_states = 3,
                             .guesses = 1,
                             .seqs = 4,
                             .tokens = 24,
                             .positions = 64,
                             .vocab = 100,
                             .dim = 8};
    return 0;
}

/* Sent with what `s` points to; the result as rows_batch_decode has it. */
static int pass(struct rows_batch *ret, const struct sent *s, size_t less, char why[512])
{
    struct err err = {""};
    struct rows_batch batch = s->batch;
    batch.pieces = (struct stage_piece *)(uintptr_t)s->pieces;
    batch.choices = (struct rows_choice *)(uintptr_t)s->choices;
    batch.scores = (struct rows_score *)(uintptr_t)s->scores;
    const size_t n = rows_batch_size(&batch, plan.vocab);
    assert_true(n <= rows_batch_most(&plan));
    uint8_t *exact = malloc(n); /* so that a sanitizer sees what is read or written beyond it */
    rows_batch_encode(exact, &batch, plan.vocab);
    const int r = rows_batch_decode(ret, exact, n - less, &plan, 0, &err);
    snprintf(why, 512, "%s", err.text);
    free(exact);
    return r;
}

static void what_is_sent_comes(void **state)
{
    struct sent s = sent_one();
    struct rows_batch b = {0};
    char why[512];
    (void)state;
    assert_int_equal(pass(&b, &s, 0, why), 0);
    assert_int_equal(b.npieces, 2);
    assert_int_equal(b.nrows, 19);
    assert_int_equal(b.first_hidden, 1);
    assert_int_equal(b.nhidden, 3);
    assert_false(b.is_end);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(b.pieces[i].at, s.pieces[i].at);
        assert_int_equal(b.pieces[i].n, s.pieces[i].n);
        assert_int_equal(b.pieces[i].adapter, STAGE_NO_ADAPTER);
        assert_int_equal(b.pieces[i].state, i ? 0 : 7);
        assert_int_equal(b.pieces[i].from, i ? 2 : 0);
        assert_int_equal(b.pieces[i].keep, i ? 0 : 3);
        assert_int_equal(b.pieces[i].guessed, i ? 0 : 1);
        assert_memory_equal(b.pieces[i].blocks, blocks[i], sizeof blocks[i]);
        assert_int_equal(b.choices[i].row, s.choices[i].row);
        assert_int_equal(b.choices[i].index, s.choices[i].index);
        assert_int_equal(b.choices[i].how.seed, s.choices[i].how.seed);
        assert_int_equal(b.choices[i].how.nadjust, s.choices[i].how.nadjust);
    }
    assert_int_equal(b.nscores, 3);
    assert_memory_equal(b.scores, s.scores, sizeof s.scores);
    assert_true(b.choices[0].wants_logprob && !b.choices[1].wants_logprob);
    assert_memory_equal(b.choices[0].how.adjust, adjust, sizeof adjust);
    assert_null(b.choices[0].how.allowed);
    assert_memory_equal(b.choices[1].how.allowed, allowed, sizeof allowed);
    assert_true(b.choices[0].how.temperature == 0.5F && b.choices[0].how.top_p == 0.9F);
    rows_batch_done(&b);
}

static void the_end_is_nothing_else(void **state)
{
    struct sent s = {.batch = {.is_end = true}};
    struct rows_batch b = {0};
    char why[512];
    (void)state;
    assert_int_equal(pass(&b, &s, 0, why), 0);
    assert_true(b.is_end);
    rows_batch_done(&b);
    s = sent_one();
    s.batch.is_end = true;
    assert_int_equal(pass(&b, &s, 0, why), -EBADMSG);
}

static void assert_refused(const struct sent *s, const char *words)
{
    struct rows_batch b = {0};
    char why[512];
    assert_int_equal(pass(&b, s, 0, why), -EBADMSG);
    if (!strstr(why, words) || !strstr(why, "rank 0 sent a microbatch"))
        fail_msg("\"%s\" is not in \"%s\"", words, why);
}

/* Each sequence has one of the plan's, or none. */
static void adapters_are_those_of_the_plan(void **state)
{
    struct sent s = sent_one();
    struct rows_batch b = {0};
    char why[512];
    (void)state;
    plan.tune.kind = TUNE_LORA;
    plan.nmore = 2;
    s.pieces[1].adapter = 2;
    assert_int_equal(pass(&b, &s, 0, why), 0);
    assert_int_equal(b.pieces[0].adapter, STAGE_NO_ADAPTER);
    assert_int_equal(b.pieces[1].adapter, 2);
    rows_batch_done(&b);
    s.pieces[1].adapter = 3;
    assert_refused(&s, "the adapter of a piece is 3");
    start(state);
}

static void what_does_not_fit_the_plan_is_refused(void **state)
{
    (void)state;
    struct sent s = sent_one();
    s.pieces[0].at = 63; /* with one row its end is 64, and two blocks are too few */
    assert_refused(&s, "the number of blocks of a piece");
    s = sent_one();
    s.pieces[0].at = 64;
    assert_refused(&s, "the last position of a piece is 65");
    s = sent_one();
    s.pieces[0].n = 0;
    assert_refused(&s, "the last position of a piece");
    s = sent_one();
    s.pieces[0].adapter = 0; /* the plan has none */
    assert_refused(&s, "the adapter of a piece");
    s = sent_one();
    s.pieces[0].state = 8; /* four sequences of each of two ranks are under way at once */
    assert_refused(&s, "the state of a piece is 8");
    s = sent_one();
    s.pieces[0].from = 4;
    assert_refused(&s, "the kept state of a piece is 4");
    s = sent_one();
    s.pieces[0].keep = 5;
    assert_refused(&s, "the kept state of a piece is 5");
    s = sent_one();
    s.pieces[0].guessed = 2;
    assert_refused(&s, "the number of guesses of a piece is 2");
    s = sent_one();
    s.batch.nrows = 20;
    assert_refused(&s, "the number of its rows");
    s.batch.nrows = 25;
    assert_refused(&s, "the number of its rows is 25");
    s = sent_one();
    s.choices[1].row = 19;
    assert_refused(&s, "the row of a token to choose is 19");
    s = sent_one();
    s.choices[1].top = 256;
    assert_refused(&s, "the number of likeliest tokens is 256");
    s = sent_one();
    s.choices[1].how.top_p = NAN;
    assert_refused(&s, "what a choice depends on");
    s = sent_one();
    s.choices[1].how.temperature = -1;
    assert_refused(&s, "what a choice depends on");
    s = sent_one();
    s.batch.first_hidden = 17;
    assert_refused(&s, "the number of rows whose values are wanted");
    s = sent_one();
    s.batch.npieces = 0;
    assert_refused(&s, "the number of its pieces is 0");
    s = sent_one();
    blocks[1][1] = 8;
    assert_refused(&s, "a block is 8");
    blocks[1][1] = 0;
    adjust[1].id = 100;
    assert_refused(&s, "an adjusted token is 100");
    adjust[1].id = 9;
    adjust[1].repeat = 0;
    assert_refused(&s, "an adjusted token");
    adjust[1].repeat = 1;
    adjust[1].add = INFINITY;
    assert_refused(&s, "an adjusted token");
    adjust[1].add = -2;
    allowed[1] = UINT64_C(1) << 36; /* token 100 */
    assert_refused(&s, "a set of allowed tokens");
    allowed[0] = allowed[1] = 0;
    assert_refused(&s, "a set of allowed tokens");
    allowed[0] = 6;
    allowed[1] = 1;
}

/* Tokens that were guessed are chosen by one piece of several rows. */
static void a_piece_may_have_several_choices(void **state)
{
    struct sent s = sent_one();
    struct rows_choice choices[4] = {s.choices[0], s.choices[1], s.choices[1], s.choices[1]};
    struct rows_batch b = {0};
    struct err err = {""};
    (void)state;
    s.batch.pieces = s.pieces;
    s.batch.choices = choices;
    s.batch.scores = s.scores;
    s.batch.nchoices = 4;
    for (size_t i = 1; i < 4; i++)
        choices[i].row = (uint32_t)(15 + i);
    uint8_t *text = malloc(rows_batch_most(&plan));
    rows_batch_encode(text, &s.batch, plan.vocab);
    assert_int_equal(rows_batch_decode(&b, text, rows_batch_size(&s.batch, plan.vocab), &plan, 0, &err), 0);
    assert_int_equal(b.nchoices, 4);
    assert_int_equal(b.choices[3].row, 18);
    assert_memory_equal(b.choices[3].how.allowed, allowed, sizeof allowed);
    rows_batch_done(&b);
    plan.seqs = 3; /* of which it has logits */
    assert_int_equal(rows_batch_decode(&b, text, rows_batch_size(&s.batch, plan.vocab), &plan, 0, &err),
                     -EBADMSG);
    plan.seqs = 4;
    free(text);
}

static void a_score_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct sent s = sent_one();
    s.scores[2].row = 19;
    assert_refused(&s, "the row of a token that is scored is 19");
    s = sent_one();
    s.scores[1].row = 1; /* of each row one: or they would be more than there is room for */
    assert_refused(&s, "the row of a token that is scored is 1");
    s = sent_one();
    s.scores[0].token = 100;
    assert_refused(&s, "a token that is scored is 100");
    s = sent_one();
    s.scores[0].top = 101;
    assert_refused(&s, "the number of likeliest tokens is 101");
}

static void what_is_cut_is_refused(void **state)
{
    const struct sent s = sent_one();
    struct rows_batch b = {0};
    char why[512];
    (void)state;
    for (size_t less = 1; less < 200; less++)
        assert_int_equal(pass(&b, &s, less, why), -EBADMSG);
}

static void an_answer_has_its_size(void **state)
{
    struct sent s = sent_one();
    (void)state;
    s.batch.choices = s.choices;
    s.batch.scores = s.scores;
    assert_int_equal(rows_answer_size(&s.batch, 8),
                     5 * sizeof(struct rows_token) + 6 * sizeof(struct likely) + 3 * 8 * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_comes),
        cmocka_unit_test(the_end_is_nothing_else),
        cmocka_unit_test(adapters_are_those_of_the_plan),
        cmocka_unit_test(what_does_not_fit_the_plan_is_refused),
        cmocka_unit_test(a_piece_may_have_several_choices),
        cmocka_unit_test(a_score_that_does_not_fit_is_refused),
        cmocka_unit_test(what_is_cut_is_refused),
        cmocka_unit_test(an_answer_has_its_size),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
