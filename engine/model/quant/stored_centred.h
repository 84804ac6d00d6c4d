/* SPDX-License-Identifier: MIT
 *
 * Matrices of whole numbers as compressed-tensors keeps them, the format of vLLM's llm-compressor
 * (github.com/vllm-project/compressed-tensors, formats pack-quantized and int-quantized):
 *   X.weight_packed      I32 [rows, cols · bits / 32], numbers plus 2^(bits − 1), lowest bits first
 *   X.weight_scale       [rows, groups], or [rows, 1]: a scale for each row
 *   X.weight_zero_point  I32 [rows · bits / 32, groups], packed down the columns (the last word may
 *                        have fewer); or none
 *   X.weight_shape       [2], which config.json says as well
 * or X.weight I8 [rows, cols] with X.weight_scale alone; and its MXFP4, X.weight_packed U8 [rows,
 * cols / 2] with X.weight_scale U8 [rows, cols / 32]. Private to stored.c. */
#ifndef MODEL_QUANT_STORED_CENTRED_H
#define MODEL_QUANT_STORED_CENTRED_H

#include <stdbool.h>
#include <stddef.h>

#include "file/st.h"
#include "model/tensor_def.h"
#include "num/quant.h"

/* The tensor of the matrix's numbers if it is stored like this, else NULL. `ret` is filled then, or
 * `why` says what cannot be read of it, as that of stored_find. */
const struct st_tensor *stored_find_centred(struct quant *ret, const struct st *st,
                                            const struct tensor_def *def, char *why, size_t size);

#endif
