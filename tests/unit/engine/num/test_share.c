/* SPDX-License-Identifier: MIT
 *
 * Shares of a product: every output belongs to exactly one, in whole steps, and nobody has much
 * more than the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "num/share.h"

static const size_t numbers[] = {1, 2, 15, 16, 17, 100, 1000, 4096, 128256};
static const size_t steps[] = {1, 6, 16, 128};
enum { NUMBERS = sizeof numbers / sizeof *numbers, STEPS = sizeof steps / sizeof *steps, THREADS = 7 };

static size_t in_steps(size_t n, size_t step)
{
    return (n + step - 1) / step;
}

static void even_shares_follow_one_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUMBERS; i++)
        for (size_t j = 0; j < STEPS; j++)
            for (size_t threads = 1; threads <= THREADS; threads++) {
                const size_t fair = in_steps(numbers[i], steps[j]) / threads * steps[j];
                size_t at = 0;
                for (size_t t = 0; t < threads; t++) {
                    const struct share s = share_of(numbers[i], steps[j], threads, t);
                    assert_int_equal(s.from, at);
                    at += s.n;
                    assert_true(at % steps[j] == 0 || at == numbers[i]);
                    assert_true(s.n <= fair + steps[j] && s.n + steps[j] > fair);
                }
                assert_int_equal(at, numbers[i]);
            }
}

static void cut_shares_follow_one_another_and_end_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUMBERS; i++)
        for (size_t j = 0; j < STEPS; j++)
            for (size_t threads = 1; threads <= THREADS; threads++) {
                const struct cut cut = {numbers[i], steps[j], threads};
                const size_t n = share_count(&cut);
                size_t at = 0, before = numbers[i] + steps[j];
                for (size_t k = 0; k < n; k++) {
                    const struct share s = share_cut(&cut, k);
                    assert_int_equal(s.from, at);
                    assert_true(s.n > 0 && s.n <= before);
                    before = s.n;
                    at += s.n;
                }
                assert_int_equal(at, numbers[i]);
                assert_int_equal(share_cut(&cut, n).n, 0);
                if (threads == 1)
                    assert_int_equal(n, 1);
                else
                    assert_true(before <= steps[j]);
            }
}

/* The first shares are a quarter of all for two threads, so that half of them are never in one
 * hand. */
static void the_first_round_is_half_of_all(void **state)
{
    (void)state;
    const struct cut cut = {1024, 16, 2};
    static const size_t want[] = {256, 256, 128, 128, 64, 64, 32, 32, 16, 16, 16, 16};
    assert_int_equal(share_count(&cut), sizeof want / sizeof *want);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(share_cut(&cut, i).n, want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_shares_follow_one_another),
        cmocka_unit_test(cut_shares_follow_one_another_and_end_small),
        cmocka_unit_test(the_first_round_is_half_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
