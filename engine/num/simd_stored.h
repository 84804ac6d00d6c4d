/* SPDX-License-Identifier: MIT
 *
 * Stored types as vectors of f32. Included by kernels.c, and by what is included there. */
#ifndef NUM_SIMD_STORED_H
#define NUM_SIMD_STORED_H

#include "num/dtype.h"
#include "num/simd.h"

#if defined __clang__
#define UNROLL _Pragma("unroll")
#define UNROLL_FOUR _Pragma("unroll 4")
#define UNROLL_24 _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_FOUR _Pragma("GCC unroll 4")
#define UNROLL_24 _Pragma("GCC unroll 24")
#endif

/* The extensions' own conversion becomes five shuffles where one instruction does it. */
INLINE vu widen_u16(vh h)
{
#if defined __AVX512F__
    return (vu)_mm512_cvtepu16_epi32((__m256i)h);
#elif defined __AVX2__
    return (vu)_mm256_cvtepu16_epi32((__m128i)h);
#else
    return __builtin_convertvector(h, vu);
#endif
}

INLINE vf widen_bf16(vh h)
{
    return (vf)(widen_u16(h) << 16);
}

INLINE vf widen_f16(vh h)
{
#if defined __AVX512F__
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif defined __F16C__
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    /* Exponent and fraction move up 13 bits; multiplying by 2^112 mends the bias, exactly,
     * subnormals included. */
    vu u = widen_u16(h), sign = (u & 0x8000u) << 16, mag = (u & 0x7fffu) << 13;
    vu special = (vu)(mag >= 0x0f800000u) & 0x7f800000u;
    return (vf)((vu)((vf)mag * 0x1p112f) | special | sign);
#endif
}

/* As dtype.c does it. p: VL bytes. */
INLINE vf widen_f8(const uint8_t *p)
{
    vu u = {0};
#if defined __AVX512F__
    u = (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined __AVX2__
    u = (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    for (int i = 0; i < VL; i++)
        u[i] = p[i];
#endif
    vu mag = u & 0x7fu, sign = (u & 0x80u) << 24, nan = (vu)(mag == 0x7fu) & 0x7fc00000u;
    return (vf)((vu)((vf)(mag << 20) * 0x1p120f) | nan | sign);
}

/* Elements i … i+m−1 of stored type t; w need not be aligned. */
INLINE vf load_as(const void *w, size_t i, size_t m, enum dtype t)
{
    if (t == DTYPE_F32) {
        vf v = {0};
        memcpy(&v, (const char *)w + i * sizeof(float), m == VL ? sizeof v : m * sizeof(float));
        return v;
    }
    if (t == DTYPE_F8_E4M3) {
        uint8_t bytes[VL] = {0};
        memcpy(bytes, (const uint8_t *)w + i, m == VL ? sizeof bytes : m);
        return widen_f8(bytes);
    }
    vh h = {0};
    memcpy(&h, (const char *)w + i * sizeof(uint16_t), m == VL ? sizeof h : m * sizeof(uint16_t));
    return t == DTYPE_BF16 ? widen_bf16(h) : widen_f16(h);
}

#endif
