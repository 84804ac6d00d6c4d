/* SPDX-License-Identifier: MIT
 *
 * What a LoRA factor is called in the two forms of adapters, and how it lies there. The names of
 * PEFT are the parameter's own with a prefix; mlx-lm keeps both factors transposed, and those of a
 * layer's routed experts in one tensor, which are not. Called by who reads and writes adapters;
 * pure. */
#ifndef MODEL_ADAPTER_NAMES_H
#define MODEL_ADAPTER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "model/tune.h"

#define ADAPTER_PEFT_PREFIX "base_model.model."
#define ADAPTER_PEFT_FILE "adapter_model.safetensors"
#define ADAPTER_BIN_FILE "adapter_model.bin"
#define ADAPTER_MLX_FILE "adapters.safetensors"
#define ADAPTER_STATE_FILE "training_state.safetensors"
#define ADAPTER_STATE_RECORD "record" /* JSON as words, with spaces behind it */

enum { ADAPTER_NAME = 192 };

struct mlx_factor {
    char name[ADAPTER_NAME]; /* "model.layers.3.mlp.switch_mlp.up_proj.lora_a"; where experts are woven,
                                "model.layers.3.mlp.experts.up_proj.lora_a" */
    bool expert; /* then slice `index`, [rows, cols] of it, belongs to it; else all, as [cols, rows] */
    size_t index;
};
struct mlx_factor mlx_factor_of(const struct param_def *def);

/* A target as mlx-lm's `keys` have it: "self_attn.q_proj", "mlp.switch_mlp.up_proj",
 * "mlp.experts.up_proj"; and back: "experts.*.up_proj". */
void mlx_key_of(char ret[TUNE_TARGET], const struct param_def *def);
void mlx_key_target(char ret[TUNE_TARGET], const char *key);

/* y [cols, rows] = xᵀ of x [rows, cols]. */
void factor_transpose(float *y, const float *x, size_t rows, size_t cols);

#endif
