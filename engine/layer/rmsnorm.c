/* SPDX-License-Identifier: MIT
 *
 * RMSNorm. Forward and the gradient of the input go by rows, the gradient of the weight by columns.
 * Called by blocks, on the computing thread. */
#include "layer/layer.h"

#include "num/kernels.h"

enum {
    COLUMNS = 128,   /* of the gradient that one thread owns at a time */
    SMALL = 1 << 14, /* elements not worth a second thread */
};

void rmsnorm_forward(struct num *num, float *y, float *rstd, const float *x, const float *w,
                     struct rmsnorm_dims dims)
{
    const struct kernels *k = num_kernels(num);
    const size_t rows = dims.rows, dim = dims.dim, stride = dims.stride ? dims.stride : dim;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * dim > SMALL && num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++)
        rstd[r] = k->rmsnorm(y + r * dim, x + r * stride, w, dim, dims.eps);
}

void rmsnorm_backward_x(struct num *num, float *dx, const float *dy, const float *rstd, const float *x,
                        const float *w, struct rmsnorm_dims dims)
{
    const struct kernels *k = num_kernels(num);
    const size_t rows = dims.rows, dim = dims.dim, stride = dims.stride ? dims.stride : dim;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * dim > SMALL && num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++)
        k->rmsnorm_back(dx + r * stride, dy + r * dim, x + r * stride, w, dim, rstd[r]);
}

void rmsnorm_backward_w(struct num *num, float *dw, const float *dy, const float *rstd, const float *x,
                        struct rmsnorm_dims dims)
{
    const struct kernels *k = num_kernels(num);
    const size_t rows = dims.rows, dim = dims.dim, stride = dims.stride ? dims.stride : dim;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * dim > SMALL && num_threads(num) > 1)
    for (size_t c = 0; c < dim; c += COLUMNS) {
        const size_t width = dim - c < COLUMNS ? dim - c : COLUMNS;
        for (size_t r = 0; r < rows; r++)
            k->rmsnorm_dw(dw + c, dy + r * dim + c, x + r * stride + c, width, rstd[r]);
    }
}
