/* SPDX-License-Identifier: MIT
 *
 * Blocks become f32 where there is no table of kernels: tensors that are read row by row. Any
 * thread, no state. */
#include "num/block_load.h"

void block_to_f32(float *dst, const void *row, enum block_type type, size_t from, size_t n)
{
    load_blocks(dst, row, type, from, n);
}
