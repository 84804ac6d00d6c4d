/* SPDX-License-Identifier: MIT
 *
 * Rows of whole numbers of 8 bits: what rounding loses at most and how it breaks ties, groups that
 * are nothing or not finite, and that the kernels of every width read the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "num/dtype.h"
#include "num/kernels.h"
#include "num/rng.h"
#include "num/row8.h"
#include "tests/lib/isas.h"

enum { MOST = 147 };

static float scale_of(const uint8_t *row, size_t n, size_t group)
{
    float scale;
    dtype_to_f32(&scale, row + n + group * sizeof(uint16_t), DTYPE_BF16, 1);
    return scale;
}

static void draw(float *x, size_t n, uint64_t seed)
{
    struct rng rng = rng_for(seed, "row8");
    rng_fill_normal(&rng, x, n, 0, 3);
    for (size_t i = 0; i < n; i += 7)
        x[i] *= 50;
}

static void test_off_by_half_a_step_at_most(void **state)
{
    (void)state;
    for (size_t n = 1; n <= MOST; n++) {
        float x[MOST];
        uint8_t row[2 * MOST];
        draw(x, n, n);
        memset(row, 0xee, sizeof row);
        row8_from_f32(row, x, n);
        for (size_t i = 0; i < n; i++) {
            const float scale = scale_of(row, n, i / ROW8_GROUP);
            assert_true(fabsf((float)(int8_t)row[i] * scale - x[i]) <= 0.50001f * scale);
        }
        for (size_t i = row8_bytes(n); i < sizeof row; i++)
            assert_int_equal(row[i], 0xee);
    }
    assert_int_equal(row8_bytes(128), 128 + 4 * 2);
    assert_int_equal(row8_bytes(33), 33 + 2 * 2);
}

static void test_largest_is_127_and_ties_go_to_even(void **state)
{
    (void)state;
    const float x[] = {-127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 127, 0, -0.f};
    const int8_t want[] = {-127, 0, 2, 2, 0, -2, -2, 126, 127, 0, 0};
    enum { N = sizeof want };
    uint8_t row[N + 2];
    row8_from_f32(row, x, N);
    assert_true(scale_of(row, N, 0) == 1);
    assert_memory_equal(row, want, N);
}

/* 1e-30 and less have no scale; numbers up to the largest float have. */
static void test_ends_of_the_range(void **state)
{
    (void)state;
    float x[3 * ROW8_GROUP] = {1e-31f, -1e-31f};
    uint8_t row[3 * ROW8_GROUP + 6];
    const size_t n = sizeof x / sizeof *x;
    x[ROW8_GROUP] = -FLT_MAX;
    x[2 * ROW8_GROUP] = 2e-30f;
    row8_from_f32(row, x, n);
    assert_true(scale_of(row, n, 0) == 0);
    assert_int_equal(row[0], 0);
    assert_true(isfinite(scale_of(row, n, 1)));
    assert_int_equal((int8_t)row[ROW8_GROUP], -127);
    assert_int_equal((int8_t)row[2 * ROW8_GROUP], 127);
}

/* Nothing that is not finite becomes a number, and groups beside it stay as they are. */
static void test_what_is_not_finite_stays_so(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const struct kernels *tables[ISAS_MOST];
    const size_t all = isas_kernels(tables);
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        float x[2 * ROW8_GROUP], back[2 * ROW8_GROUP];
        uint8_t row[2 * ROW8_GROUP + 4];
        draw(x, 2 * ROW8_GROUP, b);
        x[5] = bad[b];
        row8_from_f32(row, x, 2 * ROW8_GROUP);
        for (size_t t = 0; t < all; t++) {
            tables[t]->row8_to_f32(back, row, 2 * ROW8_GROUP, 2 * ROW8_GROUP);
            for (size_t i = 0; i < 2 * ROW8_GROUP; i++)
                assert_true(isnan(back[i]) == (i < ROW8_GROUP));
        }
    }
}

static void test_all_kernels_read_the_same(void **state)
{
    (void)state;
    const struct kernels *tables[ISAS_MOST];
    const size_t all = isas_kernels(tables);
    float x[MOST], back[MOST + 1];
    uint8_t row[2 * MOST];
    draw(x, MOST, 1);
    for (size_t width = 1; width <= MOST; width++) {
        row8_from_f32(row, x, width);
        for (size_t n = 0; n <= width; n++)
            for (size_t t = 0; t < all; t++) {
                back[n] = 42;
                tables[t]->row8_to_f32(back, row, width, n);
                for (size_t i = 0; i < n; i++)
                    assert_true(back[i] == (float)(int8_t)row[i] * scale_of(row, width, i / ROW8_GROUP));
                assert_true(back[n] == 42);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_by_half_a_step_at_most),
        cmocka_unit_test(test_largest_is_127_and_ties_go_to_even),
        cmocka_unit_test(test_ends_of_the_range),
        cmocka_unit_test(test_what_is_not_finite_stays_so),
        cmocka_unit_test(test_all_kernels_read_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
