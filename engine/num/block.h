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

static inline size_t block_bytes(enum block_type type)
{
    switch (type) {
    case BLOCK_Q4_0:
    case BLOCK_IQ4_NL: return 18;
    case BLOCK_Q4_1: return 20;
    case BLOCK_Q5_0: return 22;
    case BLOCK_Q5_1: return 24;
    case BLOCK_Q8_0: return 34;
    case BLOCK_Q2_K: return 84;
    case BLOCK_Q3_K: return 110;
    case BLOCK_Q4_K: return 144;
    case BLOCK_Q5_K: return 176;
    case BLOCK_Q6_K: return 210;
    case BLOCK_IQ4_XS: return 136;
    case BLOCK_MXFP4: return 17;
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return 0;
}

/* Numbers of a block. */
static inline size_t block_values(enum block_type type)
{
    return (type >= BLOCK_Q2_K && type <= BLOCK_Q6_K) || type == BLOCK_IQ4_XS ? 256 : 32;
}

/* Of a row; cols are whole blocks. */
static inline size_t block_row_bytes(enum block_type type, size_t cols)
{
    return cols / block_values(type) * block_bytes(type);
}

/* Values from … from+n−1 of the row that begins at `row`, as f32. Any from and n, any alignment. */
void block_to_f32(float *dst, const void *row, enum block_type type, size_t from, size_t n);

#endif
