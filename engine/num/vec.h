/* SPDX-License-Identifier: MIT
 *
 * Vectors and rows of f32: what the layers share beyond matrix products. Reductions run in one
 * fixed order, whatever the thread count, so results do not depend on it. */
#ifndef NUM_VEC_H
#define NUM_VEC_H

#include <stddef.h>

#include "num/num.h"

void vec_add(struct num *num, float *y, const float *a, const float *b,
             size_t n);                                           /* y = a + b; y may be a or b */
void vec_scale(struct num *num, float *y, float alpha, size_t n); /* y *= alpha */
double vec_sumsq(struct num *num, const float *x, size_t n);      /* Σ x², accumulated in f64 */

/* That sum is one of chunks, the first with values [0, VEC_SUM_CHUNK), added in their order. So
 * a node with some of the chunks can make these sums elsewhere, and the bits are the same. */
enum { VEC_SUM_CHUNK = 512 };
static inline size_t vec_sum_chunks(size_t n)
{
    return (n + VEC_SUM_CHUNK - 1) / VEC_SUM_CHUNK;
}
/* sums [vec_sum_chunks(n)] */
void vec_chunks_sumsq(struct num *num, double *sums, const float *x, size_t n);

#endif
