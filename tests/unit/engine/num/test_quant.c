/* SPDX-License-Identifier: MIT
 *
 * Quantized weights: what quantizing loses at most, the layout against a packing written in
 * quantized.h, rows in f32 by the kernels of every width against one another, products against
 * f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/integer.h"
#include "num/kernels.h"
#include "num/quant.h"
#include "num/rng.h"
#include "tests/lib/isas.h"
#include "tests/lib/draw.h"
#include "tests/lib/quantized.h"

/* --- layout ----------------------------------------------------------------------------------- */

static void test_rows_mean_what_they_say(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 328 };
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    for (size_t i = 0; i < 18; i++) {
        struct packed p;
        float row[ROWS * COLS];
        pack(&p, ROWS, COLS, widths[i % 2], group_sizes[i / 2 % 3], sides[i / 6]);
        gemm_rows(num, row, p.w, 0, ROWS);
        for (size_t k = 0; k < ROWS * COLS; k++)
            assert_true(fabsf(row[k] - p.values[k]) <= 2e-7f * (fabsf(p.values[k]) + 128));
        gemm_rows(num, row, p.w, 3, 1);
        for (size_t k = 0; k < COLS; k++)
            assert_true(fabsf(row[k] - p.values[3 * COLS + k]) <=
                        2e-7f * (fabsf(p.values[3 * COLS + k]) + 128));
        unpack(&p);
    }
    num_free(num);
}

/* --- quantizing ------------------------------------------------------------------------------- */

static void check_round_trip(struct num *num, const float *x, size_t cols, size_t bits, size_t in_group)
{
    uint32_t words[64];
    float scale[8], bias[8], back[256];
    assert_true(cols <= 256 && quant_is_possible(bits, in_group, cols));
    assert_int_equal(quant_row(words, scale, bias, x, cols, bits, in_group), 0);
    const struct quant q = {scale, bias, DTYPE_F32, bits, in_group, QUANT_AFFINE, {0}};
    gemm_rows(num, back, (struct mat){.data = words, .rows = 1, .cols = cols, .quant = &q}, 0, 1);
    for (size_t i = 0; i < cols; i++) {
        const float *group = x + i / in_group * in_group;
        double low = (double)group[0], high = low;
        for (size_t k = 0; k < in_group && group + k < x + cols; k++) {
            low = fmin(low, (double)group[k]);
            high = fmax(high, (double)group[k]);
        }
        const double size = fmax(fabs(low), fabs(high)), s = (double)scale[i / in_group];
        const double off = fabs((double)back[i] - (double)x[i]), levels = (1u << bits) - 1;
        /* beyond the ends: what few bits may cut off, and half a last place of BF16 in the bias and
         * in every step of the scale */
        const double cut = (bits <= 4 ? 0.08 : 0) * (high - low) + size / 256 + (high - low) / 256;
        const bool is_inside = (double)x[i] >= (double)bias[i / in_group] &&
                               (double)x[i] <= (double)bias[i / in_group] + levels * s;
        if (!(off <= (is_inside ? 0.5 * s : cut) + 4e-7 * size + 1e-37))
            fail_msg("%zu bits: %g came back as %g, scale %g", bits, (double)x[i], (double)back[i], s);
        assert_true(s * levels <= (high - low + size / 256) * (1 + 1.0 / 256) + 1e-37);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    static const float spread[] = {1, 1e-4f, 1e4f, 1e-30f}, shift[] = {0, 3, -0.01f};
    for (size_t bits = 4; bits <= 8; bits += 4)
        for (size_t i = 0; i < 12; i++) {
            float *x = random_floats(256, "weights");
            for (size_t k = 0; k < 256; k++)
                x[k] = x[k] * spread[i % 4] + shift[i / 4];
            check_round_trip(num, x, 256 - i * 8, bits, QUANT_GROUP);
            for (size_t k = 0; k < 256; k++)
                x[k] = shift[i / 4] * spread[i % 4]; /* all alike; zeros too */
            check_round_trip(num, x, 192, bits, QUANT_GROUP);
            free(x);
        }
    num_free(num);
}

/* Every number of bits, in groups of every size. */
static void test_all_that_is_written(void **state)
{
    (void)state;
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    for (size_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1)
        for (size_t group = 32; group <= 128; group *= 2) {
            float *x = random_floats(256, "weights");
            check_round_trip(num, x, 256, bits, group);
            check_round_trip(num, x, 128, bits, group);
            free(x);
        }
    num_free(num);
}

static void test_what_cannot_be_quantized(void **state)
{
    (void)state;
    uint32_t words[16];
    float scale[1], bias[1], x[64] = {0};
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3.4e38f};
    for (size_t i = 0; i < 4; i++) {
        x[17] = bad[i];
        x[18] = -3e38f;
        assert_int_equal(quant_row(words, scale, bias, x, 64, 4, QUANT_GROUP), -EDOM);
    }
    assert_true(quant_is_possible(4, 64, 128) && quant_is_possible(8, 32, 80) &&
                quant_is_possible(4, 128, 128) && quant_is_possible(3, 64, 128));
    assert_false(quant_is_possible(4, 64, 100) || quant_is_possible(7, 64, 64) ||
                 quant_is_possible(6, 64, 72) || quant_is_possible(4, 16, 64) || quant_is_possible(8, 64, 0));
}

/* --- products --------------------------------------------------------------------------------- */

/* c[i, j] (+)= Σ_p a[i·ap + p] · b[p·bp + j·bj], with room for the rounding of levels that are
 * larger than what they stand for, and for that of a itself to a part `coarse` of its largest. */
static void check(const char *what, const float *got, const float *was, const float *a, size_t ap,
                  const float *b, size_t bp, size_t bj, size_t m, size_t n, size_t k, double coarse)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = was ? (double)was[i * n + j] : 0, size = fabs(sum), most = 0, square = 0;
            for (size_t p = 0; p < k; p++) {
                const double term = (double)a[i * ap + p] * (double)b[p * bp + j * bj];
                sum += term;
                size += fabs(term) + fabs((double)a[i * ap + p]);
                most = fmax(most, fabs((double)a[i * ap + p]));
                square += pow((double)b[p * bp + j * bj], 2);
            }
            const double room = 2.4e-7 * (2 + sqrt((double)k)) * size + 3 * coarse * most * sqrt(square);
            if (!(fabs((double)got[i * n + j] - sum) <= room))
                fail_msg("%s of %zu·%zu·%zu at [%zu, %zu]: %.9g, expected %.9g", what, m, n, k, i, j,
                         (double)got[i * n + j], sum);
        }
}

static void check_shape(struct num *num, size_t n, size_t rows, size_t cols, size_t bits, size_t group,
                        enum dtype side)
{
    struct packed p;
    const bool is_whole = n <= 16 && (bits == 4 || bits == 8);
    const double coarse = is_whole ? 1.0 / 65278 : 0; /* few rows of x become whole numbers of 16 bits */
    pack(&p, rows, cols, bits, group, side);
    float *x = random_floats(n * cols, "x"), *dy = random_floats(n * rows, "dy");
    float *y = random_floats(n * rows, "y"), *y0 = random_floats(n * rows, "y");
    float *dx = random_floats(n * cols, "dx"), *dx0 = random_floats(n * cols, "dx");
    gemm_xwt(num, y, x, p.w, n, true);
    check("x·Wᵀ added", y, y0, x, cols, p.values, 1, cols, n, rows, cols, coarse);
    gemm_xwt(num, y, x, p.w, n, false);
    check("x·Wᵀ", y, NULL, x, cols, p.values, 1, cols, n, rows, cols, coarse);
    gemm_xw(num, dx, dy, p.w, n, true);
    check("dy·W added", dx, dx0, dy, rows, p.values, cols, 1, n, cols, rows, 0);
    gemm_xw(num, dx, dy, p.w, n, false);
    check("dy·W", dx, NULL, dy, rows, p.values, cols, 1, n, cols, rows, 0);
    free(x), free(dy), free(y), free(y0), free(dx), free(dx0);
    unpack(&p);
}

static void test_shapes(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        /* n, rows, columns in groups; few rows of x and many; more groups than are converted at
         * once; wider than a panel */
        {1, 1, 1},    {1, 37, 3},  {2, 131, 5},   {3, 66, 2}, {12, 5, 7}, {13, 65, 3},
        {40, 129, 4}, {1, 70, 65}, {14, 3, 2049}, {16, 9, 1}, {17, 9, 1},
    };
    struct num *num[2] = {NULL, NULL};
    assert_int_equal(num_new(&num[0], 1, NULL), 0);
    assert_int_equal(num_new(&num[1], 2, NULL), 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < 6; v++) {
            const size_t group = group_sizes[v / 2];
            check_shape(num[(i + v) % 2], shapes[i][0], shapes[i][1], shapes[i][2] * group - i % 3 * 8,
                        widths[v % 2], group, sides[(i + v) % 3]);
        }
    num_free(num[0]);
    num_free(num[1]);
}

/* Those that become f32 before they are multiplied, whose groups are whole. */
static void test_other_widths(void **state)
{
    (void)state;
    enum { ROWS = 5, MOST = 6 * 128 };
    static const size_t others[] = {2, 3, 5, 6}, counts[] = {1, 3, 12, 17, 40};
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    for (size_t i = 0; i < 4 * 9; i++) {
        const size_t bits = others[i % 4], group = group_sizes[i / 4 % 3], cols = (1 + i % 6) * group;
        struct packed p;
        float row[ROWS * MOST];
        pack(&p, ROWS, cols, bits, group, sides[i / 12]);
        gemm_rows(num, row, p.w, 0, ROWS);
        for (size_t k = 0; k < ROWS * cols; k++)
            assert_true(fabsf(row[k] - p.values[k]) <= 2e-7f * (fabsf(p.values[k]) + 128));
        unpack(&p);
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            check_shape(num, counts[n], 70, cols, bits, group, sides[i / 12]);
    }
    num_free(num);
}

/* Every number of four bits with every scale: OCP Microscaling Formats v1.0, section 5. */
static void test_mxfp4(void **state)
{
    (void)state;
    enum { GROUP = 32, COLS = 256 * GROUP };
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    uint8_t words[COLS / 2], scale[COLS / GROUP];
    float *row = random_floats(COLS, "row");
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    for (size_t i = 0; i < COLS / 2; i++)
        words[i] = (uint8_t)(i % 8 * 2 | (i % 8 * 2 + 1) << 4);
    for (size_t g = 0; g < COLS / GROUP; g++)
        scale[g] = (uint8_t)g;
    const struct quant q = {scale, NULL, DTYPE_COUNT, 4, GROUP, QUANT_MXFP4, {0}};
    gemm_rows(num, row, (struct mat){.data = words, .rows = 1, .cols = COLS, .quant = &q}, 0, 1);
    for (size_t i = 0; i < COLS; i++) {
        const size_t code = i % 16, exponent = i / GROUP;
        const double want = ldexp(code & 8 ? -values[code & 7] : values[code & 7], (int)exponent - 127);
        if (exponent == 255)
            assert_true(isnan(row[i]));
        else if ((double)row[i] != (fabs(want) > (double)FLT_MAX ? copysign(INFINITY, want) : want))
            fail_msg("number %zu with scale %zu is %g, not %g", code, exponent, (double)row[i], want);
    }
    num_free(num);
    free(row);
}

/* Of safetensors and in GGUF's blocks the same numbers give the same bits: scales apart or before
 * them, numbers of a group in another order, every second row of W. */
static void test_mxfp4_as_blocks(void **state)
{
    (void)state;
    enum { GROUP = 32, COLS = 7 * GROUP, ROWS = 39, N = 3, STEP = 2 };
    static uint8_t words[STEP * ROWS][COLS / 2], scale[STEP * ROWS][COLS / GROUP],
        blocks[ROWS][COLS / GROUP][17];
    struct rng rng = rng_for(8, "mxfp4");
    float *x = random_floats(N * COLS, "x"), got[N * ROWS], want[N * ROWS];
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    for (size_t r = 0; r < STEP * ROWS; r++)
        for (size_t i = 0; i < COLS / 2; i++)
            words[r][i] = (uint8_t)rng_below(&rng, 256);
    for (size_t r = 0; r < STEP * ROWS; r++)
        for (size_t g = 0; g < COLS / GROUP; g++)
            scale[r][g] = (uint8_t)(120 + rng_below(&rng, 8));
    for (size_t r = 0; r < ROWS; r++)
        for (size_t g = 0; g < COLS / GROUP; g++) {
            blocks[r][g][0] = scale[STEP * r][g];
            for (size_t i = 0; i < GROUP; i++) {
                const unsigned code = words[STEP * r][(g * GROUP + i) / 2] >> i % 2 * 4 & 15;
                blocks[r][g][1 + i % 16] |= (uint8_t)(code << i / 16 * 4);
            }
        }
    const struct quant q = {scale, NULL, DTYPE_COUNT, 4, GROUP, QUANT_MXFP4, {0}};
    const struct mat w = {.data = words, .rows = ROWS, .cols = COLS, .quant = &q, .step = STEP},
                     b = {.data = blocks, .rows = ROWS, .cols = COLS, .block = BLOCK_MXFP4};
    for (size_t n = 1; n <= N; n += N - 1) {
        gemm_xwt(num, got, x, w, n, false);
        gemm_xwt(num, want, x, b, n, false);
        assert_memory_equal(got, want, n * ROWS * sizeof *got);
    }
    num_free(num);
    free(x);
}

/* Decoding one sequence or four gives the same bits, with one thread or three. */
static void test_few_rows_same_bits(void **state)
{
    (void)state;
    enum { ROWS = 301, COLS = 320 };
    struct num *one = NULL, *three = NULL;
    assert_int_equal(num_new(&one, 1, NULL), 0);
    assert_int_equal(num_new(&three, 3, NULL), 0);
    float *x = random_floats(16 * COLS, "x"), all[16 * ROWS], single[ROWS];
    for (size_t v = 0; v < 4; v++) {
        struct packed p;
        pack(&p, ROWS, COLS, widths[v % 2], group_sizes[v / 2], DTYPE_BF16);
        for (size_t n = 1; n <= 16; n += 5) {
            gemm_xwt(three, all, x, p.w, n, false);
            for (size_t i = 0; i < n; i++) {
                gemm_xwt(one, single, x + i * COLS, p.w, 1, false);
                assert_memory_equal(single, all + i * ROWS, sizeof single);
            }
        }
        unpack(&p);
    }
    free(x);
    num_free(one);
    num_free(three);
}

/* Kernels against those of plain C: rows in f32. */
static void test_rows_of_every_width(void **state)
{
    (void)state;
    const struct kernels *k[ISAS_MOST];
    const size_t all = isas_kernels(k);
    enum { MOST = 7 * 128 };
    for (size_t v = 0; v < 6; v++)
        for (size_t groups = 1; groups <= 7; groups++) {
            struct packed p;
            const size_t bits = widths[v % 2], group = group_sizes[v / 2],
                         cols = groups * group - groups % 4 * 8;
            float row[ISAS_MOST][MOST];
            pack(&p, 1, cols, bits, group, DTYPE_F32);
            for (size_t i = 0; i < all; i++)
                k[i]->quant_to_f32[bits](row[i], p.raw + 1, p.quant.scale, p.quant.bias, group, cols);
            for (size_t i = 1; i < all; i++)
                for (size_t c = 0; c < cols; c++)
                    assert_true(fabsf(row[0][c] - row[i][c]) <=
                                1e-5f); /* with and without a fused multiply-add */
            unpack(&p);
        }
}

/* What is not finite does not come out as a number. */
static void test_what_is_not_finite_stays_so(void **state)
{
    (void)state;
    enum { COLS = 192 };
    struct num *num = NULL;
    struct packed p;
    float x[COLS], y;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    for (size_t v = 0; v < 4; v++) {
        pack(&p, 1, COLS, widths[v % 2], group_sizes[v / 2], DTYPE_F32);
        for (size_t i = 0; i < COLS; i++)
            x[i] = i == 100 ? v % 2 ? NAN : -INFINITY : 1;
        gemm_xwt(num, &y, x, p.w, 1, false);
        assert_true(!isfinite(y));
        unpack(&p);
    }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_mean_what_they_say),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_all_that_is_written),
        cmocka_unit_test(test_what_cannot_be_quantized),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_other_widths),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_mxfp4_as_blocks),
        cmocka_unit_test(test_few_rows_same_bits),
        cmocka_unit_test(test_rows_of_every_width),
        cmocka_unit_test(test_what_is_not_finite_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
