/* SPDX-License-Identifier: MIT
 *
 * Which kinds of product gemm.c leaves to files of their own: few rows, or many that need the bits
 * of few (gemm_few.c), and many rows times quantized weights in bytes (gemm_bytes.c); and how both
 * lay x out as whole numbers. */
#ifndef NUM_GEMM_IMPL_H
#define NUM_GEMM_IMPL_H

#include "num/gemm.h"
#include "num/integer.h"
#include "num/kernels.h"

enum { FEW_QUANT = 16 }; /* rows up to which reading quantized weights dominates; measured */

/* Consecutive rows of W, as one thread has them: it reads long streams fastest. */
struct row_span {
    size_t row, rows;
};

/* Whether the product has so few rows that reading W is what it costs. Then it is one for few_each,
 * which has the threads share the weights of all n products as one list; together their x must fit
 * in the panel (few_together: how many of them do, 32 at most). */
bool few_applies(const struct num *num, const struct gemm_xwt *p);
size_t few_together(const struct num *num, const struct gemm_xwt *p, size_t n);
void few_each(struct num *num, const struct gemm_xwt *p, size_t n);
/* The same for rows s of W that is stored by columns (tile/down.c). */
void down_dots(const struct num *num, const struct gemm_xwt *p, struct row_span s);
/* Any number of rows, as many at a time as few_each takes: one at least. */
void few_in_turn(struct num *num, const struct gemm_xwt *p);

/* Whether n rows are multiplied with quantized W in bytes, and that; any n. */
bool bytes_applies(const struct num *num, struct mat w, size_t n);
void bytes_run(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate);

/* --- a row of x in whole numbers: the numbers, the scale of each group, the sum of each group - */

/* The blocks that W is multiplied in, stored so or made so row by row; BLOCK_NONE: in none. Of W in
 * two parts each is multiplied by itself. */
static inline enum block_type int_block_of(struct mat w)
{
    if (w.rest.groups && !w.part)
        return BLOCK_NONE;
    return !w.block && quant_is_fp4(w.quant, w.cols) ? BLOCK_MXFP4 : w.block;
}

/* Whether products of few rows with W are made of whole numbers. */
static inline bool int_applies(struct mat w)
{
    return int_block_of(w) || quant_is_whole(w.quant);
}

/* How much of each a row has there: of the numbers bytes, multiples of 64. */
struct int_room {
    size_t bytes, scales, sums;
};

static inline struct int_room int_room_of(struct mat w)
{
    const enum block_type block = int_block_of(w);
    if (block) {
        const size_t cols = int_block_cols(w.cols);
        return (struct int_room){int_block_bytes(block) * cols, cols / int_block_group(block),
                                 cols / int_block_sums(block)};
    }
    const size_t groups = int_groups(w.cols, w.quant->group);
    return (struct int_room){int_cols(w.cols) * sizeof(int16_t), groups, groups};
}

static inline size_t int_row_bytes(struct mat w)
{
    const struct int_room room = int_room_of(w);
    return (room.bytes + (room.scales + room.sums) * sizeof(float) + 63) / 64 * 64;
}

/* Row i of those from `at` on. */
static inline struct int_row int_row_from(char *at, struct mat w, size_t i)
{
    const struct int_room room = int_room_of(w);
    struct int_row r = {.q = (void *)(at + i * int_row_bytes(w))};
    r.bytes = (void *)r.q;
    r.scale = (void *)(r.bytes + room.bytes);
    r.sum = r.scale + room.scales;
    return r;
}

static inline struct int_row int_row_at(const struct num *num, struct mat w, size_t i)
{
    return int_row_from((char *)num_panel(num).data, w, i);
}

#endif
