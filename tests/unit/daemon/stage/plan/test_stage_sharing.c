/* SPDX-License-Identifier: MIT
 *
 * What --parallel auto counts of nodes that share stages, before it knows whether any will. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_sharing.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"
#include "tests/unit/daemon/stage/plan/planning.h"

/* A job of two nodes, none of which shares anything yet. */
static void plan_pair(struct planning *p, const char *out)
{
    const struct data_path model = data_path("models/llama"), data = data_path("datasets/tables");
    struct err err = {""};
    json_t *spec = json_pack("{s:s s:s s:s s:s s:b s:i s:i s:i s:i}", "model", model.text, "data", data.text,
                             "adapter_out", out, "fine_tune_type", "full", "dry_run", 1, "iters", 1,
                             "batch_size", 4, "seq_len", 64, "seed", 1),
           *nodes = json_pack("[{s:s s:i s:i}, {s:s s:i s:i}]", "name", "a", "speed", 1, "mbps", 1000, "name",
                              "b", "speed", 1, "mbps", 1000);
    assert_int_equal(planning_open(p), 0);
    if (head_plan(&p->head, JOB_TRAIN, spec, nodes, &err))
        fail_msg("%s", err.text);
    json_decref(nodes);
    json_decref(spec);
}

/* So replicas of stages that two share are not counted as sending what no slice sends. */
static void a_slice_sends_only_its_own_gradients(void **state)
{
    (void)state;
    static struct planning planning;
    static struct search whole;
    struct temp_dir cache = temp_dir_new();
    struct err err = {""};
    setenv("CACHE_DIRECTORY", cache.path, 1);
    plan_pair(&planning, cache.path);
    if (search_init(&whole, &planning.head, false, &err))
        fail_msg("%s", err.text);
    struct sharing_table *sharing = sharing_new(&whole);
    assert_non_null(sharing);
    assert_non_null(sharing->ask.cut[2]);
    const size_t *half = sharing->ask.grads[2];
    for (size_t u = 1; u + 1 < whole.units; u++) {
        assert_true(half[u] >= whole.grads[u] / 2 && whole.grads[u] > 0);
        assert_true(half[u] < whole.grads[u]);
    }
    assert_int_equal(planning.head.plan.slices, 0);
    sharing_free(sharing);
    search_done(&whole);
    planning_close(&planning);
    temp_dir_free(&cache);
}

/* --- what W reads ----------------------------------------------------------------------------- */

/* As gqa.c, mlp.c and moe.c gather it, of two slices: in times, and widths of the inside. */
static void expect_weights(const struct config *c, enum tune_kind kind, const char *targets, double times,
                           double width)
{
    static struct job_plan plan;
    struct err err = {""};
    plan = (struct job_plan){.slices = 2, .tune = {.kind = kind, .rank = 4, .end_layer = c->layers}};
    if (kind == TUNE_LORA && tune_targets(&plan.tune, family_find(c->family), c, targets, &err))
        fail_msg("%s", err.text);
    const struct slice_trains t = slices_trains(&plan, c, 1, 10);
    assert_float_equal(t.weights.times, times, 0);
    assert_float_equal(t.weights.bytes, 10 * width / 2 * sizeof(float), 1e-6);
    assert_float_equal(slices_trains(&plan, c, 0, 10).weights.times, 0, 0);
    assert_float_equal(slices_trains(&plan, c, c->layers + 1, 10).weights.times, 0, 0);
}

/* Factors as well as whole matrices want what goes into an output or a down projection. */
static void gradients_want_the_inside_whole(void **state)
{
    (void)state;
    const struct config c = {.family = "llama",
                             .layers = 2,
                             .dim = 64,
                             .ffn = 200,
                             .vocab = 64,
                             .heads = 8,
                             .kv_heads = 4,
                             .head = 16};
    expect_weights(&c, TUNE_FULL, NULL, 2, 128 + 200);
    expect_weights(&c, TUNE_LORA, "all-linear", 2, 128 + 200);
    expect_weights(&c, TUNE_LORA, "o_proj", 1, 128);
    expect_weights(&c, TUNE_LORA, "down_proj,q_proj", 1, 200);
    expect_weights(&c, TUNE_LORA, "q_proj,v_proj,up_proj", 0, 0);

    const struct config sparse = {.family = "minimax_m2",
                                  .layers = 2,
                                  .dim = 64,
                                  .vocab = 64,
                                  .heads = 8,
                                  .kv_heads = 4,
                                  .head = 16,
                                  .moe = {.experts = 4, .chosen = 2, .ffn = 100}};
    expect_weights(&sparse, TUNE_FULL, NULL, 1 + 4, 128 + 2 * 100);
    expect_weights(&sparse, TUNE_LORA, "w2", 4, 2 * 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_sends_only_its_own_gradients),
        cmocka_unit_test(gradients_want_the_inside_whole),
    };
    return cmocka_run_group_tests_name("stage_sharing", tests, NULL, NULL);
}
