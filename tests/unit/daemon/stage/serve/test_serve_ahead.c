/* SPDX-License-Identifier: MIT
 *
 * Tokens that the served model's own layer guesses, behind its last one: they change nothing of an
 * answer, and what the layer gets is what it was trained on. */
#include "tests/unit/daemon/stage/serve/serve_world.h"

#include <errno.h>

#include "tests/lib/tiny.h"

/* Whatever the layer behind the last says, however a prompt is cut, also in a pool that is too
 * small, and behind a beginning that was there and is not given to it. */
static void a_layer_of_the_model_changes_nothing(void **state)
{
    static const char *const cases[] = {"deepseek_v3", "glm4_moe", "qwen3_next"};
    const struct shape shapes[] = {
        {64, 16, 64, 16, MTP, NULL, NULL}, {64, 16, 3, 1, MTP, NULL, NULL}, {7, 8, 16, 8, MTP, NULL, NULL}};
    static uint32_t each[ASKS + 1][MOST];
    struct world *w = &world;
    json_int_t drafted = 0;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        open_world(w, &(struct shape){64, 16, 64, 0, NULL, cases[k], NULL});
        for (size_t i = 1; i <= ASKS; i++)
            ask_text(w, i, NULL);
        hear(w, ASKS);
        memcpy(each, w->ids, sizeof each);
        close_world(w);
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            struct shape shape = shapes[j];
            shape.of = cases[k];
            open_world(w, &shape);
            for (size_t i = ASKS; i; i--)
                ask_text(w, i, NULL);
            hear(w, ASKS);
            assert_memory_equal(w->ids, each, sizeof each);
            drafted += w->drafted; /* where one guess does not pay, or there are no blocks, none */
            w->n[1] = 0;
            ask_text(w, 1, NULL);
            hear(w, ASKS + 1);
            assert_memory_equal(w->ids[1], each[1], sizeof each[1]);
            assert_int_equal(w->kv_used, 0);
            close_world(w);
        }
    }
    assert_true(drafted > 0);
}

/* Values of a model whose next token follows from the last one alone, and whose layer behind the
 * last says the same. */
static void put_plain(struct st_writer *w, const struct st *st, const struct st_tensor *t)
{
    struct err err;
    float *x = calloc(t->elements, sizeof *x);
    const struct st_tensor *norm = st_find(st, "model.norm.weight");
    assert_true(x && norm);
    if (strstr(t->name, "eh_proj"))
        for (size_t i = 0; i < t->shape[0]; i++)
            x[i * t->shape[1] + i] = 1;
    else if (strstr(t->name, "enorm"))
        for (size_t i = 0; i < t->elements; i++)
            x[i] = 1;
    else if (strstr(t->name, "shared_head.norm"))
        memcpy(x, norm->data, norm->elements * sizeof *x);
    else if (!strstr(t->name, "o_proj") && !strstr(t->name, "down_proj"))
        memcpy(x, t->data, t->elements * sizeof *x);
    must_do(st_writer_put(w, t->name, x, t->elements, &err), &err);
    free(x);
}

static void write_plain(const char *to, const char *from)
{
    enum { MOST_TENSORS = 1024 };
    static struct st_out_tensor list[MOST_TENSORS];
    struct st_writer *w;
    struct err err;
    struct st *st;
    char path[512];
    size_t n;
    must_do(st_open_dir(&st, from, NULL, NULL, &err), &err);
    const size_t count = st_count(st);
    assert_in_range(count, 1, MOST_TENSORS);
    for (size_t i = 0; i < count; i++) {
        const struct st_tensor *t = st_at(st, i);
        assert_int_equal(t->dtype, DTYPE_F32);
        list[i] = (struct st_out_tensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(list[i].shape, t->shape, sizeof t->shape);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    must_do(st_writer_open(&w, path, list, count, &err), &err);
    for (size_t i = 0; i < count; i++)
        put_plain(w, st, st_at(st, i));
    must_do(st_writer_finish(w, &err), &err);
    st_close(st);
    char *config = read_file(from, "config.json", &n);
    write_file(to, "config.json", config);
    free(config);
}

/* It is given what the model gave and the token behind, and its guesses stand where they belong. */
static void a_layer_that_knows_is_right(void **state)
{
    struct temp_dir made = temp_dir_new();
    struct world *w = &world;
    (void)state;
    write_plain(made.path, data_path("cases/glm4_moe/model").text);
    open_world(w, &(struct shape){64, 16, 16, 8, MTP, "glm4_moe", made.path});
    for (size_t i = 1; i <= ASKS; i++)
        ask_text(w, i, NULL);
    hear(w, ASKS);
    assert_true(w->drafted > 0 && w->drafted_right * 10 >= w->drafted * 9);
    close_world(w);
    temp_dir_free(&made);
}

static void a_model_without_such_a_layer_is_refused(void **state)
{
    static const char *const refusals[][2] = {
        {"qwen3_5", "has no layer that predicts a further token (mtp.fc"},
        {"qwen3_tied", "a model of the family qwen3 has no"}};
    struct world *w = &world;
    struct err err = {""};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct draft_model *draft = NULL;
        open_world(w, &(struct shape){64, 16, 64, 4, NULL, refusals[i][0], NULL});
        const struct draft_setup setup = {.dir = w->golden.model_dir.text,
                                          .plan = &w->head.plan,
                                          .served = &w->golden.config,
                                          .is_ahead = true};
        assert_int_equal(draft_model_read(&draft, &setup, &err), -ENOTSUP);
        assert_non_null(strstr(err.text, refusals[i][1]));
        close_world(w);
    }
    struct draft_model *draft = NULL;
    open_world(w, &(struct shape){64, 16, 64, 4, NULL, "deepseek_v3", NULL});
    struct config named = w->golden.config; /* as if another layer were the one behind the last */
    named.layers++;
    const struct draft_setup setup = {
        .dir = w->golden.model_dir.text, .plan = &w->head.plan, .served = &named, .is_ahead = true};
    assert_int_equal(draft_model_read(&draft, &setup, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "eh_proj.weight); leave out --draft-mtp"));
    close_world(w);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_of_the_model_changes_nothing),
        cmocka_unit_test(a_layer_that_knows_is_right),
        cmocka_unit_test(a_model_without_such_a_layer_is_refused),
    };
    return cmocka_run_group_tests_name("serve_ahead", tests, NULL, NULL);
}
