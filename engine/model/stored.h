/* SPDX-License-Identifier: MIT
 *
 * How a tensor of the model lies in files: under its own name as it is, quantized with its scales
 * and biases beside it (MLX's layout, which is ours too), as a slice of a stack of experts (MLX's
 * too), or woven with others: transformers keeps gpt-oss's experts as
 *   gate_up_proj [experts, in, 2·out], each matrix turned, gate and up by turns in the last extent,
 *   down_proj [experts, in, out], and biases [experts, 2·out] and [experts, out];
 * releases have instead of the matrices, in MXFP4 and not turned,
 *   gate_up_proj_blocks [experts, 2·out, in/32, 16], …_scales [experts, 2·out, in/32], likewise
 *   down_proj.
 * Qwen3.5's are not turned: gate_up_proj [experts, 2·out, in], all of gate first, and down_proj.
 * compressed-tensors has beside X.weight, or in its place, X.weight_packed, X.weight_scale,
 * X.weight_zero_point and X.weight_shape; see stored_centred.h. */
#ifndef MODEL_STORED_H
#define MODEL_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "file/st.h"
#include "model/family.h"
#include "num/gemm.h"

enum { STORED_NAME = TENSOR_NAME + 32 };

struct stored {
    const struct st_tensor *t;    /* what holds it; borrowed: the set */
    const struct st_tensor *rest; /* the other tensor that holds it (struct mat_rest), or NULL */
    const void *data;             /* its own part of it */
    size_t elements,
        bytes;         /* of that part, scales and biases not counted; elements: where it is not quantized */
    size_t step, down; /* where they lie apart, as of struct mat; of a vector `step` elements */
    bool is_quantized;
    struct quant quant; /* bits and group are what the shapes say */
};

/* Finds the tensor and compares it with what the family wants. false, and in `why` a part of a
 * sentence that names it: it is missing, misshapen, or of a type that is not computed with here.
 * `fp8`: a linear may be F8_E4M3. */
bool stored_find(struct stored *ret, const struct st *st, const struct tensor_def *def, bool fp8, char *why,
                 size_t size);

/* The matrix as products want it; `quant` (borrowed by it) is filled where it is quantized. scale:
 * of FP8, or NULL. */
struct mat stored_mat(const struct stored *s, const struct tensor_def *def, struct quant *quant,
                      const float *scale);

/* What lies beside an FP8 matrix, as X.weight_scale_inv or (compressed-tensors) X.weight_scale: a
 * scale for each block of 128 × 128; `rows`: for each row, which a file may have one of for all. */
size_t stored_scale_count(const struct tensor_def *def, bool rows);
/* Fills ret [stored_scale_count], or with NULL says whether it could. false, and `why`, as
 * stored_find. */
bool stored_scales(float *ret, const struct st *st, const struct tensor_def *def, bool rows, char *why,
                   size_t size);
/* Are these scales of an FP8 tensor in the same set? */
bool stored_is_scales(const struct st *st, const char *name);

/* All of it as f32, in the order of its rows; not of what is quantized. */
void stored_to_f32(const struct stored *s, const struct tensor_def *def, float *ret);

/* What ends the names of the two tensors that a kv_b_proj may be stored as: keys, turned for each
 * head, [heads, rank, nope], and values [heads, value, rank]. */
#define STORED_KEYS ".keys.weight"
#define STORED_VALUES ".values.weight"

/* And those of the two that an in_proj_qkvz may be stored as, see struct mat_rest. */
#define STORED_QKVZ ".in_proj_qkvz.weight"
#define STORED_QKV ".in_proj_qkvz.qkv.weight"
#define STORED_Z ".in_proj_qkvz.z.weight"

/* The tensor of the model that a name in a file belongs to: that of a matrix for its scales, one
 * expert's for a stack, the whole one for a part. */
void stored_model_name(char ret[STORED_NAME], const char *name);
/* Length of "X" in "X.weight", or of the whole name. */
size_t stored_stem(const char *name);
/* "X.weight" → "X.scales" or "X.biases". */
void stored_side_name(char ret[STORED_NAME], const char *name, const char *side);

/* The name in mlx-lm's files of the stack that an expert's tensor is in, and which one of it that
 * is. false: it is no expert's. */
bool stored_stack_name(char ret[STORED_NAME], size_t *ret_expert, const struct tensor_def *def);
/* What transformers calls a woven tensor; false: it is none. It holds rows of `ways` of ours, of
 * which this is number `way`. */
struct stored_woven {
    size_t expert, way, ways;
};
bool stored_woven_name(char ret[STORED_NAME], struct stored_woven *ret_at, const struct tensor_def *def);

/* The module of a matrix as mlx-lm names it: "X.weight" → "X", one of its stack for an expert. */
void stored_module_name(char ret[STORED_NAME], const struct tensor_def *def);

/* Is this a matrix that is worth quantizing? Routers are not: they are small, and choose. */
bool stored_is_quantizable(const struct tensor_def *def);
/* Bytes of a matrix quantized here, with scales and biases. */
size_t stored_quantized_bytes(const struct tensor_def *def, size_t bits, size_t group, enum quant_kind kind);

#endif
