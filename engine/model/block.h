/* SPDX-License-Identifier: MIT
 *
 * The block of every family: x2 = x + attention(norm(x)), y = x2 + mlp(norm(x2)), where the parts
 * are chosen by layer, as the config says. Norms stand before the parts, after them, or both. Owns
 * no memory: the stage's slabs are carved. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include <stdint.h>

#include "model/part.h"

/* Of attention and of the MLP: before it, and of what it gives. */
enum block_norm { NORM_BEFORE_ATTENTION, NORM_AFTER_ATTENTION, NORM_BEFORE_MLP, NORM_AFTER_MLP, BLOCK_NORMS };
#define BLOCK_NO_NORM SIZE_MAX

/* A layer's weights and gradients, and where its parts' begin. */
struct block {
    const struct part *attention, *mlp;
    struct config_layer layer;
    size_t norm[BLOCK_NORMS]; /* where its weight is, or BLOCK_NO_NORM */
    struct unit_weights weights;
    struct unit_grads grads;
    size_t first[LAYER_PARTS + 1]; /* index of each part's first tensor */
};
const struct part *block_attention(const struct config *c, size_t layer);
const struct part *block_mlp(const struct config *c, size_t layer);
/* Its tensor's name in a layer; NULL: blocks have no such norm. They lie in this order. */
const char *block_norm_name(const struct config *c, enum block_norm norm);
void block_init(struct block *b, const struct config *c, size_t layer); /* all but weights and gradients */

struct block_layout {
    const struct config *config, *whole; /* as in struct part_layout */
    const struct block *block;
    size_t tokens;                             /* most tokens of a microbatch */
    size_t positions;                          /* of the cache; 0: training, scoring or serving */
    size_t ring;                               /* as in struct part_layout */
    size_t blocks;                             /* of the paged pool; 0: not serving */
    size_t ring_blocks, states, kept, guesses; /* as in struct part_layout */
    enum kv_type kv_type;
    size_t longest; /* most positions of a sequence */
};

struct block_saved {          /* from forward to backward_x and backward_w, per layer and slot */
    float *rstd[BLOCK_NORMS]; /* [T] */
    float *x2;                /* [T, dim] after attention */
    float *out[2];            /* [T, dim] of attention and MLP where a norm follows them */
    union part_saved attention, mlp;
};
struct block_dys {    /* from backward_x to backward_w */
    float *dx2;       /* [T, dim] gradient of x2 */
    float *dh1, *dh2; /* [T, dim] of the parts' inputs */
    float *da[2];     /* [T, dim] of the parts' outputs where they are not what comes from above */
    union part_dys attention, mlp;
};
struct block_work {  /* within a call; the parts' overlap */
    float *h, *rstd; /* [T, dim], [T] */
    float *x2;       /* [T, dim] generation and serving only, and so is: */
    union part_saved mlp_saved;
    union part_work attention, mlp;
};

/* bwd_x_only: for what only backward_x reads. What backward_w reads too goes into `slab`. */
void block_saved_carve(struct block_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                       const struct block_layout *l);
void block_dys_carve(struct block_dys *ret, struct slab *slab, const struct block_layout *l);
void block_work_carve(struct block_work *ret, struct slab *slab, const struct block_layout *l);
void block_kv_carve(union part_kv *ret, struct slab *slab, const struct block_layout *l);
void block_pool_carve(union part_pool *ret, struct slab *slab, const struct block_layout *l);

/* y [T, dim] from x [T, dim]; x stays valid until backward_w. */
void block_forward(const struct block_ctx *ctx, float *y, struct block_saved *saved, const float *x,
                   const struct block *b, struct block_work *work);
/* dx [T, dim] (NULL: not wanted) and dys from dy; dy stays valid until backward_w. */
void block_backward_x(const struct block_ctx *ctx, float *dx, struct block_dys *dys, const float *dy,
                      const struct block_saved *saved, const float *x, const struct block *b,
                      struct block_work *work);
void block_backward_w(const struct block_ctx *ctx, const struct block_dys *dys, const float *dy,
                      const struct block_saved *saved, const float *x, const struct block *b,
                      struct block_work *work);
/* Generation: the next ctx->tokens positions, first at position `at`. */
void block_forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at, const float *x,
                          const struct block *b, struct block_work *work);
/* Serving: the rows of ctx->spans. */
void block_forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *x,
                         const struct block *b, struct block_work *work);
/* One state of a layer over another, by number. */
void block_state_copy(const struct block *b, const union part_pool *pool, const struct config *c, size_t to,
                      size_t from);

#endif
