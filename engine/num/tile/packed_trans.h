/* SPDX-License-Identifier: MIT
 *
 * Rows become columns of a packed panel. Included by packed.c and packed_bytes.c only. */
#ifndef NUM_PACKED_TRANS_H
#define NUM_PACKED_TRANS_H

#include "num/simd.h"
#include "num/tile/unroll.h"
#if defined __AVX512F__
#include "num/tile/turn16.h"
#endif

#if defined __AVX512F__
/* Sixteen columns of up to sixteen rows: dst[c·ldd + r] = src[r·lds + c]. */
INLINE void transpose16(float *dst, size_t ldd, const float *src, size_t lds, const size_t rows)
{
    __m512 r[16] = {0};
    UNROLL
    for (size_t i = 0; i < rows; i++)
        r[i] = _mm512_loadu_ps(src + i * lds);
    turn16(r);
    UNROLL
    for (int c = 0; c < 16; c++)
        _mm512_mask_storeu_ps(dst + (size_t)c * ldd, (__mmask16)((1u << rows) - 1), r[c]);
}
#endif

enum {
    TRANS_LINE = 16, /* floats of a cache line */
#if defined __AVX512F__
    SQUARE = 16 /* rows and columns at a time: a whole cache line of each */
#else
    SQUARE = 4 /* of more rows, a power of two apart, each would drive the others out of the first cache */
#endif
};

INLINE void trans_square(float *dst, size_t ldd, const float *src, size_t lds, const size_t rows)
{
#if defined __AVX512F__
    transpose16(dst, ldd, src, lds, rows);
#else
    (void)rows;
    transpose4(dst, ldd, src, lds);
#endif
}

INLINE void pack_trans(float *dst, const float *src, size_t lds, size_t k, const float *next, const size_t nr)
{
    const size_t rows = nr < SQUARE ? nr : SQUARE;
    for (size_t r = 0; r < nr; r += rows) {
        const size_t at = r + rows <= nr ? r : nr - rows;
        const float *from = src + at * lds;
        float *to = dst + at;
        size_t p = 0;
        for (; p + SQUARE <= k; p += SQUARE, from += SQUARE, to += SQUARE * nr) {
            for (size_t i = 0; next && p % TRANS_LINE == 0 && i < rows; i++)
                __builtin_prefetch(next + (at + i) * lds + p);
            trans_square(to, nr, from, lds, rows);
        }
        for (; p < k; p++, from++, to += nr)
            for (size_t i = 0; i < rows; i++)
                to[i] = from[i * lds];
    }
}

#endif
