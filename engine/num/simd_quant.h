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

#endif
