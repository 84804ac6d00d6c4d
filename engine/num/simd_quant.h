/* SPDX-License-Identifier: MIT
 *
 * Rows of quantized weights (quant.h) in f32. Included by kernels.c only; products that read the
 * weights as they lie are in integer.c. */
#ifndef NUM_SIMD_QUANT_H
#define NUM_SIMD_QUANT_H

#include "num/kernels.h"
#include "num/quant.h"
#include "num/simd.h"

enum { NIBBLES = 8 /* in a word */ };

/* Whole vectors first, everywhere: a test for the last one in every turn costs as much as the
 * turn. */

/* VL bytes. */
INLINE vf widen_q8(const uint8_t *p)
{
#if defined __AVX512F__
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined __AVX2__
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    vi u;
    for (int i = 0; i < VL; i++)
        u[i] = p[i];
    return __builtin_convertvector(u, vf);
#endif
}

/* The first m of VL bytes. */
INLINE vf widen_some_q8(const uint8_t *p, size_t m)
{
    if (m == VL)
        return widen_q8(p);
    uint8_t last[VL] = {0};
    memcpy(last, p, m);
    return widen_q8(last);
}

/* Where the group that begins at `at` ends: the last of a row may be shorter. */
INLINE size_t group_end(size_t at, size_t group, size_t n)
{
    return n - at < group ? n : at + group;
}

/* --- rows in f32 --- */

static inline void quant8_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias,
                                 size_t group, size_t n)
{
    for (size_t at = 0, end; at < n; at = end, scale++, bias++) {
        end = group_end(at, group, n);
        const float s = *scale, b = *bias;
        size_t i = at;
        for (; i + VL <= end; i += VL)
            store(dst + i, widen_q8(w + i) * s + b);
        if (i < end)
            store_m(dst + i, widen_some_q8(w + i, end - i) * s + b, end - i);
    }
}

/* Elements i … i+m−1, of the words they lie in; m is VL, or as many as one word has. */
INLINE vf widen_q4(const uint8_t *w, size_t i, size_t m)
{
    vu word, shift;
    const uint32_t begin =
        VL % NIBBLES ? (uint32_t)(i % NIBBLES) : 0; /* groups begin with a word, so vectors do */
    for (uint32_t k = 0; k < VL; k++)
        shift[k] = 4 * ((begin + k) % NIBBLES);
    uint32_t first;
    memcpy(&first, w + i / NIBBLES * sizeof first, sizeof first);
    word = (vu){0} + first;
    if ((int)VL > (int)NIBBLES && m > NIBBLES) {
        uint32_t second;
        memcpy(&second, w + (i / NIBBLES + 1) * sizeof second, sizeof second);
        for (uint32_t k = NIBBLES; k < VL; k++)
            word[k] = second;
    }
    return __builtin_convertvector((vi)(word >> shift & 15u), vf);
}

static inline void quant4_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias,
                                 size_t group, size_t n)
{
    for (size_t at = 0, end; at < n; at = end, scale++, bias++) {
        end = group_end(at, group, n);
        const float s = *scale, b = *bias;
        size_t i = at;
        for (; i + VL <= end; i += VL)
            store(dst + i, widen_q4(w, i, VL) * s + b);
        if (i < end)
            store_m(dst + i, widen_q4(w, i, end - i) * s + b, end - i);
    }
}

/* --- other widths, in eights: these begin with a byte --- */

typedef uint32_t v8u __attribute__((vector_size(NIBBLES * 4)));
typedef int32_t v8i __attribute__((vector_size(NIBBLES * 4)));
typedef float v8f __attribute__((vector_size(NIBBLES * 4)));

INLINE void eight_to_f32(float *dst, uint64_t all, float scale, float bias, const uint32_t bits)
{
    const v8u low = (v8u){0} + (uint32_t)all, high = (v8u){0} + (uint32_t)(all >> 4 * bits),
              word = __builtin_shufflevector(low, high, 0, 1, 2, 3, 12, 13, 14, 15),
              shift = {0, bits, 2 * bits, 3 * bits, 0, bits, 2 * bits, 3 * bits};
    const v8f x = __builtin_convertvector((v8i)(word >> shift & ((1u << bits) - 1)), v8f) * scale + bias;
    memcpy(dst, &x, sizeof x);
}

/* Eight bytes are read where there are so many: some of the next eight, too. */
INLINE void quant_any_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias,
                             size_t group, size_t n, const uint32_t bits)
{
    const size_t bytes = n * bits / 8;
    const uint8_t *last = bytes < sizeof(uint64_t) ? w : w + bytes - sizeof(uint64_t);
    for (size_t at = 0, end; at < n; at = end, scale++, bias++) {
        end = group_end(at, group, n);
        for (size_t i = at; i < end; i += NIBBLES, w += bits) {
            uint64_t all = 0;
            if (w < last)
                memcpy(&all, w, sizeof all);
            else
                memcpy(&all, w, bits);
            eight_to_f32(dst + i, all, *scale, *bias, bits);
        }
    }
}

static void quant2_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias, size_t group,
                          size_t n)
{
    quant_any_to_f32(dst, w, scale, bias, group, n, 2);
}

static void quant3_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias, size_t group,
                          size_t n)
{
    quant_any_to_f32(dst, w, scale, bias, group, n, 3);
}

static void quant5_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias, size_t group,
                          size_t n)
{
    quant_any_to_f32(dst, w, scale, bias, group, n, 5);
}

static void quant6_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias, size_t group,
                          size_t n)
{
    quant_any_to_f32(dst, w, scale, bias, group, n, 6);
}

/* --- E2M1: a sign, two bits of exponent, one of fraction: 0, ½, 1, 1½, 2, 3, 4, 6 --- */

static void fp4_to_f32(float *dst, const uint8_t *w, const float *half, size_t group, size_t n)
{
    const v8u shift = {0, 4, 8, 12, 16, 20, 24, 28};
    for (size_t at = 0, end; at < n; at = end, half++) {
        end = group_end(at, group, n);
        for (size_t i = at; i < end; i += NIBBLES) {
            uint32_t word;
            memcpy(&word, w + i / 2, sizeof word);
            const v8u q = ((v8u){0} + word) >> shift, exponent = q >> 1 & 3, is_normal = (v8u)(exponent != 0),
                      doubled = ((q & 1) | (is_normal & 2)) << (exponent + is_normal);
            const v8u x = (v8u)(__builtin_convertvector((v8i)doubled, v8f) * *half) | (q & 8) << 28;
            memcpy(dst + i, &x, sizeof x);
        }
    }
}

#endif
