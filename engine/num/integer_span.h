/* SPDX-License-Identifier: MIT
 *
 * What a span of weights in blocks (block.h) consists of, 256 columns of a row: levels, as bytes
 * from 0 on, and their scales, as floats. Names of parts of a block are ggml's: d the scale, m the
 * minimum. Included by integer_block.h only. */
#ifndef NUM_INTEGER_SPAN_H
#define NUM_INTEGER_SPAN_H

#include "num/integer.h"
#include "num/integer_few.h"
#include "num/integer_simd.h"

enum { PARTS = INT_STEP / (int)sizeof(wb) }; /* vectors that hold a step of levels, or sixteen floats */

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

/* The same 32 bytes twice. */
INLINE wb wide_twice(const uint8_t *p)
{
#if defined __AVX512VNNI__
    return (wb)_mm512_broadcast_i64x4((__m256i)load16(p));
#else
    return (wb)load16(p);
#endif
}

/* Four times 16 bytes, `apart` bytes from one another. */
INLINE wb wide_fours(const uint8_t *p, const size_t apart, const size_t part)
{
#if defined __AVX2__
    const __m128i *first = (const void *)(p + part * 2 * apart),
                  *second = (const void *)(p + (part * 2 + 1) * apart);
    const __m256i two =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(first)), _mm_loadu_si128(second), 1);
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
    uint8_t v[32];
    memcpy(v, &nibbles, sizeof v);
    choose_plain(v, of);
    return (wb)load16(v);
#endif
}

/* 16 for each bit of a word that is set, for each of four blocks `apart` bytes from one another. */
INLINE wb fifth_bits(const uint8_t *p, const size_t apart, const size_t part)
{
    uint16_t word[WIDE / 4]; /* for sixteen bytes each */
    UNROLL
    for (size_t i = 0; i < WIDE / 4; i++)
        memcpy(&word[i], p + (part * (WIDE / 4) + i) * apart, sizeof *word);
#if defined __AVX512VNNI__
    const __mmask64 bits =
        word[0] | (uint64_t)word[1] << 16 | (uint64_t)word[2] << 32 | (uint64_t)word[3] << 48;
    return (wb)_mm512_maskz_set1_epi8(bits, 16);
#elif defined __AVX2__
    const __m256i which = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                           2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
                  bit = _mm256_set1_epi64x((long long)0x8040201008040201u),
                  all =
                      _mm256_shuffle_epi8(_mm256_set1_epi32((int)(word[0] | (uint32_t)word[1] << 16)), which);
    return (wb)_mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit), _mm256_set1_epi8(16));
#else
    uint8_t v[32];
    fifth_plain(v, word);
    return (wb)load16(v);
#endif
}

/* The first or the second half of each of four blocks that have nibbles `at` bytes from their
 * start. */
INLINE wb halves_of(const uint8_t *b, const size_t at, const size_t bytes, const bool second,
                    const size_t part)
{
    const wb v = wide_fours(b + at, bytes, part);
    return (second ? (wb)((wh)v >> 4) : v) & 15;
}

/* ggml's numbers plus 128, and twice those of MXFP4 plus 12. */
static const uint8_t uneven_levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241},
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
    case BLOCK_Q5_0:
        return halves_of(four, 6, bytes, half, part) | fifth_bits(four + 2 + 2 * half, bytes, part);
    case BLOCK_Q5_1:
        return halves_of(four, 8, bytes, half, part) | fifth_bits(four + 4 + 2 * half, bytes, part);
    case BLOCK_Q8_0: return wide_pair(b + 2 * s * bytes + 2, b + (2 * s + 1) * bytes + 2, part) ^ 128;
    case BLOCK_IQ4_NL: return choose_levels(uneven_levels, halves_of(four, 2, bytes, half, part));
    case BLOCK_MXFP4: return choose_levels(fp4_levels, halves_of(four, 1, bytes, half, part));
    case BLOCK_IQ4_XS: return choose_levels(uneven_levels, halves_of(b + 64 * (s / 2), 8, 16, half, part));
    case BLOCK_Q2_K: {
        const uint8_t *q = b + 16 + 32 * (s / 2);
        return move_pair(wide_twice(q), 4 * (int)half, 4 * (int)half + 2, 0, part) & 3;
    }
    case BLOCK_Q3_K: {
        const uint8_t *q = b + 32 + 32 * (s / 2);
        return (move_pair(wide_twice(q), 4 * (int)half, 4 * (int)half + 2, 0, part) & 3) |
               (move_pair(wide_twice(b), at, at + 1, 2, part) & 4);
    }
    case BLOCK_Q4_K: {
        const uint8_t *q = b + 16 + 32 * s;
        return move_pair(wide_twice(q), 0, 4, 0, part) & 15;
    }
    case BLOCK_Q5_K: {
        const uint8_t *q = b + 48 + 32 * s;
        return (move_pair(wide_twice(q), 0, 4, 0, part) & 15) |
               (move_pair(wide_twice(b + 16), at, at + 1, 4, part) & 16);
    }
    case BLOCK_Q6_K: {
        const uint8_t *high = b + 128 + 32 * (s / 2);
        const wb low = wide_at(b + 64 * (s / 2), part);
        return ((half ? (wb)((wh)low >> 4) : low) & 15) |
               (move_pair(wide_twice(high), 4 * (int)half, 4 * (int)half + 2, 4, part) & 48);
    }
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return (wb){0};
}

/* --- scales ----------------------------------------------------------------------------------- */

/* Of a span: a level q stands for scale · q + bias. Eight groups, or sixteen. */
struct span_sides {
    wf scale[PARTS], bias[PARTS];
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

/* Eight bytes of two words, or sixteen, as floats. */
INLINE wf wide_floats(const uint64_t low, const uint64_t high, const int less, const size_t part)
{
#if defined __AVX512VNNI__
    (void)part;
    const __m128i all = _mm_set_epi64x((long long)high, (long long)low);
    return __builtin_convertvector((wi)_mm512_cvtepu8_epi32(all) - less, wf);
#else
    return __builtin_convertvector(widen_bytes(part ? high : low) - less, wf);
#endif
}

/* Eight numbers, and zeros behind them. */
INLINE wf wide_of(vf v)
{
#if defined __AVX512VNNI__
    return (wf)_mm512_zextps256_ps512((__m256)v);
#else
    return v;
#endif
}

INLINE uint16_t half_at(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE wf splat_half(const uint8_t *p)
{
#if defined __AVX512VNNI__
    return (wf)_mm512_cvtph_ps(_mm256_set1_epi16((short)half_at(p)));
#else
    return widen_f16(half_at(p) - (v8h){0});
#endif
}

/* What lies at the same place of eight blocks, `bytes` apart: halves, two halves beside one
 * another, bytes. Of elements in braces GCC 12 would move each through a mask. */
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
    return (struct span_sides){{wide_of(widen_f16((v8h)_mm_shuffle_epi8(first, order)))},
                               {wide_of(widen_f16((v8h)_mm_shuffle_epi8(second, order)))}};
#else
    return (struct span_sides){{halves_at(p, bytes)}, {halves_at(p + 2, bytes)}};
#endif
}

/* As half_e8m0. */
INLINE vf halves_e8m0(const uint8_t *p, const size_t bytes)
{
    const uint64_t low = p[0] | (uint64_t)p[bytes] << 8 | (uint64_t)p[2 * bytes] << 16 |
                         (uint64_t)p[3 * bytes] << 24,
                   high = p[4 * bytes] | (uint64_t)p[5 * bytes] << 8 | (uint64_t)p[6 * bytes] << 16 |
                          (uint64_t)p[7 * bytes] << 24;
    const vi e = widen_bytes(low | high << 32), few = e < 2;
    return (vf)((few & (e + 1) << 21) | (~few & (e - 1) << 23));
}

/* Six bits each of eight scales and minima, in twelve bytes. */
INLINE struct span_sides six_bits(const uint8_t *b)
{
    const uint64_t p = eight_at(b + 4), rest = four_at(b + 12);
    const uint64_t first = p & 0x3f3f3f3f3f3f3f3f, /* four scales and as many minima */
        second = ((rest | rest << 28) & 0x0f0f0f0f0f0f0f0f) | (p >> 2 & 0x3030303030303030);
#if defined __AVX512VNNI__
    const __m128i all = _mm_shuffle_epi32(_mm_set_epi64x((long long)second, (long long)first), 0xd8);
    const __m512 both = _mm512_cvtph_ps(_mm256_set1_epi32((int)(four_at(b) ^ 0x80000000u))),
                 d = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                           both),
                 sixteen = d * _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(all));
    return (struct span_sides){{(wf)sixteen}, {wide_of((vf)_mm512_extractf32x8_ps(sixteen, 1))}};
#else
    const uint64_t scale = (first & UINT32_MAX) | second << 32, least = first >> 32 | second >> 32 << 32;
    return (struct span_sides){{splat_half(b) * wide_floats(scale, 0, 0, 0)},
                               {-splat_half(b + 2) * wide_floats(least, 0, 0, 0)}};
#endif
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

/* Sixteen bytes that stand for themselves less `less`, times the half at d. */
INLINE struct span_sides sixteen(const uint8_t *d, const uint64_t low, const uint64_t high, const int less,
                                 const float offset)
{
    struct span_sides s;
    for (size_t i = 0; i < PARTS; i++) {
        s.scale[i] = splat_half(d) * wide_floats(low, high, less, i);
        s.bias[i] = s.scale[i] * -offset;
    }
    return s;
}

INLINE struct span_sides sides_q2_k(const uint8_t *b)
{
    const uint64_t p = eight_at(b), q = eight_at(b + 8), low = 0x0f0f0f0f0f0f0f0f;
    struct span_sides s;
    for (size_t i = 0; i < PARTS; i++) {
        s.scale[i] = splat_half(b + 80) * wide_floats(p & low, q & low, 0, i);
        s.bias[i] = -splat_half(b + 82) * wide_floats(p >> 4 & low, q >> 4 & low, 0, i);
    }
    return s;
}

INLINE struct span_sides sides_q3_k(const uint8_t *b)
{
    const uint64_t p = eight_at(b + 96), rest = four_at(b + 104), low = 0x0f0f0f0f0f0f0f0f, two = 0x03030303;
    const uint64_t first = (rest & two) | (rest >> 2 & two) << 32,
                   second = (rest >> 4 & two) | (rest >> 6 & two) << 32;
    return sixteen(b + 108, (p & low) | first << 4, (p >> 4 & low) | second << 4, 32, 4);
}

INLINE struct span_sides sides_q6_k(const uint8_t *b)
{
    const uint64_t flip = 0x8080808080808080; /* signed bytes, each plus 128 */
    return sixteen(b + 208, eight_at(b + 192) ^ flip, eight_at(b + 200) ^ flip, 128, 32);
}

INLINE struct span_sides even_sides(wf d, const float offset)
{
    return (struct span_sides){{d}, {d * -offset}};
}

INLINE struct span_sides span_sides(const enum block_type type, const uint8_t *b)
{
    const size_t bytes = block_span_bytes(type) / 8;
    switch (type) {
    case BLOCK_Q4_0: return even_sides(wide_of(halves_at(b, bytes)), 8);
    case BLOCK_Q5_0: return even_sides(wide_of(halves_at(b, bytes)), 16);
    case BLOCK_Q8_0:
    case BLOCK_IQ4_NL: return even_sides(wide_of(halves_at(b, bytes)), 128);
    case BLOCK_MXFP4: return even_sides(wide_of(halves_e8m0(b, bytes)), 12);
    case BLOCK_Q4_1:
    case BLOCK_Q5_1: return pairs_at(b, bytes);
    case BLOCK_Q4_K:
    case BLOCK_Q5_K: return six_bits(b);
    case BLOCK_IQ4_XS: return even_sides(splat_half(b) * wide_floats(scales_iq4_xs(b), 0, 32, 0), 128);
    case BLOCK_Q2_K: return sides_q2_k(b);
    case BLOCK_Q3_K: return sides_q3_k(b);
    case BLOCK_Q6_K: return sides_q6_k(b);
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return (struct span_sides){0};
}

#endif
