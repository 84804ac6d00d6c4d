/* SPDX-License-Identifier: MIT
 *
 * The elementwise half of a gated MLP; the three products around it are linears. Called by blocks,
 * on the computing thread. */
#include "layer/layer.h"

#include "num/kernels.h"

enum { CHUNK = 1 << 13 };

void glu_forward(struct num *num, float *y, const float *g, const float *u, struct glu glu, size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > CHUNK && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += CHUNK)
        k->glu[glu.kind](y + i, g + i, u + i, n - i < CHUNK ? n - i : CHUNK, glu.limit);
}

void glu_backward_x(struct num *num, float *dg, float *du, const float *dy, const float *g, const float *u,
                    struct glu glu, size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > CHUNK && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += CHUNK)
        k->glu_back[glu.kind](dg + i, du + i, dy + i, g + i, u + i, n - i < CHUNK ? n - i : CHUNK, glu.limit);
}
