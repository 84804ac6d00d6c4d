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

/* Heads of a matrix that lie in another order in the file, as of llama.cpp's linear layers: from
 * place `first` on runs of `width`, in `groups` of `each`. Hugging Face has group after group,
 * llama.cpp the first head of every group, then the second of every group. width 0: none do. */
struct mat_heads {
    uint32_t first, width, groups, each;
};

/* Where a row or column is stored. */
static inline size_t mat_stored_head(struct mat_heads h, size_t at)
{
    if (!h.width || at < h.first)
        return at;
    const size_t in = (at - h.first) % h.width, head = (at - h.first) / h.width;
    return h.first + (head % h.each * h.groups + head / h.each) * h.width + in;
}

/* Which it is that is stored there: groups and heads change places. */
static inline size_t mat_head_stored(struct mat_heads h, size_t stored)
{
    return mat_stored_head((struct mat_heads){h.first, h.width, h.each, h.groups}, stored);
}

/* The other part of a matrix whose rows lie in two. llama.cpp splits in_proj_qkvz, which has for
 * each of `groups` key heads rows of q and k, `key` each, then of v and z, `value` each: one part
 * has all of q, then of k, then of v, the other all of z. groups 0: there is one part. */
struct mat_rest {
    const void *data;
    enum dtype dtype;
    enum block_type block;
    uint32_t groups, key, value;
};

static inline size_t mat_group_rows(struct mat_rest r)
{
    return 2 * ((size_t)r.key + r.value);
}

/* Where a row is stored; ret_rest: in the other part? */
static inline size_t mat_part_row(struct mat_rest r, size_t row, bool *ret_rest)
{
    const size_t g = row / mat_group_rows(r), in = row % mat_group_rows(r), keys = 2 * (size_t)r.key;
    *ret_rest = in >= keys + r.value;
    if (in < keys)
        return (in < r.key ? g : r.groups + g) * r.key + in % r.key;
    return (*ret_rest ? 0 : r.groups * keys) + g * r.value + (in - keys) % r.value;
}

/* Which row it is that is stored there. */
static inline size_t mat_row_of_part(struct mat_rest r, size_t stored, bool is_rest)
{
    const size_t keys = (size_t)r.groups * r.key, at = is_rest ? stored : stored - 2 * keys;
    if (!is_rest && stored < 2 * keys)
        return stored % keys / r.key * mat_group_rows(r) + stored / keys * r.key + stored % r.key;
    return at / r.value * mat_group_rows(r) + 2 * r.key + (is_rest ? r.value : 0) + at % r.value;
}

/* A weight [rows = outputs, cols = inputs], Hugging Face's layout. A view: it owns nothing. */
struct mat {
    const void *data;
    enum dtype dtype;
    size_t rows, cols;
    const float *scale; /* F8_E4M3 only: factor of each block of MAT_BLOCK × MAT_BLOCK, row after row, also of
                                  the partial blocks at the edges; */
    bool scale_rows;    /* or one of each row */
    size_t scale_first; /* of the scales' rows the one that is its first: before it, others were cut off */
    const struct quant
        *quant; /* borrowed; NULL: elements of `dtype`. Else data are packed words, and dtype is not asked */
    enum block_type block; /* data are rows of such blocks, and dtype is not asked */
    size_t turn;           /* rows of each head are stored in another order, see mat_stored_row; width of
                              a head, or 0 */
    struct mat_heads row_heads, col_heads; /* rows, columns in another order; not with `turn` */
    struct mat_rest rest;                  /* its rows lie in two parts, of which data are the first; not
                                              with other orders */
    enum mat_part { MAT_WHOLE, MAT_FIRST, MAT_REST } part; /* it is one of two such parts: gemm_few.c */
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

/* The scales of the blocks that a row lies in. */
static inline const float *mat_block_scales(const struct mat *w, size_t row)
{
    return w->scale + (w->scale_first + row) / MAT_BLOCK * ((w->cols + MAT_BLOCK - 1) / MAT_BLOCK);
}

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
