/* SPDX-License-Identifier: MIT
 *
 * Vectors of 32 bytes, whatever the CPU's are, for integer.c and what is included there, and there alone. Nothing here is fused: a
 * multiplication and an addition stay two. */
#ifndef NUM_INTEGER_SIMD_H
#define NUM_INTEGER_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* all is inlined: no vector is handed to another object */
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8 };
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));
typedef float v4 __attribute__((vector_size(16)));

/* acc plus, in each lane, the sum of the two products of 16 bits. */
INLINE vi add_products(vi acc, vh a, vh b)
{
#if defined __AVX512VNNI__
    return (vi)_mm256_dpwssd_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#elif defined __AVXVNNI__
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#elif defined __AVX2__
    return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined __SSE2__
    __m128i p[2], q[2];
    vi sum;
    memcpy(p, &a, sizeof p);
    memcpy(q, &b, sizeof q);
    p[0] = _mm_madd_epi16(p[0], q[0]);
    p[1] = _mm_madd_epi16(p[1], q[1]);
    memcpy(&sum, p, sizeof sum);
    return acc + sum;
#else
    const vi a_even = (vi)a << 16 >> 16, b_even = (vi)b << 16 >> 16;
    return acc + a_even * b_even + ((vi)a >> 16) * ((vi)b >> 16);
#endif
}

/* 16 bytes. */
INLINE vh widen_bytes(const uint8_t *p)
{
#if defined __AVX2__
    return (vh)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i_u *)p));
#else
    typedef uint8_t v16b __attribute__((vector_size(16)));
    v16b v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vh);
#endif
}

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vh load16(const void *p)
{
    vh v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE float sum_of(vf v)
{
    const v4 q = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

INLINE const void *row_of(const void *p, size_t bytes)
{
    return (const char *)p + bytes;
}

/* The first m of a vector, and zeros. */
INLINE vf load_some(const float *p, size_t m)
{
    vf v = {0};
    memcpy(&v, p, m < LANES ? m * sizeof *p : sizeof v);
    return v;
}

#endif
