/* SPDX-License-Identifier: MIT
 *
 * Inside of block_plain.c and kernels.c, which is compiled for each instruction set: what turns
 * a block into f32, sixteen values at a time, on GCC's vector extensions. The layouts are those
 * of ggml (ggml-common.h); names of parts follow it: d the scale, m the minimum, q numbers, sc
 * and mn scales and minima of parts. */
#ifndef NUM_BLOCK_LOAD_H
#define NUM_BLOCK_LOAD_H

#if defined __AVX2__ || defined __F16C__
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

#include "num/bits.h"
#include "num/block.h"

enum { SMALL = 32, HALF = 16, PART = 128, SUBS = 8 };

static inline float half_at(const uint8_t *p)
{
    const uint32_t bits = p[0] | (uint32_t)p[1] << 8;
#if defined __F16C__
    return _cvtsh_ss((unsigned short)bits);
#else
    const uint32_t size = bits & 0x7fff, normal = (size << 13) + (112u << 23),
                   large = size << 13 | 0x7f800000u;
    const float x = size < 0x400 ? (float)size * 0x1p-24f : float_of(size < 0x7c00 ? normal : large);
    return bits & 0x8000 ? -x : x;
#endif
}

/* Sixteen numbers of a byte each, and what becomes of them. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef int8_t levels16 __attribute__((vector_size(16)));

static inline bytes16 bytes_at(const uint8_t *p)
{
    bytes16 x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* y = scale · level − least. Of bytes, GCC 12 widens one after the other by itself. */
static inline void put16(float *y, levels16 level, float scale, float least)
{
#if defined __AVX512F__
    const __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)level));
    _mm512_storeu_ps(y, x * scale - least);
#elif defined __AVX2__
    const __m128i bytes = (__m128i)level;
    _mm256_storeu_ps(y, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)) * scale - least);
    _mm256_storeu_ps(y + 8,
                     _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))) * scale - least);
#else
    for (int i = 0; i < HALF; i++)
        y[i] = (float)level[i] * scale - least;
#endif
}

/* --- blocks of 32: value j in the low half of byte j, value j + 16 in its high half --- */

static void q4_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    const bytes16 q = bytes_at(b + 2);
    put16(y, (levels16)(q & 15) - 8, d, 0);
    put16(y + HALF, (levels16)(q >> 4) - 8, d, 0);
}

static void q4_1(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    const bytes16 q = bytes_at(b + 4);
    put16(y, (levels16)(q & 15), d, -m);
    put16(y + HALF, (levels16)(q >> 4), d, -m);
}

/* The fifth bits of all are a word: those of sixteen are its bits from `at` on, and become 16. */
static inline bytes16 fifths(const uint8_t *p, size_t at)
{
    static const bytes16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8_t a = p[at / 8], c = p[at / 8 + 1];
    const bytes16 word = {a, a, a, a, a, a, a, a, c, c, c, c, c, c, c, c};
    return (bytes16)((word & bit) == bit) & 16;
}

static void q5_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    const bytes16 q = bytes_at(b + 6);
    put16(y, (levels16)((q & 15) | fifths(b + 2, 0)) - 16, d, 0);
    put16(y + HALF, (levels16)((q >> 4) | fifths(b + 2, HALF)) - 16, d, 0);
}

static void q5_1(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    const bytes16 q = bytes_at(b + 8);
    put16(y, (levels16)((q & 15) | fifths(b + 4, 0)), d, -m);
    put16(y + HALF, (levels16)((q >> 4) | fifths(b + 4, HALF)), d, -m);
}

static void q8_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    put16(y, (levels16)bytes_at(b + 2), d, 0);
    put16(y + HALF, (levels16)bytes_at(b + 2 + HALF), d, 0);
}

static inline levels16 choose(levels16 of, bytes16 which)
{
#if defined __AVX2__
    return (levels16)_mm_shuffle_epi8((__m128i)of, (__m128i)which);
#else
    levels16 y = {0};
    for (int i = 0; i < HALF; i++)
        y[i] = of[which[i]];
    return y;
#endif
}

/* A nibble stands for one of sixteen numbers. */
static inline void put_chosen(float *y, const uint8_t *q, levels16 of, float d)
{
    const bytes16 x = bytes_at(q);
    put16(y, choose(of, x & 15), d, 0);
    put16(y + HALF, choose(of, x >> 4), d, 0);
}

/* Closer to each other around nothing. */
static const levels16 uneven = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl(float *y, const uint8_t *b)
{
    put_chosen(y, b + 2, uneven, half_at(b));
}

static void mxfp4(float *y, const uint8_t *b)
{
    static const levels16 twice = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    put_chosen(y, b + 1, twice, half_e8m0(b[0]));
}

/* --- blocks of 256 ---------------------------------------------------------------------------- */

/* Half of a block: 128 values, the first or the second, which is always known where these are
 * called. Loops are unrolled, for shifts by a constant: of bytes, others are made one after the
 * other. */
#define HALF_OF static inline __attribute__((always_inline)) void

/* Two bits of each of the values from i on: four stretches of 32 share 32 bytes. */
static inline bytes16 two_bits(const uint8_t *q, int i)
{
    return bytes_at(q + i % 32) >> (uint8_t)(2 * (i / 32)) & 3;
}

HALF_OF q2_k(float *y, const uint8_t *b, const int half)
{
    const uint8_t *const scales = b + 8 * half, *const q = b + 16 + 32 * half;
    const float d = half_at(b + 80), m = half_at(b + 82);
#pragma GCC unroll 8
    for (int i = 0; i < PART; i += HALF)
        put16(y + i, (levels16)two_bits(q, i), d * (float)(scales[i / HALF] & 15),
              m * (float)(scales[i / HALF] >> 4));
}

HALF_OF q3_k(float *y, const uint8_t *b, const int half)
{
    const uint8_t *const scales = b + 96, *const q = b + 32 + 32 * half;
    const float d = half_at(b + 108);
#pragma GCC unroll 8
    for (int t = 0; t < PART / HALF; t++) {
        const int i = t * HALF, low = half ? scales[t] >> 4 : scales[t] & 15,
                  high = scales[8 + t % 4] >> 2 * (2 * half + t / 4) & 3;
        const bytes16 third = bytes_at(b + i % 32) >> (uint8_t)(4 * half + i / 32) & 1;
        put16(y + i, (levels16)(two_bits(q, i) | third << 2) - 4, d * (float)((low | high << 4) - 32), 0);
    }
}

/* Scale and minimum of stretch s, six bits each, of the twelve bytes that hold all of them. */
static inline void six_bits(int *sc, int *mn, const uint8_t *p, int s)
{
    if (s < 4) {
        *sc = p[s] & 63;
        *mn = p[s + 4] & 63;
    } else {
        *sc = (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
        *mn = p[s + 4] >> 4 | (p[s] >> 6) << 4;
    }
}

HALF_OF q4_k(float *y, const uint8_t *b, const int half)
{
    const float d = half_at(b), m = half_at(b + 2);
#pragma GCC unroll 4
    for (int t = 0, sc, mn; t < SUBS / 2; t++) {
        const int s = SUBS / 2 * half + t;
        const uint8_t *const q = b + 16 + 32 * (s / 2);
        six_bits(&sc, &mn, b + 4, s);
#pragma GCC unroll 2
        for (int i = 0; i < SMALL; i += HALF)
            put16(y + SMALL * t + i, (levels16)(bytes_at(q + i) >> (uint8_t)(4 * (s & 1)) & 15),
                  d * (float)sc, m * (float)mn);
    }
}

HALF_OF q5_k(float *y, const uint8_t *b, const int half)
{
    const float d = half_at(b), m = half_at(b + 2);
#pragma GCC unroll 4
    for (int t = 0, sc, mn; t < SUBS / 2; t++) {
        const int s = SUBS / 2 * half + t;
        const uint8_t *const q = b + 48 + 32 * (s / 2);
        six_bits(&sc, &mn, b + 4, s);
#pragma GCC unroll 2
        for (int i = 0; i < SMALL; i += HALF) {
            const bytes16 fifth = bytes_at(b + 16 + i) >> (uint8_t)s & 1;
            put16(y + SMALL * t + i,
                  (levels16)((bytes_at(q + i) >> (uint8_t)(4 * (s & 1)) & 15) | fifth << 4), d * (float)sc,
                  m * (float)mn);
        }
    }
}

HALF_OF q6_k(float *y, const uint8_t *b, const int half)
{
    const uint8_t *const q = b + 64 * half, *const high = b + 128 + 32 * half,
                         *const scales = b + 192 + 8 * half;
    const float d = half_at(b + 208);
#pragma GCC unroll 4
    for (int t = 0; t < SUBS / 2; t++) {
        const uint8_t *const low = q + 32 * (t & 1);
#pragma GCC unroll 2
        for (int l = 0; l < SMALL; l += HALF) {
            const bytes16 v = (bytes_at(low + l) >> (uint8_t)(4 * (t >> 1)) & 15) |
                              (bytes_at(high + l) >> (uint8_t)(2 * t) & 3) << 4;
            put16(y + SMALL * t + l, (levels16)v - 32, d * (float)(int8_t)scales[2 * t + l / HALF], 0);
        }
    }
}

HALF_OF iq4_xs(float *y, const uint8_t *b, const int half)
{
    const float d = half_at(b);
    const uint32_t high = b[2] | (uint32_t)b[3] << 8;
    for (int t = 0; t < SUBS / 2; t++) {
        const int s = SUBS / 2 * half + t, sc = (b[4 + s / 2] >> 4 * (s & 1) & 15) | (int)(high >> 2 * s & 3)
                                                                                         << 4;
        put_chosen(y + SMALL * t, b + 8 + 16 * s, uneven, d * (float)(sc - 32));
    }
}

/* `type` and `load` are always known where these are called. */
HALF_OF each(float *y, const uint8_t *b, size_t n, enum block_type type,
             void (*load)(float *, const uint8_t *))
{
    for (size_t i = 0; i < n; i++, y += SMALL, b += block_bytes(type))
        load(y, b);
}

HALF_OF each_half(float *y, const uint8_t *row, size_t from, size_t n, enum block_type type,
                  void (*load)(float *, const uint8_t *, int))
{
    for (size_t i = from; i < from + n; i++, y += PART)
        if (i % 2)
            load(y, row + i / 2 * block_bytes(type), 1);
        else
            load(y, row + i / 2 * block_bytes(type), 0);
}

/* What is made at once: a small block or half of a large one. */
static inline size_t part_values(enum block_type type)
{
    return block_values(type) < PART ? block_values(type) : PART;
}

static void load_parts(float *y, const uint8_t *row, enum block_type type, size_t from, size_t n)
{
    const uint8_t *b = row + from * block_bytes(type); /* of small blocks */
    switch (type) {
    case BLOCK_Q4_0: each(y, b, n, BLOCK_Q4_0, q4_0); break;
    case BLOCK_Q4_1: each(y, b, n, BLOCK_Q4_1, q4_1); break;
    case BLOCK_Q5_0: each(y, b, n, BLOCK_Q5_0, q5_0); break;
    case BLOCK_Q5_1: each(y, b, n, BLOCK_Q5_1, q5_1); break;
    case BLOCK_Q8_0: each(y, b, n, BLOCK_Q8_0, q8_0); break;
    case BLOCK_Q2_K: each_half(y, row, from, n, BLOCK_Q2_K, q2_k); break;
    case BLOCK_Q3_K: each_half(y, row, from, n, BLOCK_Q3_K, q3_k); break;
    case BLOCK_Q4_K: each_half(y, row, from, n, BLOCK_Q4_K, q4_k); break;
    case BLOCK_Q5_K: each_half(y, row, from, n, BLOCK_Q5_K, q5_k); break;
    case BLOCK_Q6_K: each_half(y, row, from, n, BLOCK_Q6_K, q6_k); break;
    case BLOCK_IQ4_NL: each(y, b, n, BLOCK_IQ4_NL, iq4_nl); break;
    case BLOCK_IQ4_XS: each_half(y, row, from, n, BLOCK_IQ4_XS, iq4_xs); break;
    case BLOCK_MXFP4: each(y, b, n, BLOCK_MXFP4, mxfp4); break;
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
}

/* As block_to_f32. */
static void load_blocks(float *dst, const void *row, enum block_type type, size_t from, size_t n)
{
    const size_t values = part_values(type);
    size_t at = from / values;
    for (size_t skip = from % values, now; n; dst += now, n -= now, skip = 0) {
        if (!skip && n >= values) {
            now = n - n % values;
            load_parts(dst, row, type, at, now / values);
            at += now / values;
            continue;
        }
        float whole[PART];
        now = values - skip < n ? values - skip : n;
        load_parts(whole, row, type, at, 1);
        memcpy(dst, whole + skip, now * sizeof *dst);
        at++;
    }
}

#undef HALF_OF

#endif
