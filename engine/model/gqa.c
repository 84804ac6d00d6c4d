/* SPDX-License-Identifier: MIT
 *
 * Grouped-query attention as a part of a block: of most families. Where the config says so with
 * biases, norms of q and k, a window, sinks, a gate, without rotation, or with q, k and v as one
 * linear.
 * Called by block.c, on the computing thread. */
#include "model/part.h"

#include <string.h>

#include "num/sizes.h"

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

/* Outputs of the queries that share a head of keys. */
static size_t q_grain(const struct config *c)
{
    return c->heads / c->kv_heads * c->head;
}

/* Of the linear whose output is taken apart: of q, k and v, or of each head's q and its gate. */
static size_t wide_width(const struct config *c)
{
    return c->fused ? q_width(c) + 2 * kv_width(c) : c->attn_gate ? 2 * q_width(c) : 0;
}

/* Of q, k or v where they are linears of their own. */
static size_t output_width(const struct config *c, size_t linear)
{
    return linear != Q ? kv_width(c) : c->attn_gate ? wide_width(c) : q_width(c);
}

static size_t output_grain(const struct config *c, size_t linear)
{
    return linear != Q ? c->head : c->attn_gate ? 2 * q_grain(c) : q_grain(c);
}

static void list_norm(struct tensor_list *list, const char *name, const struct config *c, size_t heads)
{
    tensor_add(list, name,
               (struct tensor_def){.rows = c->qk_norm_whole ? heads * c->head : c->head,
                                   .plus_one = c->norm_plus_one});
}

static void gqa_tensors(struct tensor_list *list, const struct config *c)
{
    const size_t q = q_width(c), kv = kv_width(c), of_q = q_grain(c);
    const size_t wide = c->attn_gate ? wide_width(c) : q, of_wide = c->attn_gate ? 2 * of_q : of_q;
    if (c->fused) {
        tensor_linear(list, "self_attn.qkv_proj.weight", wide_width(c), c->dim);
    } else {
        tensor_shared(list, "self_attn.q_proj.weight", wide, c->dim, of_wide);
        tensor_shared(list, "self_attn.k_proj.weight", kv, c->dim, c->head);
        tensor_shared(list, "self_attn.v_proj.weight", kv, c->dim, c->head);
    }
    tensor_shared(list, "self_attn.o_proj.weight", c->dim, q, SLICE_ANY);
    if (c->qk_norm) {
        list_norm(list, "self_attn.q_norm.weight", c, c->heads);
        list_norm(list, "self_attn.k_norm.weight", c, c->kv_heads);
    }
    if (c->sinks)
        tensor_shared(list, "self_attn.sinks", c->heads, 0, of_q / c->head);
    if (c->attn_bias) {
        tensor_shared(list, "self_attn.q_proj.bias", wide, 0, of_wide);
        tensor_shared(list, "self_attn.k_proj.bias", kv, 0, c->head);
        tensor_shared(list, "self_attn.v_proj.bias", kv, 0, c->head);
    }
    if (c->attn_out_bias)
        tensor_shared(list, "self_attn.o_proj.bias", c->dim, 0, SLICE_ANY);
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
    ret->gqa.gate = slab_floats(slab, c->attn_gate ? t : 0, q);
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
    ret->gqa.gate = slab_floats(slab, c->attn_gate ? t : 0, q);
    ret->gqa.wide = slab_floats(slab, t, wide_width(c));
    ret->gqa.sinks = slab_floats(slab, c->sinks ? t : 0, c->heads);
    for (size_t i = 0; i < linears(c); i++)
        ret->gqa.dyb[i] = slab_floats(slab, t, part_rank(l, i));
    for (size_t i = Q; i <= V; i++)
        ret->gqa.all[i] = slab_floats(slab, l->whole ? t : 0, l->whole ? output_width(l->whole, i) : 0);
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, q = q_width(c), kv = kv_width(c), caching = part_cached_rows(l),
                 apart = l->blocks || l->ring ? t : 0;
    ret->gqa.q = slab_floats(slab, t, q);
    ret->gqa.o = slab_floats(slab, caching, q);
    ret->gqa.rstd = slab_floats(slab, caching, c->heads);
    ret->gqa.xa = slab_floats(slab, caching, part_max_rank(l, 0, linears(c)));
    ret->gqa.k = slab_floats(slab, apart, kv);
    ret->gqa.v = slab_floats(slab, apart, kv);
    ret->gqa.wide = slab_floats(slab, t, wide_width(c));
    ret->gqa.gate = slab_floats(slab, c->attn_gate ? caching : 0, q);
}

static void kv_carve(union part_kv *ret, struct slab *slab, const struct part_layout *l)
{
    const size_t rows = l->ring ? l->ring : l->positions, width = l->config->kv_heads * l->config->head;
    ret->gqa.k = slab_floats(slab, rows, width);
    ret->gqa.v = slab_floats(slab, rows, width);
    ret->gqa.ring = l->ring;
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
                              .softcap = (float)c->attn_softcap,
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

/* Where the linears' outputs go, xa by linear; wide: scratch of what is taken apart. */
struct gqa_projected {
    float *q, *k, *v, *gate, *wide;
    float *const *xa;
};

static void project(const struct block_ctx *ctx, const struct gqa_projected *to, const float *h,
                    const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, q = q_width(c), kv = kv_width(c), wide = wide_width(c);
    if (!c->fused) {
        float *own = c->attn_gate ? to->wide : to->q;
        const struct linear_use uses[] = {{own, to->xa[Q], h, &w->lin[Q], t, ctx->set},
                                          {to->k, to->xa[K], h, &w->lin[K], t, ctx->set},
                                          {to->v, to->xa[V], h, &w->lin[V], t, ctx->set}};
        linear_forward_each(ctx->num, uses, 3);
        if (c->attn_gate) {
            part_columns_take(to->q, c->head, own, 2 * c->head, 0, t * c->heads);
            part_columns_take(to->gate, c->head, own, 2 * c->head, c->head, t * c->heads);
        }
        return;
    }
    const struct linear_use use = {to->wide, to->xa[QKV], h, &w->lin[QKV], t, ctx->set};
    linear_forward_each(ctx->num, &use, 1);
    part_columns_take(to->q, q, to->wide, wide, 0, t);
    part_columns_take(to->k, kv, to->wide, wide, q, t);
    part_columns_take(to->v, kv, to->wide, wide, q + kv, t);
}

/* Gradients of the outputs of q, k or v; */
static const float *own_output_back(const struct config *c, const union part_dys *d, size_t linear)
{
    const float *const own[] = {c->attn_gate ? d->gqa.wide : d->gqa.q, d->gqa.k, d->gqa.v};
    return own[linear];
}

/* and whole. */
static const float *output_back(const struct block_ctx *ctx, const union part_dys *d, size_t linear)
{
    return ctx->gather ? d->gqa.all[linear] : own_output_back(ctx->config, d, linear);
}

static void outputs_back(const struct block_ctx *ctx, float *dh, const union part_dys *d,
                         const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    const struct slice_rows inputs = part_own(ctx, c->dim, SLICE_ANY);
    const size_t t = ctx->tokens;
    float *to = part_own_dh(ctx, dh);
    if (c->attn_gate) {
        part_columns_put(d->gqa.wide, 2 * c->head, 0, d->gqa.q, c->head, t * c->heads);
        part_columns_put(d->gqa.wide, 2 * c->head, c->head, d->gqa.gate, c->head, t * c->heads);
    }
    for (size_t i = Q; i <= V; i++) {
        const float *own = own_output_back(c, d, i),
                    *dy = part_gather_back(ctx, d->gqa.all[i], own, w, i, output_grain(c, i));
        part_shared_back(ctx, to, d->gqa.dyb[i], dy, w, i, inputs, t, i > Q);
    }
    part_gather_dh(ctx, dh, t, c->dim);
}

/* What project did, backwards. */
static void project_back(const struct block_ctx *ctx, float *dh, const union part_dys *d,
                         const struct unit_weights *w)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, q = q_width(c), kv = kv_width(c), wide = wide_width(c);
    if (!c->fused) {
        outputs_back(ctx, dh, d, w);
        return;
    }
    part_columns_put(d->gqa.wide, wide, 0, d->gqa.q, q, t);
    part_columns_put(d->gqa.wide, wide, q, d->gqa.k, kv, t);
    part_columns_put(d->gqa.wide, wide, q + kv, d->gqa.v, kv, t);
    part_linear_back(ctx->num, dh, d->gqa.dyb[QKV], d->gqa.wide, &w->lin[QKV], t, false);
}

/* What o_proj is given: o, or in y o times σ of its gate. y may be o. */
static float *gated(const struct block_ctx *ctx, float *y, float *o, const float *gate)
{
    const struct config *c = ctx->config;
    if (!c->attn_gate)
        return o;
    glu_forward(ctx->num, y, gate, o, (struct glu){GLU_SIGMOID, 0}, ctx->tokens * q_width(c));
    return y;
}

/* That of what training keeps, whole. */
static const float *input_of_out(const struct block_ctx *ctx, const union part_saved *saved,
                                 const struct unit_weights *w, union part_work *work)
{
    const float *o = gated(ctx, work->gqa.q, saved->gqa.o, saved->gqa.gate);
    return part_gather_wide(ctx, o, ctx->tokens, w->lin[out_at(ctx->config)].w.cols, q_grain(ctx->config));
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, out = out_at(c);
    const struct part_gather *g = ctx->gather;
    float *q = c->qk_norm ? saved->gqa.q0 : saved->gqa.q, *k = c->qk_norm ? saved->gqa.k0 : saved->gqa.k;
    project(ctx, &(struct gqa_projected){q, k, saved->gqa.v, saved->gqa.gate, work->gqa.wide, saved->gqa.xa},
            h, w);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, saved->gqa.q, saved->gqa.rstd_q, q, w->vec[q_norm_at(c)],
                        norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, saved->gqa.k, saved->gqa.rstd_k, k, w->vec[k_norm_at(c)],
                        norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, saved->gqa.q, saved->gqa.k, false);
    attn_forward(ctx->num, saved->gqa.o, saved->gqa.lse, saved->gqa.q, saved->gqa.k, saved->gqa.v, ctx->seqs,
                 attn_dims(ctx, w));
    const float *o = input_of_out(ctx, saved, w, work);
    linear_forward(ctx->num, g ? g->own : y, saved->gqa.xa[out], o, &w->lin[out], t);
    if (g)
        part_gather_columns(ctx, y, g->own, t, c->dim, SLICE_ANY);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, out = out_at(c);
    float *dq = c->qk_norm ? d->gqa.qn : d->gqa.q, *dk = c->qk_norm ? d->gqa.kn : d->gqa.k;
    part_shared_back(ctx, work->gqa.q, d->gqa.dyb[out], dy, w, out,
                     part_own(ctx, w->lin[out].w.cols, q_grain(c)), t, false);
    if (c->attn_gate)
        glu_backward_x(ctx->num, d->gqa.gate, work->gqa.q, work->gqa.q, saved->gqa.gate, saved->gqa.o,
                       (struct glu){GLU_SIGMOID, 0}, t * q_width(c));
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

/* A norm of heads, which all add to its gradient. */
struct head_norm {
    const float *dy, *x, *rstd; /* of the own heads */
    float *all;                 /* [T, width of all], free by now */
    size_t heads, grain;        /* of all, and how many stay together */
};

static void norm_grads(const struct block_ctx *ctx, float *dw, const struct head_norm *n, size_t own)
{
    const size_t t = ctx->tokens, head = ctx->config->head;
    if (!ctx->gather) {
        rmsnorm_backward_w(ctx->num, dw, n->dy, n->rstd, n->x, norm_dims(ctx, own));
        return;
    }
    float *dy = ctx->gather->wide, *rstd = ctx->gather->own;
    part_gather_columns(ctx, dy, n->dy, t, n->heads * head, n->grain * head);
    part_gather_columns(ctx, n->all, n->x, t, n->heads * head, n->grain * head);
    part_gather_columns(ctx, rstd, n->rstd, t, n->heads, n->grain);
    rmsnorm_backward_w(ctx->num, dw, dy, rstd, n->all, norm_dims(ctx, n->heads));
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t out = out_at(c);
    for (size_t i = 0; i < out; i++)
        part_linear_grads(ctx, g, i, c->fused ? d->gqa.wide : output_back(ctx, d, i), d->gqa.dyb[i],
                          saved->gqa.xa[i], h, w, ctx->tokens);
    if (part_wants(g, out, 1))
        part_linear_grads(ctx, g, out, dy, d->gqa.dyb[out], saved->gqa.xa[out],
                          input_of_out(ctx, saved, w, work), w, ctx->tokens);
    if (c->qk_norm && g->full[q_norm_at(c)])
        norm_grads(ctx, g->full[q_norm_at(c)],
                   &(struct head_norm){d->gqa.qn, saved->gqa.q0, saved->gqa.rstd_q, d->gqa.all[Q],
                                       w->lin[out].w.cols / c->head, c->heads / c->kv_heads},
                   c->heads);
    if (c->qk_norm && g->full[k_norm_at(c)])
        norm_grads(ctx, g->full[k_norm_at(c)],
                   &(struct head_norm){d->gqa.kn, saved->gqa.k0, saved->gqa.rstd_k, d->gqa.all[K],
                                       ctx->gather ? w->whole[K].rows / c->head : 0, 1},
                   c->kv_heads);
    float *sinks = c->sinks ? g->full[sinks_at(c)] : NULL;
    if (sinks && ctx->gather)
        sinks += w->cut[sinks_at(c)].first;
    for (size_t i = 0; sinks && i < ctx->tokens * c->heads; i++)
        sinks[i % c->heads] += d->gqa.sinks[i];
}

/* Without keeping anything: q, k and v of h, rotated. */
static void project_rows(const struct block_ctx *ctx, float *q, float *k, float *v, const float *h,
                         const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    float *const xa[LINEARS] = {work->gqa.xa, work->gqa.xa, work->gqa.xa, work->gqa.xa};
    project(ctx, &(struct gqa_projected){q, k, v, work->gqa.gate, work->gqa.wide, xa}, h, w);
    if (c->qk_norm) {
        rmsnorm_forward(ctx->num, q, work->gqa.rstd, q, w->vec[q_norm_at(c)], norm_dims(ctx, c->heads));
        rmsnorm_forward(ctx->num, k, work->gqa.rstd, k, w->vec[k_norm_at(c)], norm_dims(ctx, c->kv_heads));
    }
    rotate(ctx, q, k, false);
}

/* The newest n rows of a ring, which may go on at its beginning. */
static void ring_store(float *ring, const float *x, size_t rows, size_t at, size_t n, size_t width)
{
    const size_t row = at % rows, first = min_size(n, rows - row);
    memcpy(ring + row * width, x, first * width * sizeof *x);
    memcpy(ring, x + first * width, (n - first) * width * sizeof *x);
}

/* Without keeping anything: y of the heads' output, which is in work. */
static void put_out(const struct block_ctx *ctx, float *y, const struct unit_weights *w,
                    union part_work *work)
{
    const struct linear *lin = &w->lin[out_at(ctx->config)];
    struct part_gather *g = ctx->gather;
    const size_t t = ctx->tokens;
    const float *own = gated(ctx, work->gqa.o, work->gqa.o, work->gqa.gate),
                *o = part_gather_wide(ctx, own, t, lin->w.cols, q_grain(ctx->config));
    const struct linear_use out = {g ? g->own : y, work->gqa.xa, o, lin, t, ctx->set};
    linear_forward_each(ctx->num, &out, 1);
    if (g)
        part_gather_columns(ctx, y, g->own, t, ctx->config->dim, SLICE_ANY);
}

static void forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens, width = kv_width(c), ring = kv->gqa.ring;
    float *k = ring ? work->gqa.k : kv->gqa.k + at * width, *v = ring ? work->gqa.v : kv->gqa.v + at * width;
    struct attn_dims dims = attn_dims(ctx, w);
    dims.ring = ring;
    project_rows(ctx, work->gqa.q, k, v, h, w, work);
    if (ring) {
        ring_store(kv->gqa.k, k, ring, at, t, width);
        ring_store(kv->gqa.v, v, ring, at, t, width);
    }
    attn_cached(ctx->num, work->gqa.o, work->gqa.q, kv->gqa.k, kv->gqa.v, t, at + t, dims);
    put_out(ctx, y, w, work);
}

static void attend_spans(const struct block_ctx *ctx, const union part_pool *pool, union part_work *work,
                         const struct paged_span *spans, size_t n, struct attn_dims dims)
{
    paged_store(ctx->num, &pool->gqa.k, work->gqa.k, spans, n);
    paged_store(ctx->num, &pool->gqa.v, work->gqa.v, spans, n);
    attn_paged(ctx->num, work->gqa.o, work->gqa.q, &pool->gqa.k, &pool->gqa.v, spans, n, dims);
}

/* The end of the spans from `first` on that may be stored together: in a ring, more rows of one
 * sequence would take the place of keys that the first of them see. */
static size_t stored_together(const struct paged_pool *pool, const struct paged_span *spans, size_t n,
                              size_t first)
{
    size_t i = first;
    for (size_t rows = 0; i < n; i++) {
        rows = i > first && spans[i].state == spans[i - 1].state ? rows + spans[i].n : spans[i].n;
        if (pool->ring && rows > PAGED_RING)
            break;
    }
    return i;
}

static void forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work)
{
    project_rows(ctx, work->gqa.q, work->gqa.k, work->gqa.v, h, w, work);
    for (size_t at = 0, end; at < ctx->nspans; at = end) {
        end = stored_together(&pool->gqa.k, ctx->spans, ctx->nspans, at);
        attend_spans(ctx, pool, work, ctx->spans + at, end - at, attn_dims(ctx, w));
    }
    put_out(ctx, y, w, work);
}

static void ring_copy(const struct paged_pool *pool, size_t to, size_t from)
{
    const size_t bytes = pool->ring * paged_block_bytes(pool);
    memcpy((char *)pool->data + to * bytes, (const char *)pool->data + from * bytes, bytes);
}

static void state_copy(const union part_pool *pool, const struct config *c, size_t to, size_t from)
{
    (void)c;
    ring_copy(&pool->gqa.k, to, from);
    ring_copy(&pool->gqa.v, to, from);
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
    .state_copy = state_copy,
};
