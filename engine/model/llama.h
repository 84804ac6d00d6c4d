/* SPDX-License-Identifier: MIT
 *
 * The Llama family (Touvron et al. 2023; Dubey et al. 2024): pre-norm blocks of grouped-query attention with
 * rotary positions and SwiGLU, biases where the config says so. */
#ifndef MODEL_LLAMA_H
#define MODEL_LLAMA_H

#include "model/family.h"

extern const struct family family_llama;

#endif
