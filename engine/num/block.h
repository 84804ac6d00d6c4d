/* SPDX-License-Identifier: MIT
 *
 * Weights in blocks along a row, as GGUF files have them: some numbers of few bits, with their
 * scales among them. A row is whole blocks. Every product in such a block fits f32, and only adding
 * the minimum rounds: so any order of operations gives the same f32. */
#ifndef NUM_BLOCK_H
#define NUM_BLOCK_H

#include <stddef.h>

enum block_type {
    BLOCK_NONE, /* elements of a dtype */
    BLOCK_Q4_0,
    BLOCK_Q4_1,
    BLOCK_Q5_0,
    BLOCK_Q5_1,
    BLOCK_Q8_0,
    BLOCK_Q2_K,
    BLOCK_Q3_K,
    BLOCK_Q4_K,
    BLOCK_Q5_K,
    BLOCK_Q6_K,
    BLOCK_IQ4_NL,
    BLOCK_IQ4_XS,
    BLOCK_MXFP4,
    BLOCK_COUNT,
};

enum { BLOCK_MOST = 256 }; /* values of the largest */

const char *block_name(enum block_type type); /* llama.cpp's: "Q4_K" */
size_t block_values(enum block_type type);    /* of a block: 32 or 256 */
size_t block_bytes(enum block_type type);
/* Of a row; cols are whole blocks. */
static inline size_t block_row_bytes(enum block_type type, size_t cols)
{
    return cols / block_values(type) * block_bytes(type);
}

/* Values from … from+n−1 of the row that begins at `row`, as f32. Any from and n, any alignment. */
void block_to_f32(float *dst, const void *row, enum block_type type, size_t from, size_t n);

#endif
