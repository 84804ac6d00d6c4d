/* SPDX-License-Identifier: MIT
 *
 * Owns the conversion between stored element types and f32, on bits, in portable C. Called wherever
 * weights are read or written, from any thread: no state. Work goes through blocks of a fixed
 * length copied in and out, which makes any alignment legal and lets the compiler vectorise at -O2,
 * where it only takes loops of a known length. */
#include "num/dtype.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "num/bits.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are little-endian and read in place");

enum { BLOCK = 64 };

static const struct {
    const char *name, *torch;
    size_t size;
} types[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", "float32", 4},
    [DTYPE_F16] = {"F16", "float16", 2},
    [DTYPE_BF16] = {"BF16", "bfloat16", 2},
    [DTYPE_F8_E4M3] = {"F8_E4M3", "float8_e4m3fn", 1},
};

size_t dtype_size(enum dtype type)
{
    return types[type].size;
}

const char *dtype_name(enum dtype type)
{
    return types[type].name;
}

int dtype_from_name(const char *name, enum dtype *ret)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, types[i].name) == 0 || strcmp(name, types[i].torch) == 0) {
            *ret = (enum dtype)i;
            return 0;
        }
    }
    return -ENOTSUP;
}

/* `a` where `yes`, else `b`, by masks: given a choice of expressions compilers branch, and a branch
 * is no vector. */
static inline uint32_t pick(bool yes, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)yes;
    return (a & mask) | (b & ~mask);
}

/* All three cases are computed and one is picked. NaNs come out quiet, as from
 * the processors' own instruction, so that both ways agree on every bit. */
static inline float from_f16(uint16_t h)
{
    uint32_t mag = h & 0x7fffu;
    uint32_t normal = (mag << 13) + (112u << 23);             /* exponent bias 15 → 127 */
    uint32_t small = bits_of((float)(int32_t)mag * 0x1p-24f); /* subnormal: a whole number of 2^-24 */
    uint32_t large = (mag << 13) | 0x7f800000u;               /* infinity and NaN */
    large |= pick(mag > 0x7c00u, 0x400000u, 0);
    uint32_t bits = pick(mag < 0x400u, small, pick(mag >= 0x7c00u, large, normal));
    return float_of(bits | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t to_f16(float x)
{
    uint32_t u = bits_of(x), mag = u & 0x7fffffffu;
    uint32_t rebased = mag - (112u << 23);
    uint32_t normal =
        (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13; /* a carry reaches infinity by itself */
    /* Below 2^-14: the last place of 0.5 is 2^-24, so the addition rounds to a whole subnormal,
     * nearest even.
     */
    uint32_t small = bits_of(float_of(mag) + 0.5f) - 0x3f000000u;
    uint32_t large = pick(mag > 0x7f800000u, 0x7e00u | (mag >> 13 & 0x3ffu), 0x7c00u);
    uint32_t half = pick(mag < 0x38800000u, small, pick(mag >= 0x47800000u, large, normal));
    return (uint16_t)(half | (u >> 16 & 0x8000u));
}

static inline uint16_t to_bf16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    uint32_t nan = u >> 16 | 0x40u; /* rounding could carry a NaN over into a number */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static float from_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

/* Through blocks of a fixed size, which compilers turn into vector code; `one` is always known
 * where these are called. */
static inline __attribute__((always_inline)) void load_halves(float *dst, const uint8_t *src, size_t n,
                                                              float (*one)(uint16_t))
{
    uint16_t in[BLOCK];
    float out[BLOCK];
    memset(in, 0, sizeof in);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t now = n - at < BLOCK ? n - at : BLOCK;
        memcpy(in, src + 2 * at, now * 2);
        for (int i = 0; i < BLOCK; i++)
            out[i] = one(in[i]);
        memcpy(dst + at, out, now * 4);
    }
}

/* Exponent and fraction move up 20 bits; multiplying by 2^120 mends the bias, exactly, subnormals
 * included. */
static void load_f8(float *dst, const uint8_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = src[i] & 0x7fu;
        uint32_t bits = bits_of(float_of(mag << 20) * 0x1p120f);
        bits = pick(mag == 0x7fu, 0x7fc00000u, bits);
        dst[i] = float_of(bits | (uint32_t)(src[i] & 0x80u) << 24);
    }
}

static inline __attribute__((always_inline)) void store_halves(uint8_t *dst, const float *src, size_t n,
                                                               uint16_t (*one)(float))
{
    float in[BLOCK];
    uint16_t out[BLOCK];
    memset(in, 0, sizeof in);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t now = n - at < BLOCK ? n - at : BLOCK;
        memcpy(in, src + at, now * 4);
        for (int i = 0; i < BLOCK; i++)
            out[i] = one(in[i]);
        memcpy(dst + 2 * at, out, now * 2);
    }
}

void dtype_to_f32(float *dst, const void *src, enum dtype type, size_t n)
{
    switch (type) {
    case DTYPE_F32:
        if (n > 0)
            memcpy(dst, src, n * 4);
        break;
    case DTYPE_F16: load_halves(dst, src, n, from_f16); break;
    case DTYPE_BF16: load_halves(dst, src, n, from_bf16); break;
    case DTYPE_F8_E4M3: load_f8(dst, src, n); break;
    case DTYPE_COUNT: break;
    }
}

void dtype_from_f32(void *dst, const float *src, enum dtype type, size_t n)
{
    switch (type) {
    case DTYPE_F32:
        if (n > 0)
            memcpy(dst, src, n * 4);
        break;
    case DTYPE_F16: store_halves(dst, src, n, to_f16); break;
    case DTYPE_BF16: store_halves(dst, src, n, to_bf16); break;
    case DTYPE_F8_E4M3:
    case DTYPE_COUNT: break;
    }
}
