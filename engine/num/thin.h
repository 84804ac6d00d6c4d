/* SPDX-License-Identifier: MIT
 *
 * The gradient of a matrix that is long and thin, as LoRA's are: bound by reading what lies along
 * its long side, which is therefore multiplied where it lies. Called by gemm.c, on the computing
 * thread, where product.h has tiles. */
#ifndef NUM_THIN_H
#define NUM_THIN_H

#include <stdbool.h>
#include <stddef.h>

#include "num/num.h"

/* Whether gemm_dw's result has so few rows or columns. */
bool thin_applies(const struct num *num, size_t rows, size_t cols);

/* As gemm_dw; n, rows and cols are at least 1. alpha is a factor of the thin side's numbers; their
 * products are added up 128 rows at a time, and those sums to dw in their order, whatever the
 * number of threads and the instruction set. */
void thin_dw(struct num *num, float *dw, const float *dy, const float *x, size_t n, size_t rows, size_t cols,
             float alpha);

#endif
