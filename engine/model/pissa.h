/* SPDX-License-Identifier: MIT
 *
 * Factors that begin with the principal part of a weight: PiSSA (Meng et al. 2024, equations 2 to
 * 4). With W ≈ Σ σ·u·vᵀ over the r largest singular values, A has rows √(σ/s)·vᵀ and B has columns
 * √(σ/s)·u, so that s·BA is that sum. What is trained is W − s·B₀A₀ + s·BA. The weights of the
 * model are not changed: behind the r of A and B lie A₀ and −B₀, which stay as they are. So the
 * adapter is a plain LoRA of rank 2r for the model's own weights, as PEFT makes one of its own
 * when it converts (save_pretrained with path_initial_model_for_weight_conversion). */
#ifndef MODEL_PISSA_H
#define MODEL_PISSA_H

#include <stdint.h>

#include "layer/layer.h"

/* Fills a [rank, in] and b [out, rank] of lin, of whose rank one half is fixed. The singular
 * vectors come from a subspace that is iterated (Halko et al. 2011, algorithm 4.4), from random
 * numbers of seed and name on: the bits follow from these, the weight, and the kind of CPU alone.
 * −ENOMEM. */
int pissa_init(struct num *num, float *a, float *b, const struct linear *lin, uint64_t seed,
               const char *name);

#endif
