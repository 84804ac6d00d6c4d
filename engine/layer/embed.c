/* SPDX-License-Identifier: MIT
 *
 * Token embedding: rows of a table. Called by the first stage, on the computing thread. */
#include "layer/layer.h"

#include "num/kernels.h"

enum { COLUMNS = 256 }; /* of the gradient that one thread owns at a time */

void embed_forward(struct num *num, float *y, const uint32_t *ids, struct mat w, size_t tokens)
{
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens > 64 && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++)
        gemm_rows(num, y + t * w.cols, w, ids[t], 1);
}

/* Divided over columns: one token may occur many times, and its rows are added in order. */
void embed_backward_w(struct num *num, float *dw, const float *dy, const uint32_t *ids, size_t tokens,
                      size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens > 64 && num_threads(num) > 1)
    for (size_t c = 0; c < dim; c += COLUMNS) {
        const size_t width = dim - c < COLUMNS ? dim - c : COLUMNS;
        for (size_t t = 0; t < tokens; t++) {
            float *row = dw + ids[t] * dim + c;
            k->add(row, row, dy + t * dim + c, width);
        }
    }
}
