/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules against values worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/lr.h"

static void check(enum lr_kind kind, double base, size_t warmup, size_t total, size_t step, double want)
{
    double got = lr_at(kind, base, warmup, total, step);
    if (fabs(got - want) > 1e-15 + 1e-12 * fabs(want))
        fail_msg("kind %d, warmup %zu of %zu, step %zu: %.17g instead of %.17g", (int)kind, warmup, total,
                 step, got, want);
}

static void test_warmup(void **state)
{
    (void)state;
    for (enum lr_kind kind = LR_CONSTANT; kind <= LR_COSINE; kind++) {
        check(kind, 1e-3, 4, 10, 1, 0.25e-3);
        check(kind, 1e-3, 4, 10, 2, 0.50e-3);
        check(kind, 1e-3, 4, 10, 4, 1e-3);
        check(kind, 1e-3, 4, 10, 5, 1e-3); /* the lambda of 4: decay begins at full rate */
    }
}

static void test_constant(void **state)
{
    (void)state;
    check(LR_CONSTANT, 2e-4, 0, 5, 1, 2e-4);
    check(LR_CONSTANT, 2e-4, 0, 5, 5, 2e-4);
    check(LR_CONSTANT, 2e-4, 2, 5, 500, 2e-4);
}

static void test_linear(void **state)
{
    (void)state;
    check(LR_LINEAR, 1, 0, 5, 1, 1);
    check(LR_LINEAR, 1, 0, 5, 2, 0.8);
    check(LR_LINEAR, 1, 0, 5, 5, 0.2);
    check(LR_LINEAR, 1, 0, 5, 6, 0);
    check(LR_LINEAR, 1, 0, 5, 60, 0);
    check(LR_LINEAR, 1, 2, 6, 4, 0.75);
    check(LR_LINEAR, 1, 2, 6, 6, 0.25);
}

static void test_cosine(void **state)
{
    (void)state;
    check(LR_COSINE, 1, 0, 4, 1, 1);
    check(LR_COSINE, 1, 0, 4, 2, 0.85355339059327373);
    check(LR_COSINE, 1, 0, 4, 3, 0.5);
    check(LR_COSINE, 1, 0, 4, 4, 0.14644660940672627);
    check(LR_COSINE, 1, 0, 4, 5, 0);
    check(LR_COSINE, 1, 0, 4, 7, 0); /* it does not rise again */
    check(LR_COSINE, 3, 2, 8, 5, 2.25);
    check(LR_COSINE, 3, 2, 8, 6, 1.5);
}

/* Warm-up as long as the job, or longer, divides by nothing. */
static void test_degenerate(void **state)
{
    (void)state;
    check(LR_LINEAR, 1, 5, 5, 5, 1);
    check(LR_LINEAR, 1, 5, 5, 6, 1);
    check(LR_LINEAR, 1, 5, 5, 7, 0);
    check(LR_COSINE, 1, 9, 5, 5, 5.0 / 9);
    check(LR_LINEAR, 1, 0, 1, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup), cmocka_unit_test(test_constant),   cmocka_unit_test(test_linear),
        cmocka_unit_test(test_cosine), cmocka_unit_test(test_degenerate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
