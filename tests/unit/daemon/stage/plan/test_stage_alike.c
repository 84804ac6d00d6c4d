/* SPDX-License-Identifier: MIT
 *
 * Nodes whose CPUs round in unlike ways: a pipeline has any of them, ranks that train the same
 * values only those that round alike, and a refusal names them and the way out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"
#include "tests/unit/daemon/stage/plan/planning.h"

struct world {
    struct planning planning;
    struct temp_dir cache;
};

static int start(void **state)
{
    static struct world w;
    w.cache = temp_dir_new();
    setenv("CACHE_DIRECTORY", w.cache.path, 1);
    *state = &w;
    return planning_open(&w.planning);
}

static int stop(void **state)
{
    struct world *w = *state;
    planning_close(&w->planning);
    temp_dir_free(&w->cache);
    return 0;
}

/* n0, n1, … with these kernels, up to NULL. */
static json_t *nodes_with(const char *const *kernels)
{
    json_t *nodes = json_array();
    for (size_t i = 0; kernels[i]; i++)
        json_array_append_new(nodes, json_pack("{s:o s:s s:i s:i}", "name", json_sprintf("n%zu", i),
                                               "kernels", kernels[i], "speed", 1, "mbps", 1000));
    return nodes;
}

static int plan(struct world *w, enum job_type type, json_t *spec, const char *const *kernels,
                struct err *err)
{
    json_t *nodes = nodes_with(kernels);
    planning_close(&w->planning);
    assert_int_equal(planning_open(&w->planning), 0);
    const int e = head_plan(&w->planning.head, type, spec, nodes, err);
    json_decref(nodes);
    json_decref(spec);
    return e;
}

static json_t *training(const struct world *w, const char *parallel)
{
    const struct data_path model = data_path("models/llama"), data = data_path("datasets/tables");
    return json_pack("{s:s s:s s:s s:s s:s s:b s:i s:i s:i s:i}", "model", model.text, "data", data.text,
                     "adapter_out", w->cache.path, "schedule", "1f1b", "parallel", parallel, "dry_run", 1,
                     "iters", 1, "batch_size", 4, "seq_len", 64, "seed", 1);
}

static json_t *with(json_t *spec, const char *key, json_t *value)
{
    json_object_set_new(spec, key, value);
    return spec;
}

static void must_plan(struct world *w, enum job_type type, json_t *spec, const char *const *kernels)
{
    struct err err = {""};
    if (plan(w, type, spec, kernels, &err))
        fail_msg("%s", err.text);
}

static void must_refuse(struct world *w, json_t *spec, const char *const *kernels, const char *words)
{
    struct err err = {""};
    assert_int_equal(plan(w, JOB_TRAIN, spec, kernels, &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("%s", err.text);
}

/* Whether the head has said that; what it said is gone then. */
static bool was_said(struct world *w, const char *words)
{
    char event[4096];
    bool was = false;
    for (ssize_t n; (n = recv(w->planning.sock[1], event, sizeof event, MSG_DONTWAIT)) > 0;)
        was = was || memmem(event, (size_t)n, words, strlen(words)); /* behind the frame's length */
    return was;
}

static const char *const two[] = {"avx2", "neon", NULL}, *const old[] = {"avx2", "base", NULL},
                         *const three[] = {"avx2", "neon", "avx2", NULL},
                         *const same[] = {"avx2", "avx2", NULL};

static void a_pipeline_has_any_nodes_and_says_so(void **state)
{
    struct world *w = *state;
    must_plan(w, JOB_TRAIN, training(w, "pp=2"), two);
    assert_true(was_said(w, "round in unlike ways (n0 with avx2, n1 with neon)"));
    assert_string_equal(w->planning.head.planning.kernels, "avx2+neon");
    must_plan(w, JOB_TRAIN, training(w, "pp=2"), same);
    assert_false(was_said(w, "round in unlike ways"));
    assert_string_equal(w->planning.head.planning.kernels, "avx2");
}

/* Products in bf16 have other bits with AMX; nothing else has. */
static void amx_counts_in_bf16_alone(void **state)
{
    struct world *w = *state;
    static const char *const nodes[] = {"avx512/amx", "avx512", NULL};
    must_plan(w, JOB_TRAIN, training(w, "pp=2"), nodes);
    assert_false(was_said(w, "round in unlike ways"));
    assert_string_equal(w->planning.head.planning.kernels, "avx512");
    must_plan(w, JOB_TRAIN, with(training(w, "pp=2"), "compute", json_string("bf16")), nodes);
    assert_true(was_said(w, "round in unlike ways (n0 with avx512/amx, n1 with avx512)"));
    must_refuse(w, with(training(w, "tp=2"), "compute", json_string("bf16")), nodes, "and 1 takes part");
    must_plan(w, JOB_TRAIN, with(training(w, "dp=2,pp=1"), "compute", json_string("bf16")), nodes);
    assert_int_equal(w->planning.head.plan.replicas, 2);
}

static void replicas_need_the_same_updates(void **state)
{
    struct world *w = *state;
    must_plan(w, JOB_TRAIN, training(w, "dp=2,pp=1"), two);
    assert_int_equal(w->planning.head.plan.replicas, 2);
    must_refuse(w, training(w, "dp=2,pp=1"), old,
                "must round alike, and these do not: n0 with avx2, n1 with base. With --parallel pp=N they");
    must_refuse(w, with(training(w, "dp=2"), "lora_init", json_string("pissa")), two, "n1 with neon");
    must_refuse(w, with(training(w, "dp=2,pp=1"), "fine_tune_type", json_string("full")), old,
                "With --zero 1, or with --parallel pp=N, they need not");
    json_t *spec = with(training(w, "dp=2,pp=1"), "fine_tune_type", json_string("full"));
    must_plan(w, JOB_TRAIN, with(spec, "zero", json_integer(1)), old);
    assert_int_equal(w->planning.head.plan.replicas, 2);
    must_refuse(w, training(w, "pp=1+2"), (const char *const[]){"base", "neon", "base", NULL},
                "n1 with neon");
}

static void slices_that_train_need_the_same_kernels(void **state)
{
    struct world *w = *state;
    const struct data_path model = data_path("models/llama");
    must_refuse(w, training(w, "tp=2"), two, "and 1 takes part");
    must_plan(w, JOB_TRAIN, training(w, "tp=2"), three);
    assert_int_equal(w->planning.head.planning.chosen, 5); /* without n1 */
    must_plan(
        w, JOB_GENERATE,
        json_pack("{s:s s:[i] s:i s:s}", "model", model.text, "ids", 1, "max_tokens", 2, "parallel", "tp=2"),
        two);
    assert_int_equal(w->planning.head.plan.slices, 2);
}

/* A job that goes on does so with the nodes there are. */
static void a_job_that_goes_on_does_without(void **state)
{
    struct world *w = *state;
    json_t *said = json_pack("{s:i}", "step", 0);
    must_plan(w, JOB_TRAIN, with(training(w, "tp=2"), "said", json_incref(said)), two);
    assert_int_equal(w->planning.head.plan.slices, 0);
    assert_int_equal(w->planning.head.plan.ranks, 2);
    must_plan(w, JOB_TRAIN, with(training(w, "dp=2"), "said", said), old);
    assert_int_equal(w->planning.head.plan.replicas, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pipeline_has_any_nodes_and_says_so, start, stop),
        cmocka_unit_test_setup_teardown(amx_counts_in_bf16_alone, start, stop),
        cmocka_unit_test_setup_teardown(replicas_need_the_same_updates, start, stop),
        cmocka_unit_test_setup_teardown(slices_that_train_need_the_same_kernels, start, stop),
        cmocka_unit_test_setup_teardown(a_job_that_goes_on_does_without, start, stop),
    };
    return cmocka_run_group_tests_name("stage_alike", tests, NULL, NULL);
}
