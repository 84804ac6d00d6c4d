/* SPDX-License-Identifier: MIT
 *
 * How many lines of the journal requests for models may take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/serve/visit_lines.h"

static struct instant at_ms(int64_t ms)
{
    return (struct instant){.us = (1000000 + ms) * 1000};
}

static size_t take(struct visit_lines *lines, struct instant now, size_t n, uint64_t *ret_left_out)
{
    size_t taken = 0;
    uint64_t left_out;
    *ret_left_out = 0;
    while (n--)
        if (visit_lines_take(lines, now, &left_out)) {
            taken++;
            *ret_left_out += left_out;
        }
    return taken;
}

static void a_client_in_a_hurry_does_not_fill_the_journal(void **state)
{
    struct visit_lines lines = {0};
    uint64_t left_out;
    (void)state;
    assert_int_equal(take(&lines, at_ms(0), 5000, &left_out), 100);
    assert_int_equal(left_out, 0);
    assert_int_equal(take(&lines, at_ms(999), 1, &left_out), 0);
    assert_int_equal(take(&lines, at_ms(1000), 1, &left_out), 1);
    assert_int_equal(left_out, 4901); /* said once */
    assert_int_equal(take(&lines, at_ms(1001), 99, &left_out), 99);
    assert_int_equal(left_out, 0);
    assert_int_equal(take(&lines, at_ms(60000), 5000, &left_out), 100); /* nothing is saved up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_in_a_hurry_does_not_fill_the_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
