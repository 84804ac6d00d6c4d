/* SPDX-License-Identifier: MIT
 *
 * What a member that was taken over may send to a stage of another node while a job runs: rounds
 * and messages that can be read and do not fit its plan. Each ends the job with a sentence that
 * names what was wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "daemon/stage/plan_admit.h"
#include "tests/unit/daemon/stage/plan_admit_world.h"

static void a_round_of_another_type_of_job_is_refused(void **state)
{
    struct world *w = *state;
    for (int program = PROGRAM_TRAIN; program <= PROGRAM_RESTORE; program++) {
        if (program != PROGRAM_DECODE)
            refuses(w, JOB_GENERATE, go_of(program), "generate does not have");
        if (program != PROGRAM_FORWARD)
            refuses(w, JOB_SCORE, go_of(program), "score does not have");
    }
    refuses(w, JOB_TRAIN, (struct go){.program = 77}, "program 77");
}

static void what_is_restored_comes_whole_and_from_a_rank(void **state)
{
    struct world *w = *state;
    uint32_t held_by[64] = {0};
    struct go go = go_of(PROGRAM_RESTORE);
    go.state = false;
    refuses(w, JOB_TRAIN, go, "optimizer state");
    go = go_of(PROGRAM_RESTORE);
    go.nheld--;
    refuses(w, JOB_TRAIN, go, "number of units");
    go = go_of(PROGRAM_RESTORE);
    go.held_by = held_by;
    held_by[1] = 2;
    refuses(w, JOB_TRAIN, go, "the rank that holds a unit");
    go = go_of(PROGRAM_FORWARD);
    go.hold = true;
    refuses(w, JOB_TRAIN, go, "the flag for copies");
}

static void lines_come_from_rank_0_where_there_are_copies(void **state)
{
    struct world *w = *state;
    static char text[40 << 10];
    struct err err = {""};
    struct go go = go_of(PROGRAM_SAVE);
    struct job_plan plan = plan_of(JOB_TRAIN);
    go.lines = text;
    go.nlines = 3;
    assert_int_equal(plan_admit_go(&plan, &go, 0, &err), 0);
    assert_int_equal(plan_admit_go(&plan, &go, 1, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "rank 1 sent 3 bytes of lines"));
    go.nlines = sizeof text;
    assert_int_equal(plan_admit_go(&plan, &go, 0, &err), -EBADMSG);
    go = go_of(PROGRAM_FORWARD);
    go.lines = text;
    go.nlines = 3;
    refuses(w, JOB_SCORE, go, "3 bytes of lines");
}

static void a_round_larger_than_the_plan_is_refused(void **state)
{
    struct world *w = *state;
    static const uint32_t long_row[] = {0, TOKENS}, empty[] = {0, 0}, two[] = {0, 1, 2};
    struct seqs odd;
    struct go go = go_of(PROGRAM_FORWARD);
    go.mb = &odd;
    go.microbatches = 1;
    odd = (struct seqs){1, (uint32_t *)empty};
    refuses(w, JOB_SCORE, go, "length of a sequence");
    odd = (struct seqs){0, (uint32_t *)empty};
    refuses(w, JOB_SCORE, go, "number of sequences");
    go = go_of(PROGRAM_DECODE);
    go.mb = &odd;
    odd = (struct seqs){2, (uint32_t *)two};
    refuses(w, JOB_GENERATE, go, "number of sequences");
    odd = (struct seqs){1, (uint32_t *)long_row};
    go.at = 1;
    refuses(w, JOB_GENERATE, go, "first position");
    go.at = UINT64_MAX - 3;
    refuses(w, JOB_TRAIN, go, "first position");
    go = go_of(PROGRAM_TRAIN);
    go.microbatches = 0;
    refuses(w, JOB_TRAIN, go, "number of microbatches");
    go = go_of(PROGRAM_TRAIN);
    go.steps = &(struct go_step){.adapter = 1, .step = 1};
    refuses(w, JOB_TRAIN, go, "adapter of a step");
}

/* Without a gradient of the loss the head would add none to the sums of the step. */
static void a_dscale_that_is_no_number_above_0_is_refused(void **state)
{
    struct world *w = *state;
    const double bad[] = {0, -1, 1e-60, NAN, INFINITY}; /* 1e-60 is 0 in f32 */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct go go = go_of(PROGRAM_TRAIN);
        go.steps = &(struct go_step){.step = 1, .dscale = bad[i]};
        refuses(w, JOB_TRAIN, go, "the dscale of a step");
    }
}

/* Of jobs with pairs of answers each microbatch has whole ones, and each pair a reference. */
static void pairs_that_are_none_are_refused(void **state)
{
    struct world *w = *state;
    static const uint32_t two[] = {0, 1, TOKENS};
    static struct seqs pairs[MICROBATCHES] = {
        {2, (uint32_t *)two}, {2, (uint32_t *)two}, {2, (uint32_t *)two}, {2, (uint32_t *)two}};
    double refs[MICROBATCHES] = {0};
    struct go_step one = {.step = 1, .dscale = 1, .beta = 0.1};
    struct go go = go_of(PROGRAM_TRAIN);
    go.steps = &one;
    refuses(w, JOB_TRAIN, go, "the beta of a step");
    go.steps = &step;
    go.nrefs = MICROBATCHES;
    go.refs = refs;
    refuses(w, JOB_TRAIN, go, "the number of references");
    go = go_of(PROGRAM_FORWARD);
    go.adapter = GO_NO_ADAPTER;
    refuses(w, JOB_TRAIN, go, "the adapter");
    struct job_plan plan = plan_of(JOB_TRAIN);
    plan.loss = LOSS_DPO;
    for (int i = 0; i < 4; i++) {
        go = go_of(PROGRAM_TRAIN);
        go.steps = i ? &one : &step;
        go.mb = i == 1 ? rows : pairs;
        go.nrefs = MICROBATCHES - (i == 2);
        refs[1] = i == 3 ? NAN : 0;
        go.refs = refs;
        refuses_of(w, &plan, go,
                   (const char *const[]){"the beta of a step",
                                         "the number of sequences of a microbatch of pairs",
                                         "the number of references", "a reference that is no number"}[i]);
    }
}

static void flags_of_another_program_are_refused(void **state)
{
    struct world *w = *state;
    struct go go = go_of(PROGRAM_FORWARD);
    go.top = 3; /* without log-probabilities the answer has no room for them before it */
    refuses(w, JOB_SCORE, go, "likeliest");
    go.state = true;
    refuses(w, JOB_SCORE, go, "optimizer state");
    go = go_of(PROGRAM_TRAIN);
    go.logprobs = true;
    refuses(w, JOB_TRAIN, go, "log-probabilities");
}

/* What would be written outside the logits, or make them no numbers. */
static void a_choice_that_cannot_be_made_is_refused(void **state)
{
    struct world *w = *state;
    const uint32_t vocab = (uint32_t)plan_of(JOB_GENERATE).vocab;
    const struct sample_adjust bad[] = {{vocab, 1, 0}, {0, 0, 0}, {0, -1, 0}, {0, NAN, 0}, {0, 1, INFINITY}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct go go = go_of(PROGRAM_DECODE);
        go.choice.adjust = &bad[i];
        go.choice.nadjust = 1;
        refuses(w, JOB_GENERATE, go, i ? "the number of an adjustment" : "the token of an adjustment");
    }
    struct go go = go_of(PROGRAM_FORWARD);
    go.choice.adjust = &(struct sample_adjust){0, 1, 1};
    go.choice.nadjust = 1;
    refuses(w, JOB_SCORE, go, "the number of adjustments");
}

/* Only training has moments that could travel. */
static void moments_of_an_adapter_that_is_not_trained_are_refused(void **state)
{
    struct world *w = *state;
    struct job_plan plan = plan_of(JOB_SCORE);
    plan.tune = plan_of(JOB_TRAIN).tune;
    struct go go = go_of(PROGRAM_LOAD);
    go.state = true;
    opens_as(w, &plan, 1);
    send_go_of(w, &go);
    assert_int_equal(follow(w), -EBADMSG);
    assert_says(w, "optimizer state");
}

static void a_label_outside_the_vocabulary_is_refused(void **state)
{
    struct world *w = *state;
    const int32_t bad[] = {(int32_t)world.golden.config.vocab, INT32_MAX, -1, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct job_plan plan = plan_of(JOB_TRAIN);
        int32_t labels[TOKENS] = {-100};
        struct go go = go_of(PROGRAM_TRAIN);
        labels[TOKENS - 1] = bad[i];
        opens_as(w, &plan, 1);
        send_go_of(w, &go);
        send_microbatch(w, 0, labels);
        assert_int_equal(follow(w), -EBADMSG);
        assert_says(w, "as label of token 7 of microbatch 0");
        stop(state);
        start(state);
    }
}

static void a_token_outside_the_vocabulary_is_refused(void **state)
{
    struct world *w = *state;
    const struct job_plan plan = plan_of(JOB_GENERATE);
    const uint32_t ids[TOKENS] = {0}, token = (uint32_t)plan.vocab;
    struct head_mb mb = {.ids = ids};
    struct head_round round = {.mb = &mb};
    struct go go = go_of(PROGRAM_DECODE);
    struct err err = {""};
    go.want_token = true;
    opens_as(w, &plan, 0);
    struct msg_key act = {1, MSG_ACT, 1, 0}, start_of = {1, MSG_GO, 1, 0};
    assert_int_equal(exchange_post(w->other, 0, &start_of, 4096, true), 0);
    assert_int_equal(exchange_post(w->other, 0, &act, TOKENS * plan.dim * sizeof(float), false), 0);
    exchange_kick(w->other);
    send_bytes(w, (struct msg_key){1, MSG_TOKEN, 0, 0}, &token, sizeof token);
    assert_int_equal(runner_round(w->p.attempt.runner, &go, &round, &err), -EBADMSG);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    assert_says(w, "rank 1 sent 256 as the next token");
}

/* The same of the likeliest ones that come with it. */
static void a_likely_next_token_outside_the_vocabulary_is_refused(void **state)
{
    struct world *w = *state;
    const struct job_plan plan = plan_of(JOB_GENERATE);
    const uint32_t ids[TOKENS] = {0};
    const struct {
        uint32_t token;
        float logprob;
        struct likely likely[2];
    } message = {.likely = {[1] = {.id = (uint32_t)plan.vocab}}};
    struct likely likely[2];
    struct head_mb mb = {.ids = ids};
    struct head_round round = {.mb = &mb, .likely = likely};
    struct go go = go_of(PROGRAM_DECODE);
    struct err err = {""};
    go.want_token = go.logprobs = true;
    go.top = 2;
    opens_as(w, &plan, 0);
    struct msg_key act = {1, MSG_ACT, 1, 0}, start_of = {1, MSG_GO, 1, 0};
    assert_int_equal(exchange_post(w->other, 0, &start_of, 4096, true), 0);
    assert_int_equal(exchange_post(w->other, 0, &act, TOKENS * plan.dim * sizeof(float), false), 0);
    exchange_kick(w->other);
    send_bytes(w, (struct msg_key){1, MSG_TOKEN, 0, 0}, &message, sizeof message);
    assert_int_equal(runner_round(w->p.attempt.runner, &go, &round, &err), -EBADMSG);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    assert_says(w, "rank 1 sent 256 as a likely token");
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(a_round_of_another_type_of_job_is_refused),
        CASE(what_is_restored_comes_whole_and_from_a_rank),
        CASE(lines_come_from_rank_0_where_there_are_copies),
        CASE(a_round_larger_than_the_plan_is_refused),
        CASE(a_dscale_that_is_no_number_above_0_is_refused),
        CASE(pairs_that_are_none_are_refused),
        CASE(flags_of_another_program_are_refused),
        CASE(a_choice_that_cannot_be_made_is_refused),
        CASE(moments_of_an_adapter_that_is_not_trained_are_refused),
        CASE(a_label_outside_the_vocabulary_is_refused),
        CASE(a_token_outside_the_vocabulary_is_refused),
        CASE(a_likely_next_token_outside_the_vocabulary_is_refused),
    };
    return cmocka_run_group_tests_name("round_admit", tests, NULL, NULL);
}
