/* SPDX-License-Identifier: MIT
 *
 * Quantized matrices as another program would have written them: drawn levels, packed here. */
#ifndef TESTS_LIB_QUANTIZED_H
#define TESTS_LIB_QUANTIZED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "num/gemm.h"
#include "num/integer.h"
#include "num/quant.h"
#include "num/rng.h"
#include "tests/lib/draw.h"

struct packed {
    uint8_t *raw; /* one byte past alignment, as a file may have it */
    char *sides;
    float *values; /* what it stands for */
    struct quant quant;
    struct mat w;
};

static inline size_t side_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

/* A number that every type of side holds, and its bytes. */
static inline float put_side(char *to, enum dtype t, float x)
{
    float rounded;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xfff80000u; /* four bits of fraction */
    memcpy(&rounded, &bits, sizeof rounded);
    const uint16_t bf16 = (uint16_t)(bits >> 16);
    const uint16_t f16 =
        (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112) << 10) | (bits >> 13 & 1023u));
    memcpy(to,
           t == DTYPE_F32    ? (const void *)&rounded
           : t == DTYPE_BF16 ? (const void *)&bf16
                             : (const void *)&f16,
           side_bytes(t));
    return rounded;
}

static inline float draw_side(struct rng *rng, float low, float high)
{
    float x;
    rng_fill_uniform(rng, &x, 1, low, high);
    return x;
}

static inline void pack(struct packed *p, size_t rows, size_t cols, size_t bits, size_t group,
                        enum dtype side)
{
    const size_t across = quant_groups(group, cols), groups = rows * across, size = side_bytes(side);
    struct rng rng = rng_for(rows * 1000 + cols, "packed");
    p->raw = calloc(rows * cols * bits / 8 + 1, 1);
    p->sides = calloc(2 * groups, size);
    p->values = calloc(rows * cols, sizeof *p->values);
    assert_true(p->raw && p->sides && p->values);
    for (size_t i = 0; i < rows * cols; i++) {
        static float scale, bias;
        if (i % cols % group == 0) {
            const size_t g = i / cols * across + i % cols / group;
            scale = put_side(p->sides + g * size, side, draw_side(&rng, 0.01f, 0.5f));
            bias = put_side(p->sides + (groups + g) * size, side, draw_side(&rng, -1, -0.25f));
        }
        const uint32_t q = (uint32_t)draw_side(&rng, 0, (float)(1u << bits)) & ((1u << bits) - 1);
        for (size_t b = 0; b < bits; b++)
            p->raw[1 + (i * bits + b) / 8] |= (uint8_t)((q >> b & 1) << (i * bits + b) % 8);
        p->values[i] = (float)((double)q * (double)scale + (double)bias);
    }
    p->quant = (struct quant){p->sides, p->sides + groups * size, side, bits, group, QUANT_AFFINE, {0}};
    p->w = (struct mat){.data = p->raw + 1, .rows = rows, .cols = cols, .quant = &p->quant};
}

static inline void unpack(struct packed *p)
{
    free(p->raw), free(p->sides), free(p->values);
}

static const size_t widths[] = {4, 8}, group_sizes[] = {32, 64, 128};
static const enum dtype sides[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

#endif
