/* SPDX-License-Identifier: MIT
 *
 * Rows of a mixture of experts: sorted by expert, copied to and added back from them. A token has
 * an expert at most once, so the rows of one expert never meet in a sum; sums over the experts of a
 * token run in the order in which the caller takes the experts. Called by the MoE part of a block,
 * on the computing thread. */
#include "layer/moe.h"

#include <string.h>

#include "num/kernels.h"

enum { SMALL = 1 << 14 }; /* elements not worth a second thread */

void moe_group(const struct moe_groups *g, const uint32_t *chosen, struct moe_route route, size_t tokens)
{
    const size_t n = tokens * route.chosen;
    memset(g->start, 0, (route.experts + 1) * sizeof *g->start);
    for (size_t i = 0; i < n; i++)
        g->start[chosen[i] + 1]++;
    for (size_t e = 0; e < route.experts; e++)
        g->start[e + 1] += g->start[e];
    for (size_t i = 0; i < n; i++) /* each start moves to its end … */
        g->pick[g->start[chosen[i]]++] = (uint32_t)i;
    for (size_t e = route.experts; e > 0; e--) /* … which is where the next began */
        g->start[e] = g->start[e - 1];
    g->start[0] = 0;
}

void moe_gather(struct num *num, float *rows, const float *x, const float *weight, struct moe_rows r,
                size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * dim > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++) {
        memcpy(rows + i * dim, x + r.pick[i] / r.chosen * dim, dim * sizeof *rows);
        if (weight)
            k->scale(rows + i * dim, weight[r.pick[i]], dim);
    }
}

void moe_scatter_add(struct num *num, float *y, const float *rows, const float *weight, struct moe_rows r,
                     size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * dim > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++)
        k->axpy(y + r.pick[i] / r.chosen * dim, weight ? weight[r.pick[i]] : 1, rows + i * dim, dim);
}

void moe_weight_back(struct num *num, float *dweight, const float *d, const float *a, struct moe_rows r,
                     size_t width)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++)
        dweight[r.pick[i]] = k->dot(d + i * width, a + i * width, width);
}

void moe_scale(struct num *num, float *rows, const float *weight, struct moe_rows r, size_t width)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++)
        k->scale(rows + i * width, weight[r.pick[i]], width);
}
