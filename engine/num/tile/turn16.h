/* SPDX-License-Identifier: MIT
 *
 * Sixteen rows of sixteen cells of 32 bits become columns, in registers of AVX-512. Included by
 * packed_trans.h and integer_tiles.c only. */
#ifndef NUM_TURN16_H
#define NUM_TURN16_H

#include <immintrin.h>

#include "num/tile/unroll.h"

static inline __attribute__((always_inline)) void turn16(__m512 r[16])
{
    __m512 pairs[16], fours[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4)
        for (int c = 0; c < 2; c++) {
            const __m512d a = (__m512d)pairs[i + c], b = (__m512d)pairs[i + 2 + c];
            fours[i + 2 * c] = (__m512)_mm512_unpacklo_pd(a, b);
            fours[i + 2 * c + 1] = (__m512)_mm512_unpackhi_pd(a, b);
        }
    UNROLL
    for (int c = 0; c < 4; c++) {
        const __m512 even[2] = {_mm512_shuffle_f32x4(fours[c], fours[4 + c], 0x88),
                                _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0x88)},
                     odd[2] = {_mm512_shuffle_f32x4(fours[c], fours[4 + c], 0xdd),
                               _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0xdd)};
        r[c] = _mm512_shuffle_f32x4(even[0], even[1], 0x88);
        r[c + 4] = _mm512_shuffle_f32x4(odd[0], odd[1], 0x88);
        r[c + 8] = _mm512_shuffle_f32x4(even[0], even[1], 0xdd);
        r[c + 12] = _mm512_shuffle_f32x4(odd[0], odd[1], 0xdd);
    }
}

#endif
