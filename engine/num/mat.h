/* SPDX-License-Identifier: MIT
 *
 * A matrix of weights as it is stored. */
#ifndef NUM_MAT_H
#define NUM_MAT_H

#include <stddef.h>

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
};
enum { MAT_BLOCK = 128 };

#endif
