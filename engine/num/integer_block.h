/* SPDX-License-Identifier: MIT
 *
 * Products of weights in blocks (block.h) with few rows of x: a span of 256 columns and INT_ROWS
 * rows of W at a time. A span's scales are made once, as floats, and so is what its minima give.
 * There are sixteen sums: of 64 levels beside one another the k-th four go to sum k. Names of parts
 * of a block are ggml's: d the scale, m the minimum. Included by integer.c only. */
#ifndef NUM_INTEGER_BLOCK_H
#define NUM_INTEGER_BLOCK_H

#include "num/integer.h"
#include "num/integer_few.h"
#include "num/integer_simd.h"

enum {
    PARTS = INT_STEP / (int)sizeof(wb), /* vectors that hold a step of levels, or all sums */
    STEPS = INT_SPAN / INT_STEP,
#if defined __AVX2__
    BLOCK_X = 2, /* rows of x at once */
#else
    BLOCK_X = 1,
#endif
    FETCH_BLOCKS = 512, /* bytes ahead of each row */
};

INLINE size_t block_span_bytes(const enum block_type type)
{
    return INT_SPAN / block_values(type) * block_bytes(type);
}

/* --- levels: a step of them, as bytes from 0 on ----------------------------------------------- */

/* 64 bytes of p, or those of a part of them. */
INLINE wb wide_at(const uint8_t *p, const size_t part)
{
    wb v;
    memcpy(&v, p + part * sizeof v, sizeof v);
    return v;
}

/* 32 bytes of p and 32 of q. */
INLINE wb wide_pair(const uint8_t *p, const uint8_t *q, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    return (wb)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)load16(p)), (__m256i)load16(q), 1);
#else
    return (wb)load16(part ? q : p);
#endif
}

/* Four times 16 bytes, `apart` bytes from one another. */
INLINE wb wide_fours(const uint8_t *p, const size_t apart, const size_t part)
{
#if defined __AVX2__
    const __m128i *first = (const void *)(p + part * 2 * apart), *second = (const void *)(p + (part * 2 + 1) * apart);
    const __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(first)), _mm_loadu_si128(second), 1);
#endif
#if defined __AVX512VNNI__
    const __m128i *third = (const void *)(p + 2 * apart), *fourth = (const void *)(p + 3 * apart);
    const __m512i three = _mm512_inserti32x4(_mm512_castsi256_si512(two), _mm_loadu_si128(third), 2);
    return (wb)_mm512_inserti32x4(three, _mm_loadu_si128(fourth), 3);
#elif defined __AVX2__
    return (wb)two;
#else
    wb v;
    memcpy(&v, p + part * 2 * apart, 16);
    memcpy((char *)&v + 16, p + (part * 2 + 1) * apart, 16);
    return v;
#endif
}

/* Words moved so that bit a of the first 32 bytes, and bit b of the others, becomes bit `to`. */
INLINE wb move_pair(wb v, const int a, const int b, const int to, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    const __m512i both = _mm512_inserti64x4(_mm512_set1_epi16((short)(a < to ? to - a : a - to)),
                                            _mm256_set1_epi16((short)(a < to ? to - b : b - to)), 1);
    return (wb)(a < to ? _mm512_sllv_epi16((__m512i)v, both) : _mm512_srlv_epi16((__m512i)v, both));
#else
    const int from = part ? b : a;
    return (wb)(from < to ? (wh)v << (to - from) : (wh)v >> (from - to));
#endif
}

#if !defined __AVX2__
/* Out of line: one after the other, it is too much code to have in many places. */
static __attribute__((noinline)) void choose_plain(uint8_t v[32], const uint8_t of[16])
{
    for (size_t i = 0; i < 32; i++)
        v[i] = of[v[i]];
}

static __attribute__((noinline)) void fifth_plain(uint8_t v[32], const uint16_t word[2])
{
    for (size_t i = 0; i < 32; i++)
        v[i] = (uint8_t)((word[i / 16] >> i % 16 & 1) << 4);
}

static __attribute__((noinline)) void widen_plain(int32_t v[LANES], uint64_t bytes)
{
    for (int i = 0; i < LANES; i++)
        v[i] = (int32_t)(bytes >> 8 * i & 255);
}
#endif

/* Of each nibble the byte that it stands for. */
INLINE wb choose_levels(const uint8_t of[16], wb nibbles)
{
#if defined __AVX512VNNI__
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)of));
    return (wb)_mm512_shuffle_epi8(all, (__m512i)nibbles);
#elif defined __AVX2__
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)of));
    return (wb)_mm256_shuffle_epi8(all, (__m256i)nibbles);
#else
    uint8_t v[sizeof nibbles];
    memcpy(v, &nibbles, sizeof v);
    choose_plain(v, of);
    return (wb)load16(v);
#endif
}

/* 16 for each bit of a word that is set, for each of four blocks `apart` bytes from one another. */
INLINE wb fifth_bits(const uint8_t *p, const size_t apart, const size_t part)
{
    uint16_t word[sizeof(wb) / 16];
    UNROLL
    for (size_t i = 0; i < sizeof(wb) / 16; i++)
        memcpy(&word[i], p + (part * sizeof(wb) / 16 + i) * apart, sizeof *word);
#if defined __AVX512VNNI__
    const __mmask64 bits =
        word[0] | (uint64_t)word[1] << 16 | (uint64_t)word[2] << 32 | (uint64_t)word[3] << 48;
    return (wb)_mm512_maskz_set1_epi8(bits, 16);
#elif defined __AVX2__
    const __m256i which = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                           2, 3, 3, 3, 3, 3, 3, 3, 3),
                  bit = _mm256_set1_epi64x((long long)0x8040201008040201u),
                  all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(word[0] | (uint32_t)word[1] << 16)), which);
    return (wb)_mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit), _mm256_set1_epi8(16));
#else
    uint8_t v[sizeof(wb)];
    fifth_plain(v, word);
    return (wb)load16(v);
#endif
}

/* The first or the second half of each of four blocks that have nibbles `at` bytes from their
 * start. */
INLINE wb halves_of(const uint8_t *b, const size_t at, const size_t bytes, const bool second, const size_t part)
{
    const wb v = wide_fours(b + at, bytes, part);
    return (second ? (wb)((wh)v >> 4) : v) & 15;
}

/* ggml's numbers plus 128, and twice those of MXFP4 plus 12. */
static const uint8_t uneven_levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
                     fp4_levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* Step s of a span, in the order of x. */
INLINE wb span_levels(const enum block_type type, const uint8_t *b, const size_t s, const size_t part)
{
    const size_t bytes = block_span_bytes(type) / 8, half = s % 2;
    const uint8_t *four = b + s / 2 * 4 * bytes;
    const int at = (int)(2 * s);
    switch (type) {
    case BLOCK_Q4_0: return halves_of(four, 2, bytes, half, part);
    case BLOCK_Q4_1: return halves_of(four, 4, bytes, half, part);
    case BLOCK_Q5_0: return halves_of(four, 6, bytes, half, part) | fifth_bits(four + 2 + 2 * half, bytes, part);
    case BLOCK_Q5_1: return halves_of(four, 8, bytes, half, part) | fifth_bits(four + 4 + 2 * half, bytes, part);
    case BLOCK_Q8_0: return wide_pair(b + 2 * s * bytes + 2, b + (2 * s + 1) * bytes + 2, part) ^ 128;
    case BLOCK_IQ4_NL: return choose_levels(uneven_levels, halves_of(four, 2, bytes, half, part));
    case BLOCK_MXFP4: return choose_levels(fp4_levels, halves_of(four, 1, bytes, half, part));
    case BLOCK_IQ4_XS: return choose_levels(uneven_levels, halves_of(b + 64 * (s / 2), 8, 16, half, part));
    case BLOCK_Q2_K: {
        const uint8_t *q = b + 16 + 32 * (s / 2);
        return move_pair(wide_pair(q, q, part), 4 * (int)half, 4 * (int)half + 2, 0, part) & 3;
    }
    case BLOCK_Q3_K: {
        const uint8_t *q = b + 32 + 32 * (s / 2);
        return (move_pair(wide_pair(q, q, part), 4 * (int)half, 4 * (int)half + 2, 0, part) & 3) |
               (move_pair(wide_pair(b, b, part), at, at + 1, 2, part) & 4);
    }
    case BLOCK_Q4_K: {
        const uint8_t *q = b + 16 + 32 * s;
        return move_pair(wide_pair(q, q, part), 0, 4, 0, part) & 15;
    }
    case BLOCK_Q5_K: {
        const uint8_t *q = b + 48 + 32 * s;
        return (move_pair(wide_pair(q, q, part), 0, 4, 0, part) & 15) |
               (move_pair(wide_pair(b + 16, b + 16, part), at, at + 1, 4, part) & 16);
    }
    case BLOCK_Q6_K: {
        const uint8_t *high = b + 128 + 32 * (s / 2);
        const wb low = wide_at(b + 64 * (s / 2), part);
        return ((half ? (wb)((wh)low >> 4) : low) & 15) |
               (move_pair(wide_pair(high, high, part), 4 * (int)half, 4 * (int)half + 2, 4, part) & 48);
    }
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return (wb){0};
}

/* --- scales ----------------------------------------------------------------------------------- */

/* Of a span: a level q stands for scale · q + bias. Eight groups, or sixteen. */
struct span_sides {
    vf scale[2], bias[2];
};

INLINE uint64_t eight_at(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint32_t four_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight bytes, the first the lowest. */
INLINE vi widen_bytes(uint64_t bytes)
{
#if defined __AVX2__
    return (vi)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
#else
    int32_t v[LANES];
    widen_plain(v, bytes);
    return (vi)load16(v);
#endif
}

INLINE vf floats_of(uint64_t bytes, const int less)
{
    return __builtin_convertvector(widen_bytes(bytes) - less, vf);
}

INLINE uint16_t half_at(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE vf splat_half(const uint8_t *p)
{
    return widen_f16(half_at(p) - (v8h){0});
}

/* What lies at the same place of eight blocks, `bytes` apart: halves, two halves beside one another,
 * bytes. Of elements in braces GCC 12 would move each through a mask. */
INLINE vf halves_at(const uint8_t *p, const size_t bytes)
{
#if defined __AVX2__
    __m128i h = _mm_setzero_si128(), g = h;
    h = _mm_insert_epi16(_mm_insert_epi16(h, half_at(p), 0), half_at(p + bytes), 1);
    h = _mm_insert_epi16(_mm_insert_epi16(h, half_at(p + 2 * bytes), 2), half_at(p + 3 * bytes), 3);
    g = _mm_insert_epi16(_mm_insert_epi16(g, half_at(p + 4 * bytes), 0), half_at(p + 5 * bytes), 1);
    g = _mm_insert_epi16(_mm_insert_epi16(g, half_at(p + 6 * bytes), 2), half_at(p + 7 * bytes), 3);
    return widen_f16((v8h)_mm_unpacklo_epi64(h, g));
#else
    v8h h;
    for (size_t i = 0; i < LANES; i++)
        h[i] = half_at(p + i * bytes);
    return widen_f16(h);
#endif
}

INLINE struct span_sides pairs_at(const uint8_t *p, const size_t bytes)
{
#if defined __AVX2__
    const __m128i low = _mm_setr_epi32((int)four_at(p), (int)four_at(p + bytes), (int)four_at(p + 2 * bytes),
                                       (int)four_at(p + 3 * bytes)),
                  high = _mm_setr_epi32((int)four_at(p + 4 * bytes), (int)four_at(p + 5 * bytes),
                                        (int)four_at(p + 6 * bytes), (int)four_at(p + 7 * bytes)),
                  first = _mm_blend_epi16(low, _mm_slli_epi32(high, 16), 0xaa),
                  second = _mm_blend_epi16(_mm_srli_epi32(low, 16), high, 0xaa),
                  order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return (struct span_sides){{widen_f16((v8h)_mm_shuffle_epi8(first, order))},
                               {widen_f16((v8h)_mm_shuffle_epi8(second, order))}};
#else
    return (struct span_sides){{halves_at(p, bytes)}, {halves_at(p + 2, bytes)}};
#endif
}

/* As half_e8m0. */
INLINE vf halves_e8m0(const uint8_t *p, const size_t bytes)
{
    const uint64_t low = p[0] | (uint64_t)p[bytes] << 8 | (uint64_t)p[2 * bytes] << 16 | (uint64_t)p[3 * bytes] << 24,
                   high = p[4 * bytes] | (uint64_t)p[5 * bytes] << 8 | (uint64_t)p[6 * bytes] << 16 |
                          (uint64_t)p[7 * bytes] << 24;
    const vi e = widen_bytes(low | high << 32), few = e < 2;
    return (vf)((few & (e + 1) << 21) | (~few & (e - 1) << 23));
}

/* Six bits each of eight scales and minima, in twelve bytes. */
INLINE struct span_sides six_bits(const uint8_t *b)
{
    const uint32_t p = four_at(b + 4), q = four_at(b + 8), rest = four_at(b + 12), low = 0x3f3f3f3f;
    const uint64_t scale = (p & low) | (uint64_t)((rest & 0x0f0f0f0f) | (p >> 2 & 0x30303030)) << 32,
                   least = (q & low) | (uint64_t)((rest >> 4 & 0x0f0f0f0f) | (q >> 2 & 0x30303030)) << 32;
    return (struct span_sides){{splat_half(b) * floats_of(scale, 0)}, {-splat_half(b + 2) * floats_of(least, 0)}};
}

/* Four bits each and, elsewhere, two. */
INLINE uint64_t scales_iq4_xs(const uint8_t *b)
{
    uint64_t low = four_at(b + 4), high = half_at(b + 2);
    low = (low | low << 16) & 0x0000ffff0000ffffu;
    low = (low | low << 8) & 0x00ff00ff00ff00ffu;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
    high = (high | high << 24) & 0x000000ff000000ffu;
    high = (high | high << 12) & 0x000f000f000f000fu;
    high = (high | high << 6) & 0x0303030303030303u;
    return low | high << 4;
}

INLINE struct span_sides sixteen(vf d, vf a, vf b, const float offset)
{
    const vf s = d * a, t = d * b;
    return (struct span_sides){{s, t}, {s * -offset, t * -offset}};
}

INLINE struct span_sides sides_q2_k(const uint8_t *b)
{
    const uint64_t p = eight_at(b), q = eight_at(b + 8), low = 0x0f0f0f0f0f0f0f0f;
    const vf d = splat_half(b + 80), m = -splat_half(b + 82);
    return (struct span_sides){{d * floats_of(p & low, 0), d * floats_of(q & low, 0)},
                               {m * floats_of(p >> 4 & low, 0), m * floats_of(q >> 4 & low, 0)}};
}

INLINE struct span_sides sides_q3_k(const uint8_t *b)
{
    const uint64_t p = eight_at(b + 96), rest = four_at(b + 104), low = 0x0f0f0f0f0f0f0f0f, two = 0x03030303;
    const uint64_t first = (rest & two) | (rest >> 2 & two) << 32,
                   second = (rest >> 4 & two) | (rest >> 6 & two) << 32;
    return sixteen(splat_half(b + 108), floats_of((p & low) | first << 4, 32),
                   floats_of((p >> 4 & low) | second << 4, 32), 4);
}

INLINE struct span_sides sides_q6_k(const uint8_t *b)
{
    const uint64_t flip = 0x8080808080808080; /* signed bytes, each plus 128 */
    return sixteen(splat_half(b + 208), floats_of(eight_at(b + 192) ^ flip, 128),
                   floats_of(eight_at(b + 200) ^ flip, 128), 32);
}

INLINE struct span_sides even_sides(vf d, const float offset)
{
    return (struct span_sides){{d}, {d * -offset}};
}

INLINE struct span_sides span_sides(const enum block_type type, const uint8_t *b)
{
    const size_t bytes = block_span_bytes(type) / 8;
    switch (type) {
    case BLOCK_Q4_0: return even_sides(halves_at(b, bytes), 8);
    case BLOCK_Q5_0: return even_sides(halves_at(b, bytes), 16);
    case BLOCK_Q8_0:
    case BLOCK_IQ4_NL: return even_sides(halves_at(b, bytes), 128);
    case BLOCK_MXFP4: return even_sides(halves_e8m0(b, bytes), 12);
    case BLOCK_Q4_1:
    case BLOCK_Q5_1: return pairs_at(b, bytes);
    case BLOCK_Q4_K:
    case BLOCK_Q5_K: return six_bits(b);
    case BLOCK_IQ4_XS: return even_sides(splat_half(b) * floats_of(scales_iq4_xs(b), 32), 128);
    case BLOCK_Q2_K: return sides_q2_k(b);
    case BLOCK_Q3_K: return sides_q3_k(b);
    case BLOCK_Q6_K: return sides_q6_k(b);
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return (struct span_sides){0};
}

/* --- one span of a row of W with one of x ------------------------------------------------------ */

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
INLINE struct span_scales span_begin(struct sixteen_sums *acc, const struct span_sides *w, const float *scale,
                                     const float *sum, const bool narrow)
{
    struct span_scales ret;
    const vf first = w->scale[0] * load(scale), bias = w->bias[0] * load(sum);
#if defined __AVX512VNNI__
    ret.all = (wf)_mm512_castps256_ps512((__m256)first);
    wf all = (wf)_mm512_zextps256_ps512((__m256)bias);
    if (narrow) {
        ret.all = (wf)_mm512_insertf32x8((__m512)ret.all, (__m256)(w->scale[1] * load(scale + LANES)), 1);
        all = (wf)_mm512_insertf32x8((__m512)all, (__m256)(w->bias[1] * load(sum + LANES)), 1);
    }
    acc->v[0] += all;
#else
    memcpy(ret.each, &first, sizeof first);
    acc->v[0] += bias;
    if (narrow) {
        const vf second = w->scale[1] * load(scale + LANES);
        memcpy(ret.each + LANES, &second, sizeof second);
        acc->v[1] += w->bias[1] * load(sum + LANES);
    }
#endif
    return ret;
}

/* Scales of the sixteen sums: of two groups from the at-th on, or of four. */
INLINE wf scales_of_sums(const struct span_scales *s, const size_t at, const bool four, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    const int i = (int)at, j = four ? 1 : 0;
    const __m512i which = _mm512_setr_epi32(i, i, i, i, i + j, i + j, i + j, i + j, i + 1 + j, i + 1 + j, i + 1 + j,
                                            i + 1 + j, i + 1 + 2 * j, i + 1 + 2 * j, i + 1 + 2 * j, i + 1 + 2 * j);
    return (wf)_mm512_permutexvar_ps(which, (__m512)s->all);
#else
    if (!four)
        return splat(s->each[at + part]);
    return __builtin_shufflevector(splat(s->each[at + 2 * part]), splat(s->each[at + 2 * part + 1]), 0, 1, 2, 3,
                                   12, 13, 14, 15);
#endif
}

/* A step of x: what counts 256 and the rest in bytes, or the even and the odd numbers. */
struct span_x {
    wb v[2];
};

INLINE struct span_x span_x(const int16_t *q, const size_t step, const size_t part)
{
    const uint8_t *at = (const uint8_t *)(q + step * INT_STEP);
    if (FOURS)
        return (struct span_x){{wide_at(at, part), wide_at(at + INT_STEP, part)}};
    return (struct span_x){{wide_at(at, 2 * part), wide_at(at, 2 * part + 1)}};
}

/* Sums of the products of a step, or of two whose sums have the same scales. */
INLINE wi span_sums(const wb w[2], const struct span_x x[2], const size_t steps)
{
    wi sum = {0};
#if defined __AVX512VNNI__ || defined __AVXVNNI__
    UNROLL
    for (size_t i = 0; i < steps; i++)
        sum = add_bytes(sum, w[i], x[i].v[0]);
    sum <<= 8;
    UNROLL
    for (size_t i = 0; i < steps; i++)
        sum = add_bytes(sum, w[i], x[i].v[1]);
#else
    UNROLL
    for (size_t i = 0; i < steps; i++)
        sum = add_products(add_products(sum, (wh)w[i] & 255, (wh)x[i].v[0]), (wh)w[i] >> 8, (wh)x[i].v[1]);
#endif
    return sum;
}

/* Rows of W and of x that are multiplied at once. */
struct block_tile {
    struct sixteen_sums acc[INT_ROWS][BLOCK_X];
};

/* Span i of x with the one at w of each row. */
INLINE void tile_span(struct block_tile *t, const struct int_block_dots *d, size_t j, size_t i,
                      const uint8_t *const w[INT_ROWS], const size_t nx, const enum block_type type)
{
    const bool split = int_block_is_split(type), narrow = int_block_group(type) == 16, four = split || narrow;
    const size_t groups = INT_SPAN / int_block_group(type), at_once = split ? 2 : 1,
                 bytes = block_span_bytes(type);
    struct span_scales scales[INT_ROWS][BLOCK_X];
    UNROLL_MUCH
    for (size_t r = 0; r < INT_ROWS; r++) {
        const struct span_sides sides = span_sides(type, w[r]);
        UNROLL_MUCH
        for (size_t k = 0; k < nx; k++)
            scales[r][k] =
                span_begin(&t->acc[r][k], &sides, (const float *)row_of(d->x.scale, (j + k) * d->x_bytes) + i * groups,
                           (const float *)row_of(d->x.sum, (j + k) * d->x_bytes) + i * groups, narrow);
    }
    UNROLL_MUCH
    for (size_t s = 0; s < STEPS; s += at_once)
        UNROLL_MUCH
        for (size_t part = 0; part < PARTS; part++) {
            struct span_x x[BLOCK_X][2];
            UNROLL_MUCH
            for (size_t k = 0; k < nx; k++)
                UNROLL_MUCH
                for (size_t e = 0; e < at_once; e++)
                    x[k][e] =
                        span_x((const int16_t *)row_of(d->x.q, (j + k) * d->x_bytes) + i * INT_SPAN, s + e, part);
            UNROLL_MUCH
            for (size_t r = 0; r < INT_ROWS; r++) {
                wb v[2];
                if (part == 0)
                    for (size_t e = 0; e < at_once; e++)
                        __builtin_prefetch(w[r] + (s + e) * bytes / STEPS + FETCH_BLOCKS);
                UNROLL_MUCH
                for (size_t e = 0; e < at_once; e++)
                    v[e] = span_levels(type, w[r], s + e, part);
                UNROLL_MUCH
                for (size_t k = 0; k < nx; k++)
                    t->acc[r][k].v[part] +=
                        __builtin_convertvector(span_sums(v, x[k], at_once), wf) *
                        scales_of_sums(&scales[r][k], narrow ? 4 * s : 2 * s, four, part);
            }
        }
}

INLINE float sixteen_sum(const struct sixteen_sums *s)
{
#if defined __AVX512VNNI__
    return sum_of((vf)_mm512_castps512_ps256((__m512)s->v[0]) + (vf)_mm512_extractf32x8_ps((__m512)s->v[0], 1));
#else
    return sum_of(s->v[0] + s->v[1]);
#endif
}

/* The blocks behind the last whole span, and zeros. */
static void last_span(uint8_t to[INT_ROWS][INT_SPAN * 2], const uint8_t *w[INT_ROWS], const struct int_block_dots *d)
{
    const size_t span = block_span_bytes(d->type), at = d->cols / INT_SPAN * span,
                 bytes = d->cols % INT_SPAN * span / INT_SPAN;
    for (size_t r = 0; r < INT_ROWS; r++) {
        memset(to[r], 0, sizeof to[r]);
        memcpy(to[r], d->w[r < d->rows ? r : 0] + at, bytes);
        w[r] = to[r];
    }
}

INLINE void block_tile(const struct int_block_dots *d, size_t j, const size_t nx, const enum block_type type)
{
    struct block_tile t = {0};
    const size_t bytes = block_span_bytes(type), whole = d->cols / INT_SPAN;
    const uint8_t *w[INT_ROWS];
    for (size_t r = 0; r < INT_ROWS; r++)
        w[r] = d->w[r < d->rows ? r : 0];
    for (size_t i = 0; i < whole; i++) {
        tile_span(&t, d, j, i, w, nx, type);
        for (size_t r = 0; r < INT_ROWS; r++)
            w[r] += bytes;
    }
    if (d->cols % INT_SPAN) {
        uint8_t last[INT_ROWS][INT_SPAN * 2];
        last_span(last, w, d);
        tile_span(&t, d, j, whole, w, nx, type);
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
    for (; BLOCK_X > 1 && j + 2 <= d->n; j += 2)
        block_tile(d, j, 2, type);
    for (; j < d->n; j++)
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
