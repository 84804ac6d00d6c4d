/* SPDX-License-Identifier: MIT
 *
 * Quantizing a row of weights, in portable C, so that every node makes the same of it. Called when
 * a stage opens, by any thread: no state. */
#include "num/quant.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { QUANT_RANGES = 3 }; /* of each end */

bool quant_is_known(size_t bits, size_t group)
{
    return bits >= 2 && bits <= QUANT_MOST && bits != 7 && (group == 32 || group == 64 || group == 128);
}

bool quant_is_possible(size_t bits, size_t group, size_t cols)
{
    return quant_is_known(bits, group) && cols && cols % (bits == 4 || bits == 8 ? 8 : group) == 0;
}

size_t quant_words(size_t bits, size_t cols)
{
    return cols * bits / QUANT_WORD;
}

static float to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* What a group is quantized with. */
struct quant_sides {
    float scale, inverse, bias, levels;
};

static struct quant_sides sides_of(float low, float high, float levels)
{
    struct quant_sides s = {.bias = to_bf16(low), .levels = levels};
    s.scale = to_bf16((high - s.bias) / levels);
    if (!(s.scale >= 0x1p-126f)) /* all alike, and where the bias was rounded up: every q is 0 */
        s.scale = 0;
    s.inverse = s.scale > 0 ? 1 / s.scale : 0;
    return s;
}

static uint32_t level(float x, const struct quant_sides *s)
{
    const float q = (x - s->bias) * s->inverse + 0.5f;
    return (uint32_t)(q < 0 ? 0 : q > s->levels ? s->levels : q);
}

static float loss(const struct quant_sides *s, const float *x, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float off = (float)level(x[i], s) * s->scale + s->bias - x[i];
        sum += off * off;
    }
    return sum;
}

/* n levels, one behind the other; they fill words. */
static uint32_t *put_levels(uint32_t *words, const struct quant_sides *s, const float *x, size_t n,
                            size_t bits)
{
    uint64_t word = 0;
    size_t filled = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)level(x[i], s) << filled;
        filled += bits;
        if (filled >= QUANT_WORD) {
            *words++ = (uint32_t)word;
            word >>= QUANT_WORD;
            filled -= QUANT_WORD;
        }
    }
    return words;
}

/* With few levels it pays to cut the rarest weights off: of nine ranges, each end drawn in by
 * nothing, 4 or 8 % of the spread, the one with the least squared error. */
static struct quant_sides best_sides(float low, float high, float levels, const float *x, size_t n)
{
    const float spread = high - low;
    struct quant_sides best = sides_of(low, high, levels);
    float least = levels < 16 ? loss(&best, x, n) : 0;
    for (size_t i = 1; levels < 16 && i < QUANT_RANGES * QUANT_RANGES; i++) {
        const float up = (float)(i / QUANT_RANGES) * 0.04f, down = (float)(i % QUANT_RANGES) * 0.04f;
        const struct quant_sides s = sides_of(low + spread * up, high - spread * down, levels);
        const float now = loss(&s, x, n);
        if (now < least) {
            least = now;
            best = s;
        }
    }
    return best;
}

static int group_sides(struct quant_sides *ret, const float *x, size_t n, float levels)
{
    float low = x[0], high = x[0], all = 0;
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        all += x[i] - x[i]; /* NaN where one is not finite */
    }
    if (isnan(all) || !isfinite((high - low) * 1.5f) || !isfinite(to_bf16(low)))
        return -EDOM;
    *ret = best_sides(low, high, levels, x, n);
    return 0;
}

int quant_row(uint32_t *words, float *scale, float *bias, const float *x, size_t cols, size_t bits,
              size_t group)
{
    const float levels = (float)((1u << bits) - 1);
    for (size_t at = 0, n; at < cols; at += n, scale++, bias++) {
        n = cols - at < group ? cols - at : group;
        struct quant_sides s;
        int r = group_sides(&s, x + at, n, levels);
        if (r)
            return r;
        *scale = s.scale;
        *bias = s.bias;
        words = put_levels(words, &s, x + at, n, bits);
    }
    return 0;
}
