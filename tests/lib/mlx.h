/* SPDX-License-Identifier: MIT
 *
 * Writes a model as mlx-lm converts and quantizes it: packed words with scales and biases, experts
 * in stacks. Packed here, without the engine's own quantizing. */
#ifndef TESTS_LIB_MLX_H
#define TESTS_LIB_MLX_H

#include "file/config.h"

struct mlx_how {
    size_t bits, group; /* bits 0: as mlx-lm converts without quantizing, experts in stacks all the same */
    bool fp4;           /* MXFP4, of 4 bits in groups of 32 */
    bool half;          /* scales and biases in F16; else BF16 */
    bool overrides;     /* every o_proj, router and the first down_proj in 8 bits, the embedding not at all */
};

/* From the model in `plain` (f32, one file) into `dir`. The weights of `plain` become what the
 * quantized ones stand for. Writes no config.json. */
void mlx_convert(const char *plain, const char *dir, const struct config *c, struct mlx_how how);

#endif
