/* SPDX-License-Identifier: MIT
 *
 * A served model on one rank, with a real stage: whatever shares the microbatches and the pool with
 * a request, and however its prompt is cut, its tokens are those that it has alone. A pool that is
 * too small takes blocks back and computes them again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/serve/draft_model.h"
#include "daemon/stage/serve/serve.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"

enum { ASKS = 8, MOST = 28, PROMPT = 37, POSITIONS = 64 };

struct shape {
    size_t blocks, seqs, step, draft;
    const char *by; /* folder of the draft model; NULL: there is none */
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
    const struct draft_setup setup = {.dir = dir, .plan = &w->head.plan, .served = &w->golden.config};
    must_do(draft_model_read(&w->head.draft, &setup, &err), &err);
    assert_true(draft_model_bytes(w->head.draft) > 0);
    must_do(draft_model_open(w->head.draft, w->num, NULL, &err), &err);
}

static void open_world(struct world *w, const struct shape *shape)
{
    struct err err = {""};
    struct stage_bytes bytes;
    *w = (struct world){0};
    golden_open(&w->golden, "llama_tied_bf16");
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
    struct stage_spec spec = job_plan_stage(plan, &w->golden.config, 0);
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
    assert_int_equal(pthread_create(&w->thread, NULL, serve_main, w), 0);
}

/* The daemon wants no more. */
static void close_world(struct world *w)
{
    ask_inbox_put(&w->head.asks, NULL);
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

/* Until so many have ended, and the daemon has heard how much is held. */
static void hear(struct world *w, size_t ended)
{
    bool is_told = false;
    while (w->ended < ended || !is_told) {
        struct ipc_lane lane;
        json_t *event;
        int fd;
        assert_int_equal(ipc_receive(w->sock[1], &event, &lane, &fd), 0);
        const bool had_all = w->ended >= ended;
        take_event(w, event);
        is_told = had_all && !strcmp(json_string_value(json_object_get(event, "ev")), "load");
        json_decref(event);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static uint32_t alone[ASKS + 1][MOST];

static const struct shape roomy = {64, 16, 64, 4, NULL};

static void each_has_its_tokens(void **state)
{
    struct world *w = &world;
    (void)state;
    for (size_t i = 1; i <= ASKS; i++) {
        open_world(w, &roomy);
        ask_text(w, i, NULL);
        hear(w, 1);
        assert_int_equal(w->n[i], MOST);
        memcpy(alone[i], w->ids[i], sizeof alone[i]);
        assert_int_equal(w->kv_used, 0);
        close_world(w);
    }
    assert_memory_not_equal(alone[1], alone[2], sizeof alone[1]);
}

static void together(const struct shape *shape, bool is_tight)
{
    struct world *w = &world;
    open_world(w, shape);
    for (size_t i = 1; i <= ASKS; i++) /* in a tight pool later ones have the longer prompts */
        ask_text(w, is_tight ? ASKS + 1 - i : i, NULL);
    hear(w, ASKS);
    for (size_t i = 1; i <= ASKS; i++)
        assert_memory_equal(w->ids[i], alone[i], sizeof alone[i]);
    assert_int_equal(w->kv_used, 0);
    assert_int_equal(w->preempted > 0, is_tight);
    close_world(w);
}

static void among_others_they_are_the_same(void **state)
{
    (void)state;
    together(&roomy, false);
}

static void prompts_in_pieces_have_the_same_tokens(void **state)
{
    static const size_t steps[] = {1, 3, 16, 17};
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        together(&(struct shape){64, 5, steps[i], 8, NULL}, false);
}

static void in_a_small_pool_they_are_computed_again(void **state)
{
    (void)state;
    /* Two fit with their prompts, and not with their answers: the younger one has the last block
     * when the older one needs it. */
    together(&(struct shape){7, 8, 16, 8, NULL}, true);
}

static void a_prompt_that_was_there_is_not_computed(void **state)
{
    struct world *w = &world;
    (void)state;
    open_world(w, &roomy);
    ask_text(w, 1, NULL);
    hear(w, 1);
    assert_int_equal(w->cached, 0);
    memset(w->ids, 0, sizeof w->ids);
    w->n[1] = 0;
    ask_text(w, 1, NULL);
    hear(w, 2);
    assert_int_equal(w->cached, 32); /* full blocks, and never the last token */
    assert_memory_equal(w->ids[1], alone[1], sizeof alone[1]);
    close_world(w);
}

static void after_a_loss_an_answer_goes_on(void **state)
{
    struct world *w = &world;
    (void)state;
    for (size_t had = 1; had < MOST; had += 4) {
        json_t *ids = json_array();
        for (size_t i = 0; i < had; i++)
            json_array_append_new(ids, json_integer(alone[2][i]));
        open_world(w, &roomy);
        ask_text(w, 2, json_pack("[o]", ids));
        hear(w, 1);
        assert_int_equal(w->n[2], MOST);
        assert_memory_equal(w->ids[2] + had, alone[2] + had, (MOST - had) * sizeof *alone[2]);
        close_world(w);
    }
}

/* Texts that repeat themselves: one token is nearly always chosen, then another, or the likeliest.
 */
static void ask_dull(struct world *w, size_t i)
{
    json_t *bias = json_object();
    char id[8];
    for (size_t k = 0; k < 2 && i % 2; k++) {
        snprintf(id, sizeof id, "%zu", 5 + i + k);
        json_object_set_new(bias, id, json_real(k ? 17 : 18));
    }
    ask(w, json_pack("{s:I s:s s:o s:i s:f s:i s:o s:f}", "id", (json_int_t)i, "kind", "text", "ids",
                     prompt_of(i, PROMPT - i, w->golden.config.vocab), "max_tokens", (int)(MOST - i % 3),
                     "temperature", i % 2 ? 0.9 : 0, "seed", (int)i, "logit_bias", bias, "presence_penalty",
                     i % 4 == 1 ? 0.1 : 0.0));
}

static void guesses_change_nothing(void **state)
{
    static const size_t drafts[] = {0, 1, 8, 31}, seqs[] = {16, 16, 16, 6};
    static uint32_t without[ASKS + 1][MOST];
    struct world *w = &world;
    json_int_t guessed = 0, right = 0;
    (void)state;
    for (size_t k = 0; k < sizeof drafts / sizeof *drafts; k++) {
        open_world(w, &(struct shape){64, seqs[k], 16, drafts[k], NULL});
        for (size_t i = 1; i <= ASKS; i++)
            ask_dull(w, i);
        hear(w, ASKS);
        for (size_t i = 1; i <= ASKS; i++)
            assert_int_equal(w->n[i], MOST - i % 3);
        if (!k)
            memcpy(without, w->ids, sizeof without);
        assert_memory_equal(w->ids, without, sizeof without);
        guessed += w->guessed;
        right += w->right;
        assert_true(k || !guessed);
        assert_int_equal(w->kv_used, 0);
        close_world(w);
    }
    assert_true(right > 0 && right < guessed); /* a wrong one leaves no trace */
}

/* Request i, whose prompt is scored before it is answered, or alone. */
static void ask_score(struct world *w, size_t i, bool is_alone)
{
    ask(w, json_pack("{s:I s:s s:o s:i s:f s:i s:b s:i s:b}", "id", (json_int_t)i, "kind", "text", "ids",
                     prompt_of(i, PROMPT - i, w->golden.config.vocab), "max_tokens", is_alone ? 0 : MOST,
                     "temperature", 1.5, "seed", (int)i, "prompt_logprobs", 1, "top_logprobs", 2, "answer",
                     !is_alone));
}

static void a_prompt_has_the_scores_that_it_has_alone(void **state)
{
    static const struct shape shapes[] = {
        {64, 16, 64, 4, NULL}, {64, 16, 5, 4, NULL}, {7, 8, 16, 8, NULL}, {64, 1, 3, 0, NULL}};
    static double scores[ASKS + 1][PROMPT];
    struct world *w = &world;
    (void)state;
    for (size_t i = 1; i <= ASKS; i++) {
        open_world(w, &roomy);
        ask_score(w, i, true);
        hear(w, 1);
        assert_int_equal(w->scored[i], PROMPT - i);
        assert_int_equal(w->n[i], 0);
        memcpy(scores[i], w->scores[i], sizeof scores[i]);
        close_world(w);
    }
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        open_world(w, &shapes[k]);
        ask_text(w, 1, NULL); /* the prompt is there then, and is computed again */
        hear(w, 1);
        w->n[1] = 0;
        for (size_t i = 1; i <= ASKS; i++)
            ask_score(w, i, i % 3 == 0);
        hear(w, 1 + ASKS);
        for (size_t i = 1; i <= ASKS; i++) {
            assert_int_equal(w->scored[i], PROMPT - i);
            assert_memory_equal(w->scores[i], scores[i], sizeof scores[i]);
            assert_int_equal(w->n[i], i % 3 ? MOST : 0);
            assert_memory_equal(w->ids[i], alone[i], w->n[i] * sizeof *alone[i]);
        }
        assert_int_equal(w->kv_used, 0);
        close_world(w);
    }
}

static void one_token_has_nothing_to_score(void **state)
{
    struct world *w = &world;
    (void)state;
    open_world(w, &roomy);
    ask(w, json_pack("{s:I s:s s:[i] s:b s:b}", "id", (json_int_t)1, "kind", "text", "ids", 5,
                     "prompt_logprobs", 1, "answer", 0));
    hear(w, 1);
    assert_int_equal(w->scored[1], 1);
    close_world(w);
}

/* The same model, and one that sees little of its input. */
static char itself[512], blurred[160];
static struct temp_dir dir;

static int make_drafts(void **state)
{
    const char *name;
    struct dirent *file;
    (void)state;
    dir = temp_dir_new();
    snprintf(itself, sizeof itself, "%s", data_path("cases/llama_tied_bf16/model").text);
    snprintf(blurred, sizeof blurred, "%s/blurred", dir.path);
    assert_int_equal(mkdir(blurred, 0700), 0);
    DIR *from = opendir(itself);
    assert_non_null(from);
    char *root = realpath(itself, NULL);
    while ((file = readdir(from))) {
        char old[1024], new[512];
        name = file->d_name;
        snprintf(old, sizeof old, "%s/%s", root, name);
        snprintf(new, sizeof new, "%s/%s", blurred, name);
        if (*name != '.' && strcmp(name, "config.json") != 0)
            assert_int_equal(symlink(old, new), 0);
    }
    closedir(from);
    free(root);
    json_t *config = json_load_file(data_path("cases/llama_tied_bf16/model/config.json").text, 0, NULL);
    json_object_set_new(config, "rms_norm_eps", json_real(1));
    char to[512];
    snprintf(to, sizeof to, "%s/config.json", blurred);
    assert_int_equal(json_dump_file(config, to, 0), 0);
    json_decref(config);
    return 0;
}

static int remove_drafts(void **state)
{
    (void)state;
    temp_dir_free(&dir);
    return 0;
}

/* Whatever the draft model says, however its reading is cut, whoever shares its pool. */
static void a_draft_model_changes_nothing(void **state)
{
    const struct shape shapes[] = {{64, 16, 64, 16, itself},
                                   {64, 16, 3, 5, itself},
                                   {64, 12, 16, 31, blurred},
                                   {64, 16, 64, 1, blurred}};
    json_int_t drafted = 0;
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        together(&shapes[i], false);
        drafted += world.drafted;
    }
    together(&(struct shape){7, 8, 16, 8, itself}, true);
    assert_true(drafted > 0);
}

/* The same chance chooses for both: what is its own draft model guesses right, though its answers
 * are random, and another one does not. */
static void a_draft_model_chooses_as_the_model_would(void **state)
{
    struct world *w = &world;
    (void)state;
    for (size_t i = 1; i <= ASKS; i++) {
        open_world(w, &(struct shape){64, 16, 64, 16, itself});
        ask_text(w, i, NULL);
        hear(w, 1);
        assert_memory_equal(w->ids[i], alone[i], sizeof alone[i]);
        assert_true(w->drafted > 0);
        assert_int_equal(w->drafted_right, w->drafted);
        close_world(w);
    }
    open_world(w, &(struct shape){64, 16, 64, 16, blurred});
    ask_text(w, 1, NULL);
    hear(w, 1);
    assert_memory_equal(w->ids[1], alone[1], sizeof alone[1]);
    assert_true(w->drafted > 0 && w->drafted_right < w->drafted);
    close_world(w);
}

static void another_vocabulary_is_refused(void **state)
{
    struct world *w = &world;
    struct err err = {""};
    struct draft_model *draft = NULL;
    (void)state;
    open_world(w, &roomy);
    struct config other = w->golden.config;
    other.vocab++;
    const struct draft_setup setup = {
        .dir = w->golden.model_dir.text, .plan = &w->head.plan, .served = &other};
    assert_int_equal(draft_model_read(&draft, &setup, &err), -EINVAL);
    assert_non_null(strstr(err.text, "has another vocabulary"));
    assert_null(draft);
    close_world(w);
}

static void an_embedding_is_the_same_in_pieces(void **state)
{
    struct world *w = &world;
    double whole[2] = {0};
    (void)state;
    for (size_t step = 3; step <= 64; step += 61) {
        open_world(w, &(struct shape){64, 4, step, 0, NULL});
        ask(w, json_pack("{s:i s:s s:o}", "id", 1, "kind", "embed", "ids",
                         prompt_of(3, PROMPT, w->golden.config.vocab)));
        hear(w, 1);
        if (step > 3)
            assert_memory_equal(w->embedding, whole, sizeof whole);
        memcpy(whole, w->embedding, sizeof whole);
        assert_true(whole[0] != 0);
        close_world(w);
    }
}

static void what_is_cancelled_gives_its_blocks(void **state)
{
    struct world *w = &world;
    (void)state;
    open_world(w, &roomy);
    ask_text(w, 1, NULL);
    ask_inbox_put(&w->head.asks, json_pack("{s:s s:i}", "do", "cancel", "id", 1));
    ask_text(w, 2, NULL);
    hear(w, 1);
    assert_memory_equal(w->ids[2], alone[2], sizeof alone[2]);
    assert_int_equal(w->kv_used, 0);
    close_world(w);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct world *w = &world;
    (void)state;
    open_world(w, &roomy);
    ask(w, json_pack("{s:i s:s s:o s:i}", "id", 1, "kind", "text", "ids",
                     prompt_of(3, PROMPT, w->golden.config.vocab), "max_tokens", POSITIONS));
    ask_text(w, 2, NULL);
    hear(w, 2);
    assert_non_null(strstr(w->refused, "both together may be 64 here"));
    assert_memory_equal(w->ids[2], alone[2], sizeof alone[2]);
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_tokens),
        cmocka_unit_test(among_others_they_are_the_same),
        cmocka_unit_test(prompts_in_pieces_have_the_same_tokens),
        cmocka_unit_test(in_a_small_pool_they_are_computed_again),
        cmocka_unit_test(a_prompt_that_was_there_is_not_computed),
        cmocka_unit_test(after_a_loss_an_answer_goes_on),
        cmocka_unit_test(guesses_change_nothing),
        cmocka_unit_test(a_prompt_has_the_scores_that_it_has_alone),
        cmocka_unit_test(one_token_has_nothing_to_score),
        cmocka_unit_test(a_draft_model_changes_nothing),
        cmocka_unit_test(a_draft_model_chooses_as_the_model_would),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(an_embedding_is_the_same_in_pieces),
        cmocka_unit_test(what_is_cancelled_gives_its_blocks),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, make_drafts, remove_drafts);
}
