/* SPDX-License-Identifier: MIT
 *
 * Norms and residual sums around a block's two parts. Called by the stage, on the computing
 * thread. */
#include "model/block.h"

#include "num/vec.h"

enum { NORM1, NORM2 }; /* the tensors of LAYER_NORMS */

const struct part *block_mlp(const struct config *c, size_t layer)
{
    return config_has_experts(c, layer) ? &part_moe : &part_mlp;
}

static struct unit_weights weights_of(const struct block *b, enum layer_part part)
{
    const size_t at = b->first[part];
    return (struct unit_weights){b->weights.lin + at, b->weights.vec + at};
}

static struct unit_grads grads_of(const struct block *b, enum layer_part part)
{
    const struct unit_grads *g = &b->grads;
    const size_t at = b->first[part];
    return (struct unit_grads){g->full + at, g->a + at, g->b + at, g->bias + at};
}

/* --- memory ----------------------------------------------------------------------------------- */

static struct part_layout part_layout(const struct block_layout *l, enum layer_part part)
{
    return (struct part_layout){l->config, l->block->weights.lin + l->block->first[part],
                                l->tokens, l->positions,
                                l->blocks, l->kv_type};
}

void block_saved_carve(struct block_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                       const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION), mlp = part_layout(l, LAYER_MLP);
    ret->rstd1 = slab_floats(slab, l->tokens, 1);
    ret->rstd2 = slab_floats(slab, l->tokens, 1);
    ret->x2 = slab_floats(slab, l->tokens, l->config->dim);
    l->block->attention->saved_carve(&ret->attention, slab, bwd_x_only, &attention);
    l->block->mlp->saved_carve(&ret->mlp, slab, bwd_x_only, &mlp);
}

void block_dys_carve(struct block_dys *ret, struct slab *slab, const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION), mlp = part_layout(l, LAYER_MLP);
    ret->dx2 = slab_floats(slab, l->tokens, l->config->dim);
    ret->dh1 = slab_floats(slab, l->tokens, l->config->dim);
    ret->dh2 = slab_floats(slab, l->tokens, l->config->dim);
    l->block->attention->dys_carve(&ret->attention, slab, &attention);
    l->block->mlp->dys_carve(&ret->mlp, slab, &mlp);
}

void block_work_carve(struct block_work *ret, struct slab *slab, const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION), mlp = part_layout(l, LAYER_MLP);
    ret->h = slab_floats(slab, l->tokens, l->config->dim);
    ret->rstd = slab_floats(slab, l->tokens, 1);
    ret->x2 = slab_floats(slab, part_cached_rows(&attention), l->config->dim);
    struct slab other = *slab;
    l->block->attention->work_carve(&ret->attention, slab, &attention);
    l->block->mlp->work_carve(&ret->mlp, &other, &mlp);
    if (part_cached_rows(&attention))
        l->block->mlp->saved_carve(&ret->mlp_saved, &other, &other, &mlp);
    slab_join(slab, &other);
}

void block_kv_carve(union part_kv *ret, struct slab *slab, const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION);
    l->block->attention->kv_carve(ret, slab, &attention);
}

void block_pool_carve(union part_pool *ret, struct slab *slab, const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION);
    l->block->attention->pool_carve(ret, slab, &attention);
}

/* --- the recipe ------------------------------------------------------------------------------- */

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx)
{
    return (struct rmsnorm_dims){ctx->tokens, ctx->config->dim, ctx->config->norm_eps, 0};
}

void block_forward(const struct block_ctx *ctx, float *y, struct block_saved *s, const float *x,
                   const struct block *b, struct block_work *work)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);
    rmsnorm_forward(ctx->num, work->h, s->rstd1, x, b->weights.vec[NORM1], norm_dims(ctx));
    b->attention->forward(ctx, s->x2, &s->attention, work->h, &attention, &work->attention);
    vec_add(ctx->num, s->x2, s->x2, x, n);
    rmsnorm_forward(ctx->num, work->h, s->rstd2, s->x2, b->weights.vec[NORM2], norm_dims(ctx));
    b->mlp->forward(ctx, y, &s->mlp, work->h, &mlp, &work->mlp);
    vec_add(ctx->num, y, y, s->x2, n);
}

void block_backward_x(const struct block_ctx *ctx, float *dx, struct block_dys *d, const float *dy,
                      const struct block_saved *s, const float *x, const struct block *b,
                      struct block_work *work)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);

    /* in the forward pass: y = x2 + mlp(norm(x2)) */
    b->mlp->backward_x(ctx, d->dh2, &d->mlp, dy, &s->mlp, &mlp, &work->mlp);
    rmsnorm_backward_x(ctx->num, d->dx2, d->dh2, s->rstd2, s->x2, b->weights.vec[NORM2], norm_dims(ctx));
    vec_add(ctx->num, d->dx2, d->dx2, dy, n);

    /* in the forward pass: x2 = x + attention(norm(x)); the lowest trained layer needs no dx */
    b->attention->backward_x(ctx, dx ? d->dh1 : NULL, &d->attention, d->dx2, &s->attention, &attention,
                             &work->attention);
    if (!dx)
        return;
    rmsnorm_backward_x(ctx->num, dx, d->dh1, s->rstd1, x, b->weights.vec[NORM1], norm_dims(ctx));
    vec_add(ctx->num, dx, dx, d->dx2, n);
}

static bool wants(const struct block *b, enum layer_part part)
{
    return part_wants(&b->grads, b->first[part], b->first[part + 1] - b->first[part]);
}

void block_backward_w(const struct block_ctx *ctx, const struct block_dys *d, const float *dy,
                      const struct block_saved *s, const float *x, const struct block *b,
                      struct block_work *work)
{
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);
    const struct unit_grads to_attention = grads_of(b, LAYER_ATTENTION), to_mlp = grads_of(b, LAYER_MLP);
    /* The normalised inputs were not kept: one pass over memory gives them again. */
    if (wants(b, LAYER_ATTENTION)) {
        rmsnorm_forward(ctx->num, work->h, work->rstd, x, b->weights.vec[NORM1], norm_dims(ctx));
        b->attention->backward_w(ctx, &to_attention, &d->attention, d->dx2, &s->attention, work->h,
                                 &attention, &work->attention);
    }
    if (wants(b, LAYER_MLP)) {
        rmsnorm_forward(ctx->num, work->h, work->rstd, s->x2, b->weights.vec[NORM2], norm_dims(ctx));
        b->mlp->backward_w(ctx, &to_mlp, &d->mlp, dy, &s->mlp, work->h, &mlp, &work->mlp);
    }
    if (b->grads.full[NORM1])
        rmsnorm_backward_w(ctx->num, b->grads.full[NORM1], d->dh1, s->rstd1, x, norm_dims(ctx));
    if (b->grads.full[NORM2])
        rmsnorm_backward_w(ctx->num, b->grads.full[NORM2], d->dh2, s->rstd2, s->x2, norm_dims(ctx));
}

/* y from x and from what attention gave for h, which lies in work->x2. */
static void end_unkept(const struct block_ctx *ctx, float *y, const float *x, const struct block *b,
                       struct block_work *work)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    const struct unit_weights mlp = weights_of(b, LAYER_MLP);
    vec_add(ctx->num, work->x2, work->x2, x, n);
    rmsnorm_forward(ctx->num, work->h, work->rstd, work->x2, b->weights.vec[NORM2], norm_dims(ctx));
    b->mlp->forward(ctx, y, &work->mlp_saved, work->h, &mlp, &work->mlp);
    vec_add(ctx->num, y, y, work->x2, n);
}

void block_forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at, const float *x,
                          const struct block *b, struct block_work *work)
{
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION);
    rmsnorm_forward(ctx->num, work->h, work->rstd, x, b->weights.vec[NORM1], norm_dims(ctx));
    b->attention->forward_cached(ctx, work->x2, kv, at, work->h, &attention, &work->attention);
    end_unkept(ctx, y, x, b, work);
}

void block_forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *x,
                         const struct block *b, struct block_work *work)
{
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION);
    rmsnorm_forward(ctx->num, work->h, work->rstd, x, b->weights.vec[NORM1], norm_dims(ctx));
    b->attention->forward_paged(ctx, work->x2, pool, work->h, &attention, &work->attention);
    end_unkept(ctx, y, x, b, work);
}
