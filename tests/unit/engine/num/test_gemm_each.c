/* SPDX-License-Identifier: MIT
 *
 * Several products at once give the bits that each of them gives alone, with any number of threads:
 * of every stored type, with few rows and many, and with more whole numbers than there is room
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/rng.h"

enum { LIST_MAX = 12 };

/* One product of the list; x of the product `like` places before it, 0: its own. */
struct asked {
    size_t bits; /* 0: of `dtype` */
    enum dtype dtype;
    size_t n, rows, cols, like;
    bool accumulate;
};

struct list {
    struct gemm_xwt at[LIST_MAX];
    struct quant quant[LIST_MAX];
    float *values[LIST_MAX], *x[LIST_MAX], *y[LIST_MAX], *alone[LIST_MAX];
    void *data[LIST_MAX], *scale[LIST_MAX], *bias[LIST_MAX];
    size_t n;
};

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    assert_non_null(p);
    return p;
}

static float *random_floats(size_t n, size_t seed)
{
    float *x = memory(n * sizeof *x);
    struct rng rng = rng_for(seed, "each");
    rng_fill_normal(&rng, x, n, 0, 1);
    return x;
}

static struct mat weight(struct num *num, struct list *l, const struct asked *a)
{
    const size_t i = l->n, count = a->rows * a->cols;
    float *f = l->values[i] = random_floats(count, 7 + i);
    struct mat w = {.data = f, .dtype = DTYPE_F32, .rows = a->rows, .cols = a->cols};
    if (a->bits) {
        const size_t groups = a->rows * quant_groups(QUANT_GROUP, a->cols) * sizeof(float);
        l->data[i] = memory(a->rows * quant_words(a->bits, a->cols) * sizeof(uint32_t));
        l->scale[i] = memory(groups);
        l->bias[i] = memory(groups);
        assert_int_equal(
            gemm_quantize(num, l->data[i], l->scale[i], l->bias[i], w, 0, a->rows, a->bits, QUANT_GROUP), 0);
        l->quant[i] = (struct quant){.bits = a->bits,
                                     .group = QUANT_GROUP,
                                     .side = DTYPE_F32,
                                     .scale = l->scale[i],
                                     .bias = l->bias[i]};
        w.data = l->data[i];
        w.quant = &l->quant[i];
    } else if (a->dtype != DTYPE_F32) {
        uint16_t *half = l->data[i] = memory(count * sizeof *half);
        for (size_t k = 0; k < count; k++)
            memcpy(&half[k], (const char *)&f[k] + 2, sizeof *half);
        w.data = half;
        w.dtype = a->dtype;
    }
    return w;
}

static void list_add(struct num *num, struct list *l, const struct asked *a)
{
    const size_t i = l->n;
    const struct mat w = weight(num, l, a);
    l->x[i] = a->like ? NULL : random_floats(a->n * a->cols, 100 + i);
    l->y[i] = random_floats(a->n * a->rows, 200 + i);
    l->alone[i] = random_floats(a->n * a->rows, 200 + i);
    l->at[i] = (struct gemm_xwt){l->y[i], a->like ? l->at[i - a->like].x : l->x[i], w, a->n, a->accumulate};
    l->n++;
}

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->values[i]), free(l->x[i]), free(l->y[i]), free(l->alone[i]), free(l->data[i]),
            free(l->scale[i]), free(l->bias[i]);
}

static void check(int threads, const struct asked *asked, size_t n)
{
    struct num *num;
    struct list l = {0};
    assert_int_equal(num_new(&num, threads, NULL), 0);
    for (size_t i = 0; i < n; i++)
        list_add(num, &l, &asked[i]);
    for (size_t i = 0; i < n; i++)
        gemm_xwt(num, l.alone[i], l.at[i].x, l.at[i].w, l.at[i].n, l.at[i].accumulate);
    gemm_xwt_each(num, l.at, l.n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(l.y[i], l.alone[i], asked[i].n * asked[i].rows * sizeof(float)) != 0)
            fail_msg("product %zu of %zu, %d threads, is not what it is alone", i, n, threads);
    list_free(&l);
    num_free(num);
}

static void test_stored_types(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {0, DTYPE_F32, 1, 301, 130, 0, false},  {0, DTYPE_BF16, 3, 77, 130, 0, true},
        {0, DTYPE_F32, 3, 5, 130, 1, false},    {0, DTYPE_BF16, 1, 1, 1, 0, false},
        {0, DTYPE_BF16, 40, 33, 17, 0, false}, /* many rows in between */
        {0, DTYPE_F32, 2, 0, 9, 0, false},      {0, DTYPE_F32, 0, 9, 9, 0, false},
        {0, DTYPE_F32, 2, 9, 0, 0, false},      {0, DTYPE_F16, 12, 411, 96, 0, false},
        {0, DTYPE_F32, 12, 300, 200, 0, false},
    };
    for (int threads = 1; threads <= 4; threads++)
        for (size_t n = 1; n <= sizeof asked / sizeof *asked; n += 3)
            check(threads, asked, n);
}

static void test_whole_numbers(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {4, DTYPE_F32, 2, 301, 192, 0, false}, {4, DTYPE_F32, 2, 130, 192, 1, false},
        {8, DTYPE_F32, 2, 77, 192, 1, false}, /* the same x in other whole numbers */
        {0, DTYPE_F32, 2, 77, 192, 1, false},  {8, DTYPE_F32, 5, 99, 64, 0, true},
        {8, DTYPE_F32, 20, 33, 64, 0, false}, /* many rows in between */
        {4, DTYPE_F32, 16, 9, 128, 0, false},  {4, DTYPE_F32, 1, 500, 320, 0, true},
    };
    for (int threads = 1; threads <= 4; threads++)
        for (size_t n = 1; n <= sizeof asked / sizeof *asked; n++)
            check(threads, asked, n);
}

/* A third of these inputs is all that the panel holds. */
static void test_more_than_fits(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {4, DTYPE_F32, 16, 3, 64000, 0, false},
        {4, DTYPE_F32, 16, 2, 64000, 0, false},
        {8, DTYPE_F32, 16, 5, 64000, 0, false},
    };
    check(1, asked, sizeof asked / sizeof *asked);
    check(2, asked, sizeof asked / sizeof *asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_types),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_more_than_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
