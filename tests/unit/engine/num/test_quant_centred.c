/* SPDX-License-Identifier: MIT
 *
 * Numbers around a zero (compressed-tensors) come to the bits of the same numbers with scales and
 * biases, in every product, for test_quant.c holds those against f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/gemm.h"
#include "num/num.h"
#include "num/rng.h"
#include "tests/lib/draw.h"
#include "tests/lib/near.h"

enum { ROWS = 45 };

struct centred_form {
    size_t bits, wide; /* wide 0: a scale for each row */
    bool zeros, is_signed;
};

static const struct centred_form forms[] = {
    {4, 32, false, false}, {4, 64, true, false},   {4, 128, false, false}, {4, 256, true, false},
    {4, 0, false, false},  {4, 0, true, false},    {8, 32, true, false},   {8, 128, false, false},
    {8, 0, false, false},  {8, 384, false, false}, {8, 0, false, true},    {8, 64, false, true},
};

/* One matrix in both forms. */
struct both {
    uint8_t *own, *other; /* numbers around a zero, one byte past alignment; without sign */
    float *scale, *sides; /* as stored; of all groups, then their biases */
    uint32_t *zero;
    struct quant quant, affine;
    struct mat w, plain;
};

static uint32_t draw_below(struct rng *rng, uint32_t end)
{
    float x;
    rng_fill_uniform(rng, &x, 1, 0, (float)end);
    return (uint32_t)x < end ? (uint32_t)x : end - 1;
}

static void fill(struct both *b, const struct centred_form *f, size_t cols, struct rng *rng)
{
    const size_t scales = quant_scales(&b->quant, cols), groups = quant_groups(b->quant.group, cols),
                 per_word = 32 / f->bits, bytes = ROWS * cols * f->bits / 8;
    for (size_t i = 0; i < bytes; i++) {
        b->other[i] = (uint8_t)draw_below(rng, 256);
        b->own[i + 1] = b->other[i] ^ (f->is_signed ? 128 : 0);
    }
    for (size_t i = 0; i < ROWS * scales; i++)
        b->scale[i] = 0.01f + (float)draw_below(rng, 1000) / 4096;
    for (size_t row = 0; row < ROWS; row++) {
        uint32_t zero = 1u << (f->bits - 1);
        for (size_t g = 0, at = SIZE_MAX; g < groups; g++) {
            const size_t s = g * b->quant.group / b->quant.centre.wide;
            if (f->zeros && s != at) {
                zero = draw_below(rng, 1u << f->bits);
                b->zero[row / per_word * scales + s] |= zero << row % per_word * f->bits;
            }
            at = s;
            b->sides[row * groups + g] = b->scale[row * scales + s];
            b->sides[(ROWS + row) * groups + g] = -(float)zero * b->scale[row * scales + s];
        }
    }
}

static void both_make(struct both *b, const struct centred_form *f, size_t cols)
{
    const size_t group = quant_centred_group(f->wide ? f->wide : 128), groups = quant_groups(group, cols),
                 bytes = ROWS * cols * f->bits / 8;
    struct rng rng = rng_for(f->bits * 1000 + cols + f->wide, "centred");
    *b = (struct both){.own = calloc(bytes + 1, 1),
                       .other = calloc(bytes, 1),
                       .scale = calloc(ROWS * groups, sizeof(float)),
                       .sides = calloc(2 * ROWS * groups, sizeof(float)),
                       .zero = calloc(ROWS * groups, sizeof(uint32_t))};
    assert_true(b->own && b->other && b->scale && b->sides && b->zero);
    b->quant = (struct quant){.scale = b->scale,
                              .side = DTYPE_F32,
                              .bits = f->bits,
                              .group = group,
                              .kind = QUANT_CENTRED,
                              .centre = {.wide = f->wide ? f->wide : groups * group,
                                         .zero = f->zeros ? b->zero : NULL,
                                         .is_signed = f->is_signed}};
    b->affine = (struct quant){.scale = b->sides,
                               .bias = b->sides + ROWS * groups,
                               .side = DTYPE_F32,
                               .bits = f->bits,
                               .group = group};
    b->w = (struct mat){.data = b->own + 1, .rows = ROWS, .cols = cols, .quant = &b->quant};
    b->plain = (struct mat){.data = b->other, .rows = ROWS, .cols = cols, .quant = &b->affine};
    fill(b, f, cols, &rng);
}

static void both_free(struct both *b)
{
    free(b->own), free(b->other), free(b->scale), free(b->sides), free(b->zero);
}

static void check_products(struct num *num, const struct mat *w, const struct mat *plain, size_t n)
{
    float *x = random_floats(n * w->cols, "x"), *dy = random_floats(n * w->rows, "dy");
    float *y = random_floats(n * w->rows, "y"), *want = random_floats(n * w->rows, "y");
    float *dx = random_floats(n * w->cols, "dx"), *wanted = random_floats(n * w->cols, "dx");
    gemm_xwt(num, y, x, *w, n, true);
    gemm_xwt(num, want, x, *plain, n, true);
    assert_same_bits(y, want, n * w->rows, "x·Wᵀ");
    gemm_xw(num, dx, dy, *w, n, true);
    gemm_xw(num, wanted, dy, *plain, n, true);
    assert_same_bits(dx, wanted, n * w->cols, "dy·W");
    free(x), free(dy), free(y), free(want), free(dx), free(wanted);
}

static void check_all(struct num *num, const struct both *b)
{
    static const size_t counts[] = {1, 3, 13, 17, 40};
    struct quant room[2];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_products(num, &b->w, &b->plain, counts[i]);
        const struct mat cut = gemm_cut(b->w, 11, 21, &room[0]), plain = gemm_cut(b->plain, 11, 21, &room[1]);
        check_products(num, &cut, &plain, counts[i]);
        const struct mat twice = gemm_cut(cut, 3, 9, &room[0]), other = gemm_cut(plain, 3, 9, &room[1]);
        check_products(num, &twice, &other, counts[i]);
    }
}

static void products_have_the_bits_of_scales_and_biases(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct num *num = NULL;
            struct both b;
            assert_int_equal(num_new(&num, threads, NULL), 0);
            both_make(&b, &forms[i], forms[i].wide ? forms[i].wide * 3 : 328);
            check_all(num, &b);
            num_set_invariant(num, true);
            check_all(num, &b);
            num_set_invariant(num, false);
            num_set_compute(num, NUM_INT8);
            check_all(num, &b);
            both_free(&b);
            num_free(num);
        }
}

static void check_near(struct num *num, const struct mat *w, const struct mat *plain, size_t n)
{
    const size_t rows = w->rows, cols = w->cols;
    for (int add = 0; add < 2; add++) {
        float *x = random_floats(n * cols, "x"), *y = random_floats(n * rows, "y"),
              *want = random_floats(n * rows, "y"), *dx = random_floats(n * cols, "dx"),
              *wanted = random_floats(n * cols, "dx");
        gemm_xwt(num, y, x, *w, n, add);
        gemm_xwt(num, want, x, *plain, n, add);
        assert_near_max(y, want, n * rows, 1e-6, "x·Wᵀ");
        gemm_xw(num, dx, y, *w, n, add);
        gemm_xw(num, wanted, y, *plain, n, add);
        assert_near_max(dx, wanted, n * cols, 1e-6, "dy·W");
        free(x), free(y), free(want), free(dx), free(wanted);
    }
}

/* FP8 with a scale for each row: the numbers times the scale, in every product. */
static void rows_of_fp8_have_scales(void **state)
{
    (void)state;
    enum { COLS = 150 };
    static const size_t counts[] = {1, 5, 12, 13, 40};
    struct num *num = NULL;
    uint8_t bytes[ROWS * COLS];
    float scale[ROWS], values[ROWS * COLS];
    struct rng rng = rng_for(7, "fp8 rows");
    assert_int_equal(num_new(&num, 2, NULL), 0);
    for (size_t i = 0; i < ROWS; i++)
        scale[i] = 0.5f + (float)draw_below(&rng, 100) / 64;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(draw_below(&rng, 112) | draw_below(&rng, 2) << 7);
        dtype_to_f32(&values[i], &bytes[i], DTYPE_F8_E4M3, 1);
        values[i] *= scale[i / COLS];
    }
    const struct mat w = {.data = bytes,
                          .dtype = DTYPE_F8_E4M3,
                          .rows = ROWS,
                          .cols = COLS,
                          .scale = scale,
                          .scale_rows = true},
                     plain = {.data = values, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
    struct quant none;
    const struct mat cut = gemm_cut(w, 9, 20, &none), part = gemm_cut(plain, 9, 20, &none),
                     twice = gemm_cut(cut, 4, 7, &none), other = gemm_cut(part, 4, 7, &none);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_near(num, &w, &plain, counts[i]);
        check_near(num, &cut, &part, counts[i]);
        check_near(num, &twice, &other, counts[i]);
    }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_bits_of_scales_and_biases),
        cmocka_unit_test(rows_of_fp8_have_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
