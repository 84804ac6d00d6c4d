/* SPDX-License-Identifier: MIT
 *
 * Products of every stored type over odd shapes against plain f64 loops; the unit itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/kernels.h"
#include "tests/lib/isas.h"
#include "tests/lib/draw.h"

static float half_to_float(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double mag = exponent == 0    ? ldexp(fraction, -24)
                       : exponent == 31 ? (fraction ? NAN : INFINITY)
                                        : ldexp(1024 + fraction, exponent - 25);
    return (float)(h & 0x8000 ? -mag : mag);
}

/* By the definition of E4M3: four bits of exponent with bias 7, three of fraction, one NaN of
 * either sign. */
static float f8_to_float(uint8_t b)
{
    const int exponent = b >> 3 & 15, fraction = b & 7;
    const double mag = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    return (float)((b & 0x7f) == 0x7f ? NAN : b & 0x80 ? -mag : mag);
}

/* An FP8 weight with a scale for each block, that of the partial blocks at the edges too. */
static struct mat stored_f8(size_t rows, size_t cols, char **ret_raw, float **ret_f)
{
    const size_t n = rows * cols, across = (cols + 127) / 128, blocks = (rows + 127) / 128 * across;
    const size_t room = (n + 1 + 3) / 4 * 4; /* the scales lie behind the weight */
    float *f = random_floats(n, "w"), *scale = random_floats(blocks, "scale");
    char *raw = malloc(room + blocks * sizeof *scale);
    assert_non_null(raw);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], sizeof bits);
        const uint8_t byte = (uint8_t)(bits >> 16 & 0xbf); /* no NaN */
        raw[1 + i] = (char)byte;
        f[i] = f8_to_float(byte) * scale[i / cols / 128 * across + i % cols / 128];
    }
    memcpy(raw + room, scale, blocks * sizeof *scale);
    free(scale);
    *ret_raw = raw;
    *ret_f = f;
    return (struct mat){.data = raw + 1,
                        .dtype = DTYPE_F8_E4M3,
                        .rows = rows,
                        .cols = cols,
                        .scale = (const float *)(const void *)(raw + room)};
}

/* A weight as a file holds it, one byte past alignment, and the values it stands for. */
static struct mat stored_weight(enum dtype t, size_t rows, size_t cols, char **ret_raw, float **ret_f)
{
    if (t == DTYPE_F8_E4M3)
        return stored_f8(rows, cols, ret_raw, ret_f);
    const size_t n = rows * cols, size = t == DTYPE_F32 ? 4 : 2;
    float *f = random_floats(n, "w");
    char *raw = malloc(n * size + 1);
    assert_non_null(raw);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], sizeof bits);
        const uint16_t bf16 = (uint16_t)(bits >> 16), f16 = (uint16_t)(bits >> 16 & 0xbfff);
        if (t == DTYPE_F32)
            memcpy(raw + 1 + i * size, &f[i], size);
        else
            memcpy(raw + 1 + i * size, t == DTYPE_BF16 ? &bf16 : &f16, size);
        bits = (uint32_t)bf16 << 16;
        if (t == DTYPE_BF16)
            memcpy(&f[i], &bits, sizeof bits);
        else if (t == DTYPE_F16)
            f[i] = half_to_float(f16);
    }
    *ret_raw = raw;
    *ret_f = f;
    return (struct mat){.data = raw + 1, .dtype = t, .rows = rows, .cols = cols};
}

/* c[i, j] (+)= Σ_p a[i·ai + p·ap] · b[p·bp + j·bj]; the tolerance is √k·2 roundings of Σ |a·b|. */
static void check(const char *what, const float *got, const float *was, const float *a, size_t ai, size_t ap,
                  const float *b, size_t bp, size_t bj, size_t m, size_t n, size_t k, double alpha)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (size_t p = 0; p < k; p++) {
                const double term = (double)a[i * ai + p * ap] * (double)b[p * bp + j * bj];
                sum += term;
                size += fabs(term);
            }
            const double start = was ? (double)was[i * n + j] : 0, want = start + alpha * sum;
            const double tol = 1.2e-7 * (2 + sqrt((double)k)) * (size * fabs(alpha) + fabs(start));
            if (!(fabs((double)got[i * n + j] - want) <= tol))
                fail_msg("%s of %zu·%zu·%zu at [%zu, %zu]: %.9g, expected %.9g", what, m, n, k, i, j,
                         (double)got[i * n + j], want);
        }
}

/* Every product with a weight that stands for f. */
static void check_products(struct num *num, struct mat w, const float *f, size_t n)
{
    const size_t rows = w.rows, cols = w.cols;
    float *x = random_floats(n * cols, "x"), *dy = random_floats(n * rows, "dy");
    float *y = random_floats(n * rows, "y"), *y0 = random_floats(n * rows, "y");
    float *dx = random_floats(n * cols, "dx"), *dx0 = random_floats(n * cols, "dx");
    float *dw = random_floats(rows * cols, "dw"), *dw0 = random_floats(rows * cols, "dw");
    gemm_xwt(num, y, x, w, n, true);
    check("x·Wᵀ added", y, y0, x, cols, 1, f, 1, cols, n, rows, cols, 1);
    gemm_xwt(num, y, x, w, n, false);
    check("x·Wᵀ", y, NULL, x, cols, 1, f, 1, cols, n, rows, cols, 1);
    gemm_xw(num, dx, dy, w, n, true);
    check("dy·W added", dx, dx0, dy, rows, 1, f, cols, 1, n, cols, rows, 1);
    gemm_xw(num, dx, dy, w, n, false);
    check("dy·W", dx, NULL, dy, rows, 1, f, cols, 1, n, cols, rows, 1);
    gemm_dw(num, dw, dy, x, n, rows, cols, 0.5f);
    check("dyᵀ·x", dw, dw0, dy, 1, rows, x, cols, 1, rows, cols, n, 0.5);
    free(x), free(dy), free(y), free(y0), free(dx), free(dx0), free(dw), free(dw0);
}

static void check_shape(struct num *num, enum dtype t, size_t n, size_t rows, size_t cols)
{
    char *raw;
    float *f;
    const struct mat w = stored_weight(t, rows, cols, &raw, &f);
    check_products(num, w, f, n);
    free(raw), free(f);
}

static void test_shapes(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        /* n, rows, cols: empty, single, few rows, many; one wider than a panel; narrow gradients */
        {0, 3, 5},     {3, 0, 5},      {3, 5, 0},        {1, 1, 1},       {1, 37, 129},
        {2, 5, 16},    {3, 131, 7},    {4, 66, 64},      {5, 33, 100},    {7, 64, 31},
        {8, 130, 65},  {9, 3, 3},      {13, 1100, 1001}, {33, 65, 17},    {13, 18, 66001},
        {2, 300, 257}, {14, 257, 300}, {130, 16, 96},    {200, 2064, 16}, {64, 48, 32},
    };
    struct num *num[2] = {NULL, NULL};
    assert_int_equal(num_new(&num[0], 1, NULL), 0);
    assert_int_equal(num_new(&num[1], 2, NULL), 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t t = 0; t < DTYPE_COUNT; t++)
            check_shape(num[(i + t) % 2], (enum dtype)t, shapes[i][0], shapes[i][1], shapes[i][2]);
    num_free(num[0]);
    num_free(num[1]);
}

/* A row's result does not depend on how many rows come with it: decoding one sequence or four gives
 * the same bits. */
static void test_few_rows_same_bits(void **state)
{
    (void)state;
    enum { ROWS = 77, COLS = 93 };
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    float *x = random_floats(12 * COLS, "x"), *w = random_floats(ROWS * COLS, "w"), all[12 * ROWS], one[ROWS];
    const struct mat mat = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
    for (size_t n = 1; n <= 12; n++) {
        gemm_xwt(num, all, x, mat, n, false);
        for (size_t i = 0; i < n; i++) {
            gemm_xwt(num, one, x + i * COLS, mat, 1, false);
            assert_memory_equal(one, all + i * ROWS, sizeof one);
        }
    }
    free(x);
    free(w);
    num_free(num);
}

/* Products large enough that threads share them, along either side, with shares that are not
 * equal. */
static void test_shared_products(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{100, 270, 130}, {29, 700, 300}, {700, 33, 200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 2; threads <= 4; threads++) {
            struct num *num = NULL;
            assert_int_equal(num_new(&num, threads, NULL), 0);
            for (size_t t = 0; t < DTYPE_COUNT; t++)
                check_shape(num, (enum dtype)t, shapes[i][0], shapes[i][1], shapes[i][2]);
            num_free(num);
        }
}

/* Some rows of a weight, and some of those: what scales it has go with them. */
static void test_cuts(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 257 };
    static const size_t counts[] = {1, 5, 40};
    struct num *num = NULL;
    struct quant none;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    for (size_t t = 0; t < DTYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            char *raw;
            float *f;
            const struct mat w = stored_weight((enum dtype)t, ROWS, COLS, &raw, &f),
                             cut = gemm_cut(w, 70, 220, &none), twice = gemm_cut(cut, 53, 140, &none);
            check_products(num, cut, f + (size_t)70 * COLS, counts[i]);
            check_products(num, twice, f + (size_t)123 * COLS, counts[i]);
            free(raw), free(f);
        }
    num_free(num);
}

/* Every 16-bit pattern through the widening kernels; a NaN need only stay one. */
static void test_widening(void **state)
{
    (void)state;
    const struct kernels *tables[ISAS_MOST];
    const size_t all = isas_kernels(tables);
    for (uint32_t h = 0; h < 65536; h++) {
        const uint16_t in[1] = {(uint16_t)h};
        const uint32_t bits = h << 16;
        float bf16, f16 = half_to_float((uint16_t)h), out;
        memcpy(&bf16, &bits, sizeof bf16);
        for (size_t k = 0; k < all; k++) {
            tables[k]->to_f32[DTYPE_BF16](&out, in, 1);
            assert_memory_equal(&out, &bf16, sizeof out);
            tables[k]->to_f32[DTYPE_F16](&out, in, 1);
            assert_true(isnan(f16) ? isnan(out) : memcmp(&out, &f16, sizeof out) == 0);
        }
    }
}

static void test_unit(void **state)
{
    (void)state;
    struct num *num = NULL;
    struct err err;
    assert_int_equal(num_new(&num, -1, &err), -EINVAL);
    assert_null(num);
    assert_non_null(strstr(err.text, "threads = -1"));
    assert_int_equal(num_new(&num, 3, &err), 0);
    assert_int_equal(num_threads(num), 3);
    assert_non_null(num_isa(num));
    num_free(num);
    num_free(NULL);
    assert_int_equal(num_new(&num, 0, &err), 0);
    assert_true(num_threads(num) >= 1);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),          cmocka_unit_test(test_few_rows_same_bits),
        cmocka_unit_test(test_shared_products), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_widening),        cmocka_unit_test(test_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
