/* SPDX-License-Identifier: MIT
 *
 * What --parallel auto counts of nodes that share stages, before it knows whether any will. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_sends_only_its_own_gradients),
    };
    return cmocka_run_group_tests_name("stage_sharing", tests, NULL, NULL);
}
