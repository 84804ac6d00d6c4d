/* SPDX-License-Identifier: MIT
 *
 * Rows of whole numbers of 8 bits (row8.h) in f32. Included by kernels.c only. */
#ifndef NUM_SIMD_ROW8_H
#define NUM_SIMD_ROW8_H

#include "num/bits.h"
#include "num/row8.h"
#include "num/simd.h"

/* VL bytes with signs. */
INLINE vf widen_row8(const uint8_t *p)
{
#if defined __AVX512F__
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined __AVX2__
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined __SSE2__
    int32_t four;
    memcpy(&four, p, sizeof four);
    const __m128i q = _mm_cvtsi32_si128(four), twice = _mm_unpacklo_epi8(q, q);
    /* A lane's byte is its highest too. */
    return (vf)_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(twice, twice), 24));
#else
    int8_t q[VL];
    vi v = {0};
    memcpy(q, p, sizeof q);
    for (int i = 0; i < VL; i++)
        v[i] = q[i];
    return __builtin_convertvector(v, vf);
#endif
}

INLINE float row8_scale(const uint8_t *scales, size_t group)
{
    uint16_t half;
    memcpy(&half, scales + group * sizeof half, sizeof half);
    return float_of((uint32_t)half << 16);
}

static void row8_to_f32(float *dst, const void *row, size_t width, size_t n)
{
    const uint8_t *q = row, *scales = q + width;
    size_t at = 0;
    for (; at + ROW8_GROUP <= n; at += ROW8_GROUP) {
        const float scale = row8_scale(scales, at / ROW8_GROUP);
        for (size_t i = 0; i < ROW8_GROUP; i += VL)
            store(dst + at + i, widen_row8(q + at + i) * scale);
    }
    for (size_t i = at, m; i < n; i += VL) {
        uint8_t last[VL] = {0};
        m = n - i < VL ? n - i : VL;
        memcpy(last, q + i, m);
        store_m(dst + i, widen_row8(last) * row8_scale(scales, at / ROW8_GROUP), m);
    }
}

#endif
