/* SPDX-License-Identifier: MIT
 *
 * What a run decides from its numbers: which steps are applied, what is said of the others, when
 * evaluations end it; and that a run which goes on decides as the one before it would have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "daemon/stage/train/train_guard.h"

static struct head head_with(enum on_nan on_nan, size_t early_stop)
{
    struct head h = {.nadapters = 2, .steps = 100};
    h.spec.on_nan = on_nan;
    h.spec.early_stop = early_stop;
    h.spec.data = "/data/rows.jsonl";
    h.config.layers = 4;
    h.plan.ranks = 3;
    strcpy(h.adapters[1].name, "lr-1e-4");
    return h;
}

static void a_step_that_is_left_out_is_no_update(void **state)
{
    (void)state;
    const struct head h = head_with(ON_NAN_SKIP, 0);
    struct train_guard g;
    guard_init(&g, &h);
    assert_int_equal(guard_step(&g, 0, 1, 2.5, 1), GUARD_APPLY);
    assert_int_equal(guard_updates(&g, 0), 1);
    assert_int_equal(guard_step(&g, 0, 2, NAN, 1), GUARD_SKIP);
    assert_int_equal(guard_step(&g, 0, 3, 2.5, INFINITY), GUARD_SKIP);
    assert_int_equal(guard_step(&g, 0, 4, 2.5, 1), GUARD_APPLY);
    assert_int_equal(guard_updates(&g, 0), 2);
    assert_int_equal(g.of[0].done, 4);
    assert_int_equal(g.of[0].skipped, 2);
    assert_int_equal(g.of[1].done, 0); /* the other adapter's affair are its own steps */
}

static void a_step_that_stops_holds_back_those_behind_it(void **state)
{
    (void)state;
    const struct head h = head_with(ON_NAN_STOP, 0);
    struct train_guard g;
    guard_init(&g, &h);
    assert_int_equal(guard_step(&g, 0, 1, 2.5, 1), GUARD_APPLY);
    assert_int_equal(guard_step(&g, 0, 2, 2.5, NAN), GUARD_STOP);
    assert_int_equal(guard_step(&g, 0, 3, 2.5, 1), GUARD_STOP);
    assert_int_equal(g.of[0].done, 1);
    assert_int_equal(g.of[0].stopped, 2);
    assert_int_equal(guard_step(&g, 1, 2, 2.5, 1), GUARD_APPLY);
}

static void a_bad_step_is_named(void **state)
{
    (void)state;
    const struct head h = head_with(ON_NAN_STOP, 0);
    struct train_guard g;
    char text[500];
    json_t *one = json_pack("[i]", 7), *many = json_array();
    for (int i = 1; i <= 10; i++)
        json_array_append_new(many, json_integer(i));
    guard_init(&g, &h);
    struct bad_value bad = {BAD_OUTPUT, 3, 3, 1};
    guard_tell(text, sizeof text, &g, 0, 12, NAN, &bad, one);
    assert_string_equal(text, "the loss of step 12 is not finite, first in the output of layer 2, on rank 1, "
                              "with line 7 of /data/rows.jsonl");
    bad = (struct bad_value){BAD_GRADIENT, 0, 5, 2};
    guard_tell(text, sizeof text, &g, 1, 12, 2.5, &bad, many);
    assert_string_equal(text,
                        "the norm of the gradients of step 12 of lr-1e-4 is not finite, first in the "
                        "gradients of the head, on rank 2, with lines 1, 2, 3, 4, 5, 6, 7, 8 and 2 more "
                        "of /data/rows.jsonl");
    /* Another node's word that cannot be: nothing is made up of it. */
    static const struct bad_value wrong[] = {
        {BAD_OUTPUT, 0, 6, 0}, {BAD_OUTPUT, 0, 0, 3}, {BAD_NONE, 0, 0, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        guard_tell(text, sizeof text, &g, 0, 1, NAN, &wrong[i], one);
        assert_string_equal(text, "the loss of step 1 is not finite, with line 7 of /data/rows.jsonl");
    }
    json_decref(one);
    json_decref(many);
}

static void the_first_bad_value_is_the_one_computed_first(void **state)
{
    (void)state;
    static const struct bad_value in_order[] = {{BAD_OUTPUT, 0, 2, 0},   {BAD_OUTPUT, 0, 4, 1},
                                                {BAD_OUTPUT, 1, 1, 0},   {BAD_GRADIENT, 0, 4, 1},
                                                {BAD_GRADIENT, 0, 2, 0}, {BAD_NONE, 0, 0, 0}};
    const size_t n = sizeof in_order / sizeof *in_order;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            assert_int_equal(bad_value_is_before(&in_order[i], &in_order[k]), i < k);
}

static void evaluations_that_get_no_better_end_an_adapter(void **state)
{
    (void)state;
    const struct head h = head_with(ON_NAN_STOP, 2);
    struct train_guard g;
    guard_init(&g, &h);
    assert_true(guard_evaluated(&g, 0, 10, 3));
    assert_false(guard_evaluated(&g, 0, 20, 3)); /* no better is worse */
    assert_false(guard_is_over(&g, 0));
    assert_true(guard_evaluated(&g, 0, 30, 2));
    assert_false(guard_evaluated(&g, 0, 40, 2.5));
    assert_false(guard_evaluated(&g, 0, 40, 2.5)); /* made again: it counts once */
    assert_false(guard_is_over(&g, 0));
    assert_false(guard_evaluated(&g, 0, 50, 2.5));
    assert_true(guard_is_over(&g, 0));
    assert_true(guard_is_early(&g, 0));
    assert_int_equal(g.of[0].best_step, 30);
    assert_false(guard_is_over(&g, 1));
}

static void nothing_ends_early_unless_it_is_asked_for(void **state)
{
    (void)state;
    const struct head h = head_with(ON_NAN_STOP, 0);
    struct train_guard g;
    guard_init(&g, &h);
    for (uint64_t step = 1; step < 20; step++)
        assert_false(guard_evaluated(&g, 0, step, (double)step));
    assert_false(guard_is_over(&g, 0));
    g.of[0].done = 100;
    assert_true(guard_is_over(&g, 0));
    assert_false(guard_is_early(&g, 0));
}

/* Copies in memory were made after step 25: what was decided behind it does not count. */
static void a_run_that_goes_on_decides_the_same(void **state)
{
    (void)state;
    struct head h = head_with(ON_NAN_SKIP, 3);
    struct train_guard g, later;
    json_t *list = json_array();
    guard_init(&g, &h);
    for (uint64_t step = 1; step <= 30; step++) {
        guard_step(&g, 0, step, step == 4 || step == 27 ? NAN : 1, 1);
        if (step % 10 == 0)
            guard_evaluated(&g, 0, step, step == 10 ? 2 : 3);
        if (step == 4 || step == 27 || step % 10 == 0)
            json_array_append_new(
                list, json_pack("{s:I s:o}", "step", (json_int_t)step, "so_far", guard_encode(&g, 0)));
    }
    json_t *said = json_pack("{s:{s:o}}", "so-far", "", list);
    h.spec.said = said;
    h.adapters[0].first_step = 25;
    guard_init(&later, &h);
    assert_int_equal(later.of[0].done, 25);
    assert_int_equal(later.of[0].skipped, 1);
    assert_int_equal(guard_updates(&later, 0), 24);
    assert_int_equal(later.of[0].best_step, 10);
    assert_true(later.of[0].best == 2);
    assert_int_equal(later.of[0].worse, 1);
    assert_int_equal(later.of[0].evaluated, 20);
    assert_int_equal(later.of[1].done, 0);
    json_decref(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_is_left_out_is_no_update),
        cmocka_unit_test(a_step_that_stops_holds_back_those_behind_it),
        cmocka_unit_test(a_bad_step_is_named),
        cmocka_unit_test(the_first_bad_value_is_the_one_computed_first),
        cmocka_unit_test(evaluations_that_get_no_better_end_an_adapter),
        cmocka_unit_test(nothing_ends_early_unless_it_is_asked_for),
        cmocka_unit_test(a_run_that_goes_on_decides_the_same),
    };
    return cmocka_run_group_tests_name("train_guard", tests, NULL, NULL);
}
