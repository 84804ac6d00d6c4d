/* SPDX-License-Identifier: MIT
 *
 * x in whole numbers, in the order in which the kernels meet it. Included by integer.c only. */
#ifndef NUM_INTEGER_X_H
#define NUM_INTEGER_X_H

#include <float.h>
#include <math.h>

#include "num/integer.h"
#include "num/integer_simd.h"

enum { TOP_FEW = 32767, TOP_MANY4 = 127, TOP_MANY8 = 63 };

/* Two numbers of 16 bits, `apart` apart, from place `at` of the n at q on. */
INLINE uint32_t two(const int16_t *q, size_t at, size_t apart)
{
    return (uint32_t)(uint16_t)q[at] | (uint32_t)(uint16_t)q[at + apart] << 16;
}

/* Of each 32 bytes those at even places, then those at odd. */
INLINE void order8(int16_t *to, const int16_t *q)
{
    uint32_t half[2 * LANES];
    for (size_t i = 0; i < INT_STEP; i += 4 * LANES, to += 4 * LANES, q += 4 * LANES) {
        for (size_t j = 0; j < LANES; j++) {
            half[j] = two(q, 4 * j, 2);
            half[LANES + j] = two(q, 4 * j + 1, 2);
        }
        memcpy(to, half, sizeof half);
    }
}

/* A nibble of each 16 bits, from the lowest to the highest. */
INLINE void order4(int16_t *to, const int16_t *q)
{
    uint32_t all[4 * LANES];
    for (size_t j = 0; j < LANES; j++)
        for (size_t k = 0; k < 4; k++)
            all[k * LANES + j] = two(q, 8 * j + k, 4);
    memcpy(to, all, sizeof all);
}

/* The largest magnitude; what is not finite is larger than all that is. */
INLINE float most_of(const float *x, size_t n)
{
    vi most = {0};
    for (size_t i = 0; i < n; i += LANES) {
        const vi size = (vi)load(x + i) & 0x7fffffff, more = size > most;
        most = (size & more) | (most & ~more);
    }
    int32_t all = 0;
    for (int k = 0; k < LANES; k++)
        all = most[k] > all ? most[k] : all;
    float ret;
    memcpy(&ret, &all, sizeof ret);
    return ret;
}

/* The whole numbers of a group of n elements, up to ±top; *ret_sum of what they stand for. Returns their scale. */
INLINE float group_levels(int16_t *q, const float *x, size_t n, const float top, float *ret_sum)
{
    const float most = most_of(x, n), magic = 0x1.8p23f; /* adding and subtracting it rounds to an integer */
    if (!(most > 1e-30f && most <= FLT_MAX)) { /* nearly nothing, which has no inverse, or not finite */
        memset(q, 0, n * sizeof *q);
        return *ret_sum = most > 1e-30f || isnan(most) ? NAN : 0;
    }
    const float scale = most / top, inverse = top / most;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int16_t)((x[i] * inverse + magic) - magic);
        sum += q[i];
    }
    *ret_sum = (float)sum * scale;
    return scale;
}

/* bits 0: bytes, in their own order. */
INLINE void quantize_any(const struct int_row *to, const float *x, size_t cols, const size_t bits,
                         size_t group, const float top)
{
    const size_t each = int_group(group);
    size_t g = 0;
    for (size_t at = 0; at < cols; at += INT_STEP) {
        int16_t q[INT_STEP];
        float padded[INT_STEP] = {0};
        const float *from = x + at;
        if (cols - at < INT_STEP) {
            memcpy(padded, from, (cols - at) * sizeof *x);
            from = padded;
        }
        for (size_t i = 0; i < INT_STEP; i += each, g++)
            to->scale[g] = group_levels(q + i, from + i, each, top, &to->sum[g]);
        if (bits == 8)
            order8(to->q + at, q);
        else if (bits == 4)
            order4(to->q + at, q);
        for (size_t i = 0; bits == 0 && i < INT_STEP; i++)
            to->bytes[at + i] = (int8_t)q[i];
    }
}

static inline void quantize(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group)
{
    if (bits == 8)
        quantize_any(to, x, cols, 8, group, TOP_FEW);
    else
        quantize_any(to, x, cols, 4, group, TOP_FEW);
}

static inline void quantize_bytes(const struct int_row *to, const float *x, size_t cols, size_t bits,
                                  size_t group)
{
    quantize_any(to, x, cols, 0, group, bits == 8 ? TOP_MANY8 : TOP_MANY4);
}

#endif
