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
 * in the panel (few_together: how many of them do). */
bool few_applies(const struct num *num, const struct gemm_xwt *p);
size_t few_together(const struct num *num, const struct gemm_xwt *p, size_t n);
void few_each(struct num *num, const struct gemm_xwt *p, size_t n);
/* Any number of rows, as many at a time as few_each takes: one at least. */
void few_in_turn(struct num *num, const struct gemm_xwt *p);

/* Whether n rows are multiplied with quantized W in bytes, and that; any n. */
bool bytes_applies(const struct num *num, struct mat w, size_t n);
void bytes_run(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate);

/* --- a row of x in whole numbers: the numbers, the scale of each group, the sum of each group - */

/* Whether products of few rows with W are made of whole numbers. */
static inline bool int_applies(struct mat w)
{
    return w.block || quant_is_whole(w.quant);
}

/* Columns that a row has there, and groups. */
static inline size_t int_cols_of(struct mat w)
{
    return w.block ? int_block_cols(w.cols) : int_cols(w.cols);
}

static inline size_t int_groups_of(struct mat w)
{
    return w.block ? int_block_cols(w.cols) / int_block_group(w.block) : int_groups(w.cols, w.quant->group);
}

static inline size_t int_row_bytes(struct mat w)
{
    const size_t sides = 2 * int_groups_of(w) * sizeof(float), planes = w.block ? 2 : 1;
    return (planes * int_cols_of(w) * sizeof(int16_t) + sides + 63) / 64 * 64;
}

/* Row i of those from `at` on. */
static inline struct int_row int_row_from(char *at, struct mat w, size_t i)
{
    struct int_row r = {.q = (void *)(at + i * int_row_bytes(w))};
    r.bytes = (void *)r.q;
    r.low = r.q + int_cols_of(w);
    r.scale = (void *)(r.q + (w.block ? 2 : 1) * int_cols_of(w));
    r.sum = r.scale + int_groups_of(w);
    return r;
}

static inline struct int_row int_row_at(const struct num *num, struct mat w, size_t i)
{
    return int_row_from((char *)num_panel(num).data, w, i);
}

#endif
