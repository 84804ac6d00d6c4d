/* SPDX-License-Identifier: MIT
 *
 * Rounds on one rank: however a prompt is cut into microbatches, the token after it is the same;
 * rounds are numbered, and the job's beginning is said once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/stage_runner.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "tests/lib/golden.h"

enum { PROMPT = 6, CHUNK_MOST = 6 };

static struct world {
    struct golden golden;
    struct job_plan plan;
    struct num *num;
    struct stage *stage;
    struct slab scratch;
    struct exchange *exchange;
    struct progress progress;
    struct runner *runner;
    unsigned begun;
} world;

static void must_do(int failed, const struct err *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

static void on_begun(void *owner)
{
    struct world *w = owner;
    w->begun++;
}

static int start(void **state)
{
    struct world *w = &world;
    struct err err = {""};
    *w = (struct world){0};
    golden_open(&w->golden, "llama_tied_bf16");
    const struct config *c = &w->golden.config;
    w->plan = (struct job_plan){.type = JOB_GENERATE,
                                .ranks = 1,
                                .stages = 1,
                                .first = {0, c->layers},
                                .slots = {1},
                                .microbatches = PROMPT,
                                .round_steps = 1,
                                .kv = true,
                                .tokens = CHUNK_MOST,
                                .seqs = 1,
                                .positions = 2 * PROMPT,
                                .vocab = c->vocab,
                                .dim = c->dim,
                                .tune = {.end_layer = c->layers}};
    strcpy(w->plan.model, w->golden.model_dir.text);
    struct stage_bytes bytes;
    must_do(stage_chunks(&bytes, &w->plan, c, 0, &err), &err);
    w->scratch.used = bytes.work;
    must_do(slab_alloc(&w->scratch, "scratch", &err), &err);
    w->scratch.used = bytes.work;
    must_do(num_new(&w->num, 1, &err), &err);
    struct stage_spec spec = job_plan_stage(&w->plan, c, 0, 0);
    spec.scratch = &w->scratch;
    must_do(stage_open(&w->stage, w->num, &spec, &err), &err);
    must_do(exchange_new(&w->exchange, &w->progress, &err), &err);
    const struct runner_setup setup = {.plan = &w->plan,
                                       .config = c,
                                       .stages = &w->stage,
                                       .exchange = w->exchange,
                                       .progress = &w->progress,
                                       .begun = on_begun,
                                       .owner = w};
    must_do(runner_new(&w->runner, &setup, &err), &err);
    *state = w;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    runner_free(w->runner);
    exchange_free(w->exchange);
    stage_close(w->stage);
    slab_free(&w->scratch);
    num_free(w->num);
    golden_close(&w->golden);
    return 0;
}

/* The likeliest token after the prompt, which goes in by `chunk` tokens at a time. */
static uint32_t token_after(struct world *w, uint32_t chunk)
{
    static const uint32_t ids[PROMPT] = {1, 5, 3, 7, 2, 4};
    struct head_mb mb[PROMPT] = {{0}};
    uint32_t starts[PROMPT][2] = {{0}};
    struct seqs seqs[PROMPT];
    struct head_round round = {.mb = mb};
    struct go go = {.program = PROGRAM_DECODE, .want_token = true, .choice.top_p = 1, .mb = seqs};
    for (uint32_t at = 0; at < PROMPT; at += chunk) {
        starts[go.microbatches][1] = PROMPT - at < chunk ? PROMPT - at : chunk;
        seqs[go.microbatches] = (struct seqs){1, starts[go.microbatches]};
        mb[go.microbatches++].ids = ids + at;
    }
    struct err err = {""};
    must_do(runner_round(w->runner, &go, &round, &err), &err);
    return round.token;
}

static void a_prompt_in_parts_has_the_same_next_token(void **state)
{
    struct world *w = *state;
    const uint32_t whole = token_after(w, PROMPT);
    assert_true(whole < w->plan.vocab);
    for (uint32_t chunk = 1; chunk < PROMPT; chunk++)
        assert_int_equal(token_after(w, chunk), whole);
    assert_int_equal(w->begun, 1); /* said once in a job, not once a round */
}

static void rounds_are_numbered_from_one(void **state)
{
    struct world *w = *state;
    static const uint32_t id = 1;
    for (uint32_t n = 1; n <= 3; n++) {
        uint32_t at[2] = {0, 1};
        struct seqs seqs = {1, at};
        struct head_mb mb = {.ids = &id};
        struct head_round round = {.mb = &mb};
        struct go go = {
            .program = PROGRAM_DECODE, .want_token = true, .choice.top_p = 1, .microbatches = 1, .mb = &seqs};
        struct err err = {""};
        must_do(runner_round(w->runner, &go, &round, &err), &err);
        assert_int_equal(go.round, n);
    }
}

static void a_job_of_one_rank_stops(void **state)
{
    struct world *w = *state;
    struct err err = {""};
    token_after(w, PROMPT);
    must_do(runner_stop(w->runner, false, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_prompt_in_parts_has_the_same_next_token, start, stop),
        cmocka_unit_test_setup_teardown(rounds_are_numbered_from_one, start, stop),
        cmocka_unit_test_setup_teardown(a_job_of_one_rank_stops, start, stop),
    };
    return cmocka_run_group_tests_name("stage_runner", tests, NULL, NULL);
}
