/* SPDX-License-Identifier: MIT
 *
 * Products of training in whole numbers of 8 bits: every table of tiles against plain loops, bit by
 * bit; the same bits whatever the rows and the threads; what is rounded at random is right in the
 * mean; and what is not finite is not lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/kernels.h"
#include "num/packed.h"
#include "num/rng.h"
#include "tests/lib/draw.h"
#include "tests/lib/isas.h"

/* The linker puts this choice in place of the CPU's. */
const struct packed_kernels *__real_isa_pick_packed_bytes(void);
const struct packed_kernels *__wrap_isa_pick_packed_bytes(void);
static const struct packed_kernels *chosen;

const struct packed_kernels *__wrap_isa_pick_packed_bytes(void)
{
    return chosen ? chosen : __real_isa_pick_packed_bytes();
}

static size_t tables(const struct packed_kernels *all[ISAS_MOST])
{
    chosen = NULL;
    return isas_bytes(all);
}

static const uint32_t noise[2] = {17, 4};

static struct num *unit(const struct packed_kernels *table, int threads)
{
    struct num *num = NULL;
    chosen = table;
    assert_int_equal(num_new(&num, threads, NULL), 0);
    num_set_compute(num, NUM_BYTES);
    num_set_noise(num, noise);
    return num;
}

/* --- plain loops ------------------------------------------------------------------------------ */

enum { BLOCK = 512, STEP = 256, TOP = 127 };

/* Numbers of a sum that have a scale in common: as few blocks as can be, all but the last of whole
 * steps. */
static size_t block_of(size_t k)
{
    const size_t blocks = (k + BLOCK - 1) / BLOCK, each = (k + blocks - 1) / blocks;
    return (each + STEP - 1) / STEP * STEP;
}

static float scale_of(const float *x, size_t apart, size_t n, float *inverse)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i * apart]));
    *inverse = most > 1e-30f ? TOP / most : 0;
    return most > 1e-30f ? most / TOP : 0;
}

/* Byte e of what a row draws, by the definition in rng.c. */
static unsigned drawn(const uint32_t key[2], size_t row, size_t groups, size_t e)
{
    const size_t in = e % NOISE_GROUP;
    const uint64_t at = (row * groups + e / NOISE_GROUP) * 16 + in % 16;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    uint32_t word[4];
    rng_philox(word, counter, key);
    return word[in / 64] >> in / 16 % 4 * 8 & 255;
}

/* Where x's numbers come from, and w's. */
struct sum {
    const float *x, *w; /* a row of x, a column of the product */
    size_t k, w_apart;
    const uint32_t *key; /* or NULL */
    size_t row;
};

static int level_of(const struct sum *s, size_t p, float inverse)
{
    const volatile float scaled = s->x[p] * inverse; /* rounded before anything is added */
    if (!s->key)
        return (int)rintf(scaled);
    const size_t groups = (s->k + NOISE_GROUP - 1) / NOISE_GROUP;
    const float up = ((float)drawn(s->key, s->row, groups, p) + 0.5f) / 256;
    const volatile float more = scaled + (up + 128);
    const int n = (int)more - 128;
    return n > TOP ? TOP : n < -TOP ? -TOP : n;
}

static float element(const struct sum *s, float y)
{
    for (size_t from = 0, n; from < s->k; from += n) {
        float by_x, by_w;
        n = s->k - from < block_of(s->k) ? s->k - from : block_of(s->k);
        const float a = scale_of(s->x + from, 1, n, &by_x),
                    b = scale_of(s->w + from * s->w_apart, s->w_apart, n, &by_w);
        int sum = 0;
        for (size_t p = from; p < from + n; p++) {
            const volatile float w = s->w[p * s->w_apart] * by_w;
            sum += level_of(s, p, by_x) * (int)rintf(w);
        }
        const volatile float scale = b * a, product = (float)sum * scale;
        y += product;
    }
    return y;
}

/* --- tests ------------------------------------------------------------------------------------ */

enum form { F32, BF16, QUANT8, QUANT4, FORMS };

struct weight {
    struct mat mat;
    struct quant quant;
    float *drawn, *sides, *f; /* f: what is stored, in f32 */
    uint32_t *words;
};

static void weight_new(struct num *num, struct weight *w, enum form form, size_t rows, size_t cols)
{
    const size_t n = rows * cols, groups = rows * quant_groups(QUANT_GROUP, cols),
                 bits = form == QUANT8 ? 8 : 4;
    *w = (struct weight){.drawn = random_floats(n, "w"),
                         .sides = malloc(2 * groups * sizeof(float)),
                         .f = malloc(n * sizeof(float)),
                         .words = malloc(n * sizeof(uint32_t))};
    assert_true(w->sides && w->f && w->words);
    w->mat = (struct mat){.data = w->drawn, .dtype = DTYPE_F32, .rows = rows, .cols = cols, .stream = 9};
    if (form == BF16) {
        uint16_t *half = (uint16_t *)w->words;
        for (size_t i = 0; i < n; i++)
            memcpy(&half[i], (char *)&w->drawn[i] + 2, sizeof *half);
        w->mat.data = half;
        w->mat.dtype = DTYPE_BF16;
    } else if (form >= QUANT8) {
        w->quant = (struct quant){.bits = bits,
                                  .group = QUANT_GROUP,
                                  .side = DTYPE_F32,
                                  .scale = w->sides,
                                  .bias = w->sides + groups};
        assert_int_equal(
            gemm_quantize(num, w->words, w->sides, w->sides + groups, w->mat, 0, rows, bits, QUANT_GROUP), 0);
        w->mat.quant = &w->quant;
        w->mat.data = w->words;
    }
    gemm_rows(num, w->f, w->mat, 0, rows);
}

static void weight_done(struct weight *w)
{
    free(w->drawn), free(w->sides), free(w->f), free(w->words);
}

static void check_shape(struct num *num, enum form form, size_t n, size_t rows, size_t cols, bool down)
{
    struct weight w;
    uint32_t own[2];
    weight_new(num, &w, form, rows, cols);
    assert_true(num_noise(num, w.mat.stream, own));
    const size_t in = down ? rows : cols, out = down ? cols : rows;
    float *x = random_floats(n * in, "x"), *y = random_floats(n * out, "y"),
          *was = random_floats(n * out, "y");
    (down ? gemm_xw : gemm_xwt)(num, y, x, w.mat, n, true);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < out; j++) {
            const struct sum s = {
                x + i * in, down ? w.f + j : w.f + j * cols, in, down ? cols : 1, down ? own : NULL, i};
            const float want = element(&s, was[i * out + j]);
            if (memcmp(&want, &y[i * out + j], sizeof want) != 0)
                fail_msg("%s, form %d, %zu x %zu x %zu%s at [%zu, %zu]: %a, plain loops give %a",
                         num_isa_bytes(num), form, n, rows, cols, down ? ", down," : "", i, j,
                         (double)y[i * out + j], (double)want);
        }
    weight_done(&w);
    free(x), free(y), free(was);
}

static void tiles_are_plain_loops(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{17, 40, 64},   {25, 33, 520},   {30, 600, 8},
                                       {61, 66, 1032}, {20, 1100, 136}, {19, 13, 1544}};
    const struct packed_kernels *table[ISAS_MOST];
    for (size_t t = 0, n = tables(table); t < n; t++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (enum form form = 0; form < FORMS; form++) {
                struct num *num = unit(table[t], (int)(i + form) % 3 + 1);
                check_shape(num, form, shapes[i][0], shapes[i][1], shapes[i][2], false);
                check_shape(num, form, shapes[i][0], shapes[i][1], shapes[i][2], true);
                num_free(num);
            }
}

/* Of a product with more rows the first are those of one with fewer: what is drawn belongs to a row
 * and a column. */
static void rows_threads_and_tables_change_no_bit(void **state)
{
    (void)state;
    enum { N = 700, FEW = 30, ROWS = 600, COLS = 768 };
    const struct packed_kernels *table[ISAS_MOST];
    const size_t all = tables(table);
    struct num *one = unit(table[all - 1], 1);
    struct weight w;
    weight_new(one, &w, QUANT8, ROWS, COLS);
    float *x = random_floats(N * COLS, "x"), *want = malloc(N * COLS * sizeof *want),
          *got = malloc(N * COLS * sizeof *got);
    assert_true(want && got);
    for (int down = 0; down < 2; down++) {
        void (*const multiply)(struct num *, float *, const float *, struct mat, size_t, bool) =
            down ? gemm_xw : gemm_xwt;
        const size_t out = down ? COLS : ROWS;
        multiply(one, want, x, w.mat, N, false);
        for (size_t i = 0; i < 4 * all; i++) {
            struct num *num = unit(table[i / 4], (int)(i % 4) + 1);
            multiply(num, got, x, w.mat, N, false);
            assert_memory_equal(got, want, N * out * sizeof *got);
            multiply(num, got, x, w.mat, FEW, false);
            assert_memory_equal(got, want, FEW * out * sizeof *got);
            num_free(num);
        }
    }
    weight_done(&w);
    free(x), free(want), free(got);
    num_free(one);
}

/* Many draws of one product: their mean comes nearer to what rounds nothing than one of them by
 * what chance allows, which rounding to the nearest would not. */
static void random_rounding_is_right_in_the_mean(void **state)
{
    (void)state;
    enum { N = 20, ROWS = 256, COLS = 16, DRAWS = 400 };
    struct num *num = unit(NULL, 1);
    float w[ROWS * COLS] = {0}, dx[N * COLS];
    double mean[N * COLS] = {0};
    for (size_t j = 0; j < COLS; j++)
        for (size_t p = j; p < ROWS; p += COLS)
            w[p * COLS + j] = 1; /* exact in bytes */
    float *dy = random_floats(N * ROWS, "dy");
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        const struct mat mat = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS, .stream = draw};
        gemm_xw(num, dx, dy, mat, N, false);
        for (size_t i = 0; i < (size_t)N * COLS; i++)
            mean[i] += (double)dx[i] / DRAWS;
    }
    for (size_t i = 0; i < N; i++) {
        float inverse;
        const double level = (double)scale_of(dy + i * ROWS, 1, ROWS, &inverse);
        for (size_t j = 0; j < COLS; j++) {
            double want = 0;
            for (size_t p = j; p < ROWS; p += COLS)
                want += (double)dy[i * ROWS + p];
            /* sixteen roundings, each off by half a level at most in its standard deviation; five
             * of these */
            const double most = 5 * level * 0.5 * sqrt(16.0 / DRAWS) + 16 * level / 512;
            if (!(fabs(mean[i * COLS + j] - want) <= most))
                fail_msg("at [%zu, %zu]: %g instead of %g, off by %g levels", i, j, mean[i * COLS + j], want,
                         (mean[i * COLS + j] - want) / level);
        }
    }
    free(dy);
    num_free(num);
}

/* An infinite or missing number is seen in its row, and in no other; rows of zeros give zeros. */
static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    enum { N = 20, ROWS = 40, COLS = 64 };
    const struct packed_kernels *table[ISAS_MOST];
    for (size_t t = 0, n = tables(table); t < n; t++) {
        struct num *num = unit(table[t], 1);
        float *x = random_floats(N * COLS, "x"), *w = random_floats(ROWS * COLS, "w"), y[N * ROWS];
        const struct mat mat = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
        x[3 * COLS + 5] = INFINITY;
        x[4 * COLS + 63] = NAN;
        memset(x + 7 * COLS, 0, COLS * sizeof *x);
        gemm_xwt(num, y, x, mat, N, false);
        for (size_t i = 0; i < (size_t)N * ROWS; i++) {
            const size_t row = i / ROWS;
            assert_int_equal(isnan(y[i]), row == 3 || row == 4);
            if (row == 7)
                assert_true(y[i] == 0);
        }
        free(x), free(w);
        num_free(num);
    }
}

/* LoRA's own factors and routers are not rounded; nor is what has few rows. */
static void what_is_exact_is_not_rounded(void **state)
{
    (void)state;
    enum { N = 30, ROWS = 50, COLS = 70 };
    struct num *num = unit(NULL, 2);
    float *x = random_floats(N * COLS, "x"), *w = random_floats(ROWS * COLS, "w");
    float f32[N * ROWS], y[N * ROWS];
    struct mat mat = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
    num_set_compute(num, NUM_F32);
    gemm_xwt(num, f32, x, mat, N, false);
    for (int compute = NUM_BF16; compute <= NUM_BYTES; compute++) {
        num_set_compute(num, (enum num_compute)compute);
        mat.exact = false;
        gemm_xwt(num, y, x, mat, N, false);
        assert_memory_not_equal(y, f32, sizeof y);
        mat.exact = true;
        gemm_xwt(num, y, x, mat, N, false);
        assert_memory_equal(y, f32, sizeof y);
    }
    free(x), free(w);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_plain_loops),
        cmocka_unit_test(rows_threads_and_tables_change_no_bit),
        cmocka_unit_test(random_rounding_is_right_in_the_mean),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(what_is_exact_is_not_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
