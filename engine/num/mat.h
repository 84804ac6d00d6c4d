/* SPDX-License-Identifier: MIT
 *
 * A matrix of weights as it is stored. */
#ifndef NUM_MAT_H
#define NUM_MAT_H

#include <stddef.h>

#include "num/block.h"
#include "num/dtype.h"
#include "num/quant.h"

/* A weight [rows = outputs, cols = inputs], Hugging Face's layout. A view: it owns nothing. */
struct mat {
    const void *data;
    enum dtype dtype;
    size_t rows, cols;
    const float *scale; /* F8_E4M3 only: factor of each block of MAT_BLOCK × MAT_BLOCK, row after row, also of
                                  the partial blocks at the edges */
    const struct quant
        *quant; /* borrowed; NULL: elements of `dtype`. Else data are packed words, and dtype is not asked */
    enum block_type block; /* data are rows of such blocks, and dtype is not asked */
    size_t turn;           /* rows of each head are stored in another order, see mat_stored_row; width of
                              a head, or 0 */
};
enum { MAT_BLOCK = 128 };

/* Where a row is stored. llama.cpp rotates neighbours (2i, 2i + 1), we rotate (i, i + turn/2): its
 * files have the rows of a head in the order of its pairs. */
static inline size_t mat_stored_row(size_t turn, size_t row)
{
    if (!turn)
        return row;
    const size_t in = row % turn, half = turn / 2;
    return row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

/* Which row it is that is stored there. */
static inline size_t mat_row_stored(size_t turn, size_t stored)
{
    if (!turn)
        return stored;
    const size_t in = stored % turn;
    return stored - in + in / 2 + in % 2 * (turn / 2);
}

#endif
