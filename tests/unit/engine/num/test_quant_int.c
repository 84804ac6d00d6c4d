/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights with whole numbers: the kernels of every width against integer.h's
 * sums written out here, and the bits of few rows and of many. */
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
#include "num/integer.h"
#include "num/kernels.h"
#include "num/quant.h"
#include "num/rng.h"
#include "tests/lib/isas.h"
#include "tests/lib/draw.h"
#include "tests/lib/quantized.h"

/* --- products in integers --------------------------------------------------------------------- */

enum { INT_MOST = 70 * 64 }; /* columns: more steps than scales are multiplied at once */

/* One row of x, held as integer.h says, and its whole numbers in their own order. */
struct levels {
    int16_t plain[INT_MOST], q[INT_MOST];
    int8_t bytes[INT_MOST];
    float scale[2 * INT_MOST / INT_STEP], sum[2 * INT_MOST / INT_STEP];
};

/* What counts 256, and 64 bytes on what is left. */
static void put_two_bytes(int8_t *to, int16_t level)
{
    to[64] = (int8_t)(level & 255);
    to[0] = (int8_t)((level - to[64]) / 256);
}

/* Written once more, without a thought for speed. */
static void plain_levels(struct levels *l, const float *x, size_t cols, size_t bits, size_t group,
                         enum int_form form, bool fours)
{
    const size_t each = group < 64 ? group : 64;
    const float top = form == INT_HALVES ? 32639 : bits == 8 ? 63 : 127;
    memset(l, 0, sizeof *l);
    for (size_t at = 0; at < cols; at += each) {
        const size_t n = cols - at < each ? cols - at : each;
        float most = 0;
        long sum = 0;
        for (size_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(x[at + i]));
        l->scale[at / each] = most > 1e-30f ? most / top : 0;
        for (size_t i = 0; i < n; i++)
            sum += l->plain[at + i] = (int16_t)(most > 1e-30f ? lrintf(x[at + i] * (top / most)) : 0);
        l->sum[at / each] = (float)sum * l->scale[at / each];
    }
    for (size_t i = 0; i < INT_MOST; i++) {
        const size_t step = i / 64 * 64, by_twos = i % 2 * 32 + i % 64 / 2,
                     byte = bits == 4 ? by_twos : i % 64;
        if (form != INT_HALVES)
            l->bytes[step + (form == INT_BYTES ? by_twos : i % 64)] = (int8_t)l->plain[i];
        else if (fours)
            put_two_bytes((int8_t *)(l->q + step) + byte, l->plain[i]);
        else
            l->q[bits == 4 ? step + i % 4 * 16 + i % 64 / 4 : i / 32 * 32 + i % 2 * 16 + i % 32 / 2] =
                l->plain[i];
    }
}

static float in_pairs(const float v[8])
{
    float q[4];
    for (size_t i = 0; i < 4; i++)
        q[i] = v[i] + v[i + 4];
    return (q[0] + q[2]) + (q[1] + q[3]);
}

static float side_at(const void *from, enum dtype side, size_t i)
{
    float ret;
    dtype_to_f32(&ret, (const char *)from + i * side_bytes(side), side, 1);
    return ret;
}

/* Of weights of 4 bits lane k of eight takes words k, k + 8, … of the row, of those of 8 bits fours
 * k, k + 8, …; within a group its sum is a whole number. A product is rounded before it is added.
 * Before the words of 64 steps come their biases, that of x's group g in lane g modulo eight. */
static float plain_dot(const struct packed *p, size_t row, const struct levels *l)
{
    const size_t cols = p->w.cols, bits = p->quant.bits, group = p->quant.group, in_lane = bits == 4 ? 8 : 4,
                 each = group < 64 ? group : 64, groups = quant_groups(group, cols), block = 64 * 64;
    const uint8_t *w = p->raw + 1 + row * cols * bits / 8;
    const enum dtype side = p->quant.side;
    float lane[8] = {0};
    for (size_t at = 0; at < cols; at += each) {
        for (size_t i = at; at % block == 0 && i < at + block && i < cols; i += each) {
            volatile float product =
                side_at(p->quant.bias, side, row * groups + i / group) * l->sum[i / each];
            lane[i / each % 8] += product;
        }
        long sum[8] = {0};
        for (size_t i = at; i < at + each && i < cols; i++) {
            const int q = bits == 8 ? w[i] : w[i / 2] >> i % 2 * 4 & 15;
            sum[i / in_lane % 8] += (long)q * l->plain[i];
        }
        volatile float by = side_at(p->quant.scale, side, row * groups + at / group) *
                            l->scale[at / each]; /* volatile: nothing is fused */
        for (size_t k = 0; k < 8; k++) {
            volatile float product = (float)sum[k] * by;
            lane[k] += product;
        }
    }
    return in_pairs(lane);
}

static void check_integers(const struct int_kernels *k, size_t cols, size_t bits, size_t group,
                           enum dtype side, enum int_form form)
{
    enum { ROWS = INT_ROWS, N = 3 };
    static struct levels plain[N], l[N];
    struct packed p;
    float *x = random_floats(N * cols, "x"), y[N][ROWS];
    pack(&p, ROWS, cols, bits, group, side);
    x[cols / 2] *= 1000; /* as activations do */
    memset(x + cols, 0, cols / 2 * sizeof *x);
    memset(l, 0, sizeof l);
    for (size_t j = 0; j < N; j++) {
        const struct int_row to = {l[j].q, l[j].bytes, l[j].scale, l[j].sum};
        plain_levels(&plain[j], x + j * cols, cols, bits, group, form, k->fours);
        k->quantize(&to, x + j * cols, cols, bits, group, form);
        assert_memory_equal(l[j].q, plain[j].q, sizeof l[j].q);
        assert_memory_equal(l[j].bytes, plain[j].bytes, sizeof l[j].bytes);
        assert_memory_equal(l[j].scale, plain[j].scale, sizeof l[j].scale);
        assert_memory_equal(l[j].sum, plain[j].sum, sizeof l[j].sum);
    }
    for (size_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
        const struct int_dots d = {.y = y[0],
                                   .ldy = ROWS,
                                   .apart = 1,
                                   .n = N,
                                   .rows = rows,
                                   .x = {l[0].q, l[0].bytes, l[0].scale, l[0].sum},
                                   .form = form,
                                   .x_bytes = sizeof l[0],
                                   .w = p.raw + 1,
                                   .w_apart = cols * bits / 8,
                                   .scale = p.quant.scale,
                                   .bias = p.quant.bias,
                                   .side_apart = quant_groups(group, cols) * side_bytes(side),
                                   .side = side,
                                   .cols = cols,
                                   .group = group,
                                   .bits = bits};
        k->dots(&d);
        for (size_t j = 0; j < N; j++)
            for (size_t r = 0; r < rows; r++)
                if (y[j][r] != plain_dot(&p, r, &plain[j]))
                    fail_msg(
                        "%s, %zu bits, groups of %zu, %zu columns: row %zu with %zu is %.9g, expected %.9g",
                        k->isa, bits, group, cols, r, j, (double)y[j][r],
                        (double)plain_dot(&p, r, &plain[j]));
    }
    free(x);
    unpack(&p);
}

static void test_integers_are_exact(void **state)
{
    (void)state;
    const struct int_kernels *k[ISAS_MOST];
    static const size_t columns[] = {8, 24, 32, 64, 72, 96, 128, 136, 200, 256, 1000, 65 * 64, 69 * 64 + 40};
    for (size_t i = 0, all = isas_integers(k); i < all; i++)
        for (size_t v = 0; v < 6; v++)
            for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
                check_integers(k[i], columns[c], widths[v % 2], group_sizes[v / 2], sides[(v + c) % 3],
                               INT_HALVES);
                if (widths[v % 2] == 4)
                    check_integers(k[i], columns[c], 4, group_sizes[v / 2], sides[(v + c) % 3], INT_BYTES);
            }
}

/* --- many rows in bytes ----------------------------------------------------------------------- */

/* Group after group: the exact sum, scaled, and then what the bias gives. */
static float plain_many(const struct packed *p, size_t row, const struct levels *l, float y)
{
    const size_t cols = p->w.cols, bits = p->quant.bits, group = p->quant.group,
                 each = group < 64 ? group : 64, groups = quant_groups(group, cols);
    const uint8_t *w = p->raw + 1 + row * cols * bits / 8;
    for (size_t at = 0; at < cols; at += each) {
        const size_t g = row * groups + at / group;
        long sum = 0;
        for (size_t i = at; i < at + each && i < cols; i++)
            sum += (bits == 8 ? w[i] : w[i / 2] >> i % 2 * 4 & 15) * (long)l->plain[i];
        volatile float by = ((const float *)p->quant.scale)[g] * l->scale[at / each]; /* nothing is fused */
        volatile float product = (float)sum * by,
                       of_bias = ((const float *)p->quant.bias)[g] * l->sum[at / each];
        y += product;
        y += of_bias;
    }
    return y;
}

static void check_many(struct num *num, size_t n, size_t rows, size_t cols, size_t bits, size_t group)
{
    static struct levels l;
    struct packed p;
    pack(&p, rows, cols, bits, group, DTYPE_F32);
    float *x = random_floats(n * cols, "x"), *y = random_floats(n * rows, "y"),
          *y0 = random_floats(n * rows, "y");
    gemm_xwt(num, y, x, p.w, n, rows % 2);
    for (size_t i = 0; i < n; i++) {
        plain_levels(&l, x + i * cols, cols, bits, group, INT_TILES, false);
        for (size_t r = 0; r < rows; r++) {
            const float want = plain_many(&p, r, &l, rows % 2 ? y0[i * rows + r] : 0);
            if (y[i * rows + r] != want)
                fail_msg("%zu·%zu·%zu, %zu bits, groups of %zu: [%zu, %zu] is %.9g, expected %.9g", n, rows,
                         cols, bits, group, i, r, (double)y[i * rows + r], (double)want);
        }
    }
    free(x), free(y), free(y0);
    unpack(&p);
}

/* One thread or three; rows and columns of one block and of several, whole and not. */
static void test_many_rows_are_exact(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        {17, 1, 8}, {18, 37, 72}, {23, 131, 256}, {29, 128, 520}, {17, 300, 2056}};
    struct num *num[2] = {NULL, NULL};
    assert_int_equal(num_new(&num[0], 1, NULL), 0);
    assert_int_equal(num_new(&num[1], 3, NULL), 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < 6; v++) {
            num_set_compute(num[(i + v) % 2], NUM_INT8);
            check_many(num[(i + v) % 2], shapes[i][0], shapes[i][1], shapes[i][2], widths[v % 2],
                       group_sizes[v / 2]);
        }
    num_free(num[0]);
    num_free(num[1]);
}

/* y of N rows of x and all rows of W, by one table. */
enum { TILE_N = INT_MANY + 3, TILE_MOST = 5 * 64 };
struct tile_case {
    size_t rows, cols, bits, group;
    bool accumulate;
};

static void by_tiles(float *y, const struct int_tiles *k, const struct packed *p, const struct levels *l,
                     const struct tile_case *c)
{
    static uint32_t panel[INT_TALL * TILE_MOST / 4];
    static float scale[INT_TALL * TILE_MOST / 32], bias[INT_TALL * TILE_MOST / 32];
    const size_t tall = k->tall, groups = quant_groups(c->group, c->cols), padded = int_cols(c->cols);
    assert_true(tall <= INT_TALL && k->many <= INT_MANY);
    for (size_t r = 0; r < c->rows; r += tall) {
        const size_t rows = c->rows - r < tall ? c->rows - r : tall;
        k->pack(panel, p->raw + 1 + r * c->cols * c->bits / 8, c->cols * c->bits / 8, rows, c->cols, 0,
                padded, c->bits);
        for (size_t i = 0; i < tall; i++)
            for (size_t g = 0; g < groups; g++) {
                const size_t at = (r + i) * groups + g;
                scale[g * tall + i] = i < rows ? ((const float *)p->quant.scale)[at] : 0;
                bias[g * tall + i] = i < rows ? ((const float *)p->quant.bias)[at] : 0;
            }
        if (k->begin)
            k->begin(c->group);
        for (size_t i = 0; i < TILE_N; i += k->many)
            k->tile(&(struct int_tile){.y = y + i * c->rows + r,
                                       .ldy = c->rows,
                                       .n = TILE_N - i < k->many ? TILE_N - i : k->many,
                                       .rows = rows,
                                       .x = {NULL, (int8_t *)(uintptr_t)l[i].bytes,
                                             (float *)(uintptr_t)l[i].scale, (float *)(uintptr_t)l[i].sum},
                                       .x_bytes = sizeof *l,
                                       .panel = {panel, scale, bias},
                                       .group = c->group,
                                       .groups = quant_groups(int_group(c->group), c->cols),
                                       .accumulate = c->accumulate});
        if (k->end)
            k->end();
    }
}

static void check_tiles(const struct tile_case *c)
{
    const struct int_tiles *k[ISAS_MOST];
    static struct levels l[TILE_N + INT_MANY];
    struct packed p;
    const size_t n = TILE_N * c->rows;
    float *x = random_floats(TILE_N * c->cols, "x"), *want = random_floats(n, "y");
    pack(&p, c->rows, c->cols, c->bits, c->group, DTYPE_F32);
    for (size_t i = 0; i < TILE_N; i++)
        plain_levels(&l[i], x + i * c->cols, c->cols, c->bits, c->group, INT_TILES, false);
    for (size_t i = 0; i < TILE_N; i++)
        for (size_t r = 0; r < c->rows; r++)
            want[i * c->rows + r] = plain_many(&p, r, &l[i], c->accumulate ? want[i * c->rows + r] : 0);
    for (size_t t = 0, all = isas_tiles(k); t < all; t++) {
        float *y = random_floats(n, "y");
        by_tiles(y, k[t], &p, l, c);
        for (size_t i = 0; i < n; i++)
            if (y[i] != want[i])
                fail_msg("%s, %zu rows of %zu, %zu bits, groups of %zu: [%zu, %zu] is %.9g, expected %.9g",
                         k[t]->isa, c->rows, c->cols, c->bits, c->group, i / c->rows, i % c->rows,
                         (double)y[i], (double)want[i]);
        free(y);
    }
    free(x), free(want);
    unpack(&p);
}

/* Panels of one height and another, whole and not, and rows of x that fill no tile. */
static void test_tiles_of_every_width(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{5, 128}, {16, 64}, {33, 72}, {64, 320}, {49, 200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < 6; v++)
            check_tiles(&(struct tile_case){shapes[i][0], shapes[i][1], widths[v % 2], group_sizes[v / 2],
                                            (i + v) % 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_are_exact),
        cmocka_unit_test(test_many_rows_are_exact),
        cmocka_unit_test(test_tiles_of_every_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
