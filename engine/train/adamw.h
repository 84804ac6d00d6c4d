/* SPDX-License-Identifier: MIT
 *
 * The update of trained values, spread over the threads of num. Called by a stage at the end of
 * each step, for each parameter it owns. */
#ifndef TRAIN_ADAMW_H
#define TRAIN_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "num/num.h"

struct adamw {
    float lr, beta1, beta2, eps, weight_decay;
};

/* One AdamW step with bias correction (Loshchilov & Hutter 2019, algorithm 2; torch.optim.AdamW):
 * w, m, v [n] are updated, g [n] is multiplied by gscale (clipping) first and left unchanged.
 * `step` counts from 1. */
void adamw_step(struct num *num, float *w, float *m, float *v, const float *g, size_t n, float gscale,
                const struct adamw *opt, uint64_t step);

#endif
