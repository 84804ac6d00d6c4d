/* SPDX-License-Identifier: MIT
 *
 * Our own large products: two terms in one against plain f64 loops, whatever way their factors lie;
 * and the same bits for any number of rows and threads; the same of thin.h's. test_gemm.c has the
 * stored types. */
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
#include "num/product.h"
#include "tests/lib/draw.h"
#include "tests/lib/isas.h"

/* The linker puts this choice in place of the CPU's, so that every table is tested that the CPU can
 * run. */
const struct packed_kernels *__real_isa_pick_packed(void);
const struct packed_kernels *__wrap_isa_pick_packed(void);
static const struct packed_kernels *chosen;

const struct packed_kernels *__wrap_isa_pick_packed(void)
{
    return chosen;
}

/* Returns how many tables there are. */
static size_t tables(const struct packed_kernels *all[ISAS_MOST])
{
    chosen = __real_isa_pick_packed();
    const size_t n = isas_packed(all);
    if (!n) {
        puts("OpenBLAS multiplies on this CPU: nothing to check");
        skip();
    }
    return n;
}

static struct num *unit(const struct packed_kernels *table, int threads)
{
    struct num *num = NULL;
    chosen = table;
    assert_int_equal(num_new(&num, threads, NULL), 0);
    assert_true(product_is_ours(num));
    return num;
}

struct shape {
    size_t m, n, k[2];
    bool a_by_k, b_by_k;
};

static struct product_term term_of(const struct shape *s, size_t i, float *a, float *b)
{
    return (struct product_term){
        .a = a,
        .lda = s->a_by_k ? s->m : s->k[i],
        .a_by_k = s->a_by_k,
        .b_by_k = s->b_by_k,
        .b = {.data = b,
              .dtype = DTYPE_F32,
              .rows = s->b_by_k ? s->k[i] : s->n,
              .cols = s->b_by_k ? s->n : s->k[i]},
        .k = s->k[i],
        .factor = i ? 0.5f : 1,
    };
}

static double element(const struct product_term *t, size_t i, size_t j, size_t p)
{
    const float *b = t->b.data;
    const float left = t->a_by_k ? t->a[p * t->lda + i] : t->a[i * t->lda + p];
    return (double)t->factor * (double)left *
           (double)(t->b_by_k ? b[p * t->b.cols + j] : b[j * t->b.cols + p]);
}

static void check_shape(struct num *num, const struct shape *s)
{
    float *a[2], *b[2], *c = random_floats(s->m * s->n, "c"), *was = random_floats(s->m * s->n, "c");
    struct product p = {.c = c, .ldc = s->n, .m = s->m, .n = s->n, .accumulate = true, .terms = 2};
    for (size_t i = 0; i < 2; i++) {
        a[i] = random_floats(s->m * s->k[i], i ? "a1" : "a0");
        b[i] = random_floats(s->n * s->k[i], i ? "b1" : "b0");
        p.term[i] = term_of(s, i, a[i], b[i]);
    }
    product_run(num, &p);
    for (size_t i = 0; i < s->m; i++)
        for (size_t j = 0; j < s->n; j++) {
            double sum = (double)was[i * s->n + j], size = fabs(sum);
            for (size_t t = 0; t < 2; t++)
                for (size_t q = 0; q < s->k[t]; q++) {
                    const double x = element(&p.term[t], i, j, q);
                    sum += x;
                    size += fabs(x);
                }
            const double off = fabs((double)c[i * s->n + j] - sum);
            if (!(off <= 1.2e-7 * (2 + sqrt((double)(s->k[0] + s->k[1]))) * size))
                fail_msg("%zu x %zu x %zu + %zu at [%zu, %zu]: off by %g", s->m, s->n, s->k[0], s->k[1], i, j,
                         off);
        }
    for (size_t i = 0; i < 2; i++)
        free(a[i]), free(b[i]);
    free(c), free(was);
}

static void two_terms_are_added(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 1, {1, 1}, false, false},       {13, 17, {1000, 16}, false, true},
        {50, 600, {390, 65}, false, true},  {49, 130, {385, 3}, true, true},
        {6, 16, {64, 0}, false, false},     {2304, 20, {384, 64}, false, false},
        {300, 40, {4000, 64}, false, true}, {7, 33, {0, 9}, true, false},
        {2350, 200, {390, 8}, false, true}, {30, 70, {40000, 0}, false, false}, /* A in two pieces */
        {601, 700, {60, 8}, false, false},  {600, 1100, {40, 0}, true, true},   /* rows for each thread */
        {6950, 210, {20, 0}, false, false}, {580, 200, {400, 65}, false, true}, /* and those in two */
    };
    const struct packed_kernels *table[ISAS_MOST];
    for (size_t t = 0, n = tables(table); t < n; t++) {
        struct num *num[2] = {unit(table[t], 1), unit(table[t], 3)};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (size_t k = 0; k < 2; k++)
                check_shape(num[k], &shapes[i]);
        num_free(num[0]);
        num_free(num[1]);
    }
}

/* Row i of y = x · Wᵀ and of dx = dy · W, alone, with others, by any number of threads, in whatever
 * tiles. */
static void rows_threads_and_tiles_change_no_bit(void **state)
{
    (void)state;
    enum { N = 75, ROWS = 530, COLS = 1030 };
    const struct packed_kernels *table[ISAS_MOST];
    const size_t all = tables(table);
    struct num *one = unit(table[0], 1);
    float *x = random_floats(N * ROWS, "x"), *w = random_floats(ROWS * COLS, "w");
    float *want = random_floats(N * COLS, "y"), *got = random_floats(N * COLS, "y");
    const struct mat as_is = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
    const struct mat turned = {.data = w, .dtype = DTYPE_F32, .rows = COLS, .cols = ROWS};
    for (int down = 0; down < 2; down++) {
        void (*const multiply)(struct num *, float *, const float *, struct mat, size_t, bool) =
            down ? gemm_xw : gemm_xwt;
        const struct mat mat = down ? as_is : turned;
        multiply(one, want, x, mat, N, false);
        for (int i = 0; i < 5 * (int)all; i++) {
            struct num *num = unit(table[i / 5], i % 5 + 1);
            for (size_t from = 0, rows; from < N; from += rows) {
                rows = from ? 30 : 15; /* a narrow tile has them all */
                multiply(num, got, x + from * ROWS, mat, rows, false);
                assert_memory_equal(got, want + from * COLS, rows * COLS * sizeof *got);
            }
            multiply(num, got, x, mat, N, false);
            assert_memory_equal(got, want, N * COLS * sizeof *got);
            num_free(num);
        }
    }
    free(x), free(w), free(want), free(got);
    num_free(one);
}

/* So many rows that each thread has its own, and helps the others; and so long a sum that A is
 * packed in pieces, so that nobody may begin one while another is at the one before. */
static void own_rows_change_no_bit(void **state)
{
    (void)state;
    enum { N = 600, LONG = 10900, WIDE = 700, TIMES = 3 };
    const struct packed_kernels *table[ISAS_MOST];
    const size_t all = tables(table);
    float *x = random_floats(N * LONG, "x"), *w = random_floats(LONG * WIDE, "w");
    float *want = random_floats(N * WIDE, "y"), *got = random_floats(N * WIDE, "y");
    for (int down = 0; down < 2; down++) {
        void (*const multiply)(struct num *, float *, const float *, struct mat, size_t, bool) =
            down ? gemm_xw : gemm_xwt;
        const struct mat mat = {
            .data = w, .dtype = DTYPE_F32, .rows = down ? LONG : WIDE, .cols = down ? WIDE : LONG};
        struct num *one = unit(table[0], 1);
        multiply(one, want, x, mat, N, false);
        num_free(one);
        for (size_t i = 0; i < 2 * all; i++) {
            struct num *num = unit(table[i / 2], 2 + (int)(i % 2));
            for (int time = 0; time < TIMES; time++) {
                multiply(num, got, x, mat, N, false);
                assert_memory_equal(got, want, N * WIDE * sizeof *got);
            }
            num_free(num);
        }
    }
    free(x), free(w), free(want), free(got);
}

/* dw += 1.5 · dyᵀ · x, where dw is thin, against f64 loops; and the same bits from every table, by
 * any number of threads. */
static void check_thin(const struct packed_kernels **table, size_t all, size_t n, size_t rows, size_t cols)
{
    float *dy = random_floats(n * rows, "dy"), *x = random_floats(n * cols, "x");
    float *was = random_floats(rows * cols, "dw"), *want = NULL;
    for (size_t i = 0; i < 4 * all; i++) {
        struct num *num = unit(table[i / 4], 1 + (int)(i % 4));
        float *got = random_floats(rows * cols, "dw");
        gemm_dw(num, got, dy, x, n, rows, cols, 1.5f);
        num_free(num);
        if (want) {
            assert_memory_equal(got, want, rows * cols * sizeof *got);
            free(got);
        } else
            want = got;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            double sum = (double)was[r * cols + c], size = fabs(sum);
            for (size_t t = 0; t < n; t++) {
                const double product = 1.5 * (double)dy[t * rows + r] * (double)x[t * cols + c];
                sum += product;
                size += fabs(product);
            }
            const double off = fabs((double)want[r * cols + c] - sum);
            if (!(off <= 1.2e-7 * (2 + sqrt((double)n)) * size))
                fail_msg("%zu rows, dw [%zu, %zu] at [%zu, %zu]: off by %g", n, rows, cols, r, c, off);
        }
    free(dy), free(x), free(was), free(want);
}

static void thin_gradients(void **state)
{
    (void)state;
    static const struct {
        size_t n, rows, cols;
    } shapes[] = {
        {1, 1, 1},     {300, 16, 700}, {300, 700, 16},  {9, 8, 45},     {129, 45, 8},
        {777, 32, 95}, {65, 16, 16},   {640, 2500, 17}, {8300, 3, 4100} /* more than at once */
    };
    const struct packed_kernels *table[ISAS_MOST];
    const size_t all = tables(table);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_thin(table, all, shapes[i].n, shapes[i].rows, shapes[i].cols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_terms_are_added),
        cmocka_unit_test(rows_threads_and_tiles_change_no_bit),
        cmocka_unit_test(own_rows_change_no_bit),
        cmocka_unit_test(thin_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
