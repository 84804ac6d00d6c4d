/* SPDX-License-Identifier: MIT
 *
 * Quantized weights: what quantizing loses at most, the layout against a packing written out here,
 * the kernels of every width against one another, products against f64. */
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

/* A quantized matrix as another program would have written it: drawn levels, packed here. */
struct packed {
    uint8_t *raw; /* one byte past alignment, as a file may have it */
    char *sides;
    float *values; /* what it stands for */
    struct quant quant;
    struct mat w;
};

static size_t side_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

/* A number that every type of side holds, and its bytes. */
static float put_side(char *to, enum dtype t, float x)
{
    float rounded;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xfff80000u; /* four bits of fraction */
    memcpy(&rounded, &bits, sizeof rounded);
    const uint16_t bf16 = (uint16_t)(bits >> 16);
    const uint16_t f16 =
        (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112) << 10) | (bits >> 13 & 1023u));
    memcpy(to,
           t == DTYPE_F32    ? (const void *)&rounded
           : t == DTYPE_BF16 ? (const void *)&bf16
                             : (const void *)&f16,
           side_bytes(t));
    return rounded;
}

static float draw_side(struct rng *rng, float low, float high)
{
    float x;
    rng_fill_uniform(rng, &x, 1, low, high);
    return x;
}

static void pack(struct packed *p, size_t rows, size_t cols, size_t bits, size_t group, enum dtype side)
{
    const size_t across = quant_groups(group, cols), groups = rows * across, size = side_bytes(side);
    struct rng rng = rng_for(rows * 1000 + cols, "packed");
    p->raw = calloc(rows * cols * bits / 8 + 1, 1);
    p->sides = calloc(2 * groups, size);
    p->values = calloc(rows * cols, sizeof *p->values);
    assert_true(p->raw && p->sides && p->values);
    for (size_t i = 0; i < rows * cols; i++) {
        static float scale, bias;
        if (i % cols % group == 0) {
            const size_t g = i / cols * across + i % cols / group;
            scale = put_side(p->sides + g * size, side, draw_side(&rng, 0.01f, 0.5f));
            bias = put_side(p->sides + (groups + g) * size, side, draw_side(&rng, -1, -0.25f));
        }
        const uint32_t q = (uint32_t)draw_side(&rng, 0, (float)(1u << bits)) & ((1u << bits) - 1);
        if (bits == 8)
            p->raw[1 + i] = (uint8_t)q;
        else
            p->raw[1 + i / 2] |= (uint8_t)(i % 2 ? q << 4 : q);
        p->values[i] = (float)((double)q * (double)scale + (double)bias);
    }
    p->quant = (struct quant){p->sides, p->sides + groups * size, side, bits, group};
    p->w = (struct mat){.data = p->raw + 1, .rows = rows, .cols = cols, .quant = &p->quant};
}

static void unpack(struct packed *p)
{
    free(p->raw), free(p->sides), free(p->values);
}

static const size_t widths[] = {4, 8}, group_sizes[] = {32, 64, 128};
static const enum dtype sides[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

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

static void check_round_trip(struct num *num, const float *x, size_t cols, size_t bits)
{
    uint32_t words[64];
    float scale[8], bias[8], back[256];
    assert_true(cols <= 256);
    assert_int_equal(quant_row(words, scale, bias, x, cols, bits), 0);
    const struct quant q = {scale, bias, DTYPE_F32, bits, QUANT_GROUP};
    gemm_rows(num, back, (struct mat){.data = words, .rows = 1, .cols = cols, .quant = &q}, 0, 1);
    for (size_t i = 0; i < cols; i++) {
        const float *group = x + i / QUANT_GROUP * QUANT_GROUP;
        double low = (double)group[0], high = low;
        for (size_t k = 0; k < QUANT_GROUP && group + k < x + cols; k++) {
            low = fmin(low, (double)group[k]);
            high = fmax(high, (double)group[k]);
        }
        const double size = fmax(fabs(low), fabs(high)), s = (double)scale[i / QUANT_GROUP];
        const double off = fabs((double)back[i] - (double)x[i]), levels = (1u << bits) - 1;
        /* beyond the ends: what 4 bits may cut off, and half a last place of BF16 in the bias and
         * in every step of the scale */
        const double cut = (bits == 4 ? 0.08 : 0) * (high - low) + size / 256 + (high - low) / 256;
        const bool is_inside = (double)x[i] >= (double)bias[i / QUANT_GROUP] &&
                               (double)x[i] <= (double)bias[i / QUANT_GROUP] + levels * s;
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
            check_round_trip(num, x, 256 - i * 8, bits);
            for (size_t k = 0; k < 256; k++)
                x[k] = shift[i / 4] * spread[i % 4]; /* all alike; zeros too */
            check_round_trip(num, x, 192, bits);
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
        assert_int_equal(quant_row(words, scale, bias, x, 64, 4), -EDOM);
    }
    assert_true(quant_is_possible(4, 64, 128) && quant_is_possible(8, 32, 80) &&
                quant_is_possible(4, 128, 128));
    assert_false(quant_is_possible(4, 64, 100) || quant_is_possible(6, 64, 64) ||
                 quant_is_possible(4, 16, 64) || quant_is_possible(8, 64, 0));
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
    const double coarse = n <= 16 ? 1.0 / 65278 : 0; /* few rows of x become whole numbers of 16 bits */
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
                (bits == 4 ? k[i]->quant4_to_f32 : k[i]->quant8_to_f32)(row[i], p.raw + 1, p.quant.scale,
                                                                        p.quant.bias, group, cols);
            for (size_t i = 1; i < all; i++)
                for (size_t c = 0; c < cols; c++)
                    assert_true(fabsf(row[0][c] - row[i][c]) <=
                                1e-5f); /* with and without a fused multiply-add */
            unpack(&p);
        }
}

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

/* The tables agree on a tile, whatever their panels' height. */
static void test_tiles_of_every_width(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 128, GROUP = 64 };
    const struct int_kernels *k[ISAS_MOST];
    const size_t all = isas_integers(k);
    static struct levels l[INT_TILE];
    static uint32_t panel[INT_TALL * COLS / 4];
    static float scale[INT_TALL * 2], bias[INT_TALL * 2];
    float y[ISAS_MOST][INT_TILE][ROWS];
    struct packed p;
    float *x = random_floats(INT_TILE * COLS, "x");
    pack(&p, ROWS, COLS, 4, GROUP, DTYPE_F32);
    for (size_t i = 0; i < all; i++) {
        const size_t tall = k[i]->tall;
        assert_true(tall <= INT_TALL);
        for (size_t j = 0; j < INT_TILE; j++)
            k[i]->quantize(&(struct int_row){NULL, l[j].bytes, l[j].scale, l[j].sum}, x + j * COLS, COLS, 4,
                           GROUP, INT_TILES);
        k[i]->pack(panel, p.raw + 1, COLS / 2, ROWS, COLS, 0, COLS, 4);
        for (size_t r = 0; r < tall; r++)
            for (size_t g = 0; g < 2; g++) {
                scale[g * tall + r] = r < ROWS ? ((const float *)p.quant.scale)[r * 2 + g] : 0;
                bias[g * tall + r] = r < ROWS ? ((const float *)p.quant.bias)[r * 2 + g] : 0;
            }
        k[i]->tile(&(struct int_tile){.y = y[i][0],
                                      .ldy = ROWS,
                                      .n = INT_TILE,
                                      .rows = ROWS,
                                      .x = {l[0].q, l[0].bytes, l[0].scale, l[0].sum},
                                      .x_bytes = sizeof l[0],
                                      .panel = {panel, scale, bias},
                                      .group = GROUP,
                                      .groups = 2});
    }
    for (size_t i = 1; i < all; i++)
        assert_memory_equal(y[0], y[i], sizeof y[0]);
    free(x);
    unpack(&p);
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
        cmocka_unit_test(test_rows_mean_what_they_say),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_what_cannot_be_quantized), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_few_rows_same_bits),       cmocka_unit_test(test_rows_of_every_width),
        cmocka_unit_test(test_integers_are_exact),       cmocka_unit_test(test_what_is_not_finite_stays_so),
        cmocka_unit_test(test_many_rows_are_exact),      cmocka_unit_test(test_tiles_of_every_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
