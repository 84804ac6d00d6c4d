/* SPDX-License-Identifier: MIT
 *
 * Grouped-query attention with rotary positions as a part of a block: Llama, Mistral, Qwen. Biases
 * and norms of q and k (over each head) where the config says so. Called by block.c, on the
 * computing thread. */
#include "model/part.h"

/* The part's tensors in order; norms and then biases, where there are any, follow. */
enum { Q, K, V, O, LINEARS, QN = LINEARS, KN };

static void gqa_tensors(struct tensor_list *list, const struct config *c)
{
    const size_t q = c->heads * c->head, kv = c->kv_heads * c->head;
    tensor_linear(list, "self_attn.q_proj.weight", q, c->dim);
    tensor_linear(list, "self_attn.k_proj.weight", kv, c->dim);
    tensor_linear(list, "self_attn.v_proj.weight", kv, c->dim);
    tensor_linear(list, "self_attn.o_proj.weight", c->dim, q);
    if (c->qk_norm) {
        tensor_vector(list, "self_attn.q_norm.weight", c->head);
        tensor_vector(list, "self_attn.k_norm.weight", c->head);
    }
    if (c->attn_bias) {
        tensor_vector(list, "self_attn.q_proj.bias", q);
        tensor_vector(list, "self_attn.k_proj.bias", kv);
        tensor_vector(list, "self_attn.v_proj.bias", kv);
    }
    if (c->attn_out_bias)
        tensor_vector(list, "self_attn.o_proj.bias", c->dim);
}

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = c->heads * c->head, kv = c->kv_heads * c->head, n = c->qk_norm ? t : 0;
    ret->gqa.q0 = slab_floats(slab, n, q);
    ret->gqa.k0 = slab_floats(slab, n, kv);
    ret->gqa.rstd_q = slab_floats(slab, n, c->heads);
    ret->gqa.rstd_k = slab_floats(slab, n, c->kv_heads);
    ret->gqa.q = slab_floats(bwd_x_only, t, q);
    ret->gqa.k = slab_floats(bwd_x_only, t, kv);
    ret->gqa.v = slab_floats(bwd_x_only, t, kv);
    ret->gqa.o = slab_floats(slab, t, q);
    ret->gqa.lse = slab_floats(bwd_x_only, t, c->heads);
    for (size_t i = 0; i < LINEARS; i++)
        ret->gqa.xa[i] = slab_floats(slab, t, part_rank(l, i));
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = c->heads * c->head, kv = c->kv_heads * c->head, n = c->qk_norm ? t : 0;
    ret->gqa.q = slab_floats(slab, t, q);
    ret->gqa.k = slab_floats(slab, t, kv);
    ret->gqa.v = slab_floats(slab, t, kv);
    ret->gqa.qn = slab_floats(slab, n, q);
    ret->gqa.kn = slab_floats(slab, n, kv);
    for (size_t i = 0; i < LINEARS; i++)
        ret->gqa.dyb[i] = slab_floats(slab, t, part_rank(l, i));
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = c->heads * c->head, kv = c->kv_heads * c->head,
                 caching = part_cached_rows(l), serving = l->blocks ? t : 0;
    ret->gqa.q = slab_floats(slab, t, q);
    ret->gqa.o = slab_floats(slab, caching, q);
    ret->gqa.rstd = slab_floats(slab, caching, c->heads);
    ret->gqa.xa = slab_floats(slab, caching, part_max_rank(l, Q, LINEARS));
    ret->gqa.k = slab_floats(slab, serving, kv);
    ret->gqa.v = slab_floats(slab, serving, kv);
}

static void kv_carve(union part_kv *ret, struct slab *slab, const struct part_layout *l)
{
    const size_t width = l->config->kv_heads * l->config->head;
    ret->gqa.k = slab_floats(slab, l->positions, width);
    ret->gqa.v = slab_floats(slab, l->positions, width);
}

static void pool_carve(union part_pool *ret, struct slab *slab, const struct part_layout *l)
{
    part_pool_carve(&ret->gqa.k, slab, l, l->config->kv_heads, l->config->head);
    part_pool_carve(&ret->gqa.v, slab, l, l->config->kv_heads, l->config->head);
}

static struct attn_dims attn_dims(const struct config *c)
{
    return (struct attn_dims){
        .heads = c->heads, .kv_heads = c->kv_heads, .head = c->head, .scale = (float)config_attn_scale(c)};
}

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx, size_t heads)
{
    return (struct rmsnorm_dims){ctx->tokens * heads, ctx->config->head, ctx->config->norm_eps, 0};
}

static void rotate(const struct block_ctx *ctx, float *q, float *k, bool inverse)
{
    const struct config *c = ctx->config;
    rope_apply(ctx->num, q, ctx->pos, ctx->rope, ctx->tokens, c->heads, c->head, inverse);
    rope_apply(ctx->num, k, ctx->pos, ctx->rope, ctx->tokens, c->kv_heads, c->head, inverse);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    (void)work;
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens;
    float *q = c->qk_norm ? saved->gqa.q0 : saved->gqa.q, *k = c->qk_norm ? saved->gqa.k0 : saved->gqa.k;
    const struct linear_use uses[] = {{q, saved->gqa.xa[Q], h, &w->lin[Q], t, NULL},
                                      {k, saved->gqa.xa[K], h, &w->lin[K], t, NULL},
                                      {saved->gqa.v, saved->gqa.xa[V], h, &w->lin[V], t, NULL}};
    linear_forward_each(ctx->num, uses, 3);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, saved->gqa.q, saved->gqa.rstd_q, q, w->vec[QN], norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, saved->gqa.k, saved->gqa.rstd_k, k, w->vec[KN],
                        norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, saved->gqa.q, saved->gqa.k, false);
    attn_forward(ctx->num, saved->gqa.o, saved->gqa.lse, saved->gqa.q, saved->gqa.k, saved->gqa.v, ctx->seqs,
                 attn_dims(c));
    linear_forward(ctx->num, y, saved->gqa.xa[O], saved->gqa.o, &w->lin[O], t);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens;
    float *dq = c->qk_norm ? d->gqa.qn : d->gqa.q, *dk = c->qk_norm ? d->gqa.kn : d->gqa.k;
    linear_backward_x(ctx->num, work->gqa.q, d->gqa.dyb[O], dy, &w->lin[O], t, false);
    attn_backward_x(ctx->num, dq, dk, d->gqa.v, work->gqa.q, saved->gqa.o, saved->gqa.lse, saved->gqa.q,
                    saved->gqa.k, saved->gqa.v, ctx->seqs, attn_dims(c));
    rotate(ctx, dq, dk, true);
    if (c->qk_norm) {
        rmsnorm_backward_x(ctx->num, d->gqa.q, dq, saved->gqa.rstd_q, saved->gqa.q0, w->vec[QN],
                           norm_dims(ctx, c->heads));
        rmsnorm_backward_x(ctx->num, d->gqa.k, dk, saved->gqa.rstd_k, saved->gqa.k0, w->vec[KN],
                           norm_dims(ctx, c->kv_heads));
    }
    part_linear_back(ctx->num, dh, d->gqa.dyb[Q], d->gqa.q, &w->lin[Q], t, false);
    part_linear_back(ctx->num, dh, d->gqa.dyb[K], d->gqa.k, &w->lin[K], t, true);
    part_linear_back(ctx->num, dh, d->gqa.dyb[V], d->gqa.v, &w->lin[V], t, true);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    (void)work;
    const struct config *c = ctx->config;
    const float *const dys[LINEARS] = {d->gqa.q, d->gqa.k, d->gqa.v, dy};
    for (size_t i = 0; i < LINEARS; i++)
        part_linear_grads(ctx->num, g, i, dys[i], d->gqa.dyb[i], saved->gqa.xa[i], i == O ? saved->gqa.o : h,
                          w, ctx->tokens);
    if (c->qk_norm && g->full[QN])
        rmsnorm_backward_w(ctx->num, g->full[QN], d->gqa.qn, saved->gqa.rstd_q, saved->gqa.q0,
                           norm_dims(ctx, c->heads));
    if (c->qk_norm && g->full[KN])
        rmsnorm_backward_w(ctx->num, g->full[KN], d->gqa.kn, saved->gqa.rstd_k, saved->gqa.k0,
                           norm_dims(ctx, c->kv_heads));
}

/* Without keeping anything: q, k and v of h, rotated. */
static void project(const struct block_ctx *ctx, float *q, float *k, float *v, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens;
    float *xa = work->gqa.xa;
    const struct linear_use uses[] = {{q, xa, h, &w->lin[Q], t, ctx->set},
                                      {k, xa, h, &w->lin[K], t, ctx->set},
                                      {v, xa, h, &w->lin[V], t, ctx->set}};
    linear_forward_each(ctx->num, uses, 3);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, q, work->gqa.rstd, q, w->vec[QN], norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, k, work->gqa.rstd, k, w->vec[KN], norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, q, k, false);
}

static void forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, width = c->kv_heads * c->head;
    project(ctx, work->gqa.q, kv->gqa.k + at * width, kv->gqa.v + at * width, h, w, work);
    attn_cached(ctx->num, work->gqa.o, work->gqa.q, kv->gqa.k, kv->gqa.v, t, at + t, attn_dims(c));
    linear_forward(ctx->num, y, work->gqa.xa, work->gqa.o, &w->lin[O], t);
}

static void forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work)
{
    const struct linear_use out = {y, work->gqa.xa, work->gqa.o, &w->lin[O], ctx->tokens, ctx->set};
    project(ctx, work->gqa.q, work->gqa.k, work->gqa.v, h, w, work);
    paged_store(ctx->num, &pool->gqa.k, work->gqa.k, ctx->spans, ctx->nspans);
    paged_store(ctx->num, &pool->gqa.v, work->gqa.v, ctx->spans, ctx->nspans);
    attn_paged(ctx->num, work->gqa.o, work->gqa.q, &pool->gqa.k, &pool->gqa.v, ctx->spans, ctx->nspans,
               attn_dims(ctx->config));
    linear_forward_each(ctx->num, &out, 1);
}

const struct part part_gqa = {
    .tensors = gqa_tensors,
    .saved_carve = saved_carve,
    .dys_carve = dys_carve,
    .work_carve = work_carve,
    .kv_carve = kv_carve,
    .pool_carve = pool_carve,
    .forward = forward,
    .backward_x = backward_x,
    .backward_w = backward_w,
    .forward_cached = forward_cached,
    .forward_paged = forward_paged,
};
