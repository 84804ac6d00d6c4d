/* SPDX-License-Identifier: MIT
 *
 * What a member that was taken over may send to a stage of another node: a plan, rounds and
 * messages that can be read and do not fit. A whole stage process is opened here, without its main,
 * and an exchange of the test is its neighbour. Each attack ends the job with a sentence that names
 * what was wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/stage/plan_admit.h"
#include "tests/unit/daemon/stage/plan_admit_world.h"

/* Its slots, tables and caches are what the plan says, and the head's word for their memory counts
 * for nothing. */
static void a_plan_for_a_larger_machine_is_refused(void **state)
{
    struct world *w = *state;
    static const enum job_type types[] = {JOB_TRAIN, JOB_GENERATE, JOB_SCORE};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct job_plan plan = plan_of(types[i]);
        plan.positions = INT32_MAX;
        plan.bytes[0] = plan.bytes[1] = UINT64_C(1) << 60;
        assert_int_equal(plan_admit_positions(&plan, &w->golden.config, UINT64_C(1) << 32, &(struct err){""}),
                         -EBADMSG);
        plan.positions = TOKENS;
        assert_int_equal(plan_admit_positions(&plan, &w->golden.config, UINT64_C(1) << 32, &(struct err){""}),
                         0);
        plan.tokens = plan.seqs = INT32_MAX;
        assert_int_equal(open_as(w, &plan, 1), -EBADMSG);
        assert_says(w, "tokens 2147483647");
        assert_says(w, "this machine has");
        stop((void *[]){w});
        start((void *[]){NULL});
    }
}

/* --- an enemy at the last rank ---------------------------------------------------------------- */

/* --- an enemy that plans ---------------------------------------------------------------------- */

static void refuses_plan(struct world *w, const struct job_plan *plan, json_int_t rank, const char *words)
{
    assert_true(open_as(w, plan, rank) < 0);
    assert_says(w, words);
    assert_null(w->p.attempt.scratch.base); /* nothing was allocated for it */
    stop((void *[]){w});
    start((void *[]){NULL});
}

static void a_plan_of_another_model_is_refused(void **state)
{
    struct world *w = *state;
    for (int type = 0; type < JOB_TYPES; type++) {
        struct job_plan plan = plan_of(type);
        plan.dim = 1;
        refuses_plan(w, &plan, 1, "dim is 1,");
        plan = plan_of(type);
        plan.vocab++;
        refuses_plan(w, &plan, 1, "vocab is 257,");
        plan = plan_of(type);
        plan.first[2]--;
        refuses_plan(w, &plan, 1, "the number of its layers");
        plan = plan_of(type);
        plan.tune = plan_of(JOB_TRAIN).tune;
        plan.tune.end_layer++;
        refuses_plan(w, &plan, 1, "tune.end_layer");
        plan = plan_of(type);
        plan.tune = plan_of(JOB_TRAIN).tune;
        plan.tune.first_layer = plan.tune.end_layer = 2;
        refuses_plan(w, &plan, 1, "tune.first_layer is 2, which must be below 2;");
    }
}

static void a_plan_whose_counts_do_not_fit_its_schedule_is_refused(void **state)
{
    struct world *w = *state;
    struct job_plan plan;
    plan = plan_of(JOB_TRAIN);
    plan.slots[1] = plan.bwd_x_only[1] = 1;
    refuses_plan(w, &plan, 1, "needs 4 slots of stage 1");
    plan = plan_of(JOB_TRAIN);
    plan.bwd_x_only[1] = 1;
    refuses_plan(w, &plan, 1, "needs 4 buffers of bwd_x_only of stage 1");
    plan = plan_of(JOB_TRAIN);
    plan.activations[1] = 1;
    plan.bwd_x_only[1] = 5;
    refuses_plan(w, &plan, 1, "bwd_x_only of a stage is 5");
    plan = plan_of(JOB_TRAIN);
    strcpy(plan.schedule, "zb-h1"); /* which has halves of a backward, and buffers for them */
    refuses_plan(w, &plan, 1, "buffers of bwd_w_only of stage");
    for (int type = 0; type < JOB_TYPES; type++) {
        plan = plan_of(type);
        plan.slots[0] = 0;
        refuses_plan(w, &plan, 1, "slots of a stage is 0");
        plan = plan_of(type);
        plan.slots[0] = (size_t)1 << 62;
        refuses_plan(w, &plan, 1, "slots of a stage");
        plan = plan_of(type);
        plan.tokens = (size_t)1 << 40;
        refuses_plan(w, &plan, 1, "tokens");
        plan = plan_of(type);
        plan.seqs = TOKENS + 1;
        refuses_plan(w, &plan, 1, "seqs");
        plan = plan_of(JOB_TRAIN);
        plan.loss = LOSS_ORPO;
        plan.seqs = 1;
        refuses_plan(w, &plan, 1, "seqs is 1, which must be at least 2");
        plan.seqs = SEQS;
        plan.loss = LOSS_DPO;
        plan.tune = (struct tune){.kind = TUNE_FULL, .end_layer = w->golden.config.layers};
        refuses_plan(w, &plan, 1, "has no pairs for its loss");
        plan = plan_of(type);
        plan.microbatches = SIZE_MAX / 2;
        refuses_plan(w, &plan, 1, "microbatches");
        plan = plan_of(type);
        plan.round_steps = JOB_MAX_STEPS;
        plan.microbatches = PLAN_MAX_CELLS / 2;
        refuses_plan(w, &plan, 1, "round_steps");
    }
}

/* Two replicas of one stage. A part is a message: too few parts would be larger ones than
 * planned. */
static void parts_of_another_size_are_refused(void **state)
{
    struct world *w = *state;
    struct err err = {""};
    struct job_plan plan = plan_of(JOB_TRAIN);
    plan.stages = 1;
    plan.first[1] = plan.first[2];
    plan.replicas = plan.groups = 2;
    plan.share[0] = plan.share[1] = 1;
    plan.parts[0] = 2;
    if (plan_admit(&plan, &w->golden.config, 1, false, &err))
        fail_msg("%s", err.text);
    for (size_t parts = 0; parts < 4; parts += 1 + (parts == 1)) {
        plan.parts[0] = parts;
        refuses_plan(w, &plan, 1, "parts of a stage");
    }
}

/* Other jobs would be promised the memory of this one. */
static void a_plan_that_maps_more_than_there_is_is_refused(void **state)
{
    struct world *w = *state;
    struct job_plan plan = plan_of(JOB_GENERATE);
    size_t mapped[64] = {0};
    plan.nmapped = w->golden.config.layers + 2;
    assert_true(plan.nmapped <= 64);
    plan.mapped = mapped;
    plan.bytes[1] = 1 << 30;
    mapped[plan.nmapped - 1] = 1 << 29;
    refuses_plan(w, &plan, 1, "by mapped, rank 1 maps 536870912 bytes of the model");
}

static void a_plan_that_says_two_things_is_refused(void **state)
{
    struct world *w = *state;
    for (int type = 0; type < JOB_TYPES; type++) {
        struct job_plan plan = plan_of(type);
        plan.kv = !plan.kv;
        refuses_plan(w, &plan, 1, "kv");
        plan = plan_of(type);
        plan.training = !plan.training;
        refuses_plan(w, &plan, 1, "training");
        plan = plan_of(type);
        plan.tune.kind = type == JOB_TRAIN ? TUNE_NONE : TUNE_FULL;
        refuses_plan(w, &plan, 1, "tune.kind");
        plan = plan_of(type);
        refuses_plan(w, &plan, 2, "rank");
        refuses_plan(w, &plan, -1, "rank");
        refuses_plan(w, &plan, INT64_C(1) << 32, "rank");
    }
}

/* Stages lie where the plan says; its schedule may say something else. */
static void an_order_on_other_ranks_than_the_plan_is_refused(void **state)
{
    struct world *w = *state;
    struct job_plan plan = plan_of(JOB_TRAIN);
    plan.microbatches = 1;
    plan.slots[0] = plan.slots[1] = plan.bwd_x_only[0] = plan.bwd_x_only[1] = 1;
    plan.order = (char *)"0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n";
    refuses_plan(w, &plan, 1, "it has 2 stages on 2 ranks, its schedule 4 on 2");
    plan.stages = 3;
    plan.place[2] = 0;
    plan.first[2] = 2;
    plan.first[3] = world.golden.config.layers;
    plan.slots[2] = plan.bwd_x_only[2] = 1;
    plan.order = (char *)"0F0,0B0\n1F0,2F0,2B0,1B0\n";
    refuses_plan(w, &plan, 1, "places has stage 2 on rank 0, its schedule on rank 1");
}

/* A node that did not plan has no data and no head's part of a round. */
static void only_the_node_that_planned_is_rank_0(void **state)
{
    struct world *w = *state;
    const struct job_plan plan = plan_of(JOB_GENERATE);
    struct err err = {""};
    assert_int_equal(plan_admit(&plan, &w->golden.config, 0, false, &err), -EBADMSG);
    assert_int_equal(plan_admit(&plan, &w->golden.config, 1, true, &err), -EBADMSG);
    assert_int_equal(plan_admit(&plan, &w->golden.config, 0, true, &err), 0);
    assert_int_equal(plan_admit(&plan, &w->golden.config, 1, false, &err), 0);
}

/* --- and what is meant ------------------------------------------------------------------------ */

static void honest_rounds_run(void **state)
{
    struct world *w = *state;
    const struct job_plan plan = plan_of(JOB_SCORE);
    const int32_t labels[TOKENS] = {1, 2, -100, 3, 4, 5, 6, 255};
    struct go go = go_of(PROGRAM_FORWARD);
    go.microbatches = 1;
    opens_as(w, &plan, 1);
    struct msg_key loss = {1, MSG_LOSS, 0, 0};
    assert_int_equal(exchange_post(w->other, 1, &loss, sizeof(double), false), 0);
    exchange_kick(w->other);
    send_go_of(w, &go);
    send_microbatch(w, 0, labels);
    struct go end = {.program = GO_STOP};
    uint8_t bytes[256];
    end.round = 2;
    send_bytes(w, (struct msg_key){2, MSG_GO, 1, 0}, bytes, go_encode(bytes, &end));
    if (follow(w))
        fail_msg("%s", w->why);
}

static int count_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    size_t *n = owner;
    (void)piece, (void)values, (void)err;
    ++*n;
    return 0;
}

/* With moments there are more pieces than without; each round is about its own. */
static void rounds_that_save_more_or_less_have_their_own_pieces(void **state)
{
    struct world *w = *state;
    struct job_plan plan = plan_of(JOB_TRAIN);
    plan.tune.rank = 12000; /* so that not all of a layer goes into one piece */
    plan.ranks = plan.stages = 1;
    plan.first[1] = w->golden.config.layers;
    if (open_as(w, &plan, 0))
        fail_msg("%s", w->why);
    for (int state_too = 1; state_too >= 0; state_too--) {
        size_t n = 0;
        struct head_round round = {.piece = count_piece, .owner = &n};
        struct go go = go_of(PROGRAM_SAVE);
        struct param_pieces pieces;
        struct err err = {""};
        go.state = state_too;
        assert_int_equal(param_pieces_make(&pieces, &plan.tune, family_find(w->golden.config.family),
                                           &w->golden.config, state_too, &err),
                         0);
        if (runner_round(w->p.attempt.runner, &go, &round, &err))
            fail_msg("%s", err.text);
        assert_int_equal(n, pieces.n);
        param_pieces_done(&pieces);
    }
}

/* --- what a head asks ------------------------------------------------------------------------- */

static const char *answer_to(const struct job_plan *plan, json_t *units)
{
    static char why[512];
    json_t *question = json_pack("{s:o s:o}", "plan", job_plan_encode(plan), "units", units);
    json_t *answer = units_answer(question, 1, true);
    snprintf(why, sizeof why, "%s", json_string_value(json_object_get(answer, "why")));
    json_decref(question);
    json_decref(answer);
    return why;
}

static void a_question_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct job_plan plan = plan_of(JOB_SCORE);
    /* A backward of what has no gradients. */
    assert_non_null(strstr(answer_to(&plan, json_pack("[[i,i,i,i,b,b]]", 4, 4, 1, 0, 1, 1)), "cannot read"));
    plan = plan_of(JOB_GENERATE);
    assert_non_null(strstr(
        answer_to(&plan, json_pack("[[i,i,i,I,b,b]]", 1, 4, 1, (json_int_t)INT64_MAX, 0, 1)), "cannot read"));
    plan.training = true;
    assert_non_null(strstr(answer_to(&plan, json_pack("[[i,i,i,i,b,b]]", 1, 4, 1, 0, 0, 1)), "training"));
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(honest_rounds_run),
        CASE(rounds_that_save_more_or_less_have_their_own_pieces),
        CASE(a_plan_of_another_model_is_refused),
        CASE(a_plan_whose_counts_do_not_fit_its_schedule_is_refused),
        CASE(parts_of_another_size_are_refused),
        CASE(a_plan_that_maps_more_than_there_is_is_refused),
        CASE(a_plan_that_says_two_things_is_refused),
        CASE(an_order_on_other_ranks_than_the_plan_is_refused),
        CASE(only_the_node_that_planned_is_rank_0),
        CASE(a_plan_for_a_larger_machine_is_refused),
        CASE(a_question_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("plan_admit", tests, NULL, NULL);
}
