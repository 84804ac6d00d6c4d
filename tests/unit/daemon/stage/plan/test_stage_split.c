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
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/model/mapped.h"
#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_shared.h"

enum { LAYERS = 8, GIB = 1 << 30 };

static struct head head;

static bool generates;       /* the job does, in place of training */
static bool copies;          /* its ranks keep copies of what they train, if there is memory */
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
    head.spec.schedule = generates ? NULL : schedule;
    head.spec.recompute = RECOMPUTE_NONE;
    job_plan_done(&head.plan);
    head.plan = (struct job_plan){.type = JOB_TRAIN,
                                  .ranks = ranks,
                                  .training = true,
                                  .copies = copies,
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
    generates = copies = false;
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

/* A replica of faster nodes gets more of the groups, and each has all layers. */
static void replicas_share_out_groups(void **state)
{
    (void)state;
    const double threads[] = {6, 6, 2, 2};
    const size_t memory[] = {4ul * GIB, 4ul * GIB, 4ul * GIB, 4ul * GIB};
    struct err err = {""};
    head.spec.parallel = "dp=2";
    head.spec.replicas = 2;
    head.spec.grad_groups = 4;
    if (split(4, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    const struct job_plan *p = &head.plan;
    assert_int_equal(p->ranks, 4);
    assert_int_equal(p->stages, 2);
    assert_int_equal(p->groups, 4);
    assert_int_equal(p->share[0], 3);
    assert_int_equal(p->share[1], 1);
    assert_true(p->parts[0] >= 2 && p->parts[1] >= 2);
    assert_covers(p, memory);
    assert_true(p->slots[0] >= 2); /* those of the replica that has most in flight */
}

/* Of the embedding only the rows of words that a step has: all others are zeros, which stay
 * behind. And of slices only the rows that each makes gradients of. */
static void what_replicas_send(void **state)
{
    (void)state;
    const double threads[] = {1, 1};
    const size_t memory[] = {4ul * GIB, 4ul * GIB}, first[] = {0, LAYERS};
    struct err err = {""};
    head.spec.parallel = "dp=2";
    head.spec.replicas = 2;
    if (split(2, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    const struct config *c = &head.config;
    double values = 0;
    for (size_t u = 0; u < LAYERS + 2; u++)
        values += (double)tune_unit_elements(&head.plan.tune, head.family, c, u);
    const double table = (double)(c->vocab * c->dim), sums = table * 128 / 1000, back = table * 256 / 1000,
                 sent = replicas_sent_bytes(&head, first, 1, 0);
    assert_float_equal(sent, (2 * (values - table) + sums + back) * sizeof(float) / 2, 1);
    assert_float_equal(replicas_unit_bytes_sent(&head.plan, c, 0, 500), table / 2 * sizeof(float), 1);
    assert_float_equal(replicas_unit_bytes_sent(&head.plan, c, 0, 5000), table * sizeof(float), 1);
    head.plan.slices = 2;
    assert_true(replicas_sent_bytes(&head, first, 1, 0) < sent * 0.52);
}

static void too_few_for_all_replicas(void **state)
{
    (void)state;
    const double threads[] = {1, 1, 1};
    const size_t memory[] = {4ul * GIB, 4ul * GIB, 4ul * GIB};
    struct err err = {""};
    head.spec.parallel = "dp=3";
    head.spec.replicas = 3;
    head.spec.grad_groups = 2;
    assert_int_equal(split(3, threads, memory, "1f1b", &err), -EINVAL);
    assert_non_null(strstr(err.text, "raise --grad-groups"));
    head.spec.parallel = "dp=2,pp=2";
    head.spec.replicas = head.spec.places = 2;
    assert_int_equal(split(3, threads, memory, "1f1b", &err), -EINVAL);
    assert_non_null(
        strstr(err.text, "--parallel dp=2,pp=2 takes 4 nodes (2 replicas of 2), and 3 take part"));
    json_t *said = json_object();
    head.spec.said = said; /* it was interrupted: it goes on with what there is */
    head.spec.replicas = 3;
    head.spec.places = 0;
    assert_int_equal(split(2, threads, memory, "1f1b", &err), 0);
    assert_int_equal(head.plan.replicas, 2);
    assert_int_equal(head.plan.stages, 1);
    json_decref(said);
}

/* The node in the middle may have no layer, and has no room without one either. */
static void a_node_without_room_for_anything_is_named(void **state)
{
    (void)state;
    const double threads[] = {1, 1, 1};
    const size_t memory[] = {4ul * GIB, 1, 4ul * GIB};
    struct err err = {""};
    assert_int_equal(split(3, threads, memory, "1f1b", &err), -ENOSPC);
    assert_non_null(strstr(err.text, "node n1 needs"));
}

/* A replica of one node and one of three: the node in the middle may have no layer, and is named
 * where it has no room without one either. */
static void unlike_replicas_end_where_memory_does(void **state)
{
    (void)state;
    const double threads[] = {4, 1, 1, 1};
    size_t memory[] = {4ul * GIB, 4ul * GIB, 4ul * GIB, 4ul * GIB};
    struct err err = {""};
    head.spec.parallel = "pp=1+3";
    head.spec.replicas = 2;
    head.spec.unlike[0] = 1;
    head.spec.unlike[1] = 3;
    if (split(4, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    assert_true(head.plan.nothers > 0);
    memory[2] = head.plan.bytes[2] - 1;
    if (split(4, threads, memory, "1f1b", &err))
        fail_msg("%s", err.text);
    for (size_t r = 0; r < 4; r++)
        assert_true(head.plan.bytes[r] <= memory[r]);
    memory[2] = 1;
    assert_int_equal(split(4, threads, memory, "1f1b", &err), -ENOSPC);
    assert_non_null(strstr(err.text, "node n2 needs"));
}

/* The same, with a socket for what it says: of three nodes it takes two, the faster ones first. */
static int split_on_two(const size_t *memory, const char *schedule, struct err *err)
{
    const double threads[] = {1, 8, 1};
    struct stage_events events;
    int sock[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
    stage_events_init(&events, sock[0]);
    head.events = &events;
    const int e = split(3, threads, memory, schedule, err);
    head.events = NULL;
    stage_events_done(&events);
    close(sock[0]);
    close(sock[1]);
    return e;
}

/* Nodes without the memory are left for others, where the job has all that it asked for. */
static void a_try_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    const size_t memory[] = {4ul * GIB, 1 << 20, 4ul * GIB};
    struct err err = {""};
    head.spec.parallel = "pp=2";
    head.spec.places = 2;
    copies = true;
    if (split_on_two(memory, "1f1b", &err))
        fail_msg("%s", err.text);
    assert_int_equal(head.planning.chosen, 5);
    assert_int_equal(head.plan.ranks, 2);
    assert_true(head.plan.copies);
}

static void a_stage_is_shared_by_some_of_the_nodes(void **state)
{
    (void)state;
    const size_t memory[] = {4ul * GIB, 4ul * GIB, 4ul * GIB};
    struct err err = {""};
    head.spec.parallel = "tp=2";
    head.spec.slices = 2;
    generates = true;
    if (split_on_two(memory, "", &err))
        fail_msg("%s", err.text);
    const struct job_plan *p = &head.plan;
    assert_int_equal(p->ranks, 2);
    assert_int_equal(p->slices, 2);
    assert_int_equal(p->stages, 1);
    assert_string_equal(p->schedule, "");
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
        cmocka_unit_test_teardown(replicas_share_out_groups, stop),
        cmocka_unit_test_teardown(what_replicas_send, stop),
        cmocka_unit_test_teardown(too_few_for_all_replicas, stop),
        cmocka_unit_test_teardown(a_node_without_room_for_anything_is_named, stop),
        cmocka_unit_test_teardown(unlike_replicas_end_where_memory_does, stop),
        cmocka_unit_test_teardown(a_try_that_fails_leaves_nothing_behind, stop),
        cmocka_unit_test_teardown(a_stage_is_shared_by_some_of_the_nodes, stop),
    };
    return cmocka_run_group_tests_name("stage_split", tests, NULL, NULL);
}
