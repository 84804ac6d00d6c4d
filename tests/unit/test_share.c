/* SPDX-License-Identifier: MIT
 *
 * Shares of a product: every output belongs to exactly one, in whole steps, and nobody has much more than the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <omp.h>
#include <string.h>

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

/* Takes by turns until nothing is left; says how many outputs each of the threads got. */
static void take_all(struct pile *p, size_t got[THREADS], uint8_t *seen)
{
    size_t empty = 0;
    memset(got, 0, THREADS * sizeof *got);
    memset(seen, 0, p->n);
    for (size_t i = 0; empty < p->threads; i++) {
        const struct share s = pile_take(p, i % p->threads);
        empty = s.n ? 0 : empty + 1;
        got[i % p->threads] += s.n;
        assert_true(s.n % p->step == 0 || s.from + s.n == p->n);
        for (size_t k = s.from; k < s.from + s.n; k++)
            assert_int_equal(seen[k]++, 0);
    }
    for (size_t k = 0; k < p->n; k++)
        assert_int_equal(seen[k], 1);
}

static void every_output_is_taken_once(void **state)
{
    (void)state;
    static uint8_t seen[128256];
    for (size_t i = 0; i < NUMBERS; i++)
        for (size_t j = 0; j < STEPS; j++)
            for (size_t threads = 1; threads <= THREADS; threads++) {
                struct pile p;
                size_t got[THREADS];
                pile_set(&p, numbers[i], steps[j], threads);
                take_all(&p, got, seen);
                pile_set(&p, numbers[i], steps[j], threads); /* and again */
                take_all(&p, got, seen);
                if (threads == 1)
                    continue;
                for (size_t t = 0; t < threads; t++)
                    assert_true(got[t] <= (numbers[i] * 3 / 4 / steps[j] + 1) * steps[j]);
            }
}

static void takes(struct pile *p, size_t thread, size_t from, size_t n)
{
    const struct share s = pile_take(p, thread);
    assert_int_equal(s.from, from);
    assert_int_equal(s.n, n);
}

/* Half of the own half first, so that half of all is never in one hand; and the same outputs as the last time. */
static void two_meet_in_the_middle(void **state)
{
    (void)state;
    struct pile p;
    pile_set(&p, 250, 16, 2); /* sixteen steps, the last one short */
    takes(&p, 1, 192, 58);
    takes(&p, 0, 0, 64);
    takes(&p, 0, 64, 32);
    takes(&p, 0, 96, 16);
    takes(&p, 1, 160, 32);
    takes(&p, 0, 112, 16);
    takes(&p, 1, 144, 16);
    takes(&p, 1, 128, 16);
    takes(&p, 0, 250, 0);
    takes(&p, 1, 250, 0);
}

/* The other thread is away: a quarter of what is left at a time, so that it finds something whenever it comes back. */
static void one_goes_on_alone(void **state)
{
    (void)state;
    struct pile p;
    pile_set(&p, 16, 1, 2);
    takes(&p, 0, 0, 4);
    takes(&p, 0, 4, 2);
    takes(&p, 0, 6, 1);
    takes(&p, 0, 7, 1);
    takes(&p, 0, 8, 2);
    takes(&p, 0, 10, 1);
    takes(&p, 1, 14, 2);
    takes(&p, 0, 11, 1);
}

static void threads_take_at_once(void **state)
{
    (void)state;
    static uint8_t seen[100000];
    struct pile p;
    pile_set(&p, sizeof seen, 1, 4);
    memset(seen, 0, sizeof seen);
#pragma omp parallel num_threads(4)
    for (struct share s; (s = pile_take(&p, (size_t)omp_get_thread_num())).n;)
        for (size_t k = s.from; k < s.from + s.n; k++)
            seen[k]++;
    for (size_t k = 0; k < sizeof seen; k++)
        assert_int_equal(seen[k], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_shares_follow_one_another), cmocka_unit_test(every_output_is_taken_once),
        cmocka_unit_test(two_meet_in_the_middle),         cmocka_unit_test(one_goes_on_alone),
        cmocka_unit_test(threads_take_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
