/* SPDX-License-Identifier: MIT
 *
 * The levels of a span of weights in blocks (block.h), 256 columns of a row, as bytes: from 0 on,
 * or signed (int_block_is_signed).
 * Included by integer_block.h only. */
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

/* 64 bytes of p, or those of a part of them. */
INLINE wb wide_at(const uint8_t *p, const size_t part)
{
    wb v;
    memcpy(&v, p + part * sizeof v, sizeof v);
    return v;
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

/* Words moved so that bit `from` becomes bit `to`. */
INLINE wb move_bits(wb v, const int from, const int to)
{
    return (wb)(from < to ? (wh)v << (to - from) : (wh)v >> (from - to));
}

/* Of the same 32 bytes twice, words moved so that bit a of the first, and bit b of the others,
 * becomes bit 0. */
INLINE wb move_twice(const uint8_t *p, const int a, const int b, const size_t part)
{
    const wb v = wide_twice(p);
#if defined __AVX512VNNI__
    (void)part;
    const __m512i both = _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
    return (wb)_mm512_srlv_epi16((__m512i)v, both);
#else
    return move_bits(v, part ? b : a, 0);
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
    return move_bits(v, second ? 4 : 0, 0) & 15;
}

/* The low nibbles of bytes, or the high ones. */
INLINE wb nibbles_of(wb v, const bool high)
{
    return move_bits(v, high ? 4 : 0, 0) & 15;
}

/* Of 64 bytes, four times sixteen a b c d, those in the order a d b c (ORDER_NIBBLES). */
INLINE wb wide_crossed(const uint8_t *p, const size_t part)
{
#if defined __AVX512VNNI__
    const __m512i v = (__m512i)wide_at(p, part);
    return (wb)_mm512_shuffle_i64x2(v, v, 0 | 3 << 2 | 1 << 4 | 2 << 6);
#elif defined __AVX2__
    return part ? (wb)load16(p + 16)
                : (wb)_mm256_blend_epi32((__m256i)load16(p), (__m256i)load16(p + 32), 0xf0);
#else
    wb v;
    memcpy(&v, p + part * 16, 16);
    memcpy((char *)&v + 16, p + (part ? 32 : 48), 16);
    return v;
#endif
}

/* Of 32 bytes, twice sixteen a b, those in the order a b b a. Bits of the second and the fourth
 * sixteen have moved down by two places. */
INLINE wb bits_crossed(const uint8_t *p, const size_t part)
{
#if defined __AVX512VNNI__
    const __m512i v = _mm512_broadcast_i64x4((__m256i)load16(p));
    (void)part;
    return (wb)_mm512_srlv_epi16(
        _mm512_shuffle_i64x2(v, v, 0 | 1 << 2 | 1 << 4 | 0 << 6),
        _mm512_broadcast_i64x4(_mm256_setr_epi64x(0, 0, 0x0002000200020002, 0x0002000200020002)));
#elif defined __AVX2__
    const __m256i v = (__m256i)load16(p);
    return (wb)_mm256_srlv_epi64(part ? _mm256_permute4x64_epi64(v, 2 | 3 << 2 | 0 << 4 | 1 << 6) : v,
                                 _mm256_setr_epi64x(0, 0, 2, 2));
#else
    wb v;
    memcpy(&v, p + part * 16, 16);
    memcpy((char *)&v + 16, p + 16 - part * 16, 16);
    for (size_t i = 16; i < sizeof v; i++)
        v[i] >>= 2;
    return v;
#endif
}

/* ggml's numbers, and twice those of MXFP4 plus 12. */
static const int8_t uneven_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
static const uint8_t fp4_levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* Step s of a span, in the order of x. */
INLINE wb step_levels(const enum block_type type, const uint8_t *b, const size_t s, const size_t part)
{
    const size_t bytes = block_span_bytes(type) / 8, half = s % 2;
    const uint8_t *four = b + s / 2 * 4 * bytes;
    const int first = (int)(4 * (s / 2) + half);
    switch (type) {
    case BLOCK_Q4_0: return halves_of(four, 2, bytes, half, part);
    case BLOCK_Q4_1: return halves_of(four, 4, bytes, half, part);
    case BLOCK_Q5_0:
        return halves_of(four, 6, bytes, half, part) | fifth_bits(four + 2 + 2 * half, bytes, part);
    case BLOCK_Q5_1:
        return halves_of(four, 8, bytes, half, part) | fifth_bits(four + 4 + 2 * half, bytes, part);
    case BLOCK_Q8_0: return wide_fours(four + 2 + 16 * half, bytes, part);
    case BLOCK_IQ4_NL:
        return choose_levels((const uint8_t *)uneven_levels, halves_of(four, 2, bytes, half, part));
    case BLOCK_MXFP4: return choose_levels(fp4_levels, halves_of(four, 1, bytes, half, part));
    case BLOCK_IQ4_XS:
        return choose_levels((const uint8_t *)uneven_levels, halves_of(b + 64 * (s / 2), 8, 16, half, part));
    case BLOCK_Q2_K: return move_bits(wide_at(b + 16, part), 2 * (int)s, 0) & 3;
    case BLOCK_Q3_K:
        return (move_bits(wide_at(b + 32, part), 2 * (int)s, 0) & 3) |
               (move_bits(move_twice(b, 0, 4, part), (int)s, 2) & 4);
    case BLOCK_Q4_K: return nibbles_of(wide_crossed(b + 16 + 64 * (s / 2), part), half);
    case BLOCK_Q5_K:
        return nibbles_of(wide_crossed(b + 48 + 64 * (s / 2), part), half) |
               (move_bits(bits_crossed(b + 16, part), first, 4) & 16);
    case BLOCK_Q6_K:
        return nibbles_of(wide_at(b + 64 * (s / 2), part), half) |
               (move_bits(move_twice(b + 128 + 32 * (s / 2), 0, 2, part), 4 * (int)half, 4) & 48);
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return (wb){0};
}

#endif
