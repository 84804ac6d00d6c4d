/* SPDX-License-Identifier: MIT
 *
 * Norms and residual sums around a block's two parts. Called by the stage, on the computing
 * thread. */
#include "model/block.h"

#include <string.h>

#include "num/vec.h"

/* --- what a block is made of ------------------------------------------------------------------ */

const struct part *block_attention(const struct config *c, size_t layer)
{
    if (config_layer(c, layer).is_linear)
        return &part_delta;
    return c->mla.kv_rank ? &part_mla : &part_gqa;
}

const struct part *block_mlp(const struct config *c, size_t layer)
{
    return config_has_experts(c, layer) ? &part_moe : &part_mlp;
}

const char *block_norm_name(const struct config *c, enum block_norm norm)
{
    static const char *const names[][BLOCK_NORMS] = {
        [NORMS_BEFORE] = {"input_layernorm.weight", NULL, "post_attention_layernorm.weight", NULL},
        [NORMS_AFTER] = {NULL, "post_attention_layernorm.weight", NULL, "post_feedforward_layernorm.weight"},
        [NORMS_AROUND] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                          "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"},
    };
    return names[c->norms][norm];
}

void block_init(struct block *b, const struct config *c, size_t layer)
{
    size_t norms = 0;
    b->attention = block_attention(c, layer);
    b->mlp = block_mlp(c, layer);
    b->layer = config_layer(c, layer);
    for (enum block_norm n = 0; n < BLOCK_NORMS; n++)
        b->norm[n] = block_norm_name(c, n) ? norms++ : BLOCK_NO_NORM;
}

static bool has_norm(const struct block *b, enum block_norm norm)
{
    return b->norm[norm] != BLOCK_NO_NORM;
}

static const float *norm_of(const struct block *b, enum block_norm norm)
{
    return has_norm(b, norm) ? b->weights.vec[b->norm[norm]] : NULL;
}

static float *norm_grad(const struct block *b, enum block_norm norm)
{
    return has_norm(b, norm) ? b->grads.full[b->norm[norm]] : NULL;
}

static struct unit_weights weights_of(const struct block *b, enum layer_part part)
{
    const size_t at = b->first[part];
    return (struct unit_weights){b->weights.lin + at, b->weights.vec + at, b->weights.whole + at,
                                 b->weights.cut + at};
}

static struct unit_grads grads_of(const struct block *b, enum layer_part part)
{
    const struct unit_grads *g = &b->grads;
    const size_t at = b->first[part];
    return (struct unit_grads){g->full + at, g->a + at, g->b + at, g->bias + at, g->m + at};
}

/* --- memory ----------------------------------------------------------------------------------- */

static struct part_layout part_layout(const struct block_layout *l, enum layer_part part)
{
    return (struct part_layout){.config = l->config,
                                .whole = l->whole,
                                .lin = l->block->weights.lin + l->block->first[part],
                                .tokens = l->tokens,
                                .positions = l->positions,
                                .ring = l->ring,
                                .blocks = l->blocks,
                                .ring_blocks = l->ring_blocks,
                                .states = l->states,
                                .kept = l->kept,
                                .guesses = l->guesses,
                                .kv_type = l->kv_type,
                                .longest = l->longest};
}

/* Is what a part gives changed before it is added? */
static bool changes_output(const struct block *b, const struct config *c, enum block_norm after)
{
    return has_norm(b, after) || c->residual_scale > 0;
}

void block_saved_carve(struct block_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                       const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION), mlp = part_layout(l, LAYER_MLP);
    for (enum block_norm n = 0; n < BLOCK_NORMS; n++)
        ret->rstd[n] = has_norm(l->block, n) ? slab_floats(slab, l->tokens, 1) : NULL;
    ret->x2 = slab_floats(slab, l->tokens, l->config->dim);
    for (size_t i = 0; i < 2; i++)
        ret->out[i] = slab_floats(slab, has_norm(l->block, NORM_AFTER_ATTENTION + 2 * i) ? l->tokens : 0,
                                  l->config->dim);
    l->block->attention->saved_carve(&ret->attention, slab, bwd_x_only, &attention);
    l->block->mlp->saved_carve(&ret->mlp, slab, bwd_x_only, &mlp);
}

void block_dys_carve(struct block_dys *ret, struct slab *slab, const struct block_layout *l)
{
    const struct part_layout attention = part_layout(l, LAYER_ATTENTION), mlp = part_layout(l, LAYER_MLP);
    ret->dx2 = slab_floats(slab, l->tokens, l->config->dim);
    ret->dh1 = slab_floats(slab, l->tokens, l->config->dim);
    ret->dh2 = slab_floats(slab, l->tokens, l->config->dim);
    for (size_t i = 0; i < 2; i++)
        ret->da[i] = slab_floats(
            slab, changes_output(l->block, l->config, NORM_AFTER_ATTENTION + 2 * i) ? l->tokens : 0,
            l->config->dim);
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

/* With what its layer has of its own. */
static struct block_ctx own_ctx(const struct block_ctx *ctx, const struct block *b)
{
    struct block_ctx own = *ctx;
    const struct rope *r = ctx->ropes;
    const bool apart = b->layer.window && r[ROPE_OF_WINDOW].positions;
    own.window = b->layer.window;
    own.rope = !b->layer.is_rotated ? NULL : apart ? &r[ROPE_OF_WINDOW] : &r[ROPE_OF_ALL];
    own.rope_q = own.rope && !apart && r[ROPE_OF_QUERY].positions ? &r[ROPE_OF_QUERY] : own.rope;
    return own;
}

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx)
{
    return (struct rmsnorm_dims){ctx->tokens, ctx->config->dim, ctx->config->norm_eps, 0};
}

/* What the part after it is given: x, or x normalised, in h. */
static const float *input_of(const struct block_ctx *ctx, float *h, float *rstd, const float *x,
                             const struct block *b, enum block_norm before)
{
    if (!has_norm(b, before))
        return x;
    rmsnorm_forward(ctx->num, h, rstd, x, norm_of(b, before), norm_dims(ctx));
    return h;
}

/* y = x + what the part gave, which lies in `out` and may lie in y. */
static void add_output(const struct block_ctx *ctx, float *y, float *rstd, const float *out, const float *x,
                       const struct block *b, enum block_norm after)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    if (has_norm(b, after))
        rmsnorm_forward(ctx->num, y, rstd, out, norm_of(b, after), norm_dims(ctx));
    else if (ctx->config->residual_scale > 0)
        vec_scale(ctx->num, y, (float)ctx->config->residual_scale, n);
    vec_add(ctx->num, y, y, x, n);
}

/* The gradient of what the part gave, from dy of the sum: dy itself, or in da. */
static const float *output_back(const struct block_ctx *ctx, float *da, const float *dy, const float *rstd,
                                const float *out, const struct block *b, enum block_norm after)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    if (!changes_output(b, ctx->config, after))
        return dy;
    if (has_norm(b, after)) {
        rmsnorm_backward_x(ctx->num, da, dy, rstd, out, norm_of(b, after), norm_dims(ctx));
    } else {
        memcpy(da, dy, n * sizeof *da);
        vec_scale(ctx->num, da, (float)ctx->config->residual_scale, n);
    }
    return da;
}

/* dx = dy + what came back through the part, dh. */
static void input_back(const struct block_ctx *ctx, float *dx, const float *dh, const float *dy,
                       const float *rstd, const float *x, const struct block *b, enum block_norm before)
{
    const size_t n = ctx->tokens * ctx->config->dim;
    if (has_norm(b, before))
        rmsnorm_backward_x(ctx->num, dx, dh, rstd, x, norm_of(b, before), norm_dims(ctx));
    vec_add(ctx->num, dx, has_norm(b, before) ? dx : dh, dy, n);
}

static float *or_y(float *out, float *y, const struct block *b, enum block_norm after)
{
    return has_norm(b, after) ? out : y;
}

void block_forward(const struct block_ctx *of_all, float *y, struct block_saved *s, const float *x,
                   const struct block *b, struct block_work *work)
{
    const struct block_ctx ctx = own_ctx(of_all, b);
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);
    const float *h = input_of(&ctx, work->h, s->rstd[NORM_BEFORE_ATTENTION], x, b, NORM_BEFORE_ATTENTION);
    float *out = or_y(s->out[0], s->x2, b, NORM_AFTER_ATTENTION);
    b->attention->forward(&ctx, out, &s->attention, h, &attention, &work->attention);
    add_output(&ctx, s->x2, s->rstd[NORM_AFTER_ATTENTION], out, x, b, NORM_AFTER_ATTENTION);
    h = input_of(&ctx, work->h, s->rstd[NORM_BEFORE_MLP], s->x2, b, NORM_BEFORE_MLP);
    out = or_y(s->out[1], y, b, NORM_AFTER_MLP);
    b->mlp->forward(&ctx, out, &s->mlp, h, &mlp, &work->mlp);
    add_output(&ctx, y, s->rstd[NORM_AFTER_MLP], out, s->x2, b, NORM_AFTER_MLP);
}

void block_backward_x(const struct block_ctx *of_all, float *dx, struct block_dys *d, const float *dy,
                      const struct block_saved *s, const float *x, const struct block *b,
                      struct block_work *work)
{
    const struct block_ctx ctx = own_ctx(of_all, b);
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);

    /* in the forward pass: y = x2 + norm(mlp(norm(x2))) */
    const float *da = output_back(&ctx, d->da[1], dy, s->rstd[NORM_AFTER_MLP], s->out[1], b, NORM_AFTER_MLP);
    b->mlp->backward_x(&ctx, d->dh2, &d->mlp, da, &s->mlp, &mlp, &work->mlp);
    input_back(&ctx, d->dx2, d->dh2, dy, s->rstd[NORM_BEFORE_MLP], s->x2, b, NORM_BEFORE_MLP);

    /* in the forward pass: x2 = x + norm(attention(norm(x))); the lowest layer wants no dx */
    da = output_back(&ctx, d->da[0], d->dx2, s->rstd[NORM_AFTER_ATTENTION], s->out[0], b,
                     NORM_AFTER_ATTENTION);
    b->attention->backward_x(&ctx, dx ? d->dh1 : NULL, &d->attention, da, &s->attention, &attention,
                             &work->attention);
    if (dx)
        input_back(&ctx, dx, d->dh1, d->dx2, s->rstd[NORM_BEFORE_ATTENTION], x, b, NORM_BEFORE_ATTENTION);
}

static bool wants(const struct block *b, enum layer_part part)
{
    return part_wants(&b->grads, b->first[part], b->first[part + 1] - b->first[part]);
}

static void norms_backward_w(const struct block_ctx *ctx, const struct block_dys *d, const float *dy,
                             const struct block_saved *s, const float *x, const struct block *b)
{
    const float *const dys[BLOCK_NORMS] = {d->dh1, d->dx2, d->dh2, dy}, *const in[BLOCK_NORMS] = {
                                                                            x, s->out[0], s->x2, s->out[1]};
    for (enum block_norm n = 0; n < BLOCK_NORMS; n++)
        if (norm_grad(b, n))
            rmsnorm_backward_w(ctx->num, norm_grad(b, n), dys[n], s->rstd[n], in[n], norm_dims(ctx));
}

void block_backward_w(const struct block_ctx *of_all, const struct block_dys *d, const float *dy,
                      const struct block_saved *s, const float *x, const struct block *b,
                      struct block_work *work)
{
    const struct block_ctx ctx = own_ctx(of_all, b);
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION), mlp = weights_of(b, LAYER_MLP);
    const struct unit_grads to_attention = grads_of(b, LAYER_ATTENTION), to_mlp = grads_of(b, LAYER_MLP);
    const bool own[2] = {changes_output(b, ctx.config, NORM_AFTER_ATTENTION),
                         changes_output(b, ctx.config, NORM_AFTER_MLP)};
    /* The normalised inputs were not kept: one pass over memory gives them again. */
    if (wants(b, LAYER_ATTENTION)) {
        const float *h = input_of(&ctx, work->h, work->rstd, x, b, NORM_BEFORE_ATTENTION);
        b->attention->backward_w(&ctx, &to_attention, &d->attention, own[0] ? d->da[0] : d->dx2,
                                 &s->attention, h, &attention, &work->attention);
    }
    if (wants(b, LAYER_MLP)) {
        const float *h = input_of(&ctx, work->h, work->rstd, s->x2, b, NORM_BEFORE_MLP);
        b->mlp->backward_w(&ctx, &to_mlp, &d->mlp, own[1] ? d->da[1] : dy, &s->mlp, h, &mlp, &work->mlp);
    }
    norms_backward_w(&ctx, d, dy, s, x, b);
}

/* y from x and from what attention gave, which lies in work->x2. */
static void end_unkept(const struct block_ctx *ctx, float *y, const float *x, const struct block *b,
                       struct block_work *work)
{
    const struct unit_weights mlp = weights_of(b, LAYER_MLP);
    add_output(ctx, work->x2, work->rstd, work->x2, x, b, NORM_AFTER_ATTENTION);
    const float *h = input_of(ctx, work->h, work->rstd, work->x2, b, NORM_BEFORE_MLP);
    b->mlp->forward(ctx, y, &work->mlp_saved, h, &mlp, &work->mlp);
    add_output(ctx, y, work->rstd, y, work->x2, b, NORM_AFTER_MLP);
}

void block_forward_cached(const struct block_ctx *of_all, float *y, union part_kv *kv, size_t at,
                          const float *x, const struct block *b, struct block_work *work)
{
    const struct block_ctx ctx = own_ctx(of_all, b);
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION);
    const float *h = input_of(&ctx, work->h, work->rstd, x, b, NORM_BEFORE_ATTENTION);
    b->attention->forward_cached(&ctx, work->x2, kv, at, h, &attention, &work->attention);
    end_unkept(&ctx, y, x, b, work);
}

void block_forward_paged(const struct block_ctx *of_all, float *y, const union part_pool *pool,
                         const float *x, const struct block *b, struct block_work *work)
{
    const struct block_ctx ctx = own_ctx(of_all, b);
    const struct unit_weights attention = weights_of(b, LAYER_ATTENTION);
    const float *h = input_of(&ctx, work->h, work->rstd, x, b, NORM_BEFORE_ATTENTION);
    b->attention->forward_paged(&ctx, work->x2, pool, h, &attention, &work->attention);
    end_unkept(&ctx, y, x, b, work);
}

void block_state_copy(const struct block *b, const union part_pool *pool, const struct config *c, size_t to,
                      size_t from)
{
    if (b->attention->state_copy)
        b->attention->state_copy(pool, c, to, from);
}
