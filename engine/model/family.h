/* SPDX-License-Identifier: MIT
 *
 * A model family: which tensors a unit of the model holds, and the recipe of its block. One file per family
 * fills one of these; nothing else in the engine knows a tensor's name. Units: 0 embedding, 1 … layers,
 * layers + 1 final norm and head. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file/config.h"
#include "layer/layer.h"
#include "num/slab.h"

enum { UNIT_MAX_TENSORS = 16, TENSOR_NAME = 96 };

struct tensor_def {
    char name[TENSOR_NAME]; /* "model.layers.3.self_attn.q_proj.weight" */
    size_t rows, cols;      /* cols = 0: a vector of `rows` */
    bool linear;            /* LoRA may be put on it */
};

/* What a block works on, beside its weights: the same for every layer of a microbatch. */
struct block_ctx {
    struct num *num;             /* borrowed */
    const struct config *config; /* borrowed */
    const struct rope *rope;     /* borrowed */
    struct seqs seqs;            /* training and scoring: whole sequences */
    const uint32_t *pos;         /* [tokens] position of each token in its sequence */
    size_t tokens;
};

/* The weights of one unit, as the block wants them: entry i belongs to tensor_def i. */
struct unit_weights {
    struct linear lin[UNIT_MAX_TENSORS]; /* matrices, with LoRA where there is one */
    const float *vec[UNIT_MAX_TENSORS];  /* vectors, f32 */
};

/* Where the gradients of the weights are added, NULL where there is none to add. */
struct unit_grads {
    float *full[UNIT_MAX_TENSORS];
    float *a[UNIT_MAX_TENSORS], *b[UNIT_MAX_TENSORS];
};

/* What a block keeps between tasks, opaque to the stage: carved from a slab by the family. */
struct block_saved; /* from forward to backward_x and backward_w, per layer and slot */
struct block_dys;   /* from backward_x to backward_w: output gradients of each linear */
struct block_work;  /* within a call */
struct block_kv;    /* keys and values of the positions so far, per layer */

struct block_layout {
    const struct config *config;
    const struct unit_weights *weights; /* which linears have LoRA, and of what rank */
    size_t tokens;                      /* most tokens of a microbatch */
    size_t positions;                   /* of block_kv */
};

struct family {
    const char *model_type;
    /* Fills ret[] (room for UNIT_MAX_TENSORS, or NULL) and returns how many tensors the unit holds. */
    size_t (*tensors)(const struct config *config, size_t unit, struct tensor_def *ret);

    struct block_saved *(*saved_carve)(struct slab *slab, const struct block_layout *layout);
    struct block_dys *(*dys_carve)(struct slab *slab, const struct block_layout *layout);
    struct block_work *(*work_carve)(struct slab *slab, const struct block_layout *layout);
    struct block_kv *(*kv_carve)(struct slab *slab, const struct block_layout *layout);

    /* y [T, dim] from x [T, dim]; x stays valid until backward_w. */
    void (*forward)(const struct block_ctx *ctx, float *y, struct block_saved *saved, const float *x,
                    const struct unit_weights *w, struct block_work *work);
    /* dx [T, dim] (NULL: not wanted) and dys from dy; dy stays valid until backward_w. */
    void (*backward_x)(const struct block_ctx *ctx, float *dx, struct block_dys *dys, const float *dy,
                       const struct block_saved *saved, const float *x, const struct unit_weights *w,
                       struct block_work *work);
    void (*backward_w)(const struct block_ctx *ctx, const struct unit_grads *grads,
                       const struct block_dys *dys, const float *dy, const struct block_saved *saved,
                       const float *x, const struct unit_weights *w, struct block_work *work);
    /* Generation: the next ctx->tokens positions, first at position `at`. */
    void (*forward_cached)(const struct block_ctx *ctx, float *y, struct block_kv *kv, size_t at,
                           const float *x, const struct unit_weights *w, struct block_work *work);
};

/* NULL if we do not know the family. */
const struct family *family_find(const char *model_type);

/* Index of `name` among a unit's tensors, or −1. */
int family_tensor_index(const struct family *f, const struct config *config, size_t unit, const char *name);

#endif
