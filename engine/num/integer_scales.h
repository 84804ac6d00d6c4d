/* SPDX-License-Identifier: MIT
 *
 * The scales of a span of weights in blocks (block.h), 256 columns of a row: of small blocks eight
 * floats, of a large one whole numbers that share a float. Names of parts of a block are ggml's: d
 * the scale, m the minimum. Included by integer_block.h only. */
#ifndef NUM_INTEGER_SCALES_H
#define NUM_INTEGER_SCALES_H

#include "num/integer.h"
#include "num/integer_few.h"
#include "num/integer_simd.h"

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

INLINE uint16_t half_at(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* A half of each of the two at p. */
struct two_floats {
    float d, m;
};

INLINE struct two_floats floats_at(const uint8_t *p, const bool two)
{
    const uint32_t both = two ? four_at(p) : half_at(p);
#if defined __F16C__
    const v4 f = (v4)_mm_cvtph_ps(_mm_cvtsi32_si128((int)both));
    return (struct two_floats){f[0], f[1]};
#else
    const vf f = widen_f16((v8h){(uint16_t)both, (uint16_t)(both >> 16)});
    return (struct two_floats){f[0], f[1]};
#endif
}

#if !defined __AVX2__
/* Out of line: one after the other, it is too much code to have in many places. */
static __attribute__((noinline)) void widen_plain(int32_t v[LANES], uint64_t bytes)
{
    for (int i = 0; i < LANES; i++)
        v[i] = (int32_t)(bytes >> 8 * i & 255);
}
#endif

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

/* --- small blocks ----------------------------------------------------------------------------- */

/* Of eight blocks, in the order of int_small_place: a level q stands for scale · q + bias. */
struct small_sides {
    vf scale, bias;
};

#if defined __AVX512VNNI__
/* Of the n words at p, 64 at most; what lies behind them is not read. */
INLINE __m128i four_or_all(const uint8_t *p, const size_t n, __m512i which)
{
    const __mmask32 low = n < 32 ? (__mmask32)((1u << n) - 1) : (__mmask32)-1,
                    high = n > 32 ? (__mmask32)-1 >> (64 - n) : 0;
    return _mm512_castsi512_si128(_mm512_permutex2var_epi16(
        _mm512_maskz_loadu_epi16(low, p), which, _mm512_maskz_loadu_epi16(high, p + sizeof(__m512i))));
}
#endif

/* Halves that lie at the same place of eight blocks, `bytes` apart: each is read with what is
 * before it, so that it comes where it belongs. Of elements in braces GCC 12 would move each
 * through a mask. */
INLINE vf halves_at(const uint8_t *p, const size_t bytes)
{
#if defined __AVX512VNNI__
    if (bytes % 2 == 0) { /* 128 bytes have all of them, or four */
        const bool whole = 7 * bytes + sizeof(uint16_t) <= 2 * sizeof(__m512i);
        const short n = (short)(bytes / 2), from = whole ? 4 : 0;
        const size_t words = (whole ? 7 : 3) * bytes / 2 + 1;
        const __m512i which = _mm512_castsi128_si512(_mm_mullo_epi16(
            _mm_setr_epi16(0, 2, from, from + 2, 1, 3, from + 1, from + 3), _mm_set1_epi16(n)));
        const __m128i first = four_or_all(p, words, which);
        return widen_f16(
            (v8h)(whole ? first : _mm_blend_epi16(first, four_or_all(p + 4 * bytes, words, which), 0xcc)));
    }
#endif
#if defined __AVX2__
#define HALF_AT(i) _mm_loadu_si128((const void *)(p + (i)*bytes - 2 * int_small_place(i)))
    const __m128i a = _mm_blend_epi16(HALF_AT(0), HALF_AT(2), 1 << 1),
                  b = _mm_blend_epi16(HALF_AT(4), HALF_AT(6), 1 << 3),
                  c = _mm_blend_epi16(HALF_AT(1), HALF_AT(3), 1 << 5),
                  e = _mm_blend_epi16(HALF_AT(5), HALF_AT(7), 1 << 7);
#undef HALF_AT
    return widen_f16(
        (v8h)_mm_blend_epi16(_mm_blend_epi16(a, b, 3 << 2), _mm_blend_epi16(c, e, 3 << 6), 15 << 4));
#else
    v8h h;
    for (size_t i = 0; i < LANES; i++)
        h[int_small_place(i)] = half_at(p + i * bytes);
    return widen_f16(h);
#endif
}

/* As half_e8m0. */
INLINE vf halves_e8m0(const uint8_t *p, const size_t bytes)
{
    const uint64_t even = p[0] | (uint64_t)p[2 * bytes] << 8 | (uint64_t)p[4 * bytes] << 16 |
                          (uint64_t)p[6 * bytes] << 24,
                   odd = p[bytes] | (uint64_t)p[3 * bytes] << 8 | (uint64_t)p[5 * bytes] << 16 |
                         (uint64_t)p[7 * bytes] << 24;
    const vi e = widen_bytes(even | odd << 32), few = e < 2;
    return (vf)((few & (e + 1) << 21) | (~few & (e - 1) << 23));
}

/* Levels that stand for themselves less `offset`. */
INLINE struct small_sides even_sides(vf d, const float offset)
{
    return (struct small_sides){d, d * -offset};
}

INLINE struct small_sides small_sides(const enum block_type type, const uint8_t *b)
{
    const size_t bytes = block_bytes(type);
    switch (type) {
    case BLOCK_Q4_0: return even_sides(halves_at(b, bytes), 8);
    case BLOCK_Q5_0: return even_sides(halves_at(b, bytes), 16);
    case BLOCK_Q8_0:
    case BLOCK_IQ4_NL: return even_sides(halves_at(b, bytes), 0);
    case BLOCK_MXFP4: return even_sides(halves_e8m0(b, bytes), 12);
    default: return (struct small_sides){halves_at(b, bytes), halves_at(b + 2, bytes)}; /* Q4_1, Q5_1 */
    }
}

/* --- large blocks ----------------------------------------------------------------------------- */

/* Scales as step_scales takes them. Level q of group g is d · scale[g] · q + m · least[g],
 * the latter not with signed ones. */
struct large_sides {
    wh scale;
    vf least[2]; /* of eight groups, or of sixteen: at even places, at odd ones */
    float d, m;
};

/* Whether scales are bytes without sign, in their order. Others are of 16 bits: eight for each
 * sixteen bytes of a vector; of sixteen those at even places for the first sixteen bytes of 32, and
 * those at odd places for the others. */
INLINE bool has_byte_scales(const enum block_type type)
{
    return type == BLOCK_Q2_K || type == BLOCK_Q4_K || type == BLOCK_Q5_K;
}

/* Eight numbers for each sixteen bytes of a vector, or eight of the first and of the second sixteen
 * by turns. */
INLINE wh scale_lanes(v8i even, v8i odd)
{
#if defined __AVX2__
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)even), (__m128i)odd, 1);
#endif
#if defined __AVX512VNNI__
    return (wh)_mm512_broadcast_i64x4(both);
#elif defined __AVX2__
    return (wh)both;
#else
    wh v;
    memcpy(&v, &even, sizeof even);
    memcpy((char *)&v + sizeof even, &odd, sizeof odd);
    return v;
#endif
}

/* Which scales the sixteen bytes of a vector take, of 32 bytes the first two or the others. */
struct four_groups {
    int of[4];
};

/* Of step s (enum int_block_order says which columns it has). */
INLINE struct four_groups groups_of_step(const enum block_type type, const size_t s)
{
    const int step = (int)s, four = 4 * (step / 2), half = step % 2;
    switch (int_block_order(type)) {
    case ORDER_SPLIT: return (struct four_groups){{four, four + 1, four + 2, four + 3}};
    case ORDER_NIBBLES:
        return (struct four_groups){{four + half, four + half + 2, four + half, four + half + 2}};
    case ORDER_PAIRS: return (struct four_groups){{2 * step, 2 * step + 1, 2 * step + 8, 2 * step + 9}};
    case ORDER_PLAIN: break;
    }
    return (struct four_groups){{4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3}};
}

/* Where a vector has the scale of a group, as the bytes that become one of 16 bits. */
INLINE short bytes_of_group(const enum block_type type, const int group)
{
    const int at = int_block_sums(type) == 16 ? group / 2 : group;
    return (short)(has_byte_scales(type) ? group | 0x8000 : (2 * at) | (2 * at + 1) << 8);
}

INLINE wh step_scales(const enum block_type type, wh scale, const size_t s, const size_t part)
{
    const struct four_groups g = groups_of_step(type, s);
#if defined __AVX2__
    const short a = bytes_of_group(type, g.of[2 * part]), b = bytes_of_group(type, g.of[2 * part + 1]);
    const __m256i two = _mm256_inserti128_si256(_mm256_set1_epi16(a), _mm_set1_epi16(b), 1);
#endif
#if defined __AVX512VNNI__
    const short c = bytes_of_group(type, g.of[2]), e = bytes_of_group(type, g.of[3]);
    const __m256i others = _mm256_inserti128_si256(_mm256_set1_epi16(c), _mm_set1_epi16(e), 1);
    return (wh)_mm512_shuffle_epi8((__m512i)scale,
                                   _mm512_inserti64x4(_mm512_castsi256_si512(two), others, 1));
#elif defined __AVX2__
    return (wh)_mm256_shuffle_epi8((__m256i)scale, two);
#else
    uint8_t all[32];
    uint16_t of[16];
    memcpy(all, &scale, sizeof all);
    for (size_t i = 0; i < 16; i++) {
        const uint16_t at = (uint16_t)bytes_of_group(type, g.of[2 * part + i / 8]);
        const uint8_t *lane = all + i / 8 * 16;
        of[i] = (uint16_t)(lane[at & 255] | (at >> 15 ? 0 : lane[at >> 8]) << 8);
    }
    return load16(of);
#endif
}

/* Sixteen bytes for each sixteen of a vector. */
INLINE wh scale_bytes(v16b v)
{
#if defined __AVX512VNNI__
    return (wh)_mm512_broadcast_i32x4((__m128i)v);
#elif defined __AVX2__
    return (wh)_mm256_broadcastsi128_si256((__m128i)v);
#else
    return scale_lanes((v8i)v, (v8i)v);
#endif
}

INLINE v16b sixteen_at(const uint8_t *p)
{
    v16b v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Sixteen bytes, those at even places first. */
INLINE v16b by_turns(v16b v)
{
    return __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
}

/* The first eight bytes, or the others, as 16 bits each. */
INLINE v8i widen_half(v16b v, const bool second, const bool has_sign)
{
#if defined __AVX2__
    const __m128i half = second ? _mm_srli_si128((__m128i)v, 8) : (__m128i)v;
    return (v8i)(has_sign ? _mm_cvtepi8_epi16(half) : _mm_cvtepu8_epi16(half));
#else
    const v16b high = has_sign ? (v16b)((v16s)v < 0) : (v16b){0};
    return second ? (v8i)__builtin_shufflevector(v, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                                 30, 15, 31)
                  : (v8i)__builtin_shufflevector(v, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                                 23);
#endif
}

INLINE vf widen_float(v8i v)
{
#if defined __AVX2__
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32((__m128i)v));
#else
    const v8i high = v < 0;
    return __builtin_convertvector(
        (vi)__builtin_shufflevector(v, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), vf);
#endif
}

INLINE vf half_floats(v16b v, const bool second)
{
#if defined __AVX2__
    const __m128i half = second ? _mm_srli_si128((__m128i)v, 8) : (__m128i)v;
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(half));
#else
    return widen_float(widen_half(v, second, false));
#endif
}

/* Six bits each of eight scales and, behind them, minima. */
INLINE v16b six_bits(const uint8_t *b)
{
#if defined __AVX2__
    const __m128i head = _mm_loadu_si128((const void *)b),
                  low = _mm_shuffle_epi8(
                      head, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)),
                  high = _mm_shuffle_epi8(
                      head, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11)),
                  most = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    return (v16b)_mm_or_si128(_mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)), most),
                              _mm_and_si128(_mm_srli_epi32(high, 2), _mm_set1_epi32(0x30303030)));
#else
    const uint64_t p = eight_at(b + 4), rest = four_at(b + 12);
    const uint64_t first = p & 0x3f3f3f3f3f3f3f3f, /* four scales and as many minima */
        second = ((rest | rest << 28) & 0x0f0f0f0f0f0f0f0f) | (p >> 2 & 0x3030303030303030);
    const v2l all = {(int64_t)((first & UINT32_MAX) | second << 32),
                     (int64_t)(first >> 32 | second >> 32 << 32)};
    return (v16b)all;
#endif
}

/* Four bits each and, elsewhere, two. */
INLINE struct large_sides sides_iq4_xs(const uint8_t *b)
{
    uint64_t low = four_at(b + 4), high = half_at(b + 2);
    low = (low | low << 16) & 0x0000ffff0000ffffu;
    low = (low | low << 8) & 0x00ff00ff00ff00ffu;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
    high = (high | high << 24) & 0x000000ff000000ffu;
    high = (high | high << 12) & 0x000f000f000f000fu;
    high = (high | high << 6) & 0x0303030303030303u;
    const v2l all = {(int64_t)(low | high << 4), 0};
    const v8i scale = widen_half((v16b)all, false, false) - 32;
    return (struct large_sides){.scale = scale_lanes(scale, scale), .d = floats_at(b, false).d};
}

/* Of sixteen groups, those at even places first, as sums of x are (integer_x.h): their scales are
 * bytes less `less`, and a level stands for itself less `offset`. */
INLINE struct large_sides sides_offset(v16b scale, const bool has_sign, const int16_t less, float d,
                                       const float offset)
{
    const v8i even = widen_half(scale, false, has_sign) - less,
              odd = widen_half(scale, true, has_sign) - less;
    return (struct large_sides){
        scale_lanes(even, odd), {widen_float(even), widen_float(odd)}, d, d * -offset};
}

INLINE struct large_sides sides_q2_k(const uint8_t *b)
{
    const v16b all = sixteen_at(b), least = by_turns(all >> 4);
    const struct two_floats f = floats_at(b + 80, true);
    return (struct large_sides){
        scale_bytes(all & 15), {half_floats(least, false), half_floats(least, true)}, f.d, -f.m};
}

INLINE struct large_sides sides_q4_k(const uint8_t *b)
{
    const v16b all = six_bits(b);
    const struct two_floats f = floats_at(b, true);
    return (struct large_sides){scale_bytes(all), {half_floats(all, true)}, f.d, -f.m};
}

INLINE struct large_sides sides_q3_k(const uint8_t *b)
{
    const uint64_t p = eight_at(b + 96), rest = four_at(b + 104), low = 0x0f0f0f0f0f0f0f0f, two = 0x03030303;
    const uint64_t first = (rest & two) | (rest >> 2 & two) << 32,
                   second = (rest >> 4 & two) | (rest >> 6 & two) << 32;
    const v2l all = {(int64_t)((p & low) | first << 4), (int64_t)((p >> 4 & low) | second << 4)};
    return sides_offset(by_turns((v16b)all), false, 32, floats_at(b + 108, false).d, 4);
}

INLINE struct large_sides large_sides(const enum block_type type, const uint8_t *b)
{
    switch (type) {
    case BLOCK_Q2_K: return sides_q2_k(b);
    case BLOCK_Q3_K: return sides_q3_k(b);
    case BLOCK_Q6_K:
        return sides_offset(by_turns(sixteen_at(b + 192)), true, 0, floats_at(b + 208, false).d, 32);
    case BLOCK_IQ4_XS: return sides_iq4_xs(b);
    default: return sides_q4_k(b); /* and Q5_K */
    }
}

#endif
