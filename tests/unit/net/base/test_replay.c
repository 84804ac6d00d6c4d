/* SPDX-License-Identifier: MIT
 *
 * The window of numbers heard: each counts once, in any order, and none that is too old to tell. A
 * plain list of all numbers is the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "net/base/replay.h"

enum { NUMBERS = 20000 };

static bool hear(struct replay *r, uint64_t number)
{
    const bool is_new = replay_is_new(r, number);
    if (is_new)
        replay_note(r, number);
    return is_new;
}

static void each_number_counts_once(void **state)
{
    struct replay r = {0};
    (void)state;
    assert_false(hear(&r, 0));
    for (uint64_t n = 1; n < 3000; n++) {
        assert_true(hear(&r, n));
        assert_false(hear(&r, n));
    }
    assert_false(hear(&r, 1));
}

static void a_number_may_come_late_within_the_window(void **state)
{
    struct replay r = {0};
    (void)state;
    assert_true(hear(&r, REPLAY_WINDOW + 5));
    assert_true(hear(&r, 6));
    assert_false(hear(&r, 5));
    assert_true(hear(&r, REPLAY_WINDOW + 4));
    assert_true(hear(&r, UINT64_MAX)); /* a long way ahead: everything before is too old */
    assert_false(hear(&r, REPLAY_WINDOW + 3));
    assert_false(hear(&r, UINT64_MAX));
    assert_true(hear(&r, UINT64_MAX - REPLAY_WINDOW + 1));
    assert_false(hear(&r, UINT64_MAX - REPLAY_WINDOW));
}

static void any_order_agrees_with_a_list(void **state)
{
    struct replay r = {0};
    static bool heard[NUMBERS + 1];
    uint64_t highest = 0;
    uint32_t seed = 12345;
    (void)state;
    for (size_t i = 0; i < 200000; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint64_t number = highest + 200 - seed % 1400;
        if (highest + 200 < seed % 1400 || number > NUMBERS)
            number = seed % NUMBERS + 1;
        const bool is_in = number > highest || (number && highest - number < REPLAY_WINDOW);
        assert_int_equal(hear(&r, number), is_in && !heard[number]);
        heard[number] |= is_in;
        highest = number > highest ? number : highest;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_counts_once),
        cmocka_unit_test(a_number_may_come_late_within_the_window),
        cmocka_unit_test(any_order_agrees_with_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
