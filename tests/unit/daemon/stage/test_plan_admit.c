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

int stage_main(int argc, char **argv);
#define main stage_main
#include "daemon/stage/main.c" /* how a plan is opened is not for others */
#undef main

#include "tests/lib/golden.h"

enum { TOKENS = 8, SEQS = 2, MICROBATCHES = 4, PATIENCE_S = 60 };

static const char *const model = "llama_tied_bf16";

static struct world {
    struct golden golden;
    struct process p; /* the victim: opened as one rank of two */
    struct progress progress[2];
    struct exchange *other; /* owned: its neighbour's */
    int events;             /* owned: the daemon's end of the stage's socket */
    int stage_end;
    char why[512];
} world;

/* --- plans ------------------------------------------------------------------------------------ */

/* Two ranks, gpipe: every microbatch is in flight at once. */
static struct job_plan plan_of(enum job_type type)
{
    const struct config *c = &world.golden.config;
    struct job_plan p = {.type = type,
                         .ranks = 2,
                         .stages = 2,
                         .place = {0, 1},
                         .first = {0, 1, c->layers},
                         .weights = (char *)"-,-,-,-,-;", /* nothing to be compared with */
                         .schedule = "gpipe",
                         .microbatches = MICROBATCHES,
                         .round_steps = 1,
                         .training = type == JOB_TRAIN,
                         .kv = type == JOB_GENERATE,
                         .tokens = TOKENS,
                         .seqs = SEQS,
                         .positions = TOKENS,
                         .vocab = c->vocab,
                         .dim = c->dim,
                         .slots = {1, 1},
                         .tune = {.end_layer = c->layers}};
    snprintf(p.model, sizeof p.model, "%s", world.golden.model_dir.text);
    struct err err = {""};
    assert_int_equal(config_fingerprint(p.fingerprint, p.model, &err), 0);
    if (type != JOB_TRAIN)
        return p;
    for (size_t s = 0; s < p.stages; s++)
        p.slots[s] = p.bwd_x_only[s] = MICROBATCHES;
    p.sample = TOKENS;
    p.tune = (struct tune){.kind = TUNE_LORA,
                           .rank = 2,
                           .alpha = 4,
                           .ntargets = 1,
                           .targets = {"q_proj"},
                           .end_layer = c->layers};
    return p;
}

static int start(void **state)
{
    struct world *w = &world;
    *w = (struct world){.events = -1, .stage_end = -1};
    alarm(PATIENCE_S); /* a stage that is not refused may wait for more */
    golden_open(&w->golden, model);
    *state = w;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    exchange_free(w->other);
    w->p.progress = NULL; /* this one is not mapped */
    process_done(&w->p);
    alarm(0);
    close(w->events);
    close(w->stage_end);
    golden_close(&w->golden);
    return 0;
}

/* 0, or what do_open says; its sentence is in w->why. */
static int open_as(struct world *w, const struct job_plan *plan, json_int_t rank)
{
    int fd[2];
    struct err err = {""};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    w->events = fd[0];
    w->stage_end = fd[1];
    w->p.progress = &w->progress[0];
    stage_events_init(&w->p.events, w->stage_end);
    head_init(&w->p.head, &w->p.events);
    w->p.is_head = rank == 0;
    json_t *msg = json_pack("{s:o s:I s:i}", "plan", job_plan_encode(plan), "rank", rank, "threads", 1);
    int r = do_open(&w->p, msg, &err);
    json_decref(msg);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    return r;
}

static void join(struct world *w, uint32_t rank)
{
    int fd[2];
    const uint8_t keys[2][32] = {{1}, {2}};
    struct seal there, back;
    struct err err = {""};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(exchange_new(&w->other, &w->progress[1], &err), 0);
    for (int i = 0; i < 2; i++) {
        seal_init(&there, keys[i], SEAL_CHACHA20_POLY1305);
        seal_init(&back, keys[!i], SEAL_CHACHA20_POLY1305);
        assert_int_equal(
            exchange_add(i ? w->other : w->p.exchange, i ? rank : 1 - rank, 1, fd[i], &there, &back, &err),
            0);
    }
}

static void opens_as(struct world *w, const struct job_plan *plan, json_int_t rank)
{
    if (open_as(w, plan, rank))
        fail_msg("%s", w->why);
    join(w, (uint32_t)rank);
}

static void assert_says(const struct world *w, const char *words)
{
    if (!strstr(w->why, words))
        fail_msg("\"%s\" is not in \"%s\"", words, w->why);
}

/* --- an enemy at rank 0 ----------------------------------------------------------------------- */

static void send_bytes(struct world *w, struct msg_key key, const void *bytes, size_t n)
{
    void *buffer = exchange_buffer(w->other, n);
    assert_non_null(buffer);
    memcpy(buffer, bytes, n);
    assert_int_equal(
        exchange_send(w->other, key.kind == MSG_TOKEN || key.kind == MSG_LOSS ? 0 : 1, &key, buffer, n), 0);
}

static void send_go_of(struct world *w, struct go *go)
{
    uint8_t bytes[4096];
    go->round = 1;
    assert_true(go_max_size(go->microbatches, SEQS, go->nsteps) <= sizeof bytes);
    send_bytes(w, (struct msg_key){1, MSG_GO, 1, 0}, bytes, go_encode(bytes, go));
}

/* A whole microbatch for the last stage. */
static void send_microbatch(struct world *w, uint32_t mb, const int32_t labels[TOKENS])
{
    const float x[TOKENS * 64] = {0.5f};
    assert_true(world.golden.config.dim <= 64);
    send_bytes(w, (struct msg_key){1, MSG_ACT, 1, mb}, x, TOKENS * world.golden.config.dim * sizeof *x);
    if (labels)
        send_bytes(w, (struct msg_key){1, MSG_TARGET, 1, mb}, labels, TOKENS * sizeof *labels);
}

/* What becomes of the victim. */
static int follow(struct world *w)
{
    json_t *none = NULL;
    struct err err = {""};
    int r = drive_job(&w->p, &none, &err);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    return r;
}

static const uint32_t one_row[] = {0, TOKENS};
static struct seqs rows[MICROBATCHES + 1] = {
    {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}};
static struct go_step step = {.step = 1, .dscale = 1};

static struct go go_of(enum program program)
{
    const bool moves = program == PROGRAM_SAVE || program == PROGRAM_LOAD;
    return (struct go){.program = program,
                       .nsteps = program == PROGRAM_TRAIN,
                       .steps = &step,
                       .microbatches = moves                       ? 0
                                       : program == PROGRAM_DECODE ? 1
                                                                   : MICROBATCHES,
                       .mb = rows};
}

/* The round is refused for that reason. */
static void refuses(struct world *w, enum job_type type, struct go go, const char *words)
{
    const struct job_plan plan = plan_of(type);
    opens_as(w, &plan, 1);
    send_go_of(w, &go);
    for (uint32_t mb = 0; mb < go.microbatches; mb++)
        send_microbatch(w, mb, (int32_t[TOKENS]){0});
    assert_int_equal(follow(w), -EBADMSG);
    assert_says(w, "rank 0");
    assert_says(w, words);
    stop((void *[]){w});
    start((void *[]){NULL});
}

static void a_round_of_another_type_of_job_is_refused(void **state)
{
    struct world *w = *state;
    for (int program = PROGRAM_TRAIN; program <= PROGRAM_LOAD; program++) {
        if (program != PROGRAM_DECODE)
            refuses(w, JOB_GENERATE, go_of(program), "generate does not have");
        if (program != PROGRAM_FORWARD)
            refuses(w, JOB_SCORE, go_of(program), "score does not have");
    }
    refuses(w, JOB_TRAIN, (struct go){.program = 77}, "program 77");
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

/* --- an enemy at the last rank ---------------------------------------------------------------- */

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
    assert_int_equal(runner_round(w->p.runner, &go, &round, &err), -EBADMSG);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    assert_says(w, "rank 1 sent 256 as the next token");
}

static void a_likely_token_outside_the_vocabulary_is_refused(void **state)
{
    struct world *w = *state;
    const struct job_plan plan = plan_of(JOB_SCORE);
    const uint32_t ids[TOKENS] = {0};
    const int32_t labels[TOKENS] = {0};
    float logprobs[TOKENS];
    struct likely likely[TOKENS];
    struct {
        double loss;
        float logprobs[TOKENS];
        struct likely likely[TOKENS];
    } message = {.likely = {[3] = {.id = UINT32_MAX}}};
    struct head_mb mb = {.ids = ids, .labels = labels, .logprobs = logprobs, .likely = likely};
    struct head_round round = {.mb = &mb};
    struct go go = go_of(PROGRAM_FORWARD);
    struct err err = {""};
    go.microbatches = 1;
    go.logprobs = true;
    go.top = 1;
    opens_as(w, &plan, 0);
    send_bytes(w, (struct msg_key){1, MSG_LOSS, 0, 0}, &message, sizeof message);
    assert_int_equal(runner_round(w->p.runner, &go, &round, &err), -EBADMSG);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    assert_says(w, "rank 1 sent 4294967295 as a likely token");
}

/* --- an enemy that plans ---------------------------------------------------------------------- */

static void refuses_plan(struct world *w, const struct job_plan *plan, json_int_t rank, const char *words)
{
    assert_true(open_as(w, plan, rank) < 0);
    assert_says(w, words);
    assert_null(w->p.scratch.base); /* nothing was allocated for it */
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
        plan = plan_of(type);
        plan.microbatches = SIZE_MAX / 2;
        refuses_plan(w, &plan, 1, "microbatches");
        plan = plan_of(type);
        plan.round_steps = JOB_MAX_STEPS;
        plan.microbatches = PLAN_MAX_CELLS / 2;
        refuses_plan(w, &plan, 1, "round_steps");
    }
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
    go.logprobs = true;
    go.top = 255;
    go.microbatches = 1;
    opens_as(w, &plan, 1);
    struct msg_key loss = {1, MSG_LOSS, 0, 0};
    const size_t n = sizeof(double) + TOKENS * (sizeof(float) + 255 * sizeof(struct likely));
    assert_int_equal(exchange_post(w->other, 1, &loss, n, false), 0);
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
        if (runner_round(w->p.runner, &go, &round, &err))
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
        CASE(a_plan_that_says_two_things_is_refused),
        CASE(an_order_on_other_ranks_than_the_plan_is_refused),
        CASE(only_the_node_that_planned_is_rank_0),
        CASE(a_round_of_another_type_of_job_is_refused),
        CASE(a_round_larger_than_the_plan_is_refused),
        CASE(flags_of_another_program_are_refused),
        CASE(moments_of_an_adapter_that_is_not_trained_are_refused),
        CASE(a_label_outside_the_vocabulary_is_refused),
        CASE(a_token_outside_the_vocabulary_is_refused),
        CASE(a_likely_token_outside_the_vocabulary_is_refused),
        CASE(a_question_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("plan_admit", tests, NULL, NULL);
}
