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
#include <stdint.h>

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

/* What the first term is multiplied in: as it is; both factors rounded to bf16, sums in f32; or
 * both in bytes (packed.h), with a scale for each row of A and column of B of a block of k, which
 * are added up in f32. A term in bf16 or bytes has no factor, and rows of A along k. */
enum product_form { PRODUCT_F32, PRODUCT_BF16, PRODUCT_BYTES };

/* How rows of A become bytes: NULL, to nearest; or by random numbers, which belong to a row and a
 * column, so that every way to share the work draws the same. */
enum { PRODUCT_NOISE = 256 }; /* columns for which they are drawn at once */

/* C[m, n] (+)= the sum of the terms; m, n and the k of all terms together are at least 1. */
struct product {
    float *c;
    size_t ldc, m, n;
    bool accumulate;
    size_t terms;
    struct product_term term[2];
    enum product_form form; /* of the first term; a second one is in f32 */
    const uint32_t *noise;  /* of bytes: the key of the numbers that round rows of A, or NULL */
};

/* Whether f32 and bf16 are multiplied here; bytes always are. */
bool product_is_ours(const struct num *num);
/* Whether there may be a second term. */
bool product_is_joined(const struct num *num, enum product_form form);
void product_run(struct num *num, const struct product *p);

#endif
