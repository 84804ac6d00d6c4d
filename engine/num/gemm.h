/* SPDX-License-Identifier: MIT
 *
 * Matrix products on weights as they are stored. All matrices are row-major and dense; n, rows and
 * cols may be 0. Same inputs and same thread count give the same bits; where the products are our
 * own (product.h), any thread count. */
#ifndef NUM_GEMM_H
#define NUM_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "num/mat.h"
#include "num/num.h"

/* W of rows `first` … first+rows−1 alone. room (borrowed by it) is filled where W is quantized. Of
 * W with `turn` first is a multiple of that; W has no scales of blocks. */
struct mat gemm_cut(struct mat w, size_t first, size_t rows, struct quant *room);

/* W of columns `first` … first+cols−1 alone, for gemm_xw and gemm_xw_joined: a column of what they
 * give has the same bits as with all of W. */
struct mat gemm_columns(struct mat w, size_t first, size_t cols);

/* Rows row … row+rows−1 of W in f32 into dst [rows, W.cols], by the calling thread alone. */
void gemm_rows(const struct num *num, float *dst, struct mat w, size_t row, size_t rows);

/* The same rows quantized as quant_row does it: words, scale and bias [rows] times a row's. −EDOM:
 * a weight is not finite. */
int gemm_quantize(struct num *num, uint32_t *words, float *scale, float *bias, struct mat w, size_t row,
                  size_t rows, size_t bits, size_t group);

/* y[n, W.rows] = x[n, W.cols] · Wᵀ, added to y when `accumulate`. Multiplied in what num_compute
 * says, and in the order that num_set_invariant says. */
void gemm_xwt(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate);

/* The same for each of several products, none of which needs another's y; same bits. Where rows are
 * few the threads share all the weights as one long list and meet once, not once for each
 * product. */
struct gemm_xwt {
    float *y;
    const float *x;
    struct mat w;
    size_t n;
    bool accumulate;
};
void gemm_xwt_each(struct num *num, const struct gemm_xwt *products, size_t n);

/* dx[n, W.cols] = dy[n, W.rows] · W, added to dx when `accumulate`. */
void gemm_xw(struct num *num, float *dx, const float *dy, struct mat w, size_t n, bool accumulate);

/* A second product that is added to a first in the same pass over its outputs: factor · x · Wᵀ, or
 * x · W. */
struct gemm_second {
    const float *x; /* [n, w.cols], or [n, w.rows] */
    struct mat w;   /* as many outputs as the first one's */
    float factor;
};

/* Is that done with so many rows? Else the two are to be made one after the other. */
bool gemm_is_joined(const struct num *num, struct mat w, size_t n);
void gemm_xwt_joined(struct num *num, float *y, const float *x, struct mat w,
                     const struct gemm_second *second, size_t n);
void gemm_xw_joined(struct num *num, float *dx, const float *dy, struct mat w,
                    const struct gemm_second *second, size_t n, bool accumulate);

/* dw[rows, cols] += alpha · dyᵀ · x  with dy[n, rows], x[n, cols]. */
void gemm_dw(struct num *num, float *dw, const float *dy, const float *x, size_t n, size_t rows, size_t cols,
             float alpha);

#endif
