/* SPDX-License-Identifier: MIT
 *
 * The AdamW step over one parameter tensor, in torch.optim.AdamW's order: decay first, then the
 * moments, then the step. Called by the optimizer task on the computing thread; elements are
 * independent, so threads change nothing. */
#include "train/adamw.h"

#include <math.h>

#include "num/kernels.h"

enum { CHUNK = 1 << 13 };

void adamw_step(struct num *num, float *w, float *m, float *v, const float *g, size_t n, float gscale,
                const struct adamw *opt, uint64_t step)
{
    const double bias1 = 1 - pow(opt->beta1, (double)step), bias2 = 1 - pow(opt->beta2, (double)step);
    const struct adamw_consts c = {
        .gscale = gscale,
        .decay = (float)(1 - (double)opt->lr * opt->weight_decay),
        .beta1 = opt->beta1,
        .rest1 = (float)(1 - (double)opt->beta1),
        .beta2 = opt->beta2,
        .rest2 = (float)(1 - (double)opt->beta2),
        .step_size = (float)(opt->lr / bias1),
        .root_bias2 = (float)sqrt(bias2),
        .eps = opt->eps,
    };
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (n > 2 * CHUNK && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += CHUNK)
        k->adamw(w + i, m + i, v + i, g + i, n - i < CHUNK ? n - i : CHUNK, &c);
}
