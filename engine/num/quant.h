/* SPDX-License-Identifier: MIT
 *
 * Weights of 2 to 8 bits in groups along a row: w = q · scale + bias, q unsigned, one scale and one
 * bias for each group. This is the layout of MLX's affine quantization, and the one our own is kept
 * in, so that there is one reader for both: the q of a row lie in 32-bit words, little-endian, the
 * first in the lowest bits. Beside it MLX's "mxfp4": words as those of 4 bits, each q an E2M1. A
 * group's scale is a power of two, E8M0, without a bias (OCP Microscaling Formats v1.0, section
 * 5). And what compressed-tensors has of whole numbers: w = (q − zero) · scale. */
#ifndef NUM_QUANT_H
#define NUM_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/dtype.h"

enum {
    QUANT_GROUP = 64, /* of what is quantized for a job; others are 32 and 128 */
    QUANT_WORD = 32,  /* bits of a word */
    QUANT_MOST = 8,   /* bits */
    QUANT_FP4_GROUP = 32,
};

enum quant_kind { QUANT_AFFINE, QUANT_MXFP4, QUANT_CENTRED };

/* What QUANT_CENTRED has of its own: 4 or 8 bits, and a scale for `wide` columns, which are one
 * group, whole groups, or the whole row. */
struct quant_centre {
    size_t wide;
    /* Zeros in words as a row's numbers are, but down a column: [rows · bits / 32, scales of a
     * row], borrowed. NULL: all are 2^(bits − 1). */
    const void *zero;
    size_t first;   /* which row of the zeros the first one of the matrix has */
    bool is_signed; /* 8 bits in two's complement, of which 2^(bits − 1) is already taken */
};

struct quant {
    const void *scale, *bias; /* [rows, quant_groups] each, borrowed; AFFINE alone has a bias */
    enum dtype side;          /* their type: F32, F16 or BF16; of MXFP4 not asked: bytes */
    size_t bits, group;
    enum quant_kind kind;
    struct quant_centre centre;
};

/* Are bits 2, 3, 4, 5, 6 or 8, and group 32, 64 or 128? */
bool quant_is_known(size_t bits, size_t group);
/* Can rows of so many columns lie in such groups? They must fill words of 4 bits, or of `bits`; the
 * last group may be shorter, if bits is 4 or 8. */
bool quant_is_possible(size_t bits, size_t group, size_t cols);
/* Rows of MXFP4 that become blocks on the way to products with few rows (gemm_few.c). */
enum { QUANT_FP4_COLS = 1 << 15 };
static inline bool quant_is_fp4(const struct quant *q, size_t cols)
{
    return q && q->kind == QUANT_MXFP4 && cols <= QUANT_FP4_COLS;
}
/* Products with few rows are made of whole numbers. Otherwise weights become f32 first. */
static inline bool quant_is_whole(const struct quant *q)
{
    return q && q->kind != QUANT_MXFP4 && (q->bits == 4 || q->bits == 8);
}
/* Of a row. */
size_t quant_words(size_t bits, size_t cols);
static inline size_t quant_groups(size_t group, size_t cols)
{
    return (cols + group - 1) / group;
}
/* Scales of a row. */
static inline size_t quant_scales(const struct quant *q, size_t cols)
{
    return quant_groups(q->kind == QUANT_CENTRED ? q->centre.wide : q->group, cols);
}
/* The group that products take where so many columns share a scale; 0: none. */
static inline size_t quant_centred_group(size_t wide)
{
    return wide == 32 || wide == 64 ? wide : wide && wide % 128 == 0 ? 128 : 0;
}
/* And where all of a row share one: its last group may be shorter. cols 0: it is not known. */
static inline size_t quant_row_group(size_t cols)
{
    const size_t group = quant_centred_group(cols);
    return group ? group : 128;
}

/* Quantizes a row in groups, as quant_is_possible says: words [quant_words], scale and bias
 * [quant_groups], both rounded to what BF16 holds. A weight is off by at most half of its group's
 * scale, and near the ends of its group by what was cut off: the rounding of scale and bias, and
 * with 2 to 4 bits up to 8 % of the group's spread. −EDOM: a weight is not finite, or too large to
 * scale. */
int quant_row(uint32_t *words, float *scale, float *bias, const float *x, size_t cols, size_t bits,
              size_t group);

#endif
