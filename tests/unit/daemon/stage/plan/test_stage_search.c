/* SPDX-License-Identifier: MIT
 *
 * --schedule auto names a schedule that there is, shares out all layers, and says what a step will
 * take; where nothing may be timed, it is refused in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "daemon/common/model/mapped.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"
#include "tests/unit/daemon/stage/plan/planning.h"

struct search {
    struct planning planning;
    struct temp_dir cache;
};

static int start(void **state)
{
    static struct search s;
    s.cache = temp_dir_new();
    setenv("CACHE_DIRECTORY", s.cache.path, 1);
    *state = &s;
    return planning_open(&s.planning);
}

static int stop(void **state)
{
    struct search *s = *state;
    planning_close(&s->planning);
    temp_dir_free(&s->cache);
    return 0;
}

static json_t *spec_of(const char *out)
{
    const struct data_path model = data_path("models/llama"), data = data_path("datasets/tables");
    return json_pack("{s:s s:s s:s s:s s:b s:i s:i s:i s:i}", "model", model.text, "data", data.text,
                     "adapter_out", out, "schedule", "auto", "dry_run", 1, "iters", 1, "batch_size", 4,
                     "seq_len", 64, "seed", 1);
}

static int plan_spec(struct search *s, json_t *spec, size_t ranks, struct err *err)
{
    json_t *nodes = json_array();
    for (size_t r = 0; r < ranks; r++)
        json_array_append_new(nodes, json_pack("{s:s s:i s:i}", "name", "n", "speed", 1, "mbps", 1000));
    const int e = head_plan(&s->planning.head, JOB_TRAIN, spec, nodes, err);
    json_decref(nodes);
    json_decref(spec);
    return e;
}

static int plan(struct search *s, size_t ranks, struct err *err)
{
    return plan_spec(s, spec_of(s->cache.path), ranks, err);
}

static void auto_finds_a_schedule_for_all_layers(void **state)
{
    struct search *s = *state;
    struct err err = {""};
    if (plan(s, 2, &err))
        fail_msg("%s", err.text);
    const struct job_plan *plan = &s->planning.head.plan;
    assert_non_null(sched_info(plan->schedule));
    assert_int_equal(plan->first[0], 0);
    assert_int_equal(plan->first[plan->stages], s->planning.head.config.layers);
    for (size_t i = 0; i < plan->stages; i++)
        assert_true(plan->first[i] <= plan->first[i + 1]);
    const json_t *forecast = s->planning.head.planning.forecast;
    assert_string_equal(json_string_value(json_object_get(forecast, "schedule")), plan->schedule);
    assert_true(json_number_value(json_object_get(forecast, "seconds")) > 0);
    assert_int_equal(json_array_size(json_object_get(forecast, "costs")), plan->stages);
}

/* Nothing is kept of earlier timings in a cache that is new. */
static void auto_without_timing_is_refused(void **state)
{
    struct search *s = *state;
    struct err err = {""};
    s->planning.head.planning.must_not_time = true;
    assert_true(plan(s, 2, &err) < 0);
    assert_memory_equal(err.text, "--schedule auto: ", strlen("--schedule auto: "));
}

/* What the plan asks of the rank that holds most. */
static size_t most_bytes(const struct job_plan *plan)
{
    size_t most = 0;
    for (size_t r = 0; r < plan->ranks; r++)
        most = plan->bytes[r] > most ? plan->bytes[r] : most;
    return most;
}

static size_t bytes_for(struct search *s, const char *objective)
{
    struct err err = {""};
    json_t *spec = spec_of(s->cache.path);
    json_object_set_new(spec, "objective", json_string(objective));
    if (plan_spec(s, spec, 2, &err))
        fail_msg("%s", err.text);
    return most_bytes(&s->planning.head.plan);
}

static void memory_as_the_objective_takes_no_more_of_it(void **state)
{
    struct search *s = *state;
    const size_t fast = bytes_for(s, "time");
    planning_close(&s->planning);
    assert_int_equal(planning_open(&s->planning), 0);
    const size_t small = bytes_for(s, "memory");
    assert_true(small > 0);
    assert_true(small <= fast);
}

/* What was timed is multiplied; who plans next knows what that followed from. */
static void a_slow_node_gets_fewer_layers_than_it_had(void **state)
{
    struct search *s = *state;
    size_t layers[2];
    double first[2]; /* what the first layer costs */
    for (int slow = 0; slow < 2; slow++) {
        struct err err = {""};
        json_t *nodes = json_pack("[{s:s s:i s:i s:f}, {s:s s:i s:i s:f}]", "name", "a", "speed", 1, "mbps",
                                  1000, "slowness", slow ? 2.0 : 1.0, "name", "b", "speed", 1, "mbps", 1000,
                                  "slowness", slow ? 12.0 : 1.0);
        json_t *spec = spec_of(s->cache.path);
        /* Else a slow node may be given other microbatches, whose time is another. */
        json_object_set_new(spec, "microbatches", json_integer(4));
        if (head_plan(&s->planning.head, JOB_TRAIN, spec, nodes, &err))
            fail_msg("%s", err.text);
        json_decref(nodes);
        json_decref(spec);
        const struct head *h = &s->planning.head;
        const json_t *speeds = json_object_get(h->planning.pace, "speeds");
        assert_float_equal(json_number_value(json_array_get(speeds, 0)), 1, 1e-6);
        assert_float_equal(json_number_value(json_array_get(speeds, 1)), slow ? 1.0 / 6 : 1, 1e-6);
        first[slow] = json_number_value(json_array_get(json_object_get(h->planning.pace, "units"), 1));
        layers[slow] = 0;
        for (size_t i = 0; i < h->plan.stages; i++)
            layers[slow] += h->plan.place[i] == 1 ? h->plan.first[i + 1] - h->plan.first[i] : 0;
        planning_close(&s->planning);
        assert_int_equal(planning_open(&s->planning), 0);
    }
    assert_true(layers[1] < layers[0]);
    assert_float_equal(first[1], 2 * first[0], 1e-6 * first[0]);
}

/* Where the second node has all weights in memory, and the least memory is looked for. */
static void a_node_that_has_the_weights_gets_more_layers(void **state)
{
    struct search *s = *state;
    size_t layers[2] = {0};
    uint64_t key = 0;
    for (int there = 0; there < 2; there++) {
        struct err err = {""};
        char weights[MAPPED_KEY_TEXT];
        mapped_key_text(weights, key);
        json_t *spec = spec_of(s->cache.path),
               *nodes =
                   json_pack("[{s:s s:i s:i s:i}, {s:s s:i s:i s:i s:[{s:i s:s s:[i,i]}]}]", "name", "a",
                             "speed", 1, "mbps", 1000, "memory", 1 << 30, "name", "b", "speed", 1, "mbps",
                             1000, "memory", 1 << 30, "mapped", "job", 4, "weights", weights, "units", 0, 99);
        json_object_set_new(spec, "objective", json_string("memory"));
        if (head_plan(&s->planning.head, JOB_TRAIN, spec, nodes, &err))
            fail_msg("%s", err.text);
        json_decref(nodes);
        json_decref(spec);
        const struct head *h = &s->planning.head;
        key = h->planning.weights_key;
        for (size_t i = 0; i < h->plan.stages; i++)
            layers[there] += h->plan.place[i] == 1 ? h->plan.first[i + 1] - h->plan.first[i] : 0;
        planning_close(&s->planning);
        assert_int_equal(planning_open(&s->planning), 0);
    }
    assert_true(layers[1] > layers[0]);
}

/* Nodes of these slownesses, each with all of the memory or what is said of it. */
static void plan_any(struct search *s, const double *slowness, size_t n, json_int_t memory,
                     const char *schedule)
{
    json_t *nodes = json_array(), *spec = spec_of(s->cache.path);
    struct err err = {""};
    for (size_t i = 0; i < n; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%zu", i);
        json_array_append_new(nodes, json_pack("{s:s s:i s:i s:f s:I}", "name", name, "speed", 1, "mbps",
                                               1000, "slowness", slowness[i], "memory", memory));
    }
    json_object_set_new(spec, "parallel", json_string("auto"));
    if (schedule)
        json_object_set_new(spec, "schedule", json_string(schedule));
    else
        json_object_del(spec, "schedule");
    if (head_plan(&s->planning.head, JOB_TRAIN, spec, nodes, &err))
        fail_msg("%s", err.text);
    json_decref(nodes);
    json_decref(spec);
}

static void auto_takes_the_nodes_that_make_it_faster(void **state)
{
    struct search *s = *state;
    const struct head *h = &s->planning.head;
    static const double alike[] = {1, 1}, one_slow[] = {1, 1e4, 1};
    plan_any(s, alike, 2, 0, NULL);
    assert_int_equal(h->plan.ranks, 2);
    const json_t *choices = json_object_get(h->planning.forecast, "choices"),
                 *best = json_array_get(choices, 0);
    char is[40];
    snprintf(is, sizeof is, "dp=%zu,pp=%zu", job_plan_replicas(&h->plan), job_plan_places(&h->plan));
    assert_string_equal(json_string_value(json_object_get(best, "parallel")), is);
    assert_int_equal(json_array_size(choices), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(choices, i);
        assert_true(json_number_value(json_object_get(one, "seconds")) >=
                    0.99 * json_number_value(json_object_get(best, "seconds")));
        assert_true(*json_string_value(json_object_get(one, "why")));
    }
    planning_close(&s->planning);
    assert_int_equal(planning_open(&s->planning), 0);

    /* The node between is left out, and the order that was given stays. */
    plan_any(s, one_slow, 3, 0, "zb-h1");
    assert_int_equal(h->planning.chosen, 5);
    assert_string_equal(h->plan.schedule, "zb-h1");
    assert_int_equal(h->plan.microbatches, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(auto_finds_a_schedule_for_all_layers, start, stop),
        cmocka_unit_test_setup_teardown(auto_without_timing_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(memory_as_the_objective_takes_no_more_of_it, start, stop),
        cmocka_unit_test_setup_teardown(a_slow_node_gets_fewer_layers_than_it_had, start, stop),
        cmocka_unit_test_setup_teardown(a_node_that_has_the_weights_gets_more_layers, start, stop),
        cmocka_unit_test_setup_teardown(auto_takes_the_nodes_that_make_it_faster, start, stop),
    };
    return cmocka_run_group_tests_name("stage_search", tests, NULL, NULL);
}
