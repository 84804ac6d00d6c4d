/* SPDX-License-Identifier: MIT
 *
 * Products of weights in blocks (block.h): a span of 256 columns and a row of W at a time, whose
 * levels become bytes once for some rows of x. Of small blocks there are sixteen sums: of 64 levels
 * beside one another the k-th four go to sum k, in f32 once their scale is known. Of large blocks
 * there are eight, of 32 levels, and they are whole numbers through the span, scales included.
 * Included by integer.c only. */
#ifndef NUM_INTEGER_BLOCK_H
#define NUM_INTEGER_BLOCK_H

#include "num/integer.h"
#include "num/integer_scales.h"
#include "num/integer_simd.h"
#include "num/integer_span.h"

enum {
    STEPS = INT_SPAN / INT_STEP,
    BLOCK_X = 8,                       /* rows of x at once, at most: their span stays in the first cache */
    FETCH_BLOCKS = PAIRS ? 2048 : 512, /* bytes ahead of each row; measured */
    FETCH_LINE = 64,
    PLACES = 3, /* of a number of x: bytes that count more or less */
};

/* A span of a row of W as levels. */
struct span_levels {
    wb v[STEPS][PARTS];
};

/* Of one row of x; its bytes of each step. */
struct span_x {
    const int8_t *bytes;
    const float *scale, *sum;
};

/* Sums of a row of W with one of x: sixteen, or eight. */
struct span_sums {
    vf v[2];
};

/* Rows of W and of x that are multiplied at once. */
struct block_tile {
    struct span_sums acc[INT_ROWS][BLOCK_X];
    const uint8_t *w[INT_ROWS];
    struct span_x x[BLOCK_X];
};

/* Bytes b of the numbers of x that a vector of levels is multiplied with. */
INLINE wb x_at(const struct span_x *x, const size_t s, const size_t part, const size_t b,
               const enum block_type type)
{
    wb v;
    memcpy(&v, x->bytes + (s * int_block_bytes(type) + b) * INT_STEP + part * sizeof v, sizeof v);
    return v;
}

/* Span `at` of x. */
INLINE struct span_x span_x(const struct span_x *x, size_t at, const enum block_type type)
{
    const int8_t *bytes = x->bytes + at * INT_SPAN * int_block_bytes(type);
    __asm__("" : "+r"(bytes)); /* else GCC 12 keeps a pointer for each vector, on the stack */
    return (struct span_x){bytes, x->scale + at * (INT_SPAN / int_block_group(type)),
                           x->sum + at * (INT_SPAN / int_block_sums(type))};
}

/* What follows is computed after v: left to choose, GCC 12 makes all products first, and puts most
 * of them on the stack. AVX-512 has registers for them. */
#if defined __AVX2__ && !defined __AVX512VNNI__
#define IN_ORDER(v) __asm__ volatile("" : "+x"(v))
#else
#define IN_ORDER(v) (void)(v)
#endif

/* --- small blocks ----------------------------------------------------------------------------- */

/* Those of the sums of steps s and s + 1, which are the halves of the same blocks. */
INLINE wf scales_of_sums(vf by, const size_t s, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    const int i = (int)s, j = i + 4;
    const __m512i which =
        _mm512_setr_epi32(i, i, i, i, j, j, j, j, i + 1, i + 1, i + 1, i + 1, j + 1, j + 1, j + 1, j + 1);
    return (wf)_mm512_permutexvar_ps(which, _mm512_castps256_ps512((__m256)by));
#elif defined __AVX2__
    return (vf)_mm256_permutevar_ps((__m256)by, _mm256_set1_epi32((int)(s + part)));
#else
    float each[LANES];
    memcpy(each, &by, sizeof by);
    return __builtin_shufflevector(splat(each[s + part]), splat(each[s + part + 4]), 0, 1, 2, 3, 12, 13, 14,
                                   15);
#endif
}

#if defined __AVX2__ && !defined __AVX512VNNI__ && !defined __AVXVNNI__
/* Sums of the products of 32 signed levels with as many numbers of 16 bits, added to `to`. */
INLINE wi long_sums(wi to, wb w, const int8_t *x, const int8_t *sums, const size_t part)
{
    typedef int16_t signed_h __attribute__((vector_size(32)));
    const int8_t *at = x + part * 2 * sizeof w;
    (void)sums;
    return add_products(add_products(to, (wh)((signed_h)((wh)w << 8) >> 8), load16(at)),
                        (wh)((signed_h)w >> 8), load16(at + sizeof w));
}

/* Sums of the products of steps s and s + 1, which have the same scales. */
INLINE wi step_sums(const struct span_levels *w, const struct span_x *x, const size_t s, const size_t part,
                    const enum block_type type)
{
    static const uint16_t counts[PLACES] = {255 << 7, 1 << 7, 1};
    wi sum = {0};
    UNROLL
    for (size_t b = 0; b < PLACES; b++) {
        wh two = {0};
        UNROLL
        for (size_t i = s; i < s + 2; i++)
            two += two_products(w->v[i][part], x_at(x, i, part, b, type));
        sum = add_wide(sum, two, counts[b] - (wh){0});
    }
    return sum;
}
#else
/* As above; the sums behind x undo that levels are 128 more. */
INLINE wi long_sums(wi to, wb w, const int8_t *x, const int8_t *sums, const size_t part)
{
    wb first, second;
    wi sum;
    memcpy(&first, x + part * sizeof w, sizeof w);
    memcpy(&second, x + INT_STEP + part * sizeof w, sizeof w);
    memcpy(&sum, sums + part * sizeof w, sizeof w);
    return to + sum + add_bytes(add_bytes((wi){0}, w ^ 128, first) << 8, w ^ 128, second);
}

INLINE wi step_sums(const struct span_levels *w, const struct span_x *x, const size_t s, const size_t part,
                    const enum block_type type)
{
    static const int less[PLACES] = {0, 7, 8};
    wi sum = {0};
    UNROLL
    for (size_t b = 0; b < PLACES; b++) {
        sum <<= less[b];
        UNROLL
        for (size_t i = s; i < s + 2; i++)
            sum = add_bytes(sum, w->v[i][part], x_at(x, i, part, b, type));
    }
    return sum;
}
#endif

/* The same of long numbers of x, as floats. */
INLINE wf long_step_sums(const struct span_levels *w, const struct span_x *x, const size_t s,
                         const size_t part, const enum block_type type)
{
    wi first = {0}, second = {0};
    UNROLL
    for (size_t i = s; i < s + 2; i++) {
        const int8_t *at = x->bytes + i * int_block_bytes(type) * INT_STEP;
        first = long_sums(first, w->v[i][part], at, at + 4 * INT_STEP, part);
        second = long_sums(second, w->v[i][part], at + 2 * INT_STEP, at + 5 * INT_STEP, part);
    }
    return add_exact(__builtin_convertvector(first, wf), __builtin_convertvector(second, wf), 0x1p-14f);
}

INLINE void small_add(struct span_sums *acc, const struct span_levels *w, const struct small_sides *sides,
                      const struct span_x *x, const enum block_type type)
{
    const bool is_long = int_block_is_long(type);
    const vf by = sides->scale * load(x->scale);
    wf v[PARTS];
    if (!is_long)
        acc->v[0] += sides->bias * load(x->sum);
    memcpy(v, acc, sizeof v);
    UNROLL
    for (size_t s = 0; s < STEPS; s += 2) {
        UNROLL
        for (size_t part = 0; part < PARTS; part++) {
            const wf sum = is_long ? long_step_sums(w, x, s, part, type)
                                   : __builtin_convertvector(step_sums(w, x, s, part, type), wf);
            v[part] += sum * scales_of_sums(by, s, part);
            IN_ORDER(v[part]);
        }
    }
    memcpy(acc, v, sizeof v);
}

/* --- large blocks ----------------------------------------------------------------------------- */

/* The lanes of a vector, folded to eight. */
INLINE vf floats(wi v)
{
#if defined __AVX512VNNI__
    return __builtin_convertvector(
        (vi)_mm512_castsi512_si256((__m512i)v) + (vi)_mm512_extracti64x4_epi64((__m512i)v, 1), vf);
#else
    return __builtin_convertvector(v, vf);
#endif
}

/* How many vectors of a step have the same scales: their products are added before they are scaled,
 * as those of nibbles, and of five bits, have room for. */
INLINE size_t parts_alike(const enum block_type type)
{
    return int_block_order(type) == ORDER_NIBBLES ? PARTS : 1;
}

INLINE void large_add(struct span_sums *acc, const struct span_levels *w, const struct large_sides *sides,
                      const struct span_x *x, const enum block_type type)
{
    const bool is_signed = int_block_is_signed(type);
    wi sum[PLACES] = {0};
    UNROLL
    for (size_t s = 0; s < STEPS; s++) {
        UNROLL
        for (size_t part = 0; part < PARTS; part += parts_alike(type)) {
            const wh scale = step_scales(type, sides->scale, s, part);
            UNROLL
            for (size_t b = 0; b < PLACES; b++) {
                wh two = {0};
                UNROLL
                for (size_t i = part; i < part + parts_alike(type); i++) {
                    const wb v = x_at(x, s, i, b, type);
                    two += is_signed ? two_signed(w->v[s][i], v) : two_products(w->v[s][i], v);
                }
                sum[b] = add_wide(sum[b], two, scale);
                IN_ORDER(sum[b]);
            }
        }
    }
    /* of six bits with scales of eight the sums that count 2⁷ have no room in 32 bits */
    const vf less =
        type == BLOCK_Q6_K ? floats(sum[1]) * splat(1 << 7) + floats(sum[2]) : floats((sum[1] << 7) + sum[2]);
    acc->v[0] += (floats(sum[0]) * splat(255 << 7) + less) * splat(sides->d * *x->scale);
    if (is_signed)
        return;
    vf least = sides->least[0] * load(x->sum);
    if (int_block_sums(type) == 16)
        least += sides->least[1] * load(x->sum + LANES);
    acc->v[0] += least * splat(sides->m);
}

/* --- tiles ------------------------------------------------------------------------------------ */

/* Span `at` of all rows of x, with the one of a row of W that is at w. */
INLINE void span_row(struct span_sums *acc, const uint8_t *w, const struct span_x *x, const size_t nx,
                     size_t at, const enum block_type type)
{
    UNROLL
    for (size_t i = 0; i < block_span_bytes(type); i += FETCH_LINE)
        __builtin_prefetch(w + FETCH_BLOCKS + i);
    struct span_levels levels;
    UNROLL
    for (size_t s = 0; s < STEPS; s++) {
        UNROLL
        for (size_t part = 0; part < PARTS; part++)
            levels.v[s][part] = step_levels(type, w, s, part);
    }
    if (int_block_is_large(type)) {
        const struct large_sides sides = large_sides(type, w);
        for (size_t k = 0; k < nx; k++) {
            const struct span_x now = span_x(&x[k], at, type);
            large_add(&acc[k], &levels, &sides, &now, type);
        }
    } else {
        const struct small_sides sides = small_sides(type, w);
        for (size_t k = 0; k < nx; k++) {
            const struct span_x now = span_x(&x[k], at, type);
            small_add(&acc[k], &levels, &sides, &now, type);
        }
    }
}

/* The blocks behind the last whole span, and zeros. Out of line: else compilers see that what is
 * fetched ahead is beyond `to`. */
static __attribute__((noinline)) const uint8_t *last_span(uint8_t to[2 * INT_SPAN], const uint8_t *w,
                                                          size_t bytes)
{
    memset(to, 0, 2 * INT_SPAN);
    memcpy(to, w, bytes);
    return to;
}

/* Where fewer than INT_ROWS rows are left, the first stands for the others. */
static void tile_begin(struct block_tile *t, const struct int_block_dots *d, size_t j, size_t nx)
{
    for (size_t r = 0; r < INT_ROWS; r++) {
        t->w[r] = d->w[r < d->rows ? r : 0];
        memset(t->acc[r], 0, nx * sizeof *t->acc[r]);
    }
    for (size_t k = 0; k < nx; k++)
        t->x[k] =
            (struct span_x){row_of(d->x.bytes, (j + k) * d->x_bytes),
                            row_of(d->x.scale, (j + k) * d->x_bytes), row_of(d->x.sum, (j + k) * d->x_bytes)};
}

static void tile_end(const struct block_tile *t, const struct int_block_dots *d, size_t j, size_t nx)
{
    for (size_t r = 0; r < d->rows; r++)
        for (size_t k = 0; k < nx; k++) {
            float *y = d->y + (j + k) * d->ldy + d->to[r], s = sum_of(t->acc[r][k].v[0] + t->acc[r][k].v[1]);
            *y = d->accumulate ? *y + s : s;
        }
}

INLINE void block_tile(const struct int_block_dots *d, size_t j, const size_t nx, const enum block_type type)
{
    struct block_tile t;
    const size_t whole = d->cols / INT_SPAN,
                 rest = d->cols % INT_SPAN / block_values(type) * block_bytes(type);
    tile_begin(&t, d, j, nx);
    for (size_t i = 0; i < whole; i++)
        for (size_t r = 0; r < INT_ROWS; r++)
            span_row(t.acc[r], t.w[r] + i * block_span_bytes(type), t.x, nx, i, type);
    for (size_t r = 0; rest && r < INT_ROWS; r++) {
        uint8_t last[2 * INT_SPAN];
        span_row(t.acc[r], last_span(last, t.w[r] + whole * block_span_bytes(type), rest), t.x, nx, whole,
                 type);
    }
    tile_end(&t, d, j, nx);
}

INLINE void block_rows(const struct int_block_dots *d, const enum block_type type)
{
    if (d->n == 1)
        block_tile(d, 0, 1, type);
    else
        for (size_t j = 0; j < d->n; j += BLOCK_X)
            block_tile(d, j, at_most(d->n - j, BLOCK_X), type);
}

static void block_dots(const struct int_block_dots *d)
{
    switch (d->type) {
    case BLOCK_Q4_0: block_rows(d, BLOCK_Q4_0); break;
    case BLOCK_Q4_1: block_rows(d, BLOCK_Q4_1); break;
    case BLOCK_Q5_0: block_rows(d, BLOCK_Q5_0); break;
    case BLOCK_Q5_1: block_rows(d, BLOCK_Q5_1); break;
    case BLOCK_Q8_0: block_rows(d, BLOCK_Q8_0); break;
    case BLOCK_Q2_K: block_rows(d, BLOCK_Q2_K); break;
    case BLOCK_Q3_K: block_rows(d, BLOCK_Q3_K); break;
    case BLOCK_Q4_K: block_rows(d, BLOCK_Q4_K); break;
    case BLOCK_Q5_K: block_rows(d, BLOCK_Q5_K); break;
    case BLOCK_Q6_K: block_rows(d, BLOCK_Q6_K); break;
    case BLOCK_IQ4_NL: block_rows(d, BLOCK_IQ4_NL); break;
    case BLOCK_IQ4_XS: block_rows(d, BLOCK_IQ4_XS); break;
    case BLOCK_MXFP4: block_rows(d, BLOCK_MXFP4); break;
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
}

#endif
