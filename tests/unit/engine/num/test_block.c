/* SPDX-License-Identifier: MIT
 *
 * Weights in GGUF's blocks: what they stand for, and products with them and with rows in
 * llama.cpp's order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "num/gemm.h"
#include "num/rng.h"
#include "tests/lib/gguf.h"
#include "tests/lib/near.h"

enum { ROWS = 96, COLS = 768, HEAD = 32, MOST = 150, WHOLE = 16 /* rows of x up to which it is rounded */ };

static uint8_t *random_rows(enum block_type type, size_t rows)
{
    const size_t n = rows * block_row_bytes(type, COLS);
    struct rng rng = rng_for(type, "rows");
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)rng_below(&rng, 256);
        if (type != BLOCK_MXFP4 && i % 2)
            bytes[i] &= 0xbf; /* halves that are numbers, wherever one is */
    }
    return bytes;
}

static float value_at(enum block_type type, const uint8_t *row, size_t col)
{
    const size_t n = block_values(type);
    return gguf_block_value(type, row + col / n * block_bytes(type), col % n);
}

/* All values, and parts of rows that begin and end anywhere. */
static void values_are_as_told(void **state)
{
    (void)state;
    static const size_t parts[][2] = {{0, COLS}, {0, 1}, {31, 2}, {32, 32}, {100, 300}, {256, 256}, {767, 1}};
    for (enum block_type type = 1; type < BLOCK_COUNT; type++) {
        uint8_t *row = random_rows(type, 1);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            float got[COLS + 1];
            got[parts[p][1]] = 42;
            block_to_f32(got, row, type, parts[p][0], parts[p][1]);
            assert_true(got[parts[p][1]] == 42.0F);
            for (size_t i = 0; i < parts[p][1]; i++) {
                const float want = value_at(type, row, parts[p][0] + i);
                if (!(got[i] == want) && !(isnan(got[i]) && isnan(want)))
                    fail_msg("%s: value %zu is %a, not %a", block_name(type), parts[p][0] + i, (double)got[i],
                             (double)want);
            }
        }
        free(row);
    }
}

struct product_case {
    struct mat w, plain; /* plain: the same numbers as f32, in our order */
    uint8_t *bytes;
    float *values;
};

/* Weights of some tenths: the scales of random bytes would drown everything else. */
static void case_init(struct product_case *p, enum block_type type, size_t turn)
{
    p->bytes = random_rows(type ? type : BLOCK_Q8_0, ROWS);
    p->values = malloc(ROWS * COLS * sizeof *p->values);
    const size_t row_bytes = type ? block_row_bytes(type, COLS) : COLS * sizeof(float);
    float *as_stored = malloc(ROWS * COLS * sizeof *as_stored);
    struct rng rng = rng_for(5, "stored");
    for (size_t i = 0; i < ROWS * COLS; i++)
        as_stored[i] = (float)rng_below(&rng, 1000) / 1000.0F - 0.5F;
    if (!type) {
        free(p->bytes);
        p->bytes = (uint8_t *)as_stored;
    }
    for (size_t r = 0; r < ROWS; r++) {
        const uint8_t *row = p->bytes + mat_stored_row(turn, r) * row_bytes;
        for (size_t c = 0; c < COLS; c++) {
            float x;
            memcpy(&x, row + (type ? 0 : c * sizeof x), sizeof x);
            p->values[r * COLS + c] = type ? value_at(type, row, c) : x;
        }
    }
    if (type)
        free(as_stored);
    p->w = (struct mat){
        .data = p->bytes, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS, .block = type, .turn = turn};
    p->plain = (struct mat){.data = p->values, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
}

static void case_done(struct product_case *p)
{
    free(p->bytes);
    free(p->values);
}

static float *random_floats(size_t n)
{
    struct rng rng = rng_for(9, "x");
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_below(&rng, 2000) / 1000.0F - 1;
    return x;
}

/* Types whose random bytes are moderate numbers; apart: columns are stored one after the other, and
 * between two rows lies one of another matrix. */
static const struct {
    enum block_type type;
    size_t turn;
    bool apart;
} cases[] = {{BLOCK_NONE, HEAD, false}, {BLOCK_NONE, 0, true},  {BLOCK_MXFP4, 0, false},
             {BLOCK_Q8_0, HEAD, false}, {BLOCK_Q4_K, 0, false}, {BLOCK_Q6_K, HEAD, false}};

static void case_part(struct product_case *p)
{
    float *stored = calloc(2 * ROWS * COLS, sizeof *stored);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++) {
            stored[c * 2 * ROWS + 2 * r] = NAN;
            stored[c * 2 * ROWS + 2 * r + 1] = p->values[r * COLS + c];
        }
    free(p->bytes);
    p->bytes = (uint8_t *)stored;
    p->w.data = stored + 1;
    p->w.step = 2;
    p->w.down = 2 * ROWS;
}

static double largest(const float *x, size_t n)
{
    const double most = near_max(x, n);
    return most > 0 ? most : 1;
}

/* Any number of rows, forward and backward, against the same numbers as plain floats. */
static void products_are_those_of_floats(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 7, 12, 13, WHOLE, WHOLE + 1, 64, MOST};
    struct num *num;
    struct err err;
    must(num_new(&num, 2, &err), &err);
    float *x = random_floats(MOST * COLS), *got = malloc(MOST * COLS * sizeof *got),
          *want = malloc(MOST * COLS * sizeof *want);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct product_case p;
        case_init(&p, cases[k].type, cases[k].turn);
        if (cases[k].apart)
            case_part(&p);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const size_t n = counts[i];
            gemm_xwt(num, got, x, p.w, n, false);
            gemm_xwt(num, want, x, p.plain, n, false);
            assert_near(got, want, n * ROWS, 1e-5 * largest(want, n * ROWS), "x · wᵀ");
            gemm_xw(num, got, x, p.w, n, false);
            gemm_xw(num, want, x, p.plain, n, false);
            assert_near(got, want, n * COLS, 1e-5 * largest(want, n * COLS), "x · w");
        }
        gemm_xwt(num, got, x, p.w, 3, false);
        gemm_xwt(num, want, x, p.plain, 3, false);
        if (!p.w.block && !cases[k].apart) /* columns are added one after the other */
            assert_same_bits(got, want, (size_t)3 * ROWS, "few rows");
        case_done(&p);
    }
    free(x);
    free(got);
    free(want);
    num_free(num);
}

/* While serving, a row's bits do not depend on how many others are with it. */
static void bits_do_not_depend_on_rows(void **state)
{
    (void)state;
    struct num *num;
    struct err err;
    must(num_new(&num, 2, &err), &err);
    num_set_invariant(num, true);
    float *x = random_floats(MOST * COLS), *all = malloc(MOST * ROWS * sizeof *all), one[ROWS];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct product_case p;
        case_init(&p, cases[k].type, cases[k].turn);
        if (cases[k].apart)
            case_part(&p);
        for (size_t n = 2; n <= MOST; n += n < 30 ? 5 : 40) {
            gemm_xwt(num, all, x, p.w, n, false);
            for (size_t i = 0; i < n; i++) {
                gemm_xwt(num, one, x + i * COLS, p.w, 1, false);
                assert_same_bits(all + i * ROWS, one, ROWS, "a row among others");
            }
        }
        case_done(&p);
    }
    free(x);
    free(all);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_as_told),
        cmocka_unit_test(products_are_those_of_floats),
        cmocka_unit_test(bits_do_not_depend_on_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
