/* SPDX-License-Identifier: MIT
 *
 * A matrix of weights as it is stored. */
#ifndef NUM_MAT_H
#define NUM_MAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    size_t step; /* rows of other matrices lie between: from one of its own to the next are so many; 0: 1 */
    size_t down; /* elements from one column to the next, where rows are what lies `step` elements apart;
                    0: rows lie whole. Of elements of a dtype without scales */
    /* Of a matrix that is some columns of a wider one: they are columns left … left+cols−1 of
     * `wide`. 0, 0: it has all. Only gemm_xw and its like take it, and no scales of blocks. */
    size_t left, wide;
    bool exact;      /* multiplied in f32 where num_compute says NUM_BF16 or NUM_BYTES */
    uint64_t stream; /* which random numbers round what it is multiplied with (num_set_noise) */
};
enum { MAT_BLOCK = 128 };

static inline size_t mat_step(const struct mat *w)
{
    return w->step ? w->step : 1;
}

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
