/* SPDX-License-Identifier: MIT
 *
 * Batch invariance of products: a row of y has the bits that it has alone, whatever rows there are
 * beside it and however many threads: of every stored type, and of whole numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/kernels.h"
#include "num/quant.h"
#include "num/rng.h"
#include "tests/lib/isas.h"

enum { MOST = 250, COLS = 1100, ROWS = 70 };

static float *random_floats(size_t n, size_t seed)
{
    float *x = malloc(n * sizeof *x + 1);
    struct rng rng = rng_for(seed, "invariant");
    assert_non_null(x);
    rng_fill_normal(&rng, x, n, 0, 1);
    return x;
}

/* A matrix and what it points to; owned. */
struct weights {
    struct mat w;
    struct quant quant;
    void *data, *scale, *bias;
};

static void weights_init(struct weights *w, struct num *num, size_t bits, enum dtype dtype, size_t rows,
                         size_t cols)
{
    float *f = random_floats(rows * cols, 3);
    *w = (struct weights){.w = {.data = f, .dtype = DTYPE_F32, .rows = rows, .cols = cols}, .data = f};
    const size_t blocks = (rows / MAT_BLOCK + 1) * (cols / MAT_BLOCK + 1);
    if (bits) {
        const size_t groups = rows * quant_groups(QUANT_GROUP, cols);
        uint32_t *words = malloc(rows * quant_words(bits, cols) * sizeof *words);
        w->scale = random_floats(groups, 1);
        w->bias = random_floats(groups, 1);
        assert_int_equal(gemm_quantize(num, words, w->scale, w->bias, w->w, 0, rows, bits, QUANT_GROUP), 0);
        w->quant = (struct quant){
            .bits = bits, .group = QUANT_GROUP, .side = DTYPE_F32, .scale = w->scale, .bias = w->bias};
        w->w.quant = &w->quant;
        w->w.data = w->data = words;
        free(f);
    } else if (dtype == DTYPE_F8_E4M3) {
        uint8_t *bytes = malloc(rows * cols);
        for (size_t i = 0; i < rows * cols; i++)
            bytes[i] = (uint8_t)(i * 37 % 0x70);
        w->w.scale = w->scale = random_floats(blocks, 5);
        w->w.data = w->data = bytes;
        w->w.dtype = dtype;
        free(f);
    } else if (dtype != DTYPE_F32) {
        w->w.data = w->data = malloc(rows * cols * 2);
        w->w.dtype = dtype;
        dtype_from_f32(w->data, f, dtype, rows * cols);
        free(f);
    }
}

static void weights_done(struct weights *w)
{
    free(w->data);
    free(w->scale);
    free(w->bias);
}

static void check(size_t bits, enum dtype dtype, enum num_compute compute, size_t rows, size_t cols)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 7, 12, 13, 17, 40, 97, MOST};
    float *x = random_floats(MOST * cols, 7), *want = random_floats(MOST * rows, 8),
          *y = random_floats(MOST * rows, 8);
    for (int threads = 1; threads <= 3; threads++) {
        struct num *num;
        struct weights w;
        assert_int_equal(num_new(&num, threads, NULL), 0);
        num_set_compute(num, compute);
        weights_init(&w, num, bits, dtype, rows, cols);
        for (size_t i = 0; threads == 1 && i < MOST; i++)
            gemm_xwt(num, want + i * rows, x + i * cols, w.w, 1, false);
        num_set_invariant(num, true);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t at = 0; at < MOST; at += counts[c]) {
                const size_t n = MOST - at < counts[c] ? MOST - at : counts[c];
                memset(y, 0xff, n * rows * sizeof *y);
                assert_false(gemm_is_joined(num, w.w, n));
                gemm_xwt(num, y, x + at * cols, w.w, n, false);
                if (memcmp(y, want + at * rows, n * rows * sizeof *y) != 0)
                    fail_msg("%zu rows of %zu x %zu, %zu bits, %s, %d threads, are not what they are alone",
                             n, rows, cols, bits, dtype_name(dtype), threads);
            }
        weights_done(&w);
        num_free(num);
    }
    free(x);
    free(y);
    free(want);
}

static void stored_types_are_invariant(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check(0, types[i], NUM_F32, ROWS, COLS);
        check(0, types[i], NUM_F32, 1, 512);
        check(0, types[i], NUM_F32, 9, 1024); /* rows of x are moved apart */
        check(0, types[i], NUM_F32, 37, 5);
    }
    check(0, DTYPE_BF16, NUM_BF16, ROWS, COLS);
}

static void whole_numbers_are_invariant(void **state)
{
    (void)state;
    for (size_t bits = 4; bits <= 8; bits += 4) {
        check(bits, DTYPE_F32, NUM_F32, ROWS, 1088);
        check(bits, DTYPE_F32, NUM_INT8, 33, 320);
    }
}

/* More whole numbers than the panel holds. */
static void many_whole_numbers_are_invariant(void **state)
{
    (void)state;
    check(4, DTYPE_F32, NUM_F32, 3, 16384);
}

static void added_rows_are_invariant(void **state)
{
    (void)state;
    struct num *num;
    struct weights w;
    float *x = random_floats(MOST * COLS, 7), *y = random_floats(MOST * ROWS, 8),
          *want = random_floats(MOST * ROWS, 8);
    assert_int_equal(num_new(&num, 2, NULL), 0);
    weights_init(&w, num, 0, DTYPE_BF16, ROWS, COLS);
    for (size_t i = 0; i < MOST; i++)
        gemm_xwt(num, want + i * ROWS, x + i * COLS, w.w, 1, true);
    num_set_invariant(num, true);
    gemm_xwt(num, y, x, w.w, MOST, true);
    assert_memory_equal(y, want, MOST * ROWS * sizeof *y);
    weights_done(&w);
    num_free(num);
    free(x);
    free(y);
    free(want);
}

/* Of every table: however many rows of x come at once, and however far apart they lie. */
static void rows_have_the_bits_that_they_have_alone(void **state)
{
    (void)state;
    enum { N = 29, R = 11, K = 150, APART = K + 9 };
    const struct kernels *all[ISAS_MOST];
    float *x = random_floats(N * APART, 1), *w = random_floats(R * K, 2), want[N * R], y[N * R];
    for (size_t i = 0, n = isas_kernels(all); i < n; i++) {
        for (size_t j = 0; j < N; j++)
            all[i]->dots[DTYPE_F32](want + j * R, R, x + j * APART, K, 1, w, K, R, K, false);
        for (size_t rows = 1; rows <= N; rows++) {
            memset(y, 0xff, sizeof y);
            all[i]->dots[DTYPE_F32](y, R, x, APART, rows, w, K, R, K, false);
            assert_memory_equal(y, want, rows * R * sizeof *y);
        }
    }
    free(x);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_types_are_invariant),
        cmocka_unit_test(whole_numbers_are_invariant),
        cmocka_unit_test(many_whole_numbers_are_invariant),
        cmocka_unit_test(added_rows_are_invariant),
        cmocka_unit_test(rows_have_the_bits_that_they_have_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
