/* SPDX-License-Identifier: MIT
 *
 * A served model on one rank, with a real stage: its requests come from here as from a daemon, and
 * its events are read here. */
#ifndef TESTS_SERVE_WORLD_H
#define TESTS_SERVE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/serve/draft_model.h"
#include "daemon/stage/serve/serve.h"
#include "daemon/stage/serve/serve_draft.h"
#include "tests/lib/golden.h"

enum { ASKS = 8, MOST = 28, PROMPT = 37, POSITIONS = 64 };

#define MTP "its own layer"

struct shape {
    size_t blocks, seqs, step, draft;
    const char *by; /* folder of the draft model, or MTP; NULL: there is none */
    const char *of; /* golden case of the served model; NULL: llama_tied_bf16 */
    const char *at; /* folder of a model instead, or NULL */
};

static struct world {
    struct golden golden;
    struct head head;
    struct stage_events events;
    int sock[2];
    struct num *num;
    struct stage *stage;
    struct slab scratch;
    struct exchange *exchange;
    struct progress progress;
    struct runner *runner;
    pthread_t thread;
    bool is_serving;
    int result;
    struct err err;
    /* what came */
    uint32_t ids[ASKS + 1][MOST];
    size_t n[ASKS + 1], ended, cached;
    double embedding[2];
    double scores[ASKS + 1][PROMPT]; /* of prompts: log-probabilities, */
    size_t scored[ASKS + 1];         /* of so many tokens */
    json_int_t preempted, kv_used, guessed, right, drafted, drafted_right;
    char refused[512];
} world;

/* Who guesses, and how much, follows from what computing takes: here that is no matter of the
 * machine and its load (--wrap in the Makefile). A row costs a thousandth of a microbatch; of a
 * draft model nothing is known. */
void __real_draft_cost_saw(struct draft_cost *cost, size_t rows, uint64_t us);
void __wrap_draft_cost_saw(struct draft_cost *cost, size_t rows, uint64_t us);
void __wrap_draft_cost_saw(struct draft_cost *cost, size_t rows, uint64_t us)
{
    (void)us;
    if (!world.head.draft)
        __real_draft_cost_saw(cost, rows, 1000 + rows);
}

static void must_do(int failed, const struct err *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

static void *serve_main(void *arg)
{
    struct world *w = arg;
    json_t *result = NULL;
    w->result = head_serve(&w->head, w->runner, &result, &w->err);
    return NULL;
}

static void plan_for(struct world *w, const struct shape *shape)
{
    const struct config *c = &w->golden.config;
    w->head.config = *c;
    w->head.config.neos = 0; /* every answer has all of its tokens */
    w->head.spec = (struct job_spec){
        .model = w->golden.model_dir.text, .prefill_step = shape->step, .draft_max = shape->draft};
    w->head.plan = (struct job_plan){.type = JOB_SERVE,
                                     .ranks = 1,
                                     .stages = 1,
                                     .first = {0, c->layers},
                                     .slots = {1},
                                     .microbatches = 1,
                                     .round_steps = 1,
                                     .kv = true,
                                     .kv_blocks = shape->blocks,
                                     .rings = shape->of && c->window,
                                     .kept_states = shape->of ? 4 : 0,
                                     .guesses = shape->draft,
                                     .kv_type = KV_F32,
                                     .tokens = shape->seqs + shape->step,
                                     .seqs = shape->seqs,
                                     .positions = POSITIONS,
                                     .vocab = c->vocab,
                                     .dim = c->dim,
                                     .tune = {.end_layer = c->layers}};
    strcpy(w->head.plan.model, w->golden.model_dir.text);
}

static void open_draft(struct world *w, const char *dir)
{
    struct err err = {""};
    const bool is_ahead = !strcmp(dir, MTP);
    const struct draft_setup setup = {.dir = is_ahead ? w->golden.model_dir.text : dir,
                                      .plan = &w->head.plan,
                                      .served = &w->golden.config,
                                      .is_ahead = is_ahead};
    must_do(draft_model_read(&w->head.draft, &setup, &err), &err);
    assert_true(draft_model_bytes(w->head.draft) > 0);
    must_do(draft_model_open(w->head.draft, w->num, NULL, &err), &err);
}

static void open_world(struct world *w, const struct shape *shape)
{
    struct err err = {""};
    struct stage_bytes bytes;
    *w = (struct world){0};
    golden_open(&w->golden, shape->of ? shape->of : "llama_tied_bf16");
    if (shape->at) {
        snprintf(w->golden.model_dir.text, sizeof w->golden.model_dir.text, "%s", shape->at);
        must_do(config_read(&w->golden.config, shape->at, &err), &err);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, w->sock), 0);
    stage_events_init(&w->events, w->sock[0]);
    head_init(&w->head, &w->events);
    plan_for(w, shape);
    const struct job_plan *plan = &w->head.plan;
    must_do(stage_chunks(&bytes, plan, &w->golden.config, 0, &err), &err);
    w->scratch.used = bytes.work;
    must_do(slab_alloc(&w->scratch, "scratch", &err), &err);
    w->scratch.used = bytes.work;
    must_do(num_new(&w->num, 1, &err), &err);
    struct stage_spec spec = job_plan_stage(plan, &w->golden.config, 0, 0);
    spec.scratch = &w->scratch;
    must_do(stage_open(&w->stage, w->num, &spec, &err), &err);
    if (shape->by)
        open_draft(w, shape->by);
    must_do(exchange_new(&w->exchange, &w->progress, &err), &err);
    const struct runner_setup setup = {.plan = plan,
                                       .config = &w->golden.config,
                                       .stages = &w->stage,
                                       .exchange = w->exchange,
                                       .progress = &w->progress};
    must_do(runner_new(&w->runner, &setup, &err), &err);
}

/* Not before its first requests are there: which of them share a microbatch would be a matter of
 * time. */
static void begin_serving(struct world *w)
{
    if (!w->is_serving)
        assert_int_equal(pthread_create(&w->thread, NULL, serve_main, w), 0);
    w->is_serving = true;
}

/* The daemon wants no more. */
static void close_world(struct world *w)
{
    ask_inbox_put(&w->head.asks, NULL);
    begin_serving(w);
    pthread_join(w->thread, NULL);
    if (w->result)
        fail_msg("%s", w->err.text);
    runner_free(w->runner);
    exchange_free(w->exchange);
    stage_close(w->stage);
    slab_free(&w->scratch);
    head_done(&w->head);
    num_free(w->num);
    stage_events_done(&w->events);
    close(w->sock[0]);
    close(w->sock[1]);
    golden_close(&w->golden);
}

/* --- words ------------------------------------------------------------------------------------ */

static void ask(struct world *w, json_t *fields)
{
    ask_inbox_put(&w->head.asks, json_pack("{s:s s:o}", "do", "ask", "ask", fields));
}

static json_t *prompt_of(size_t seed, size_t n, size_t vocab)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(ids, json_integer((json_int_t)((seed * 31 + i * 7) % vocab)));
    return ids;
}

/* Request i, always the same. */
static void ask_text(struct world *w, size_t i, json_t *so_far)
{
    ask(w, json_pack("{s:I s:s s:o s:i s:f s:i s:o*}", "id", (json_int_t)i, "kind", "text", "ids",
                     prompt_of(i, PROMPT - i, w->golden.config.vocab), "max_tokens", MOST, "temperature", 1.5,
                     "seed", (int)i, "so_far", so_far));
}

static void take_tokens(struct world *w, const json_t *list)
{
    size_t i;
    json_t *token;
    json_array_foreach (list, i, token) {
        const size_t id = (size_t)json_integer_value(json_object_get(token, "id")),
                     n = (size_t)json_integer_value(json_object_get(token, "n"));
        assert_true(id <= ASKS && n >= 1 && n <= MOST);
        assert_true(!w->n[id] || n == w->n[id] + 1);
        w->ids[id][n - 1] = (uint32_t)json_integer_value(json_object_get(token, "token"));
        w->n[id] = n;
    }
}

static void take_scores(struct world *w, const json_t *event)
{
    const size_t id = (size_t)json_integer_value(json_object_get(event, "id"));
    const json_t *tokens = json_object_get(event, "tokens");
    assert_int_equal(json_integer_value(json_object_get(event, "at")), w->scored[id]);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i), *logprob = json_object_get(token, "logprob");
        assert_true(w->scored[id] ? json_is_real(logprob) : json_is_null(logprob));
        assert_int_equal(json_array_size(json_object_get(token, "top")), w->scored[id] ? 2 : 0);
        w->scores[id][w->scored[id]++] = json_number_value(logprob);
    }
    assert_int_equal(w->n[id], 0); /* those of answers come behind them */
}

static void take_event(struct world *w, const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "ev"));
    if (!strcmp(kind, "prompt-tokens"))
        take_scores(w, event);
    if (!strcmp(kind, "tokens"))
        take_tokens(w, json_object_get(event, "tokens"));
    if (!strcmp(kind, "ask-begun"))
        w->cached = (size_t)json_integer_value(json_object_get(event, "cached_tokens"));
    if (!strcmp(kind, "load")) {
        w->preempted = json_integer_value(json_object_get(event, "preempted"));
        w->kv_used = json_integer_value(json_object_get(event, "kv_used"));
        w->guessed = json_integer_value(json_object_get(event, "guessed_tokens"));
        w->right = json_integer_value(json_object_get(event, "guessed_right"));
        w->drafted = json_integer_value(json_object_get(event, "drafted_tokens"));
        w->drafted_right = json_integer_value(json_object_get(event, "drafted_right"));
    }
    if (!strcmp(kind, "refused"))
        snprintf(w->refused, sizeof w->refused, "%s", json_string_value(json_object_get(event, "error")));
    for (size_t i = 0; i < 2 && !strcmp(kind, "embedded"); i++)
        w->embedding[i] = json_number_value(json_array_get(json_object_get(event, "values"), i));
    w->ended += !strcmp(kind, "ended") || !strcmp(kind, "embedded") || !strcmp(kind, "refused");
}

/* The next event; does it say how much is held? */
static bool hear_one(struct world *w)
{
    struct ipc_lane lane;
    json_t *event;
    int fd;
    begin_serving(w);
    assert_int_equal(ipc_receive(w->sock[1], &event, &lane, &fd), 0);
    take_event(w, event);
    const bool is_load = !strcmp(json_string_value(json_object_get(event, "ev")), "load");
    json_decref(event);
    return is_load;
}

/* Until so many have ended, and the daemon has heard how much is held. */
static void hear(struct world *w, size_t ended)
{
    while (w->ended < ended)
        hear_one(w);
    while (!hear_one(w))
        ;
}

#endif
