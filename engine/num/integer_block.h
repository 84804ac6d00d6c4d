/* SPDX-License-Identifier: MIT
 *
 * Products of weights in blocks (block.h) with few rows of x: a span of 256 columns and INT_ROWS
 * rows of W at a time. A span's scales are made once, as floats, and so is what its minima give.
 * There are sixteen sums: of 64 levels beside one another the k-th four go to sum k. Included by
 * integer.c only. */
#ifndef NUM_INTEGER_BLOCK_H
#define NUM_INTEGER_BLOCK_H

#include "num/integer.h"
#include "num/integer_simd.h"
#include "num/integer_span.h"

enum {
    STEPS = INT_SPAN / INT_STEP,
    BLOCK_X = PAIRS ? 2 : 1,           /* rows of x at once: as registers allow */
    FETCH_BLOCKS = PAIRS ? 2048 : 512, /* bytes ahead of each row; measured */
};

/* --- one span of a row of W with one of x ----------------------------------------------------- */

/* Products of the scales of W and x. */
struct span_scales {
#if defined __AVX512VNNI__
    wf all;
#else
    float each[2 * LANES];
#endif
};

struct sixteen_sums {
    wf v[PARTS];
};

/* Of x the span's scales and sums. */
INLINE void span_begin(struct span_scales *ret, struct sixteen_sums *acc, const struct span_sides *w,
                       const float *scale, const float *sum, const bool narrow)
{
#if defined __AVX512VNNI__
    wf x_scale = wide_of(load(scale)), x_sum = wide_of(load(sum));
    if (narrow) {
        memcpy(&x_scale, scale, sizeof x_scale);
        memcpy(&x_sum, sum, sizeof x_sum);
    }
    ret->all = w->scale[0] * x_scale;
    acc->v[0] += w->bias[0] * x_sum;
#else
    for (size_t part = 0; part < (narrow ? PARTS : 1); part++) {
        const vf by = w->scale[part] * load(scale + part * LANES);
        memcpy(ret->each + part * LANES, &by, sizeof by);
        acc->v[part] += w->bias[part] * load(sum + part * LANES);
    }
#endif
}

/* Scales of the sixteen sums: of two groups from the at-th on, or of four. */
INLINE wf scales_of_sums(const struct span_scales *s, const size_t at, const bool four, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    const int i = (int)at, j = four ? 1 : 0;
    const __m512i which =
        _mm512_setr_epi32(i, i, i, i, i + j, i + j, i + j, i + j, i + 1 + j, i + 1 + j, i + 1 + j, i + 1 + j,
                          i + 1 + 2 * j, i + 1 + 2 * j, i + 1 + 2 * j, i + 1 + 2 * j);
    return (wf)_mm512_permutexvar_ps(which, (__m512)s->all);
#else
    if (!four)
        return splat(s->each[at + part]);
    return __builtin_shufflevector(splat(s->each[at + 2 * part]), splat(s->each[at + 2 * part + 1]), 0, 1, 2,
                                   3, 12, 13, 14, 15);
#endif
}

/* A step of x in bytes, those that count 65536, 256 and 1; or the even and the odd numbers of what
 * counts 256, and of what is left. */
struct span_x {
    wb v[FOURS ? 3 : 4];
};
enum { LOW_BYTES = FOURS ? 1 : 2 /* of what is left of a number */ };

INLINE struct span_x span_x(const int16_t *q, const uint8_t *low, const size_t step, const size_t part)
{
    const uint8_t *at = (const uint8_t *)(q + step * INT_STEP), *rest = low + step * INT_STEP * LOW_BYTES;
#if defined __AVX512VNNI__ || defined __AVXVNNI__
    return (struct span_x){{wide_at(at, part), wide_at(at + INT_STEP, part), wide_at(rest, part)}};
#else
    return (struct span_x){{wide_at(at, 2 * part), wide_at(at, 2 * part + 1), wide_at(rest, 2 * part),
                            wide_at(rest, 2 * part + 1)}};
#endif
}

/* Sums of the products of a step, or of two whose sums have the same scales. */
INLINE wi span_sums(const wb w[2], const struct span_x x[2], const size_t steps)
{
    wi sum = {0};
#if defined __AVX512VNNI__ || defined __AVXVNNI__
    UNROLL
    for (size_t b = 0; b < 3; b++) {
        sum <<= 8;
        UNROLL
        for (size_t i = 0; i < steps; i++)
            sum = add_bytes(sum, w[i], x[i].v[b]);
    }
#else
    UNROLL
    for (size_t b = 0; b < 4; b += 2) {
        sum <<= 8;
        UNROLL
        for (size_t i = 0; i < steps; i++)
            sum = add_products(add_products(sum, (wh)w[i] & 255, (wh)x[i].v[b]), (wh)w[i] >> 8,
                               (wh)x[i].v[b + 1]);
    }
#endif
    return sum;
}

/* Sums of the rows of W and of x that are multiplied at once. */
struct block_tile {
    struct sixteen_sums acc[INT_ROWS][BLOCK_X];
};

/* A span of each of those rows. */
struct span_at {
    const uint8_t *w[INT_ROWS];
    const int16_t *q[BLOCK_X];
    const uint8_t *low[BLOCK_X];
    const float *scale[BLOCK_X], *sum[BLOCK_X];
};

/* A part of step s, or of two that have the same scales. */
INLINE void tile_step(struct block_tile *t, const struct span_at *at,
                      const struct span_scales scales[INT_ROWS][BLOCK_X], const size_t s, const size_t part,
                      const size_t nx, const enum block_type type)
{
    const bool split = int_block_is_split(type), narrow = int_block_group(type) == 16;
    const size_t steps = split ? 2 : 1, group = narrow ? 4 * s : 2 * s;
    struct span_x x[BLOCK_X][2];
    UNROLL_MUCH
    for (size_t k = 0; k < nx; k++)
        for (size_t e = 0; e < steps; e++)
            x[k][e] = span_x(at->q[k], at->low[k], s + e, part);
    UNROLL_MUCH
    for (size_t r = 0; r < INT_ROWS; r++) {
        wb v[2];
        for (size_t e = 0; e < steps; e++) {
            if (part == 0)
                __builtin_prefetch(at->w[r] + (s + e) * block_span_bytes(type) / STEPS + FETCH_BLOCKS);
            v[e] = span_levels(type, at->w[r], s + e, part);
        }
        UNROLL_MUCH
        for (size_t k = 0; k < nx; k++)
            t->acc[r][k].v[part] += __builtin_convertvector(span_sums(v, x[k], steps), wf) *
                                    scales_of_sums(&scales[r][k], group, split || narrow, part);
    }
}

INLINE void tile_span(struct block_tile *t, const struct span_at *at, const size_t nx,
                      const enum block_type type)
{
    struct span_scales scales[INT_ROWS][BLOCK_X];
    UNROLL_MUCH
    for (size_t r = 0; r < INT_ROWS; r++) {
        const struct span_sides sides = span_sides(type, at->w[r]);
        UNROLL_MUCH
        for (size_t k = 0; k < nx; k++)
            span_begin(&scales[r][k], &t->acc[r][k], &sides, at->scale[k], at->sum[k],
                       int_block_group(type) == 16);
    }
    UNROLL_MUCH
    for (size_t s = 0; s < STEPS; s += int_block_is_split(type) ? 2 : 1)
        for (size_t part = 0; part < PARTS; part++)
            tile_step(t, at, scales, s, part, nx, type);
}

INLINE float sixteen_sum(const struct sixteen_sums *s)
{
#if defined __AVX512VNNI__
    return sum_of((vf)_mm512_castps512_ps256((__m512)s->v[0]) +
                  (vf)_mm512_extractf32x8_ps((__m512)s->v[0], 1));
#else
    return sum_of(s->v[0] + s->v[1]);
#endif
}

/* The blocks behind the last whole span, and zeros. Out of line: else compilers see that what is
 * fetched ahead is beyond `to`. */
static __attribute__((noinline)) void last_span(uint8_t to[INT_ROWS][2 * INT_SPAN], struct span_at *at,
                                                size_t bytes)
{
    memset(to, 0, INT_ROWS * sizeof *to);
    for (size_t r = 0; r < INT_ROWS; r++) {
        memcpy(to[r], at->w[r], bytes);
        at->w[r] = to[r];
    }
}

/* Where fewer than INT_ROWS rows are left, the first stands for the others. */
INLINE struct span_at span_first(const struct int_block_dots *d, size_t j, const size_t nx)
{
    struct span_at at = {0};
    for (size_t r = 0; r < INT_ROWS; r++)
        at.w[r] = d->w[r < d->rows ? r : 0];
    for (size_t k = 0; k < nx; k++) {
        at.q[k] = row_of(d->x.q, (j + k) * d->x_bytes);
        at.low[k] = row_of(d->x.low, (j + k) * d->x_bytes);
        at.scale[k] = row_of(d->x.scale, (j + k) * d->x_bytes);
        at.sum[k] = row_of(d->x.sum, (j + k) * d->x_bytes);
    }
    return at;
}

INLINE void span_next(struct span_at *at, const size_t nx, const enum block_type type)
{
    for (size_t r = 0; r < INT_ROWS; r++)
        at->w[r] += block_span_bytes(type);
    for (size_t k = 0; k < nx; k++) {
        at->q[k] += INT_SPAN;
        at->low[k] += INT_SPAN * LOW_BYTES;
        at->scale[k] += INT_SPAN / int_block_group(type);
        at->sum[k] += INT_SPAN / int_block_group(type);
    }
}

INLINE void block_tile(const struct int_block_dots *d, size_t j, const size_t nx, const enum block_type type)
{
    struct block_tile t = {0};
    struct span_at at = span_first(d, j, nx);
    for (size_t i = 0; i < d->cols / INT_SPAN; i++) {
        tile_span(&t, &at, nx, type);
        span_next(&at, nx, type);
    }
    if (d->cols % INT_SPAN) {
        uint8_t last[INT_ROWS][2 * INT_SPAN];
        struct span_at end = at;
        last_span(last, &end, d->cols % INT_SPAN / block_values(type) * block_bytes(type));
        tile_span(&t, &end, nx, type);
    }
    for (size_t r = 0; r < d->rows; r++)
        for (size_t k = 0; k < nx; k++) {
            float *y = d->y + (j + k) * d->ldy + d->to[r], s = sixteen_sum(&t.acc[r][k]);
            *y = d->accumulate ? *y + s : s;
        }
}

INLINE void block_rows(const struct int_block_dots *d, const enum block_type type)
{
    size_t j = 0;
    for (; j + BLOCK_X <= d->n; j += BLOCK_X)
        block_tile(d, j, BLOCK_X, type);
    if (BLOCK_X > 1 && j < d->n) /* of two the first */
        block_tile(d, j, 1, type);
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
