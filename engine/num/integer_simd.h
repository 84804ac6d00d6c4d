/* SPDX-License-Identifier: MIT
 *
 * Vectors of 32 bytes, whatever the CPU has, for integer.c, what is included there, and
 * integer_tiles.c. Nothing here is fused but what is exact (add_exact): a multiplication and an
 * addition stay two. */
#ifndef NUM_INTEGER_SIMD_H
#define NUM_INTEGER_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#include "num/tile/unroll.h"

/* Loops around much code, which vectors of less than 32 bytes would multiply. */
#if defined __AVX2__
#define UNROLL_MUCH UNROLL
#else
#define UNROLL_MUCH _Pragma("GCC unroll 1")
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* all is inlined: no vector is handed to another object */
#define INLINE static inline __attribute__((always_inline))

#if defined __AVX512VNNI__
enum { PAIRS = 1 }; /* two steps of 4 bits, a cache line, in one vector after all */
#else
enum { PAIRS = 0 };
#endif

enum { LANES = 8 };
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef uint8_t vb __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));
typedef float v4 __attribute__((vector_size(16)));
typedef int16_t v8i __attribute__((vector_size(16)));
typedef int8_t v16s __attribute__((vector_size(16)));
typedef uint8_t v16b __attribute__((vector_size(16)));
typedef int64_t v2l __attribute__((vector_size(16)));

/* The widest that the CPU has. */
#if defined __AVX512VNNI__
enum { WIDE = 2 * LANES };
#else
enum { WIDE = LANES };
#endif
typedef float wf __attribute__((vector_size(WIDE * 4)));
typedef int32_t wi __attribute__((vector_size(WIDE * 4)));
typedef uint16_t wh __attribute__((vector_size(WIDE * 4)));
typedef uint8_t wb __attribute__((vector_size(WIDE * 4)));

/* acc plus, in each lane, the sum of the two products of 16 bits. */
INLINE vi add_products(vi acc, vh a, vh b)
{
#if defined __AVX2__
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

#if defined __AVX512VNNI__ || defined __AVXVNNI__
enum { FOURS = 1 }; /* this CPU multiplies bytes, four to a lane */

/* acc plus, in each lane, the sum of the four products of a byte of w and a signed one of x. */
INLINE vi add_fours(vi acc, vb w, vb x)
{
#if defined __AVX512VNNI__
    return (vi)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
#else
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
#endif
}
#else
enum { FOURS = 0 };
#endif

/* acc plus, in each lane, the sum of its four products of a byte of w and a signed one of x. */
INLINE wi add_bytes(wi acc, wb w, wb x)
{
#if defined __AVX512VNNI__
    return (wi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#elif defined __AVXVNNI__
    return (wi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
#elif defined __AVX2__
    const __m256i twos = _mm256_maddubs_epi16((__m256i)w, (__m256i)x);
    return acc + (wi)_mm256_madd_epi16(twos, _mm256_set1_epi16(1));
#else
    typedef int16_t signed_h __attribute__((vector_size(32)));
    const vh even = (vh)((signed_h)((vh)x << 8) >> 8), odd = (vh)((signed_h)x >> 8);
    return add_products(add_products(acc, (vh)w & 255, even), (vh)w >> 8, odd);
#endif
}

/* acc plus v times a power of two: the product is exact, so that one rounding is as good as two. */
INLINE wf add_exact(wf acc, wf v, const float by)
{
#if defined __AVX512VNNI__
    return (wf)_mm512_fmadd_ps((__m512)v, _mm512_set1_ps(by), (__m512)acc);
#elif defined __AVX2__
    return (wf)_mm256_fmadd_ps((__m256)v, _mm256_set1_ps(by), (__m256)acc);
#else
    return acc + v * (by - (wf){0});
#endif
}

/* In each 16 bits, the sum of the two products of a byte of w and a signed one of x; it fits. */
INLINE wh two_products(wb w, wb x)
{
#if defined __AVX512VNNI__
    return (wh)_mm512_maddubs_epi16((__m512i)w, (__m512i)x);
#elif defined __AVX2__
    return (wh)_mm256_maddubs_epi16((__m256i)w, (__m256i)x);
#else
    typedef int16_t signed_h __attribute__((vector_size(32)));
    return ((wh)w & 255) * (wh)((signed_h)((vh)x << 8) >> 8) + ((wh)w >> 8) * (wh)((signed_h)x >> 8);
#endif
}

/* The same of signed bytes of w; x is −127 or more. */
INLINE wh two_signed(wb w, wb x)
{
#if defined __AVX512VNNI__
    const __m512i v = (__m512i)x, turned = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask((__m512i)w),
                                                                _mm512_setzero_si512(), v);
    return (wh)_mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)w), turned);
#elif defined __AVX2__
    return (wh)_mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), _mm256_sign_epi8((__m256i)x, (__m256i)w));
#else
    typedef int16_t signed_h __attribute__((vector_size(32)));
    return (wh)((signed_h)((vh)w << 8) >> 8) * (wh)((signed_h)((vh)x << 8) >> 8) +
           (wh)((signed_h)w >> 8) * (wh)((signed_h)x >> 8);
#endif
}

/* As add_products, in the widest vectors. */
INLINE wi add_wide(wi acc, wh a, wh b)
{
#if defined __AVX512VNNI__
    return (wi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#elif defined __AVXVNNI__
    return (wi)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#else
    return add_products(acc, a, b);
#endif
}

/* In each lane, the sum of the four products of a byte of v and a signed one of x, and of the four
 * of w and y. v and w are at most 15, so that all fits into 16 bits for as long as it takes. */
INLINE vi add_nibbles(vb v, vb x, vb w, vb y)
{
#if defined __AVX512VNNI__ || defined __AVXVNNI__
    return add_fours(add_fours((vi){0}, v, x), w, y);
#elif defined __AVX2__
    const vh fours =
        (vh)_mm256_maddubs_epi16((__m256i)v, (__m256i)x) + (vh)_mm256_maddubs_epi16((__m256i)w, (__m256i)y);
    return add_products((vi){0}, fours, 1 - (vh){0});
#else
    typedef int16_t signed_h __attribute__((vector_size(32)));
    const vh x_even = (vh)((signed_h)((vh)x << 8) >> 8), x_odd = (vh)((signed_h)x >> 8),
             y_even = (vh)((signed_h)((vh)y << 8) >> 8), y_odd = (vh)((signed_h)y >> 8);
    const vh fours =
        ((vh)v & 255) * x_even + ((vh)v >> 8) * x_odd + ((vh)w & 255) * y_even + ((vh)w >> 8) * y_odd;
    return add_products((vi){0}, fours, 1 - (vh){0});
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
