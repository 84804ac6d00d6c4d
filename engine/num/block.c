/* SPDX-License-Identifier: MIT
 *
 * Blocks become f32, in portable C. The layouts are those of ggml (ggml-common.h); names of parts
 * follow it: d the scale, m the minimum, q numbers, sc and mn scales and minima of parts. Called by
 * convert.c and by whoever reads a tensor; any thread, no state. */
#include "num/block.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "num/bits.h"
#include "num/dtype.h"

enum { SMALL = 32, HALF = 16, LARGE = 256, SUBS = 8 };

static float half_at(const uint8_t *p)
{
    float x;
    dtype_to_f32(&x, p, DTYPE_F16, 1);
    return x;
}

static uint32_t word_at(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* --- blocks of 32: value j in the low half of byte j, value j + 16 in its high half ------------ */

static void q4_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    for (int j = 0; j < HALF; j++) {
        y[j] = d * (float)((b[2 + j] & 15) - 8);
        y[j + HALF] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

static void q4_1(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int j = 0; j < HALF; j++) {
        y[j] = d * (float)(b[4 + j] & 15) + m;
        y[j + HALF] = d * (float)(b[4 + j] >> 4) + m;
    }
}

/* The fifth bits of all are a word: those of j at j. */
static void five(int *low, int *high, const uint8_t *q, uint32_t fifth, int j)
{
    *low = (q[j] & 15) | (int)(fifth >> j & 1) << 4;
    *high = q[j] >> 4 | (int)(fifth >> (j + HALF) & 1) << 4;
}

static void q5_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    const uint32_t fifth = word_at(b + 2);
    for (int j = 0, low, high; j < HALF; j++) {
        five(&low, &high, b + 6, fifth, j);
        y[j] = d * (float)(low - 16);
        y[j + HALF] = d * (float)(high - 16);
    }
}

static void q5_1(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t fifth = word_at(b + 4);
    for (int j = 0, low, high; j < HALF; j++) {
        five(&low, &high, b + 8, fifth, j);
        y[j] = d * (float)low + m;
        y[j + HALF] = d * (float)high + m;
    }
}

static void q8_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    for (int j = 0; j < SMALL; j++)
        y[j] = d * (float)(int8_t)b[2 + j];
}

/* A nibble stands for one of these, closer to each other around nothing. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_half(float *y, const uint8_t *q, float d)
{
    for (int j = 0; j < HALF; j++) {
        y[j] = d * (float)uneven[q[j] & 15];
        y[j + HALF] = d * (float)uneven[q[j] >> 4];
    }
}

static void iq4_nl(float *y, const uint8_t *b)
{
    iq4_half(y, b + 2, half_at(b));
}

/* The scale is 2^(e − 127). Half of it, times the doubled numbers, also is right at both ends of what
 * f32 has. */
static void mxfp4(float *y, const uint8_t *b)
{
    static const float twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0F, -1, -2, -3, -4, -6, -8, -12};
    const float half = float_of(b[0] < 2 ? UINT32_C(0x200000) << b[0] : (uint32_t)(b[0] - 1) << 23);
    for (int j = 0; j < HALF; j++) {
        y[j] = half * twice[b[1 + j] & 15];
        y[j + HALF] = half * twice[b[1 + j] >> 4];
    }
}

/* --- blocks of 256 ---------------------------------------------------------------------------- */

/* Two bits of value i: four stretches of 32 share 32 bytes. */
static int two_bits(const uint8_t *q, int i)
{
    return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void q2_k(float *y, const uint8_t *b)
{
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (int i = 0; i < LARGE; i += HALF) {
        const float sc = d * (float)(b[i / HALF] & 15), mn = m * (float)(b[i / HALF] >> 4);
        for (int j = i; j < i + HALF; j++)
            y[j] = sc * (float)two_bits(b + 16, j) - mn;
    }
}

static void q3_k(float *y, const uint8_t *b)
{
    const uint8_t *const third = b, *const scales = b + 96;
    const float d = half_at(b + 108);
    for (int t = 0; t < LARGE / HALF; t++) {
        const int low = t < 8 ? scales[t] & 15 : scales[t - 8] >> 4,
                  high = scales[8 + t % 4] >> 2 * (t / 4) & 3;
        const float sc = d * (float)((low | high << 4) - 32);
        for (int i = t * HALF; i < (t + 1) * HALF; i++)
            y[i] = sc * (float)(two_bits(b + 32, i) - (third[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
}

/* Scale and minimum of stretch s, six bits each, of the twelve bytes that hold all of them. */
static void six_bits(int *sc, int *mn, const uint8_t *p, int s)
{
    if (s < 4) {
        *sc = p[s] & 63;
        *mn = p[s + 4] & 63;
    } else {
        *sc = (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
        *mn = p[s + 4] >> 4 | (p[s] >> 6) << 4;
    }
}

static void q4_k(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int s = 0, sc, mn; s < SUBS; s++) {
        const uint8_t *const q = b + 16 + 32 * (s / 2);
        six_bits(&sc, &mn, b + 4, s);
        const float scale = d * (float)sc, least = m * (float)mn;
        for (int i = 0; i < SMALL; i++)
            y[SMALL * s + i] = scale * (float)(q[i] >> 4 * (s & 1) & 15) - least;
    }
}

static void q5_k(float *y, const uint8_t *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int s = 0, sc, mn; s < SUBS; s++) {
        const uint8_t *const q = b + 48 + 32 * (s / 2), *const fifth = b + 16;
        six_bits(&sc, &mn, b + 4, s);
        const float scale = d * (float)sc, least = m * (float)mn;
        for (int i = 0; i < SMALL; i++)
            y[SMALL * s + i] = scale * (float)((q[i] >> 4 * (s & 1) & 15) | (fifth[i] >> s & 1) << 4) - least;
    }
}

static void q6_k(float *y, const uint8_t *b)
{
    const float d = half_at(b + 208);
    for (int s = 0; s < SUBS; s++) {
        const int n = s / 4, t = s % 4;
        const uint8_t *const low = b + 64 * n + 32 * (t & 1), *const high = b + 128 + 32 * n;
        for (int l = 0; l < SMALL; l++) {
            const float sc = d * (float)(int8_t)b[192 + 2 * s + l / HALF];
            const int v = (low[l] >> 4 * (t >> 1) & 15) | (high[l] >> 2 * t & 3) << 4;
            y[SMALL * s + l] = sc * (float)(v - 32);
        }
    }
}

static void iq4_xs(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    const uint32_t high = b[2] | (uint32_t)b[3] << 8;
    for (int s = 0; s < SUBS; s++) {
        const int sc = (b[4 + s / 2] >> 4 * (s & 1) & 15) | (int)(high >> 2 * s & 3) << 4;
        iq4_half(y + SMALL * s, b + 8 + 16 * s, d * (float)(sc - 32));
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

static const struct block_kind {
    const char *name;
    size_t values, bytes;
    void (*load)(float *y, const uint8_t *b);
} kinds[BLOCK_COUNT] = {
    [BLOCK_Q4_0] = {"Q4_0", SMALL, 18, q4_0},       [BLOCK_Q4_1] = {"Q4_1", SMALL, 20, q4_1},
    [BLOCK_Q5_0] = {"Q5_0", SMALL, 22, q5_0},       [BLOCK_Q5_1] = {"Q5_1", SMALL, 24, q5_1},
    [BLOCK_Q8_0] = {"Q8_0", SMALL, 34, q8_0},       [BLOCK_Q2_K] = {"Q2_K", LARGE, 84, q2_k},
    [BLOCK_Q3_K] = {"Q3_K", LARGE, 110, q3_k},      [BLOCK_Q4_K] = {"Q4_K", LARGE, 144, q4_k},
    [BLOCK_Q5_K] = {"Q5_K", LARGE, 176, q5_k},      [BLOCK_Q6_K] = {"Q6_K", LARGE, 210, q6_k},
    [BLOCK_IQ4_NL] = {"IQ4_NL", SMALL, 18, iq4_nl}, [BLOCK_IQ4_XS] = {"IQ4_XS", LARGE, 136, iq4_xs},
    [BLOCK_MXFP4] = {"MXFP4", SMALL, 17, mxfp4},
};

const char *block_name(enum block_type type)
{
    return kinds[type].name;
}

size_t block_values(enum block_type type)
{
    return kinds[type].values;
}

size_t block_bytes(enum block_type type)
{
    return kinds[type].bytes;
}

void block_to_f32(float *dst, const void *row, enum block_type type, size_t from, size_t n)
{
    const struct block_kind *k = &kinds[type];
    const uint8_t *at = (const uint8_t *)row + from / k->values * k->bytes;
    for (size_t skip = from % k->values, now; n; at += k->bytes, dst += now, n -= now, skip = 0) {
        now = k->values - skip < n ? k->values - skip : n;
        if (now == k->values) {
            k->load(dst, at);
            continue;
        }
        float whole[BLOCK_MOST];
        k->load(whole, at);
        memcpy(dst, whole + skip, now * sizeof *dst);
    }
}
