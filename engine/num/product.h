/* SPDX-License-Identifier: MIT
 *
 * Large products by our own tiles (packed.h), on CPUs that have some. Both factors are laid in the
 * order of the tiles a block at a time, and stored weights become f32 on that way. Each element is
 * one chain of sums over blocks of k in ascending order, which depends on the shape of the sum
 * alone: how many rows or threads there are changes no bit. Called by gemm.c, on the computing
 * thread. */
#ifndef NUM_PRODUCT_H
#define NUM_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

#include "num/mat.h"
#include "num/num.h"

/* factor · A[m, k] · B[k, n] */
struct product_term {
    const float *a; /* A[i, p] = a[i·lda + p], or a[p·lda + i] where a_by_k */
    size_t lda;
    bool a_by_k, b_by_k;
    struct mat b; /* B[p, j] = b[j, p], or b[p, j] where b_by_k; its cols are what a row takes */
    size_t k;
    float factor;
};

/* C[m, n] (+)= the sum of the terms; m, n and the k of all terms together are at least 1. */
struct product {
    float *c;
    size_t ldc, m, n;
    bool accumulate;
    size_t terms;
    struct product_term term[2];
    bool
        bf16; /* both factors are rounded to it; of one term that has no factor and where the rows of both lie along k */
};

bool product_is_ours(const struct num *num);
void product_run(struct num *num, const struct product *p);

#endif
