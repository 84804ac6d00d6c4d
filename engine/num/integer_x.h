/* SPDX-License-Identifier: MIT
 *
 * x in whole numbers, in the order in which the kernels meet it. Included by integer.c only. */
#ifndef NUM_INTEGER_X_H
#define NUM_INTEGER_X_H

#include <float.h>
#include <math.h>

#include "num/integer.h"
#include "num/integer_simd.h"

/* 127 · 256 + 127: rounded to a multiple of 256, what is left is a byte, and so is how many times
 * 256 that is. */
enum { TOP_HALVES = 32639, TOP_BYTES = 127, TOP_BYTES8 = 63, PIECES = INT_STEP / LANES };

/* Every second one, of a and then of b. */
INLINE vh even_halves(vh a, vh b)
{
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

INLINE vh odd_halves(vh a, vh b)
{
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

INLINE vb even_bytes(vb a, vb b)
{
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34,
                                   36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
}

INLINE vb odd_bytes(vb a, vb b)
{
    return even_bytes((vb)((vh)a >> 8), (vb)((vh)b >> 8));
}

INLINE vi larger(vi a, vi b)
{
#if defined __AVX2__
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    const vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* The largest magnitude; what is not finite is larger than all that is. */
INLINE float most_of(const float *x, size_t n)
{
    vi most = {0};
    for (size_t i = 0; i < n; i += LANES)
        most = larger(most, (vi)load(x + i) & 0x7fffffff);
    most = larger(most, __builtin_shufflevector(most, most, 4, 5, 6, 7, 0, 1, 2, 3));
    most = larger(most, __builtin_shufflevector(most, most, 2, 3, 0, 1, 6, 7, 4, 5));
    most = larger(most, __builtin_shufflevector(most, most, 1, 0, 3, 2, 5, 4, 7, 6));
    float ret;
    memcpy(&ret, &most, sizeof ret);
    return ret;
}

/* The whole numbers of a group of n elements, up to ±top, in the low halves of q; *ret_sum of what
 * they stand for. Returns their scale. */
INLINE float group_levels(vi *q, const float *x, size_t n, const float top, float *ret_sum)
{
    const float most = most_of(x, n),
                magic = 0x1.8p23f;             /* adding it leaves a whole number in the lowest bits */
    if (!(most > 1e-30f && most <= FLT_MAX)) { /* nearly nothing, which has no inverse, or not finite */
        memset(q, 0, n / LANES * sizeof *q);
        return *ret_sum = most > 1e-30f || isnan(most) ? NAN : 0;
    }
    const float scale = most / top, inverse = top / most;
    vu sum = {0};
    for (size_t i = 0; i < n / LANES; i++) {
        q[i] = (vi)(load(x + i * LANES) * splat(inverse) + splat(magic));
        sum += (vu)q[i] - 0x4b400000u; /* the bits of magic */
    }
    sum += __builtin_shufflevector(sum, sum, 4, 5, 6, 7, 0, 1, 2, 3);
    sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5);
    sum += __builtin_shufflevector(sum, sum, 1, 0, 3, 2, 5, 4, 7, 6);
    *ret_sum = (float)(int32_t)sum[0] * scale;
    return scale;
}

/* In what order a step lies. Of weights of 8 bits in four vectors, of each half the even and the
 * odd numbers, as the bytes of 16 bits lie; of 4 bits in four too, each of every fourth number, as
 * the nibbles of 16 bits lie from the lowest to the highest. Bytes lie as they come, or in two
 * vectors, each of every second, as the nibbles of bytes do. Where bytes are multiplied by fours,
 * numbers of 16 bits are bytes as well: those that count 256, then the rest. */
enum order { BY_TWOS, BY_FOURTHS, BYTES, BYTES_BY_TWOS, TWO_BYTES, TWO_BYTES_BY_TWOS };

/* Bytes of a step; first and second half. */
INLINE void put_bytes(int8_t *to, vb a, vb b, const bool by_twos)
{
    const vb bytes[2] = {by_twos ? even_bytes(a, b) : a, by_twos ? odd_bytes(a, b) : b};
    memcpy(to, bytes, sizeof bytes);
}

INLINE void put_step(const struct int_row *to, size_t at, const vi q[PIECES], const enum order order)
{
    vh v[PIECES / 2];
    for (size_t i = 0; i < PIECES / 2; i++)
        v[i] = even_halves((vh)q[2 * i], (vh)q[2 * i + 1]);
    const vb a = even_bytes((vb)v[0], (vb)v[1]), b = even_bytes((vb)v[2], (vb)v[3]);
    if (order == BYTES || order == BYTES_BY_TWOS) {
        put_bytes(to->bytes + at, a, b, order == BYTES_BY_TWOS);
        return;
    }
    if (order == TWO_BYTES || order == TWO_BYTES_BY_TWOS) {
        int8_t *bytes = (int8_t *)(to->q + at);
        const vb c = odd_bytes((vb)(v[0] + 128), (vb)(v[1] + 128)),
                 d = odd_bytes((vb)(v[2] + 128), (vb)(v[3] + 128));
        put_bytes(bytes, c, d, order == TWO_BYTES_BY_TWOS);
        put_bytes(bytes + INT_STEP, a, b, order == TWO_BYTES_BY_TWOS);
        return;
    }
    if (order == BY_TWOS) {
        const vh first[2] = {even_halves(v[0], v[1]), odd_halves(v[0], v[1])},
                 second[2] = {even_halves(v[2], v[3]), odd_halves(v[2], v[3])};
        v[0] = first[0], v[1] = first[1], v[2] = second[0], v[3] = second[1];
    }
    if (order == BY_FOURTHS) {
        const vh even[2] = {even_halves(v[0], v[1]), even_halves(v[2], v[3])},
                 odd[2] = {odd_halves(v[0], v[1]), odd_halves(v[2], v[3])};
        v[0] = even_halves(even[0], even[1]);
        v[1] = even_halves(odd[0], odd[1]);
        v[2] = odd_halves(even[0], even[1]);
        v[3] = odd_halves(odd[0], odd[1]);
    }
    memcpy(to->q + at, v, sizeof v);
}

INLINE void quantize_any(const struct int_row *to, const float *x, size_t cols, size_t group, const float top,
                         const enum order order)
{
    const size_t each = int_group(group);
    size_t g = 0;
    for (size_t at = 0; at < cols; at += INT_STEP) {
        vi q[PIECES];
        float padded[INT_STEP] = {0};
        const float *from = x + at;
        if (cols - at < INT_STEP) {
            memcpy(padded, from, (cols - at) * sizeof *x);
            from = padded;
        }
        if (each == INT_STEP)
            to->scale[g] = group_levels(q, from, INT_STEP, top, &to->sum[g]), g++;
        else
            for (size_t i = 0; i < INT_STEP; i += INT_STEP / 2, g++)
                to->scale[g] = group_levels(q + i / LANES, from + i, INT_STEP / 2, top, &to->sum[g]);
        put_step(to, at, q, order);
    }
}

static inline void quantize(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group,
                            enum int_form form)
{
    if (form == INT_TILES)
        quantize_any(to, x, cols, group, bits == 8 ? TOP_BYTES8 : TOP_BYTES, BYTES);
    else if (form == INT_BYTES)
        quantize_any(to, x, cols, group, TOP_BYTES, BYTES_BY_TWOS);
    else if (bits == 8)
        quantize_any(to, x, cols, group, TOP_HALVES, FOURS ? TWO_BYTES : BY_TWOS);
    else
        quantize_any(to, x, cols, group, TOP_HALVES, FOURS ? TWO_BYTES_BY_TWOS : BY_FOURTHS);
}

/* The first halves of four groups, then their second ones. */
INLINE void split_groups(vi q[2 * PIECES])
{
    vi halves[2 * PIECES];
    UNROLL
    for (size_t i = 0; i < 2 * PIECES; i++)
        halves[i % 4 / 2 * PIECES + i / 4 * 2 + i % 2] = q[i];
    memcpy(q, halves, sizeof halves);
}

/* What counts 256 of each number, and what is left, from −128 to 127. */
INLINE void put_both(const struct int_row *to, size_t at, const vi q[PIECES])
{
    const struct int_row rest = {.q = to->low, .bytes = (int8_t *)to->low};
    vi high[PIECES], low[PIECES];
    UNROLL
    for (size_t i = 0; i < PIECES; i++) {
        const vi n = q[i] - 0x4b400000; /* the bits of magic */
        high[i] = (n + 128) >> 8;
        low[i] = n - (high[i] << 8);
    }
    put_step(to, at, high, FOURS ? TWO_BYTES : BY_TWOS);
    put_step(&rest, at, low, FOURS ? BYTES : BY_TWOS);
}

INLINE void quantize_spans(const struct int_row *to, const float *x, size_t cols, const size_t group,
                           const bool split, const float top)
{
    enum { TWO_STEPS = 2 * INT_STEP };
    size_t g = 0;
    for (size_t at = 0; at < int_block_cols(cols); at += TWO_STEPS) {
        vi q[2 * PIECES];
        float padded[TWO_STEPS] = {0};
        const size_t left = at < cols ? cols - at : 0;
        const float *from = x + cols - left;
        if (left < TWO_STEPS) {
            memcpy(padded, from, left * sizeof *x);
            from = padded;
        }
        for (size_t i = 0; i < TWO_STEPS; i += group, g++)
            to->scale[g] = group_levels(q + i / LANES, from + i, group, top, &to->sum[g]);
        if (split)
            split_groups(q);
        put_both(to, at, q);
        put_both(to, at + INT_STEP, q + PIECES);
    }
}

static inline void block_quantize(const struct int_row *to, const float *x, size_t cols, enum block_type type)
{
    const float top = (float)int_block_top(type);
    if (int_block_group(type) == 16)
        quantize_spans(to, x, cols, 16, false, top);
    else if (int_block_is_split(type))
        quantize_spans(to, x, cols, 32, true, top);
    else
        quantize_spans(to, x, cols, 32, false, top);
}

#endif
