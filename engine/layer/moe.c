/* SPDX-License-Identifier: MIT
 *
 * Rows of a mixture of experts: sorted by expert, copied to and added back from them. A token has
 * an expert at most once, so the rows of one expert never meet in a sum; sums over the experts of a
 * token run in the order in which the caller takes the experts. Called by the MoE part of a block,
 * on the computing thread. */
#include "layer/moe.h"

#include <math.h>
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

void moe_bias_back(struct num *num, float *dweight, const float *d, const float *bias, struct moe_rows r,
                   size_t width)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++)
        dweight[r.pick[i]] += k->dot(d + i * width, bias, width);
}

void moe_scale(struct num *num, float *rows, const float *weight, struct moe_rows r, size_t width)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (r.n * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < r.n; i++)
        k->scale(rows + i * width, weight[r.pick[i]], width);
}

void moe_gate_forward(struct num *num, float *y, float *score, const float *x, size_t tokens, size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * dim > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        score[t] = 1 / (1 + expf(-score[t]));
        memcpy(y + t * dim, x + t * dim, dim * sizeof *y);
        k->scale(y + t * dim, score[t], dim);
    }
}

void moe_gate_backward_x(struct num *num, float *dx, float *dlogits, const float *dy, const float *score,
                         const float *x, size_t tokens, size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * dim > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        dlogits[t] = k->dot(dy + t * dim, x + t * dim, dim) * score[t] * (1 - score[t]);
        memcpy(dx + t * dim, dy + t * dim, dim * sizeof *dx);
        k->scale(dx + t * dim, score[t], dim);
    }
}
