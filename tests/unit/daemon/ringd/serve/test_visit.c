/* SPDX-License-Identifier: MIT
 *
 * What is counted of requests for a model, and how many lines of the journal they may take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/serve/serve_metrics.h"
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

static void a_time_is_in_one_bucket_and_in_the_sum(void **state)
{
    static const uint64_t times_us[] = {0, 1000, 1001, 99999999, 100000001};
    struct latencies l = {0};
    uint64_t in_buckets = 0;
    (void)state;
    for (size_t i = 0; i < sizeof times_us / sizeof *times_us; i++)
        latencies_add(&l, times_us[i]);
    for (size_t i = 0; i < LATENCY_ENDS; i++)
        in_buckets += l.bucket[i];
    assert_int_equal(l.n, 5);
    assert_int_equal(in_buckets, 4); /* the last is longer than every end */
    assert_int_equal(l.bucket[0], 2);
    assert_int_equal(l.bucket[1], 1);
    assert_int_equal(l.bucket[LATENCY_ENDS - 1], 1);
    assert_true(l.sum > 200.002 && l.sum < 200.003);
}

static void a_call_ends_in_one_of_four_ways(void **state)
{
    static const unsigned statuses[] = {200, 499, 400, 429, 503, 529, 500};
    struct serve_metrics m = {0};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        serve_metrics_call(&m, statuses[i], 1000);
    assert_int_equal(m.calls[CALL_ANSWERED], 1);
    assert_int_equal(m.calls[CALL_LEFT], 1);
    assert_int_equal(m.calls[CALL_REFUSED], 2);
    assert_int_equal(m.calls[CALL_FAILED], 3);
    assert_int_equal(m.whole.n, 1); /* the time of an answer, not of a refusal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_in_a_hurry_does_not_fill_the_journal),
        cmocka_unit_test(a_time_is_in_one_bucket_and_in_the_sum),
        cmocka_unit_test(a_call_ends_in_one_of_four_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
