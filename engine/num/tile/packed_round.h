/* SPDX-License-Identifier: MIT
 *
 * Numbers rounded to bf16, and laid in cells (packed.h). Included by packed.c and packed_amx.c
 * only. */
#ifndef NUM_PACKED_ROUND_H
#define NUM_PACKED_ROUND_H

#include "num/simd.h"

#if defined __AVX512BF16__
/* All of the first, then all of the second. */
INLINE vf round_pairs_of(vf first, vf second)
{
    return (vf)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

INLINE vf round_pairs(const float *src)
{
    return round_pairs_of(load(src), load(src + VL));
}

/* Numbers of 16 bits: one of the lower half, one of the upper half. */
INLINE __m512i by_turns(void)
{
    uint16_t at[2 * VL];
    for (uint16_t i = 0; i < 2 * VL; i++)
        at[i] = (uint16_t)(i / 2 + i % 2 * VL);
    return _mm512_loadu_si512(at);
}

static void round_row(float *dst, const float *src, size_t n)
{
    for (; n >= 2 * VL; n -= 2 * VL, src += 2 * VL, dst += VL)
        store(dst, round_pairs(src));
    float rest[2 * VL] = {0};
    memcpy(rest, src, n * sizeof *src);
    store_m(dst, round_pairs(rest), (n + 1) / 2);
}

/* The lower half of a cell is the even one's. */
static void round_by_k(float *dst, size_t nr, const float *src, size_t lds, size_t k, size_t n)
{
    for (size_t p = 0; p < k; p += 2, src += 2 * lds, dst += nr)
        EACH(j, m, n)
        {
            const vf even = load_m(src + j, m), odd = p + 1 < k ? load_m(src + lds + j, m) : (vf){0};
            const vi halves = (vi)round_pairs_of(even, odd);
            vf cells;
            const __m512i turned = _mm512_permutexvar_epi16(by_turns(), (__m512i)halves);
            memcpy(&cells, &turned, sizeof cells);
            store_m(dst + j, cells, m);
        }
}

INLINE __m512i halves_m(const uint16_t *p, size_t m)
{
    vh v = {0};
    memcpy(&v, p, m == VL ? sizeof v : m * sizeof *p);
    return _mm512_cvtepu16_epi32((__m256i)v);
}

static void pair_by_k(float *dst, size_t nr, const uint16_t *src, size_t lds, size_t k, size_t n)
{
    for (size_t p = 0; p < k; p += 2, src += 2 * lds, dst += nr)
        EACH(j, m, n)
        {
            const __m512i odd = p + 1 < k ? halves_m(src + lds + j, m) : _mm512_setzero_si512(),
                          cells = _mm512_or_si512(halves_m(src + j, m), _mm512_slli_epi32(odd, 16));
            store_m(dst + j, (vf)cells, m);
        }
}
#else
INLINE vf round_bf16(vf x)
{
    const vu u = (vu)x, even = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
    return blend(x == x, (vf)even, (vf)((u | 0x400000u) & 0xffff0000u));
}

/* Beside a last one alone there is nothing to come before it. */
static void round_row(float *dst, const float *src, size_t n)
{
    EACH(i, m, n)
    {
        const vf x = round_bf16(load_m(src + i, m));
        const vu64 pairs = (vu64)x;
        store_m(dst + i, (vf)(pairs << 32 | pairs >> 32), m);
        if (m % 2)
            dst[i + m - 1] = x[m - 1];
    }
}

static void round_by_k(float *dst, size_t nr, const float *src, size_t lds, size_t k, size_t n)
{
    for (size_t p = 0; p < k; p++, src += lds) {
        float *to = dst + (p + 1 < k || p % 2 ? p ^ 1 : p) * nr;
        EACH(j, m, n)
        store_m(to + j, round_bf16(load_m(src + j, m)), m);
    }
}
#endif

#endif
