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

enum { MAGIC = 0x4b400000 }; /* the bits of 1.5 · 2²³: adding it leaves a whole number in the lowest bits */

/* The whole numbers of a group of n elements, up to ±top, in the low halves of q, each plus MAGIC.
 * Returns their scale. */
INLINE float group_levels(vi *q, const float *x, size_t n, const float top)
{
    const float most = most_of(x, n), magic = 0x1.8p23f;
    if (!(most > 1e-30f && most <= FLT_MAX)) { /* nearly nothing, which has no inverse, or not finite */
        for (size_t i = 0; i < n / LANES; i++)
            q[i] = MAGIC - (vi){0};
        return most > 1e-30f || isnan(most) ? NAN : 0;
    }
    const float inverse = top / most;
    for (size_t i = 0; i < n / LANES; i++)
        q[i] = (vi)(load(x + i * LANES) * splat(inverse) + splat(magic));
    return most / top;
}

/* What n of them stand for, together. */
INLINE float levels_sum(const vi *q, size_t n, float scale)
{
    vu sum = {0};
    for (size_t i = 0; i < n / LANES; i++)
        sum += (vu)q[i] - MAGIC;
    sum += __builtin_shufflevector(sum, sum, 4, 5, 6, 7, 0, 1, 2, 3);
    sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5);
    sum += __builtin_shufflevector(sum, sum, 1, 0, 3, 2, 5, 4, 7, 6);
    return (float)(int32_t)sum[0] * scale;
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
        for (size_t i = 0; i < INT_STEP; i += each, g++) {
            to->scale[g] = group_levels(q + i / LANES, from + i, each, top);
            to->sum[g] = levels_sum(q + i / LANES, each, to->scale[g]);
        }
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

/* --- for W in blocks --- */

enum { SIXTEENS = INT_SPAN / 16, SPAN_PIECES = INT_SPAN / LANES };

/* Where sixteen columns of a span come (enum int_block_order). */
INLINE size_t sixteen_place(const size_t i, const enum int_block_order order)
{
    const size_t run = i / 2, half = i % 2, in_four = run % 4, four = run / 4;
    switch (order) {
    case ORDER_SPLIT: return 8 * four + 4 * half + in_four;
    case ORDER_NIBBLES: return 8 * four + 4 * (in_four % 2) + (2 * half + 3 * (in_four / 2)) % 4;
    case ORDER_PAIRS: return 4 * in_four + 2 * four + half;
    case ORDER_PLAIN: break;
    }
    return i;
}

/* Where the sum of a group comes: of sixteen those at even places first, and of small blocks. */
INLINE size_t sum_place(const size_t i, const size_t sums, const bool is_small)
{
    return sums == 16 ? i % 2 * 8 + i / 2 : is_small ? int_small_place(i) : i;
}

/* The lowest bytes of a step. */
INLINE void put_lowest(int8_t *to, const vi v[PIECES])
{
    vh h[PIECES / 2];
    for (size_t i = 0; i < PIECES / 2; i++)
        h[i] = even_halves((vh)v[2 * i], (vh)v[2 * i + 1]);
    put_bytes(to, even_bytes((vb)h[0], (vb)h[1]), even_bytes((vb)h[2], (vb)h[3]), false);
}

/* In what three bytes count: products of 16 bits take 255 · 2⁷ as a factor, where bytes are added
 * by fours a sum moves by 8 bits and by 7. */
#if defined __AVX2__ && !defined __AVX512VNNI__ && !defined __AVXVNNI__
enum { BY_MOVING = 0 };
#else
enum { BY_MOVING = 1 };
#endif

/* What is left of each number where it is counted by 2^bits, which *v becomes. */
INLINE vi split_low(vi *v, const int bits)
{
    const int half = 1 << (bits - 1);
    const vi low = ((*v + half) & (2 * half - 1)) - half;
    *v = (*v - low) >> bits;
    return low;
}

/* The same by 255. */
INLINE vi split_255(vi *v)
{
    const vi n = (vi)(__builtin_convertvector(*v, vf) * splat(1.0f / 255) + splat(0x1.8p23f)) - MAGIC;
    const vi low = *v - n * 255;
    *v = n;
    return low;
}

/* A step of numbers in bytes, those that count most first. */
INLINE void put_three(int8_t *to, const vi q[PIECES], const bool by_moving)
{
    vi high[PIECES], middle[PIECES], low[PIECES];
    UNROLL
    for (size_t i = 0; i < PIECES; i++) {
        high[i] = q[i] - MAGIC;
        low[i] = split_low(&high[i], by_moving ? 8 : 7);
        middle[i] = by_moving ? split_low(&high[i], 7) : split_255(&high[i]);
    }
    put_lowest(to, high);
    put_lowest(to + INT_STEP, middle);
    put_lowest(to + 2 * INT_STEP, low);
}

/* What of a type decides how x is kept. */
struct x_kind {
    size_t group, sums, bytes;
    enum int_block_order order;
};

INLINE void quantize_span(int8_t *to, float *scale, float *sum, const float *x, const struct x_kind kind)
{
    const bool is_small = kind.group != INT_SPAN;
    vi q[SPAN_PIECES], placed[SPAN_PIECES];
    for (size_t i = 0; i < INT_SPAN; i += kind.group) {
        const float by = group_levels(q + i / LANES, x + i, kind.group, (float)INT_BLOCK_TOP);
        scale[is_small ? int_small_place(i / kind.group) : 0] = by;
        for (size_t k = i; k < i + kind.group; k += kind.sums)
            sum[sum_place(k / kind.sums, kind.sums, is_small)] = levels_sum(q + k / LANES, kind.sums, by);
    }
    for (size_t i = 0; i < SIXTEENS; i++)
        memcpy(placed + 2 * sixteen_place(i, kind.order), q + 2 * i, 2 * sizeof *q);
    for (size_t i = 0; i < SPAN_PIECES; i += PIECES, to += kind.bytes * INT_STEP) {
        put_three(to, placed + i, BY_MOVING && is_small);
    }
}

/* Columns from `at` on, in `room` with zeros where there are too few for a span. */
INLINE const float *whole_span(float room[INT_SPAN], const float *x, size_t at, size_t cols)
{
    if (cols - at >= INT_SPAN)
        return x + at;
    memset(room, 0, INT_SPAN * sizeof *room);
    memcpy(room, x + at, (cols - at) * sizeof *x);
    return room;
}

INLINE void quantize_spans(const struct int_row *to, const float *x, size_t cols, const struct x_kind kind)
{
    for (size_t i = 0; i * INT_SPAN < cols; i++) {
        float room[INT_SPAN];
        const float *from = whole_span(room, x, i * INT_SPAN, cols);
        quantize_span(to->bytes + i * kind.bytes * INT_SPAN, to->scale + i * (INT_SPAN / kind.group),
                      to->sum + i * (INT_SPAN / kind.sums), from, kind);
    }
}

/* Each of a step's numbers of 16 bits: of each half the even ones before the odd ones; or bytes
 * that count 256 and 1. Then, for tables that take levels plus 128, of each four the sum times
 * −128. */
INLINE void put_long(int8_t *to, int8_t *sums, const vi n[PIECES])
{
    const struct int_row halves = {.q = (int16_t *)to};
    uint32_t each[INT_STEP], sum[INT_STEP / 4] = {0}; /* what is not finite has sums beyond int32 */
    put_step(&halves, 0, n, BY_MOVING ? TWO_BYTES : BY_TWOS);
    memcpy(each, n, sizeof each);
    for (size_t i = 0; BY_MOVING && i < INT_STEP; i++)
        sum[i / 4] -= each[i] * 128;
    memcpy(sums, sum, sizeof sum);
}

/* A block of 32: whole numbers up to TOP_HALVES, and 2¹⁴ times what is left. Returns the scale. */
INLINE float long_levels(vi *whole, vi *rest, const float *x)
{
    const float top = TOP_HALVES, scale = group_levels(whole, x, 32, top),
                inverse = scale > 0 ? top / most_of(x, 32) : 0;
    for (size_t i = 0; i < 32 / LANES; i++) {
        whole[i] -= MAGIC;
        const vf left = load(x + i * LANES) * splat(inverse) - __builtin_convertvector(whole[i], vf);
        rest[i] = (vi)(left * splat(1 << 14) + splat(0x1.8p23f)) - MAGIC;
    }
    return scale;
}

static void quantize_longs(const struct int_row *to, const float *x, size_t cols)
{
    int8_t *bytes = to->bytes;
    for (size_t at = 0; at < cols; at += INT_SPAN) {
        vi whole[SPAN_PIECES], rest[SPAN_PIECES], first[SPAN_PIECES], second[SPAN_PIECES];
        float room[INT_SPAN];
        const float *from = whole_span(room, x, at, cols);
        for (size_t i = 0; i < INT_SPAN; i += 32)
            to->scale[at / 32 + int_small_place(i / 32)] =
                long_levels(whole + i / LANES, rest + i / LANES, from + i);
        for (size_t i = 0; i < SIXTEENS; i++) {
            memcpy(first + 2 * sixteen_place(i, ORDER_SPLIT), whole + 2 * i, 2 * sizeof *whole);
            memcpy(second + 2 * sixteen_place(i, ORDER_SPLIT), rest + 2 * i, 2 * sizeof *rest);
        }
        for (size_t i = 0; i < SPAN_PIECES; i += PIECES, bytes += 6 * INT_STEP) {
            put_long(bytes, bytes + 4 * INT_STEP, first + i);
            put_long(bytes + 2 * INT_STEP, bytes + 5 * INT_STEP, second + i);
        }
    }
}

INLINE struct x_kind x_kind(const enum block_type type)
{
    return (struct x_kind){int_block_group(type), int_block_sums(type), int_block_bytes(type),
                           int_block_order(type)};
}

static inline void block_quantize(const struct int_row *to, const float *x, size_t cols, enum block_type type)
{
    switch (type) {
    case BLOCK_Q8_0:
    case BLOCK_IQ4_NL: quantize_longs(to, x, cols); break;
    case BLOCK_IQ4_XS: quantize_spans(to, x, cols, x_kind(BLOCK_IQ4_XS)); break;
    case BLOCK_Q6_K: quantize_spans(to, x, cols, x_kind(BLOCK_Q6_K)); break;
    case BLOCK_Q2_K:
    case BLOCK_Q3_K: quantize_spans(to, x, cols, x_kind(BLOCK_Q2_K)); break;
    case BLOCK_Q4_K:
    case BLOCK_Q5_K: quantize_spans(to, x, cols, x_kind(BLOCK_Q4_K)); break;
    default: quantize_spans(to, x, cols, x_kind(BLOCK_Q4_0)); break; /* small, with nibbles */
    }
}

#endif
