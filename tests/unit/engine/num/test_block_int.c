/* SPDX-License-Identifier: MIT
 *
 * Products of weights in blocks with few rows, in whole numbers: the bits of every table of
 * kernels, what the rounding of x may change, and rows in any company. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/integer.h"
#include "num/rng.h"
#include "tests/lib/isas.h"

enum { SPANS = 3, MOST_COLS = SPANS * INT_SPAN, N = 3 };

/* Rows of blocks of any bits whose scales are moderate numbers. */
static uint8_t *random_rows(enum block_type type, size_t rows, size_t cols)
{
    static const size_t scales[BLOCK_COUNT][2] = {
        [BLOCK_Q4_0] = {0},    [BLOCK_Q4_1] = {0, 2},     [BLOCK_Q5_0] = {0},        [BLOCK_Q5_1] = {0, 2},
        [BLOCK_Q8_0] = {0},    [BLOCK_Q2_K] = {80, 82},   [BLOCK_Q3_K] = {108, 108}, [BLOCK_Q4_K] = {0, 2},
        [BLOCK_Q5_K] = {0, 2}, [BLOCK_Q6_K] = {208, 208}, [BLOCK_IQ4_NL] = {0},      [BLOCK_IQ4_XS] = {0},
        [BLOCK_MXFP4] = {0}};
    const size_t each = block_bytes(type), bytes = rows * block_row_bytes(type, cols);
    uint8_t *ret = malloc(bytes);
    struct rng rng = rng_for(type, "blocks");
    assert_non_null(ret);
    for (size_t i = 0; i < bytes; i++)
        ret[i] = (uint8_t)rng_below(&rng, 256);
    for (size_t i = 0; i < bytes; i += each)
        if (type == BLOCK_MXFP4)
            ret[i] = (uint8_t)(i / each % 9 == 5 ? i / each % 2 : 120 + rng_below(&rng, 10));
        else
            for (size_t s = 0; s < 2; s++) /* halves from 2⁻⁷ to 2⁻³, of both signs */
                ret[i + scales[type][s] + 1] =
                    (uint8_t)((rng_below(&rng, 2) << 7) + 0x20 + rng_below(&rng, 16));
    return ret;
}

static float *random_floats(size_t n)
{
    struct rng rng = rng_for(4, "x");
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    rng_fill_normal(&rng, x, n, 0.1F, 1);
    return x;
}

/* What the numbers of x come to without being rounded, and by how much rounding may change it: each
 * by half of its group's scale, and sums as floats have them. */
static double exact_dot(const float *x, const float *w, size_t cols, enum block_type type, double *ret_bound)
{
    const size_t group = int_block_group(type);
    double sum = 0, bound = 0, all = 0;
    for (size_t at = 0; at < cols; at += group) {
        double most = 0, weights = 0;
        for (size_t i = at; i < at + group; i++) {
            most = fmax(most, fabs((double)x[i]));
            weights += fabs((double)w[i]);
            all += fabs((double)x[i] * (double)w[i]);
            sum += (double)x[i] * (double)w[i];
        }
        bound += most / (2 * INT_BLOCK_TOP) * 1.001 * weights;
    }
    *ret_bound = bound + 20 * FLT_EPSILON * all;
    return sum;
}

/* Room for x as a table has it. */
struct x_room {
    int8_t bytes[6 * MOST_COLS];
    float scale[MOST_COLS / 32], sum[MOST_COLS / 16];
};

static struct int_row row_of_x(struct x_room *room)
{
    return (struct int_row){.bytes = room->bytes, .scale = room->scale, .sum = room->sum};
}

static void run_table(const struct int_kernels *k, float *y, const float *x, const uint8_t *w,
                      enum block_type type, size_t cols, size_t rows)
{
    static struct x_room room[N];
    struct int_block_dots d = {.y = y,
                               .ldy = INT_ROWS,
                               .n = N,
                               .rows = rows,
                               .x = row_of_x(&room[0]),
                               .x_bytes = sizeof room[0],
                               .cols = cols,
                               .type = type};
    memset(room, 0xff, sizeof room);
    for (size_t i = 0; i < N; i++) {
        const struct int_row row = row_of_x(&room[i]);
        k->block_quantize(&row, x + i * cols, cols, type);
    }
    for (size_t r = 0; r < rows; r++) {
        d.w[r] = w + r * block_row_bytes(type, cols);
        d.to[r] = rows - 1 - r;
    }
    k->block_dots(&d);
    d.accumulate = true;
    for (size_t r = 0; r < rows; r++)
        y[(N - 1) * INT_ROWS + r] = 1;
    d.y = y + (N - 1) * INT_ROWS;
    d.x = row_of_x(&room[N - 1]);
    d.n = 1;
    k->block_dots(&d);
}

static void check_tables(enum block_type type, size_t cols, size_t rows)
{
    const struct int_kernels *k[ISAS_MOST];
    uint8_t *w = random_rows(type, rows, cols);
    float *x = random_floats(N * cols), *plain = malloc(cols * sizeof *plain),
          y[ISAS_MOST][N * INT_ROWS] = {0};
    x[cols / 2] *= 300; /* as activations do */
    memset(x + 16, 0, 16 * sizeof *x);
    const size_t all = isas_integers(k);
    for (size_t i = 0; i < all; i++) {
        run_table(k[i], y[i], x, w, type, cols, rows);
        if (memcmp(y[i], y[0], sizeof y[0]) != 0)
            fail_msg("%s, %zu rows of %zu: %s and %s give other bits", block_name(type), rows, cols,
                     k[i]->isa, k[0]->isa);
    }
    for (size_t r = 0; r < rows; r++) {
        block_to_f32(plain, w + r * block_row_bytes(type, cols), type, 0, cols);
        for (size_t i = 0; i < N; i++) {
            double bound;
            const double want = exact_dot(x + i * cols, plain, cols, type, &bound) + (i == N - 1),
                         got = (double)y[0][i * INT_ROWS + rows - 1 - r];
            if (!(fabs(got - want) <= bound))
                fail_msg("%s, %zu rows of %zu: %.9g, not %.9g within %.3g", block_name(type), rows, cols, got,
                         want, bound);
        }
    }
    free(x), free(w), free(plain);
}

static void tables_agree(void **state)
{
    (void)state;
    static const size_t columns[] = {32, 64, 224, 256, 288, 512, 768};
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            for (size_t rows = 1; rows <= INT_ROWS && columns[c] % block_values(type) == 0; rows++)
                check_tables(type, columns[c], rows);
}

/* --- through gemm ----------------------------------------------------------------------------- */

/* Any number of rows of W, in llama.cpp's order or not, by any number of threads, of x as many as
 * the panel holds and more: the bits of a row alone. */
static void rows_have_their_bits_in_any_company(void **state)
{
    (void)state;
    enum { COLS = 4096, MOST = 40 };
    static const size_t heights[] = {1, 3, 6, 32, 96, 98};
    float *x = random_floats(MOST * COLS), want[98], *y = malloc((size_t)MOST * 98 * sizeof *y);
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        for (size_t h = 0; h < sizeof heights / sizeof *heights; h++) {
            const size_t rows = heights[h], cols = h % 2 ? 512 : COLS;
            uint8_t *bytes = random_rows(type, rows, cols);
            const struct mat w = {
                .data = bytes, .rows = rows, .cols = cols, .block = type, .turn = rows % 32 ? 0 : 32};
            for (int threads = 1; threads <= 3; threads++) {
                struct num *num;
                assert_int_equal(num_new(&num, threads, NULL), 0);
                for (int invariant = 0; invariant < 2; invariant++) {
                    const size_t n = invariant ? MOST : 5;
                    num_set_invariant(num, invariant);
                    gemm_xwt(num, y, x, w, n, false);
                    for (size_t i = 0; i < n; i++) {
                        gemm_xwt(num, want, x + i * cols, w, 1, false);
                        if (memcmp(want, y + i * rows, rows * sizeof *y) != 0)
                            fail_msg("%s, %zu rows, %d threads: row %zu of %zu is not what it is alone",
                                     block_name(type), rows, threads, i, n);
                    }
                }
                num_free(num);
            }
            free(bytes);
        }
    free(x), free(y);
}

/* Several products at once, with the same x and with others, in all forms that x is kept in. */
static void products_together_are_those_alone(void **state)
{
    (void)state;
    enum { COLS = 1024, ROWS = 40, ROWS_OF_X = 2, ALL = BLOCK_COUNT };
    float *x = random_floats((ROWS_OF_X + 1) * COLS), y[ALL][ROWS_OF_X * ROWS], want[ROWS_OF_X * ROWS];
    struct gemm_xwt p[ALL];
    size_t n = 0;
    struct num *num;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    for (enum block_type type = 1; type < BLOCK_COUNT; type++, n++)
        p[n] = (struct gemm_xwt){
            y[n],
            x + (type % 5 == 0 ? COLS : 0),
            {.data = random_rows(type, ROWS, COLS), .rows = ROWS, .cols = COLS, .block = type},
            ROWS_OF_X,
            false};
    gemm_xwt_each(num, p, n);
    for (size_t i = 0; i < n; i++) {
        gemm_xwt(num, want, p[i].x, p[i].w, ROWS_OF_X, false);
        assert_memory_equal(y[i], want, sizeof want);
        free((void *)p[i].w.data);
    }
    free(x);
    num_free(num);
}

/* A number of x that is none is seen in its row, and in no other. */
static void what_is_not_finite_is_seen(void **state)
{
    (void)state;
    enum { COLS = 512, ROWS = 5 };
    const float strange[] = {NAN, INFINITY, -INFINITY};
    struct num *num;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        for (size_t s = 0; s < 3; s++) {
            float *x = random_floats(2 * COLS), y[2 * ROWS];
            uint8_t *bytes = random_rows(type, ROWS, COLS);
            const struct mat w = {.data = bytes, .rows = ROWS, .cols = COLS, .block = type};
            x[COLS + 37 * s] = strange[s];
            gemm_xwt(num, y, x, w, 2, false);
            for (size_t r = 0; r < ROWS; r++) {
                assert_true(isfinite(y[r]));
                assert_false(isfinite(y[ROWS + r]));
            }
            free(x), free(bytes);
        }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_agree),
        cmocka_unit_test(rows_have_their_bits_in_any_company),
        cmocka_unit_test(products_together_are_those_alone),
        cmocka_unit_test(what_is_not_finite_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
