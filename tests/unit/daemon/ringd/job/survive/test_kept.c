/* SPDX-License-Identifier: MIT
 *
 * When all ranks have answered for a step that goes to their disks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/kept.h"

static void the_last_answer_is_the_end(void **state)
{
    struct kept_step k = {0};
    (void)state;
    assert_false(kept_hear(&k, 1, 3, 5, true));
    assert_false(kept_hear(&k, 0, 3, 5, true));
    assert_false(kept_hear(&k, 1, 3, 5, true)); /* heard twice */
    assert_true(kept_hear(&k, 2, 3, 5, true));
    assert_true(kept_is_whole(&k));
    assert_false(kept_hear(&k, 2, 3, 5, true));
}

static void a_rank_that_could_not_is_an_answer(void **state)
{
    struct kept_step k = {0};
    (void)state;
    assert_false(kept_hear(&k, 1, 2, 5, false));
    assert_true(kept_hear(&k, 0, 2, 5, true));
    assert_false(kept_is_whole(&k));
    /* Of the next step all count again, and a late word of the one before does not. */
    assert_false(kept_hear(&k, 0, 2, 8, true));
    assert_false(kept_hear(&k, 1, 2, 5, true));
    assert_true(kept_hear(&k, 1, 2, 8, true));
    assert_true(kept_is_whole(&k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_answer_is_the_end),
        cmocka_unit_test(a_rank_that_could_not_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
