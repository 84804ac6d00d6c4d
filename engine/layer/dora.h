/* SPDX-License-Identifier: MIT
 *
 * DoRA, LoRA with magnitudes (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation",
 * equation 5): each row of V = W + s·BA keeps its direction alone, and is multiplied by a trained
 * number: y = gain·(xWᵀ + s·(drop(x)Aᵀ)Bᵀ) + b, with gain = m/‖V‖ of each row. The norm counts as a
 * constant in the gradient (section 4.3). Dropout is of LoRA's path alone, as mlx-lm has it. Called
 * by linear.c, and by a unit after its factors have changed; on the computing thread. */
#ifndef LAYER_DORA_H
#define LAYER_DORA_H

#include "layer/layer.h"

static inline bool dora_is(const struct linear *lin)
{
    return lin->lora && lin->lora->m;
}

/* norm [out]: ‖row of W + s·BA‖. The sum of a row is one thread's, in f64, so it has the same bits
 * whatever the number of threads, and whichever rows of W are here. */
void dora_norms(struct num *num, float *norm, const struct linear *lin);
/* inv and gain of lora, which has m, from its norms; a row of zeros has gain 0. inv may be the
 * norms. */
void dora_gains(float *inv, float *gain, const float *norm, const float *m, size_t out);

/* y [T, out] is xWᵀ + s·xa·Bᵀ and becomes gain·y; what it was is put behind xa, unless that is
 * NULL. */
void dora_scale(struct num *num, float *y, float *xa, const struct linear *lin, size_t tokens);
/* gain·dy, behind dyb, where it is returned. */
const float *dora_back(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens);
/* dm [out] += Σ_rows dy·(what lies behind xa)/‖V‖. */
void dora_backward_m(struct num *num, float *dm, const float *dy, const float *xa, const struct linear *lin,
                     size_t tokens);

#endif
