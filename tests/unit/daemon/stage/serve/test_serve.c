/* SPDX-License-Identifier: MIT
 *
 * A served model on one rank, with a real stage: whatever shares the microbatches and the pool with
 * a request, and however its prompt is cut, its tokens are those that it has alone. A pool that is
 * too small takes blocks back and computes them again. */
#include "tests/unit/daemon/stage/serve/serve_world.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/lib/tiny.h"

/* --- tests ------------------------------------------------------------------------------------ */

static uint32_t alone[ASKS + 1][MOST];

static const struct shape roomy = {64, 16, 64, 4, NULL, NULL, NULL};

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
        together(&(struct shape){64, 5, steps[i], 8, NULL, NULL, NULL}, false);
}

static void in_a_small_pool_they_are_computed_again(void **state)
{
    (void)state;
    /* Two fit with their prompts, and not with their answers: the younger one has the last block
     * when the older one needs it. */
    together(&(struct shape){7, 8, 16, 8, NULL, NULL, NULL}, true);
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

/* Texts that repeat themselves, whatever the model says: one token is nearly always chosen, now and
 * then another. Others are what the model says, and often the same again. */
static void ask_dull(struct world *w, size_t i)
{
    json_t *bias = json_object();
    char id[8];
    for (size_t k = 0; k < 2 && i % 2; k++) {
        snprintf(id, sizeof id, "%zu", 5 + i + k);
        json_object_set_new(bias, id, json_real(k ? 38 - (double)(i % 4) : 40));
    }
    ask(w, json_pack("{s:I s:s s:o s:i s:f s:i s:o s:f}", "id", (json_int_t)i, "kind", "text", "ids",
                     prompt_of(i, PROMPT - i, w->golden.config.vocab), "max_tokens", (int)(MOST - i % 3),
                     "temperature", i % 2 ? 0.9 : 0, "seed", (int)i, "logit_bias", bias, "presence_penalty",
                     i % 4 == 1 ? 0.1 : 0.0));
}

/* Linear layers have a state, and so have windows that are kept alone. */
static const char *const stateful[] = {"qwen3_5", "gemma3"};

static void guesses_change_nothing_of(const char *model)
{
    static const size_t drafts[] = {0, 1, 8, 31}, seqs[] = {16, 16, 16, 6};
    static uint32_t without[ASKS + 1][MOST];
    struct world *w = &world;
    json_int_t guessed = 0, right = 0;
    for (size_t k = 0; k < sizeof drafts / sizeof *drafts; k++) {
        open_world(w, &(struct shape){64, seqs[k], 16, drafts[k], NULL, model, NULL});
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

static void guesses_change_nothing(void **state)
{
    (void)state;
    guesses_change_nothing_of(NULL);
    for (size_t i = 0; i < sizeof stateful / sizeof *stateful; i++)
        guesses_change_nothing_of(stateful[i]);
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
    static const struct shape shapes[] = {{64, 16, 64, 4, NULL, NULL, NULL},
                                          {64, 16, 5, 4, NULL, NULL, NULL},
                                          {7, 8, 16, 8, NULL, NULL, NULL},
                                          {64, 1, 3, 0, NULL, NULL, NULL}};
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
    const struct shape shapes[] = {{64, 16, 64, 16, itself, NULL, NULL},
                                   {64, 16, 3, 5, itself, NULL, NULL},
                                   {64, 12, 16, 31, blurred, NULL, NULL},
                                   {64, 16, 64, 1, blurred, NULL, NULL}};
    json_int_t drafted = 0;
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        together(&shapes[i], false);
        drafted += world.drafted;
    }
    together(&(struct shape){7, 8, 16, 8, itself, NULL, NULL}, true);
    assert_true(drafted > 0);
}

/* The same chance chooses for both: what is its own draft model guesses right, though its answers
 * are random, and another one does not. */
static void a_draft_model_chooses_as_the_model_would(void **state)
{
    struct world *w = &world;
    (void)state;
    for (size_t i = 1; i <= ASKS; i++) {
        open_world(w, &(struct shape){64, 16, 64, 16, itself, NULL, NULL});
        ask_text(w, i, NULL);
        hear(w, 1);
        assert_memory_equal(w->ids[i], alone[i], sizeof alone[i]);
        assert_true(w->drafted > 0);
        assert_int_equal(w->drafted_right, w->drafted);
        close_world(w);
    }
    open_world(w, &(struct shape){64, 16, 64, 16, blurred, NULL, NULL});
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

/* Begins as request 1 does, for a block and a bit. */
static void ask_parting(struct world *w, size_t id, size_t tail)
{
    const size_t vocab = w->golden.config.vocab;
    json_t *ids = prompt_of(1, 20, vocab), *more = prompt_of(tail, 14, vocab);
    json_array_extend(ids, more);
    json_decref(more);
    ask(w, json_pack("{s:I s:s s:o s:i s:f s:i}", "id", (json_int_t)id, "kind", "text", "ids", ids,
                     "max_tokens", MOST, "temperature", 1.5, "seed", (int)id));
}

enum { FEW = 4, PARTING = 6 };

static void ask_alone(struct world *w, const char *model, uint32_t each[ASKS + 1][MOST])
{
    for (size_t i = 1; i <= ASKS; i++) {
        open_world(w, &(struct shape){64, 16, 64, 4, NULL, model, NULL});
        if (i < PARTING)
            ask_text(w, i, NULL);
        else
            ask_parting(w, i, 20 + i);
        hear(w, 1);
        memcpy(each[i], w->ids[i], sizeof each[i]);
        close_world(w);
    }
}

/* An answer begins with the state that an earlier one has kept, where there is one. A text is the
 * first to end where it parts from others; the next one begins there. */
static void check_kept(struct world *w, const char *model, uint32_t each[ASKS + 1][MOST])
{
    const size_t cached[] = {0, 0, 16};
    open_world(w, &(struct shape){64, 16, 16, 4, NULL, model, NULL});
    for (size_t i = 0; i < 2; i++) {
        w->n[1] = 0;
        ask_text(w, 1, NULL);
        hear(w, i + 1);
        assert_int_equal(w->cached, i ? 32 : 0);
        assert_memory_equal(w->ids[1], each[1], sizeof each[1]);
    }
    for (size_t i = 0; i < 2; i++) {
        ask_parting(w, PARTING + i, 20 + PARTING + i);
        hear(w, 3 + i);
        assert_int_equal(w->cached, cached[1 + i]);
        assert_memory_equal(w->ids[PARTING + i], each[PARTING + i], sizeof each[1]);
    }
    assert_int_equal(w->kv_used, 0);
    close_world(w);
}

/* Sequences that wait, are computed again or are guessed have the tokens that each has alone. */
static void states_change_nothing(void **state)
{
    static uint32_t each[ASKS + 1][MOST];
    struct world *w = &world;
    (void)state;
    for (size_t m = 0; m < sizeof stateful / sizeof *stateful; m++) {
        const struct data_path by = data_path("cases/%s/model", stateful[m]);
        ask_alone(w, stateful[m], each);
        check_kept(w, stateful[m], each);
        for (size_t tight = 0; tight < 2; tight++) {
            open_world(w, &(struct shape){tight ? 6 : 64, tight ? 8 : 16, tight ? 16 : 64, 8,
                                          tight ? NULL : by.text, stateful[m], NULL});
            for (size_t i = FEW; i; i--)
                ask_text(w, i, NULL);
            hear(w, FEW);
            for (size_t i = 1; i <= FEW; i++)
                assert_memory_equal(w->ids[i], each[i], sizeof each[i]);
            assert_true(tight ? w->preempted > 0 : w->drafted > 0 && w->drafted_right == w->drafted);
            close_world(w);
        }
    }
}

static void an_embedding_is_the_same_in_pieces(void **state)
{
    struct world *w = &world;
    double whole[2] = {0};
    (void)state;
    for (size_t step = 3; step <= 64; step += 61) {
        open_world(w, &(struct shape){64, 4, step, 0, NULL, NULL, NULL});
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

static void cancel(struct world *w, int id)
{
    ask_inbox_put(&w->head.asks, json_pack("{s:s s:i}", "do", "cancel", "id", id));
}

static void what_is_cancelled_gives_its_blocks(void **state)
{
    struct world *w = &world;
    (void)state;
    open_world(w, &roomy);
    ask_text(w, 1, NULL);
    cancel(w, 1);
    ask_text(w, 2, NULL);
    hear(w, 1);
    assert_int_equal(w->n[1], 0);
    assert_memory_equal(w->ids[2], alone[2], sizeof alone[2]);
    assert_int_equal(w->kv_used, 0);
    ask_text(w, 1, NULL);
    while (!w->n[1])
        hear_one(w);
    cancel(w, 1);
    w->n[2] = 0;
    ask_text(w, 2, NULL);
    while (w->n[2] < MOST)
        hear_one(w);
    hear(w, w->ended); /* that it ended comes before what is held then */
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
        cmocka_unit_test(states_change_nothing),
        cmocka_unit_test(an_embedding_is_the_same_in_pieces),
        cmocka_unit_test(what_is_cancelled_gives_its_blocks),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, make_drafts, remove_drafts);
}
