/* SPDX-License-Identifier: MIT
 *
 * A model is shared out so that every layer lies in one stage, no node holds more than it has, and
 * what cannot be is refused in words that name the node or the mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/model/mapped.h"
#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_shared.h"

enum { LAYERS = 8, GIB = 1 << 30 };

static struct head head;

static bool generates;       /* the job does, in place of training */
static json_t *mapped_first; /* what stages of other jobs map on the first node; NULL: nothing */
static double slow_first;    /* what the first node is found to be slower of late; 0: nothing is known */

/* A training job on nodes n0, n1, … of these threads and bytes (0: the node does not say). */
static int split(size_t ranks, const double *threads, const size_t *memory, const char *schedule,
                 struct err *err)
{
    head.config = (struct config){.family = "llama",
                                  .layers = LAYERS,
                                  .dim = 256,
                                  .ffn = 512,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .head = 64,
                                  .vocab = 1000,
                                  .dtype = DTYPE_BF16};
    head.family = family_find(head.config.family);
    head.nadapters = 1;
    head.spec.schedule = schedule;
    head.spec.recompute = RECOMPUTE_NONE;
    job_plan_done(&head.plan);
    head.plan = (struct job_plan){.type = JOB_TRAIN,
                                  .ranks = ranks,
                                  .training = true,
                                  .round_steps = 1,
                                  .microbatches = 4,
                                  .tokens = 64,
                                  .positions = 64,
                                  .seqs = 1,
                                  .vocab = 1000,
                                  .dim = 256,
                                  .tune = {.kind = TUNE_FULL, .end_layer = LAYERS}};
    if (generates) {
        head.plan.type = JOB_GENERATE;
        head.plan.training = false;
        head.plan.kv = true;
        head.plan.tune.kind = TUNE_NONE;
    }
    snprintf(head.plan.schedule, sizeof head.plan.schedule, "%s", schedule);
    json_decref(head.planning.nodes);
    head.planning.nodes = json_array();
    for (size_t r = 0; r < ranks; r++) {
        char name[24];
        snprintf(name, sizeof name, "n%zu", r);
        json_array_append_new(head.planning.nodes, json_pack("{s:s s:f s:I}", "name", name, "speed",
                                                             threads[r], "memory", (json_int_t)memory[r]));
    }
    if (slow_first > 0)
        json_object_set_new(json_array_get(head.planning.nodes, 0), "slowness", json_real(slow_first));
    if (mapped_first)
        json_object_set(json_array_get(head.planning.nodes, 0), "mapped", mapped_first);
    return head_split(&head, err);
}

static int stop(void **state)
{
    (void)state;
    json_decref(head.planning.nodes);
    json_decref(head.planning.pace);
    json_decref(mapped_first);
    mapped_first = NULL;
    generates = false;
    job_plan_done(&head.plan);
    head = (struct head){0};
    return 0;
}

static void assert_covers(const struct job_plan *p, const size_t *memory)
{
    assert_int_equal(p->first[0], 0);
    assert_int_equal(p->first[p->stages], LAYERS);
    for (size_t s = 0; s < p->stages; s++) {
        assert_true(p->first[s] <= p->first[s + 1]);
        assert_true(p->place[s] < p->ranks);
    }
    for (size_t r = 0; r < p->ranks; r++)
        assert_true(p->bytes[r] > 0 && p->bytes[r] <= memory[r]);
}

static void every_layer_lies_in_one_stage(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"};
    const double threads[] = {4, 1, 2, 8};
    const size_t memory[] = {4ul * GIB, 4ul * GIB, 4ul * GIB, 4ul * GIB};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t ranks = 2; ranks <= 4; ranks++) {
            struct err err = {""};
            if (split(ranks, threads, memory, schedules[i], &err))
                fail_msg("%s on %zu nodes: %s", schedules[i], ranks, err.text);
            assert_covers(&head.plan, memory);
        }
}

static void more_threads_get_more_layers(void **state)
{
    (void)state;
    const double threads[] = {1, 3};
    const size_t memory[] = {4ul * GIB, 4ul * GIB};
    struct err err = {""};
    if (split(2, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    assert_true(head.plan.first[1] < LAYERS - head.plan.first[1]);
}

static double told(const char *list, size_t at)
{
    return json_number_value(json_array_get(json_object_get(head.planning.pace, list), at));
}

/* As if it had so many threads less; and what the layers were shared out by is told. */
static void a_slow_node_gets_fewer_layers(void **state)
{
    (void)state;
    const double threads[] = {2, 2};
    const size_t memory[] = {4ul * GIB, 4ul * GIB};
    struct err err = {""};
    slow_first = 3;
    if (split(2, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    slow_first = 0;
    assert_int_equal(head.plan.first[1], LAYERS / 4);
    assert_float_equal(told("speeds", 0), 2.0 / 3, 1e-9);
    assert_float_equal(told("speeds", 1), 2, 1e-9);
    assert_int_equal(json_array_size(json_object_get(head.planning.pace, "units")), LAYERS + 2);
    assert_true(told("units", 1) > 0);
    assert_float_equal(told("units", 1), told("units", LAYERS), 1e-9);
}

static void too_little_memory_names_the_node(void **state)
{
    (void)state;
    const double threads[] = {1, 1};
    const size_t memory[] = {1 << 20, 1 << 20};
    struct err err = {""};
    assert_int_equal(split(2, threads, memory, "1f1b", &err), -ENOSPC);
    assert_non_null(strstr(err.text, "node n0 needs "));
    assert_non_null(strstr(err.text, "in all the job needs "));
    assert_non_null(strstr(err.text, "add a node"));
}

/* The fast node gets most layers, until it has not the memory for them: then the slow one does. */
static void layers_move_to_where_memory_is(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"};
    const double threads[] = {8, 1};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t percent = 70; percent <= 90; percent += 5) {
            size_t memory[] = {4ul * GIB, 4ul * GIB}, held = 0;
            struct err err = {""};
            assert_int_equal(split(2, threads, memory, schedules[i], &err), 0);
            memory[0] = head.plan.bytes[0] / 100 * percent;
            for (size_t s = 0; s < head.plan.stages; s++)
                held += head.plan.place[s] == 0 ? head.plan.first[s + 1] - head.plan.first[s] : 0;
            if (split(2, threads, memory, schedules[i], &err))
                fail_msg("%s with %zu %%: %s", schedules[i], percent, err.text);
            assert_covers(&head.plan, memory);
            for (size_t s = 0; s < head.plan.stages; s++)
                held -= head.plan.place[s] == 0 ? head.plan.first[s + 1] - head.plan.first[s] : 0;
            assert_true(held > 0 && held < LAYERS);
        }
}

/* As a node tells it of its stage of job 4. */
static json_t *mapped_by_job_4(uint64_t key, int from, int end)
{
    char weights[MAPPED_KEY_TEXT];
    mapped_key_text(weights, key);
    return json_pack("[{s:i s:s s:[i,i]}]", "job", 4, "weights", weights, "units", from, end);
}

/* Of memory that does for half of the weights. */
static void weights_that_a_node_has_are_not_taken_again(void **state)
{
    (void)state;
    const double threads[] = {1, 1};
    size_t memory[] = {4ul * GIB, 4ul * GIB}, weights = 0;
    struct err err = {""};
    generates = true;
    assert_int_equal(split(2, threads, memory, "", &err), 0);
    const size_t layers = head.plan.first[1];
    const uint64_t key = head.planning.weights_key;
    for (size_t u = 0; u < head.plan.nmapped; u++)
        weights += job_plan_maps(&head.plan, 0, u) ? head.plan.mapped[u] : 0;
    assert_true(weights > 0 && weights < head.plan.bytes[0]);
    assert_null(stage_shared_show(&head));
    memory[0] = head.plan.bytes[0] - weights / 2;
    assert_int_equal(split(2, threads, memory, "", &err), 0);
    assert_true(head.plan.first[1] < layers);

    mapped_first = mapped_by_job_4(key, 0, LAYERS + 2);
    assert_int_equal(split(2, threads, memory, "", &err), 0);
    assert_int_equal(head.plan.first[1], layers);
    json_t *shown = stage_shared_show(&head),
           *wanted = json_pack("[{s:I,s:[i]},{s:i,s:[]}]", "bytes", (json_int_t)weights, "jobs", 4, "bytes",
                               0, "jobs");
    assert_true(json_equal(shown, wanted));
    json_decref(shown);
    json_decref(wanted);

    json_decref(mapped_first);
    mapped_first = mapped_by_job_4(key + 1, 0, LAYERS + 2); /* of another model */
    assert_int_equal(split(2, threads, memory, "", &err), 0);
    assert_true(head.plan.first[1] < layers);
    json_decref(mapped_first);
    mapped_first = mapped_by_job_4(key, LAYERS / 2 + 1, LAYERS + 2); /* what the other node has to do with */
    assert_int_equal(split(2, threads, memory, "", &err), 0);
    assert_true(head.plan.first[1] < layers);
}

static void what_is_lacking_is_what_is_not_there_yet(void **state)
{
    (void)state;
    const double threads[] = {1};
    size_t memory[] = {4ul * GIB};
    struct err err = {""};
    generates = true;
    assert_int_equal(split(1, threads, memory, "", &err), 0);
    const size_t all = head.plan.bytes[0];
    mapped_first = mapped_by_job_4(head.planning.weights_key, 1, LAYERS + 1);
    memory[0] = 1 << 20;
    assert_int_equal(split(1, threads, memory, "", &err), -ENOSPC);
    assert_int_equal(head.planning.lacks, all - stage_shared_rank(&head, 0) - memory[0]);
    assert_non_null(strstr(err.text, " for layers 0 to 7, beside "));
    assert_non_null(strstr(err.text, " that it shares with job 4, and has 1.0 MiB"));
}

/* The values of all weights are the process's own. */
static void what_is_trained_is_shared_with_nobody(void **state)
{
    (void)state;
    const double threads[] = {1};
    const size_t memory[] = {4ul * GIB};
    struct err err = {""};
    assert_int_equal(split(1, threads, memory, "1f1b", &err), 0);
    assert_int_equal(head.plan.nmapped, 0);
    assert_int_equal(head.planning.weights_key, 0);
}

static void a_split_of_ones_own_shares_out_all_layers(void **state)
{
    (void)state;
    const double threads[] = {1, 1};
    const size_t memory[] = {4ul * GIB, 4ul * GIB};
    struct err err = {""};
    json_t *too_few = json_pack("[i,i]", 2, 5), *of_three = json_pack("[i,i,i]", 2, 3, 3);
    head.spec.split = too_few;
    assert_int_equal(split(2, threads, memory, "1f1b", &err), -EINVAL);
    assert_string_equal(err.text, "the split covers 7 layers, but the model has 8");
    head.spec.split = of_three;
    assert_int_equal(split(2, threads, memory, "1f1b", &err), -EINVAL);
    assert_string_equal(err.text, "the split is for 3 stages, but 1f1b on 2 nodes has 2");
    json_decref(too_few);
    json_decref(of_three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_layer_lies_in_one_stage, stop),
        cmocka_unit_test_teardown(more_threads_get_more_layers, stop),
        cmocka_unit_test_teardown(a_slow_node_gets_fewer_layers, stop),
        cmocka_unit_test_teardown(too_little_memory_names_the_node, stop),
        cmocka_unit_test_teardown(layers_move_to_where_memory_is, stop),
        cmocka_unit_test_teardown(weights_that_a_node_has_are_not_taken_again, stop),
        cmocka_unit_test_teardown(what_is_lacking_is_what_is_not_there_yet, stop),
        cmocka_unit_test_teardown(what_is_trained_is_shared_with_nobody, stop),
        cmocka_unit_test_teardown(a_split_of_ones_own_shares_out_all_layers, stop),
    };
    return cmocka_run_group_tests_name("stage_split", tests, NULL, NULL);
}
