/* SPDX-License-Identifier: MIT
 *
 * One vector of f32, as wide as the flags of this compilation allow, in GCC's vector extensions:
 * loads, stores, sums and the exponential. Included by kernels.c and packed.c only. Intrinsics
 * stand only where the extensions have no word for it. */
#ifndef NUM_SIMD_H
#define NUM_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#if defined __AVX512F__
enum { VL = 16 };
#define KERNELS_ISA "avx512"
#elif defined __AVX2__
enum { VL = 8 };
#define KERNELS_ISA "avx2"
#elif defined __aarch64__
enum { VL = 4 };
#define KERNELS_ISA "neon"
#else
enum { VL = 4 };
#define KERNELS_ISA "base"
#endif

#define INLINE static inline __attribute__((always_inline))
typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint64_t vu64 __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
typedef float v4 __attribute__((vector_size(16)));

/* Walks n elements a vector at a time; `m` is how many of this vector exist (VL but for the
 * last). */
#define EACH(i, m, n) for (size_t i = 0, m; i < (n) && (m = (n)-i < VL ? (n)-i : VL, 1); i += VL)

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vf load_m(const float *p, size_t m)
{
    if (m == VL)
        return load(p);
    vf v = {0};
    memcpy(&v, p, m * sizeof *p);
    return v;
}

INLINE void store_m(float *p, vf v, size_t m)
{
    if (m == VL)
        store(p, v);
    else
        memcpy(p, &v, m * sizeof *p);
}

INLINE vf blend(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* As the x86 instructions: where either is NaN, b. */
INLINE vf vmax(vf a, vf b)
{
#if defined __AVX512F__
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined __AVX2__
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined __SSE2__
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return blend(a > b, a, b);
#endif
}

INLINE vf vmin(vf a, vf b)
{
#if defined __AVX512F__
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined __AVX2__
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined __SSE2__
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return blend(a < b, a, b);
#endif
}

INLINE vf vsqrt(vf a)
{
#if defined __AVX512F__
    return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined __AVX2__
    return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined __SSE2__
    return (vf)_mm_sqrt_ps((__m128)a);
#else
    for (int i = 0; i < VL; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

/* The 64-bit products of the even-numbered 32-bit lanes. */
INLINE vu64 mul_even(vu64 a, vu64 b)
{
#if defined __AVX512F__
    return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined __AVX2__
    return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined __SSE2__
    return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* Its accumulator stays where it is: left to choose, GCC 12 moves accumulators about and puts some
 * on the stack. */
INLINE void add_product(vf *acc, vf x, vf y)
{
#if defined __AVX512F__
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y));
#elif defined __FMA__
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*acc) : "x"(x), "x"(y));
#else
    *acc += x * y;
#endif
}

/* Four rows of four floats become columns: dst[c·ldd + r] = src[r·lds + c]. */
INLINE void transpose4(float *dst, size_t ldd, const float *src, size_t lds)
{
    v4 r[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], src + (size_t)i * lds, sizeof r[i]);
    v4 ab = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
       cd = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    v4 ef = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
       gh = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++)
        memcpy(dst + (size_t)i * ldd, &r[i], sizeof r[i]);
}

/* The sum of all lanes, halves folded onto one another. */
INLINE float sum_of(vf v)
{
#if defined __AVX512F__
    typedef float v8 __attribute__((vector_size(32)));
    v8 e = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    v4 q = __builtin_shufflevector(e, e, 0, 1, 2, 3) + __builtin_shufflevector(e, e, 4, 5, 6, 7);
#elif defined __AVX2__
    v4 q = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
    v4 q = v;
#endif
    return (q[0] + q[2]) + (q[1] + q[3]);
}

INLINE float max_of(vf v)
{
    float best = v[0];
    for (int i = 1; i < VL; i++)
        best = v[i] > best ? v[i] : best;
    return best;
}

/* e^x within 1.5 ulp: x = n·ln 2 + r with |r| ≤ ln 2 / 2, the Taylor series of e^r to r⁷/5040 (its
 * remainder is a tenth of an ulp), and 2^n in two factors so that subnormal results and the
 * overflow to infinity come out right. */
INLINE vf vexp(vf x)
{
    x = vmin(splat(90.0f), vmax(splat(-106.0f), x));
    const vf magic = splat(0x1.8p23f); /* adding and subtracting it rounds to an integer */
    vf n = (x * 0x1.715476p+0f + magic) - magic;
    vf r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    vf p = splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    p = p + 1.0f;
#if defined __AVX512F__
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n); /* the same bits */
#else
    vi k = __builtin_convertvector(n, vi), half = k >> 1;
    vf a = (vf)((half + 127) << 23), b = (vf)((k - half + 127) << 23);
    return p * a * b;
#endif
}

#endif
