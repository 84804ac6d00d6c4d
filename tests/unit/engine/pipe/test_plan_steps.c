/* SPDX-License-Identifier: MIT
 *
 * Several steps in one program: where each ends, in which order that cannot be, and what is left of
 * the bubble. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/plan.h"

static struct sched *schedule(const char *name, size_t ranks, size_t microbatches)
{
    struct sched *sched = NULL;
    struct err err = {""};
    const struct sched_request req = {.name = name, .ranks = ranks, .microbatches = microbatches};
    if (sched_make(&sched, &req, &err))
        fail_msg("%s", err.text);
    return sched;
}

/* Steps of adapters that take turns. */
static int compile(struct plan **ret, const struct sched *sched, size_t adapters, size_t steps,
                   struct err *err)
{
    uint32_t adapter_of_step[64];
    assert_true(steps <= sizeof adapter_of_step / sizeof *adapter_of_step);
    for (size_t i = 0; i < steps; i++)
        adapter_of_step[i] = (uint32_t)(i % adapters);
    const struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = sched, .steps = steps, .adapter_of_step = adapter_of_step};
    return plan_compile(ret, &req, err);
}

/* "0F0 0 loss 0 0B0 0norm0", norm and update with the step. */
static void rank_is(const struct plan *plan, size_t rank, const char *wanted)
{
    char text[1000] = "";
    size_t used = 0;
    for (size_t k = 0; k < plan->rank[rank].n && used < sizeof text; k++) {
        const struct task *t = &plan->rank[rank].tasks[k];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u%s%u", k ? " " : "", t->stage,
                                 task_kind_name(t->kind), t->mb);
    }
    assert_string_equal(text, wanted);
}

static void steps_end_where_they_hold_nobody_up(void **state)
{
    (void)state;
    struct plan *plan = NULL;
    struct err err = {""};
    struct sched *sched = schedule("1f1b", 2, 4);
    assert_int_equal(compile(&plan, sched, 2, 4, &err), 0);
    assert_int_equal(plan->steps, 4);
    rank_is(
        plan, 0,
        "0F0 0F1 0loss0 0B0 0norm0 0update0 0F2 0loss1 0B1 0norm1 0update1 0F3 0loss2 0B2 0norm2 0loss3 0B3 "
        "0norm3 0update2 0update3");
    rank_is(
        plan, 1,
        "1F0 1B0 1norm0 1F1 1B1 1norm1 1update0 1F2 1B2 1norm2 1update1 1F3 1B3 1norm3 1update2 1update3");
    plan_free(plan);
    sched_free(sched);
}

static void a_step_does_not_begin_before_the_last_has_ended(void **state)
{
    (void)state;
    struct plan *plan = NULL;
    struct err err = {""};
    struct sched *sched = schedule("1f1b", 3, 4);
    assert_int_equal(compile(&plan, sched, 2, 4, &err), -EDEADLK); /* (k − 1) m < p − 1 */
    assert_non_null(strstr(err.text, "begins a step before its predecessor has ended"));
    assert_int_equal(compile(&plan, sched, 1, 4, &err), -EDEADLK);
    assert_int_equal(compile(&plan, sched, 4, 4, &err), 0); /* none follows another */
    plan_free(plan);
    assert_int_equal(compile(&plan, sched, 3, 3, &err), -EINVAL);
    assert_non_null(strstr(err.text, "4 microbatches cannot be those of 3 steps"));
    struct plan_request tied = {.program = PROGRAM_TRAIN, .sched = sched, .steps = 2, .tied = true};
    assert_int_equal(plan_compile(&plan, &tied, &err), -EINVAL);
    sched_free(sched);
    sched = schedule("gpipe", 3, 32);
    assert_int_equal(compile(&plan, sched, 2, 4, &err), -EDEADLK);
    sched_free(sched);
}

/* Four ranks, eight microbatches a step: 27.3 % of the time alone, less than 2 with another
 * adapter, in as many slots. */
static void another_adapter_fills_the_bubble(void **state)
{
    (void)state;
    const struct sched_costs costs = {.each = {1, 1, 1, 1, 0}};
    const size_t turns = steps_per_adapter(4, 2, 8);
    struct sched *alone = schedule("1f1b", 4, 8), *both = schedule("1f1b", 4, 8 * 2 * turns);
    struct sched_sim of_alone, of_both;
    struct plan *one = NULL, *two = NULL;
    struct err err = {""};
    assert_int_equal(sched_simulate(&of_alone, alone, &costs, &err), 0);
    assert_int_equal(sched_simulate(&of_both, both, &costs, &err), 0);
    assert_true(of_alone.bubble > 0.27 && of_alone.bubble < 0.28);
    assert_true(of_both.bubble < 0.01);
    assert_int_equal(compile(&one, alone, 1, 1, &err), 0);
    assert_int_equal(compile(&two, both, 2, 2 * turns, &err), 0);
    assert_memory_equal(one->slots, two->slots, 4 * sizeof *one->slots);
    assert_int_equal(one->rank[0].credits, two->rank[0].credits);
    plan_free(one);
    plan_free(two);
    sched_sim_done(&of_alone);
    sched_sim_done(&of_both);
    sched_free(alone);
    sched_free(both);
}

/* As many steps of each as follow each other in that order, and of those as many as are asked
 * for. */
static void orders_take_so_many_turns(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t microbatches, adapters, most, go;
    } cases[] = {{"1f1b", 8, 2, 19, 19},  {"1f1b", 8, 2, 5, 5}, {"gpipe", 8, 2, 19, 1}, {"1f1b", 2, 2, 19, 1},
                 {"1f1b", 2, 3, 19, 19},  {"1f1b", 8, 1, 2, 1}, {"zbv", 8, 2, 4, 4},    {"1f1b", 8, 2, 1, 1},
                 {"1f1b", 4096, 16, 4, 1} /* more than a plan has */};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sched_request step = {
            .name = cases[i].name, .ranks = 4, .microbatches = cases[i].microbatches};
        struct err err = {""};
        size_t go = 0;
        assert_int_equal(steps_per_adapter_go(&go, &step, cases[i].adapters, cases[i].most, &err), 0);
        assert_int_equal(go, cases[i].go);
    }
    struct err err = {""};
    size_t go = 7;
    assert_int_equal(steps_per_adapter_go(
                         &go,
                         &(struct sched_request){.name = "none", .ranks = 4, .chunks = 1, .microbatches = 1},
                         2, 2, &err),
                     -EINVAL);
    assert_int_equal(go, 7);
}

static void rounds_have_few_lengths(void **state)
{
    (void)state;
    assert_int_equal(steps_per_adapter(4, 1, 8), 1);
    assert_int_equal(steps_per_adapter(1, 4, 8), 1);
    assert_int_equal(steps_per_adapter(4, 2, 8), 19);
    assert_int_equal(steps_per_adapter(16, 2, 1), PLAN_MAX_TURNS);
    static const size_t wanted[] = {1, 2, 2, 4, 4, 4, 7, 7};
    for (size_t turns = 1; turns <= 8; turns++)
        assert_int_equal(steps_per_adapter_below(turns, 7), wanted[turns - 1]);
    assert_int_equal(steps_per_adapter_below(9, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_end_where_they_hold_nobody_up),
        cmocka_unit_test(a_step_does_not_begin_before_the_last_has_ended),
        cmocka_unit_test(another_adapter_fills_the_bubble),
        cmocka_unit_test(orders_take_so_many_turns),
        cmocka_unit_test(rounds_have_few_lengths),
    };
    return cmocka_run_group_tests_name("plan_steps", tests, NULL, NULL);
}
