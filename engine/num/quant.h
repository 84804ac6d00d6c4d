/* SPDX-License-Identifier: MIT
 *
 * Weights of 4 or 8 bits in groups along a row: w = q · scale + bias, q unsigned, one scale and one
 * bias for each group. This is the layout of MLX's affine quantization, and the one our own is kept
 * in, so that there is one reader for both: the q of a row lie in 32-bit words, little-endian, the
 * first in the lowest bits. */
#ifndef NUM_QUANT_H
#define NUM_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/dtype.h"

enum {
    QUANT_GROUP = 64, /* of what is quantized here; read are 32, 64 and 128 */
    QUANT_WORD = 32,  /* bits of a word */
};

struct quant {
    const void *scale, *bias; /* [rows, quant_groups] each, borrowed */
    enum dtype side;          /* their type: F32, F16 or BF16 */
    size_t bits, group;
};

/* Can rows of so many columns lie in such groups? They must fill words of 4 bits; the last group
 * may be shorter. */
bool quant_is_possible(size_t bits, size_t group, size_t cols);
/* Of a row. */
size_t quant_words(size_t bits, size_t cols);
static inline size_t quant_groups(size_t group, size_t cols)
{
    return (cols + group - 1) / group;
}

/* Quantizes a row in groups of QUANT_GROUP: words [quant_words], scale and bias [quant_groups],
 * both rounded to what BF16 holds. A weight is off by at most half of its group's scale, and near
 * the ends of its group by what was cut off: the rounding of scale and bias, and with 4 bits up to
 * 8 % of the group's spread. −EDOM: a weight is not finite, or too large to scale. */
int quant_row(uint32_t *words, float *scale, float *bias, const float *x, size_t cols, size_t bits);

#endif
