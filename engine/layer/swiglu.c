/* SPDX-License-Identifier: MIT
 *
 * SwiGLU's elementwise half; the three products around it are linears. Called by blocks, on the
 * computing thread. */
#include "layer/layer.h"

#include "num/kernels.h"

enum { CHUNK = 1 << 13 };

void swiglu_forward(struct num *num, float *y, const float *g, const float *u, size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > CHUNK && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += CHUNK)
        k->swiglu(y + i, g + i, u + i, n - i < CHUNK ? n - i : CHUNK);
}

void swiglu_backward_x(struct num *num, float *dg, float *du, const float *dy, const float *g, const float *u,
                       size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > CHUNK && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += CHUNK)
        k->swiglu_back(dg + i, du + i, dy + i, g + i, u + i, n - i < CHUNK ? n - i : CHUNK);
}
