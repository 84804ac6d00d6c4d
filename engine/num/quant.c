/* SPDX-License-Identifier: MIT
 *
 * Quantizing a row of weights, in portable C, so that every node makes the same of it. Called when a stage opens, by any thread:
 * no state. */
#include "num/quant.h"

#include <errno.h>
#include <math.h>
#include <string.h>

bool quant_is_possible(size_t bits, size_t group, size_t cols)
{
    return (bits == 4 || bits == 8) && (group == 32 || group == 64 || group == 128) && cols && cols % 8 == 0;
}

size_t quant_words(size_t bits, size_t cols)
{
    return cols * bits / QUANT_WORD;
}

/* The nearest BF16 that is not above x (not below, with `up`). */
static float to_bf16(float x, bool up)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const bool is_exact = !(u & 0xffffu), is_negative = u >> 31;
    u &= 0xffff0000u;
    if (!is_exact && up != is_negative) /* cutting off went towards zero: the wrong way here */
        u += 0x10000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t level(float x, float bias, float inverse, float most)
{
    float q = (x - bias) * inverse + 0.5f;
    return (uint32_t)(q < 0 ? 0 : q > most ? most : q);
}

/* The bias is the smallest weight, rounded down, and the scale reaches from there to the largest, rounded up: nothing is cut off. */
static int group_sides(float *ret_scale, float *ret_bias, const float *x, size_t n, float levels)
{
    float low = x[0], high = x[0], all = 0;
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        all += x[i] - x[i]; /* NaN where one is not finite */
    }
    const float bias = to_bf16(low, false), scale = to_bf16((high - bias) / levels, true);
    if (isnan(all) || !isfinite(bias) || !isfinite(scale * levels))
        return -EDOM;
    *ret_scale = scale;
    *ret_bias = bias;
    return 0;
}

int quant_row(uint32_t *words, float *scale, float *bias, const float *x, size_t cols, size_t bits)
{
    const float levels = (float)((1u << bits) - 1);
    const size_t per_word = QUANT_WORD / bits;
    for (size_t at = 0, n; at < cols; at += n, scale++, bias++) {
        n = cols - at < QUANT_GROUP ? cols - at : QUANT_GROUP;
        int r = group_sides(scale, bias, x + at, n, levels);
        if (r)
            return r;
        const float inverse = *scale >= 0x1p-126f ? 1 / *scale : 0; /* all alike: every q is 0 */
        for (size_t i = at; i < at + n; i += per_word) {
            uint32_t word = 0;
            for (size_t k = 0; k < per_word; k++)
                word |= level(x[i + k], *bias, inverse, levels) << (k * bits);
            *words++ = word;
        }
    }
    return 0;
}
