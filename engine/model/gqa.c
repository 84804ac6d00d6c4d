/* SPDX-License-Identifier: MIT
 *
 * Grouped-query attention as a part of a block: of most families. Where the config says so with
 * biases, norms of q and k, a window, sinks, without rotation, or with q, k and v as one linear.
 * Called by block.c, on the computing thread. */
#include "model/part.h"

/* The part's tensors in order; norms, sinks and then biases, where there are any, follow. */
enum { Q, K, V, O, LINEARS };
enum { QKV, FUSED_O, FUSED }; /* where q, k and v are one */

static size_t linears(const struct config *c)
{
    return c->fused ? FUSED : LINEARS;
}

static size_t out_at(const struct config *c)
{
    return c->fused ? FUSED_O : O;
}

static size_t q_norm_at(const struct config *c)
{
    return linears(c);
}

static size_t k_norm_at(const struct config *c)
{
    return linears(c) + 1;
}

static size_t sinks_at(const struct config *c)
{
    return linears(c) + (c->qk_norm ? 2 : 0);
}

static size_t q_width(const struct config *c)
{
    return c->heads * c->head;
}

static size_t kv_width(const struct config *c)
{
    return c->kv_heads * c->head;
}

static size_t qkv_width(const struct config *c)
{
    return q_width(c) + 2 * kv_width(c);
}

static void list_norm(struct tensor_list *list, const char *name, const struct config *c, size_t heads)
{
    tensor_add(list, name,
               (struct tensor_def){.rows = c->qk_norm_whole ? heads * c->head : c->head,
                                   .plus_one = c->norm_plus_one});
}

static void gqa_tensors(struct tensor_list *list, const struct config *c)
{
    const size_t q = q_width(c), kv = kv_width(c);
    if (c->fused) {
        tensor_linear(list, "self_attn.qkv_proj.weight", qkv_width(c), c->dim);
    } else {
        tensor_linear(list, "self_attn.q_proj.weight", q, c->dim);
        tensor_linear(list, "self_attn.k_proj.weight", kv, c->dim);
        tensor_linear(list, "self_attn.v_proj.weight", kv, c->dim);
    }
    tensor_linear(list, "self_attn.o_proj.weight", c->dim, q);
    if (c->qk_norm) {
        list_norm(list, "self_attn.q_norm.weight", c, c->heads);
        list_norm(list, "self_attn.k_norm.weight", c, c->kv_heads);
    }
    if (c->sinks)
        tensor_vector(list, "self_attn.sinks", c->heads);
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
    const size_t t = l->tokens, q = q_width(c), kv = kv_width(c), n = c->qk_norm ? t : 0;
    ret->gqa.q0 = slab_floats(slab, n, q);
    ret->gqa.k0 = slab_floats(slab, n, kv);
    ret->gqa.rstd_q = slab_floats(slab, n, c->heads);
    ret->gqa.rstd_k = slab_floats(slab, n, c->kv_heads);
    ret->gqa.q = slab_floats(bwd_x_only, t, q);
    ret->gqa.k = slab_floats(bwd_x_only, t, kv);
    ret->gqa.v = slab_floats(bwd_x_only, t, kv);
    ret->gqa.o = slab_floats(slab, t, q);
    ret->gqa.lse = slab_floats(bwd_x_only, t, c->heads);
    for (size_t i = 0; i < linears(c); i++)
        ret->gqa.xa[i] = slab_floats(slab, t, part_rank(l, i));
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = q_width(c), kv = kv_width(c), n = c->qk_norm ? t : 0;
    ret->gqa.q = slab_floats(slab, t, q);
    ret->gqa.k = slab_floats(slab, t, kv);
    ret->gqa.v = slab_floats(slab, t, kv);
    ret->gqa.qn = slab_floats(slab, n, q);
    ret->gqa.kn = slab_floats(slab, n, kv);
    ret->gqa.qkv = slab_floats(slab, c->fused ? t : 0, qkv_width(c));
    ret->gqa.sinks = slab_floats(slab, c->sinks ? t : 0, c->heads);
    for (size_t i = 0; i < linears(c); i++)
        ret->gqa.dyb[i] = slab_floats(slab, t, part_rank(l, i));
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = q_width(c), kv = kv_width(c), caching = part_cached_rows(l),
                 serving = l->blocks ? t : 0;
    ret->gqa.q = slab_floats(slab, t, q);
    ret->gqa.o = slab_floats(slab, caching, q);
    ret->gqa.rstd = slab_floats(slab, caching, c->heads);
    ret->gqa.xa = slab_floats(slab, caching, part_max_rank(l, 0, linears(c)));
    ret->gqa.k = slab_floats(slab, serving, kv);
    ret->gqa.v = slab_floats(slab, serving, kv);
    ret->gqa.qkv = slab_floats(slab, c->fused ? t : 0, qkv_width(c));
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

/* --- the recipe ------------------------------------------------------------------------------- */

static struct attn_dims attn_dims(const struct block_ctx *ctx, const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    return (struct attn_dims){.heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head = c->head,
                              .scale = (float)config_attn_scale(c),
                              .window = ctx->window,
                              .sinks = c->sinks ? w->vec[sinks_at(c)] : NULL};
}

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx, size_t heads)
{
    const struct config *c = ctx->config;
    const size_t together = c->qk_norm_whole ? heads : 1;
    return (struct rmsnorm_dims){ctx->tokens * heads / together, together * c->head, c->norm_eps, 0};
}

static void rotate(const struct block_ctx *ctx, float *q, float *k, bool inverse)
{
    const struct config *c = ctx->config;
    if (!ctx->rope)
        return;
    rope_apply(ctx->num, q, ctx->pos, ctx->rope_q, ctx->tokens, c->heads, c->head, inverse);
    rope_apply(ctx->num, k, ctx->pos, ctx->rope, ctx->tokens, c->kv_heads, c->head, inverse);
}

/* Where the linears' outputs go, xa by linear; qkv: scratch of the fused one. */
struct gqa_projected {
    float *q, *k, *v, *qkv;
    float *const *xa;
};

static void project(const struct block_ctx *ctx, const struct gqa_projected *to, const float *h,
                    const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, q = q_width(c), kv = kv_width(c), wide = qkv_width(c);
    if (!c->fused) {
        const struct linear_use uses[] = {{to->q, to->xa[Q], h, &w->lin[Q], t, ctx->set},
                                          {to->k, to->xa[K], h, &w->lin[K], t, ctx->set},
                                          {to->v, to->xa[V], h, &w->lin[V], t, ctx->set}};
        linear_forward_each(ctx->num, uses, 3);
        return;
    }
    const struct linear_use use = {to->qkv, to->xa[QKV], h, &w->lin[QKV], t, ctx->set};
    linear_forward_each(ctx->num, &use, 1);
    part_columns_take(to->q, q, to->qkv, wide, 0, t);
    part_columns_take(to->k, kv, to->qkv, wide, q, t);
    part_columns_take(to->v, kv, to->qkv, wide, q + kv, t);
}

/* What project did, backwards. */
static void project_back(const struct block_ctx *ctx, float *dh, const union part_dys *d,
                         const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, q = q_width(c), kv = kv_width(c), wide = qkv_width(c);
    if (!c->fused) {
        part_linear_back(ctx->num, dh, d->gqa.dyb[Q], d->gqa.q, &w->lin[Q], t, false);
        part_linear_back(ctx->num, dh, d->gqa.dyb[K], d->gqa.k, &w->lin[K], t, true);
        part_linear_back(ctx->num, dh, d->gqa.dyb[V], d->gqa.v, &w->lin[V], t, true);
        return;
    }
    part_columns_put(d->gqa.qkv, wide, 0, d->gqa.q, q, t);
    part_columns_put(d->gqa.qkv, wide, q, d->gqa.k, kv, t);
    part_columns_put(d->gqa.qkv, wide, q + kv, d->gqa.v, kv, t);
    part_linear_back(ctx->num, dh, d->gqa.dyb[QKV], d->gqa.qkv, &w->lin[QKV], t, false);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, out = out_at(c);
    float *q = c->qk_norm ? saved->gqa.q0 : saved->gqa.q, *k = c->qk_norm ? saved->gqa.k0 : saved->gqa.k;
    project(ctx, &(struct gqa_projected){q, k, saved->gqa.v, work->gqa.qkv, saved->gqa.xa}, h, w);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, saved->gqa.q, saved->gqa.rstd_q, q, w->vec[q_norm_at(c)],
                        norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, saved->gqa.k, saved->gqa.rstd_k, k, w->vec[k_norm_at(c)],
                        norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, saved->gqa.q, saved->gqa.k, false);
    attn_forward(ctx->num, saved->gqa.o, saved->gqa.lse, saved->gqa.q, saved->gqa.k, saved->gqa.v, ctx->seqs,
                 attn_dims(ctx, w));
    linear_forward(ctx->num, y, saved->gqa.xa[out], saved->gqa.o, &w->lin[out], t);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, out = out_at(c);
    float *dq = c->qk_norm ? d->gqa.qn : d->gqa.q, *dk = c->qk_norm ? d->gqa.kn : d->gqa.k;
    linear_backward_x(ctx->num, work->gqa.q, d->gqa.dyb[out], dy, &w->lin[out], t, false);
    attn_backward_x(ctx->num, dq, dk, d->gqa.v, work->gqa.q, saved->gqa.o, saved->gqa.lse, saved->gqa.q,
                    saved->gqa.k, saved->gqa.v, ctx->seqs, attn_dims(ctx, w));
    if (c->sinks)
        attn_sinks_backward(ctx->num, d->gqa.sinks, work->gqa.q, saved->gqa.o, saved->gqa.lse, t,
                            attn_dims(ctx, w));
    rotate(ctx, dq, dk, true);
    if (c->qk_norm) {
        rmsnorm_backward_x(ctx->num, d->gqa.q, dq, saved->gqa.rstd_q, saved->gqa.q0, w->vec[q_norm_at(c)],
                           norm_dims(ctx, c->heads));
        rmsnorm_backward_x(ctx->num, d->gqa.k, dk, saved->gqa.rstd_k, saved->gqa.k0, w->vec[k_norm_at(c)],
                           norm_dims(ctx, c->kv_heads));
    }
    project_back(ctx, dh, d, w);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    (void)work;
    const struct config *c = ctx->config;
    const float *const apart[LINEARS] = {d->gqa.q, d->gqa.k, d->gqa.v, dy};
    const float *const together[FUSED] = {d->gqa.qkv, dy};
    for (size_t i = 0; i < linears(c); i++)
        part_linear_grads(ctx->num, g, i, c->fused ? together[i] : apart[i], d->gqa.dyb[i], saved->gqa.xa[i],
                          i == out_at(c) ? saved->gqa.o : h, w, ctx->tokens);
    if (c->qk_norm && g->full[q_norm_at(c)])
        rmsnorm_backward_w(ctx->num, g->full[q_norm_at(c)], d->gqa.qn, saved->gqa.rstd_q, saved->gqa.q0,
                           norm_dims(ctx, c->heads));
    if (c->qk_norm && g->full[k_norm_at(c)])
        rmsnorm_backward_w(ctx->num, g->full[k_norm_at(c)], d->gqa.kn, saved->gqa.rstd_k, saved->gqa.k0,
                           norm_dims(ctx, c->kv_heads));
    float *sinks = c->sinks ? g->full[sinks_at(c)] : NULL;
    for (size_t i = 0; sinks && i < ctx->tokens * c->heads; i++)
        sinks[i % c->heads] += d->gqa.sinks[i];
}

/* Without keeping anything: q, k and v of h, rotated. */
static void project_rows(const struct block_ctx *ctx, float *q, float *k, float *v, const float *h,
                         const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    float *const xa[LINEARS] = {work->gqa.xa, work->gqa.xa, work->gqa.xa, work->gqa.xa};
    project(ctx, &(struct gqa_projected){q, k, v, work->gqa.qkv, xa}, h, w);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, q, work->gqa.rstd, q, w->vec[q_norm_at(c)], norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, k, work->gqa.rstd, k, w->vec[k_norm_at(c)], norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, q, k, false);
}

static void forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, width = kv_width(c);
    project_rows(ctx, work->gqa.q, kv->gqa.k + at * width, kv->gqa.v + at * width, h, w, work);
    attn_cached(ctx->num, work->gqa.o, work->gqa.q, kv->gqa.k, kv->gqa.v, t, at + t, attn_dims(ctx, w));
    linear_forward(ctx->num, y, work->gqa.xa, work->gqa.o, &w->lin[out_at(c)], t);
}

static void forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work)
{
    const struct linear_use out = {y,           work->gqa.xa, work->gqa.o, &w->lin[out_at(ctx->config)],
                                   ctx->tokens, ctx->set};
    project_rows(ctx, work->gqa.q, work->gqa.k, work->gqa.v, h, w, work);
    paged_store(ctx->num, &pool->gqa.k, work->gqa.k, ctx->spans, ctx->nspans);
    paged_store(ctx->num, &pool->gqa.v, work->gqa.v, ctx->spans, ctx->nspans);
    attn_paged(ctx->num, work->gqa.o, work->gqa.q, &pool->gqa.k, &pool->gqa.v, ctx->spans, ctx->nspans,
               attn_dims(ctx, w));
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
