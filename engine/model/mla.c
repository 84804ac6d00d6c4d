/* SPDX-License-Identifier: MIT
 *
 * Multi-head latent attention as a part of a block: DeepSeek-V2 and V3, queries with and without a
 * latent of their own, and V3.2, where an indexer chooses the keys (mla_index.c). Keys and values
 * are expanded in the forward pass and again in the backward pass: what is kept is the latent, a
 * fiftieth of them. Called by block.c, on the computing thread. */
#include "model/part.h"

#include <string.h>

#include "model/mla_index.h"
#include "num/sizes.h"

/* Linears in the order in which their LoRA is kept; QA only with a latent of the queries. */
enum { QB, KVA, KVB, O, QA, LINEARS };

/* Epsilon of the latents' norms, whatever rms_norm_eps says. */
static const float latent_eps = 1e-6f;

/* Where the tensors lie in the part's list; those of an indexer behind the others. */
struct places {
    size_t lin[LINEARS], kv_norm, q_norm, index;
};

static struct places places(const struct config *c)
{
    if (c->mla.q_rank)
        return (struct places){{1, 2, 3, 4, 0}, 5, 6, 7};
    return (struct places){{0, 1, 2, 3, 0}, 4, 0, 0};
}

static size_t linears(const struct config *c)
{
    return c->mla.q_rank ? LINEARS : QA;
}

static struct mla_dims mla_dims(const struct config *c)
{
    return (struct mla_dims){c->heads, c->mla.nope, c->mla.rope, c->mla.value, c->mla.kv_rank};
}

static void mla_tensors(struct tensor_list *list, const struct config *c)
{
    const struct config_mla *m = &c->mla;
    const size_t q = c->heads * c->head, kv = c->heads * (m->nope + m->value);
    if (m->q_rank) {
        tensor_linear(list, "self_attn.q_a_proj.weight", m->q_rank, c->dim);
        tensor_linear(list, "self_attn.q_b_proj.weight", q, m->q_rank);
    } else {
        tensor_linear(list, "self_attn.q_proj.weight", q, c->dim);
    }
    tensor_linear(list, "self_attn.kv_a_proj_with_mqa.weight", m->kv_rank + m->rope, c->dim);
    tensor_linear(list, "self_attn.kv_b_proj.weight", kv, m->kv_rank);
    tensor_linear(list, "self_attn.o_proj.weight", c->dim, c->heads * m->value);
    tensor_vector(list, "self_attn.kv_a_layernorm.weight", m->kv_rank);
    if (m->q_rank)
        tensor_vector(list, "self_attn.q_a_layernorm.weight", m->q_rank);
    mla_index_tensors(list, c);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    const struct config *c = l->config;
    const struct places at = places(c);
    const size_t t = l->tokens, latent = c->mla.q_rank ? t : 0;
    ret->mla.qa = slab_floats(slab, latent, c->mla.q_rank);
    ret->mla.rstd_qa = slab_floats(slab, latent, 1);
    ret->mla.q = slab_floats(bwd_x_only, t, c->heads * c->head);
    ret->mla.kva = slab_floats(slab, t, c->mla.kv_rank + c->mla.rope);
    ret->mla.rstd_kva = slab_floats(slab, t, 1);
    ret->mla.o = slab_floats(slab, t, c->heads * c->mla.value);
    ret->mla.lse = slab_floats(bwd_x_only, t, c->heads);
    ret->mla.words = mla_index_matters(l) ? min_size(l->longest, t) / 64 + 1 : 0;
    ret->mla.seen = slab_take(bwd_x_only, t, ret->mla.words, sizeof *ret->mla.seen);
    for (size_t i = 0; i < LINEARS; i++)
        ret->mla.xa[i] = slab_floats(slab, t, i < linears(c) ? part_rank(l, at.lin[i]) : 0);
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const struct places at = places(c);
    const size_t t = l->tokens, latent = c->mla.q_rank ? t : 0;
    ret->mla.qan = slab_floats(slab, latent, c->mla.q_rank);
    ret->mla.qa = slab_floats(slab, latent, c->mla.q_rank);
    ret->mla.q = slab_floats(slab, t, c->heads * c->head);
    ret->mla.kv = slab_floats(slab, t, c->heads * (c->mla.nope + c->mla.value));
    ret->mla.c = slab_floats(slab, t, c->mla.kv_rank);
    ret->mla.kva = slab_floats(slab, t, c->mla.kv_rank + c->mla.rope);
    for (size_t i = 0; i < LINEARS; i++)
        ret->mla.dyb[i] = slab_floats(slab, t, i < linears(c) ? part_rank(l, at.lin[i]) : 0);
}

/* Of the heads that generation expands at once. */
static void room_carve(struct mla_room *ret, struct slab *slab, const struct part_layout *l)
{
    const struct mla_dims d = mla_dims(l->config);
    const size_t heads = l->positions ? mla_room_heads(d, l->tokens, l->positions) : 0;
    const size_t positions = heads ? l->positions : 0, out = heads * (d.nope + d.value);
    const size_t block = positions < MLA_BLOCK ? positions : MLA_BLOCK;
    ret->heads = heads;
    ret->w = slab_floats(slab, out, d.rank);
    ret->c = slab_floats(slab, block, d.rank);
    ret->kv = slab_floats(slab, block, out);
    ret->k = slab_floats(slab, positions, heads * (d.nope + d.rope));
    ret->v = slab_floats(slab, positions, heads * d.value);
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const struct config_mla *m = &c->mla;
    const size_t t = l->tokens, caching = part_cached_rows(l), back = t - caching;
    ret->mla.q = slab_floats(slab, caching, c->heads * c->head);
    ret->mla.dk = slab_floats(slab, back, c->heads * c->head);
    ret->mla.dv = slab_floats(slab, back, c->heads * m->value);
    ret->mla.o = slab_floats(slab, t, c->heads * m->value);
    ret->mla.qa = slab_floats(slab, m->q_rank ? t : 0, m->q_rank);
    ret->mla.c = slab_floats(slab, t, m->kv_rank);
    ret->mla.kva = slab_floats(slab, caching, m->kv_rank + m->rope);
    ret->mla.rstd = slab_floats(slab, t, 1);
    ret->mla.xa = slab_floats(slab, t, part_max_rank(l, 0, linears(c)));
    const struct slab within = mla_index_carve(&ret->mla.index, slab, l);
    ret->mla.k = slab_floats(slab, back, c->heads * c->head);
    ret->mla.v = slab_floats(slab, back, c->heads * m->value);
    ret->mla.kv = slab_floats(slab, back, c->heads * (m->nope + m->value));
    struct slab other = *slab; /* a call is in one form or the other */
    ret->mla.latent_q = slab_floats(slab, caching, c->heads * (m->kv_rank + m->rope));
    ret->mla.latent_o = slab_floats(slab, caching, c->heads * m->kv_rank);
    room_carve(&ret->mla.room, &other, l);
    slab_join(slab, &other);
    slab_join(slab, &within);
}

static void kv_carve(union part_kv *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config_mla *m = &l->config->mla;
    ret->mla.latent = slab_floats(slab, l->positions, m->kv_rank + m->rope);
    ret->mla.index = mla_index_matters(l) ? slab_floats(slab, l->positions, m->index_head) : NULL;
}

static void pool_carve(union part_pool *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config_mla *m = &l->config->mla;
    part_pool_carve(&ret->mla.latent, slab, l, 1, m->kv_rank + m->rope);
    part_pool_carve(&ret->mla.index, slab, l, 1, mla_index_matters(l) ? m->index_head : 0);
}

/* --- the recipe ------------------------------------------------------------------------------- */

static struct attn_dims attn_dims(const struct config *c)
{
    return (struct attn_dims){.heads = c->heads,
                              .kv_heads = c->heads,
                              .head = c->head,
                              .scale = (float)config_attn_scale(c),
                              .value = c->mla.value};
}

/* All heads read one key, whose first part is also their value. */
static struct attn_dims absorbed_dims(const struct config *c)
{
    return (struct attn_dims){.heads = c->heads,
                              .kv_heads = 1,
                              .head = c->mla.kv_rank + c->mla.rope,
                              .scale = (float)config_attn_scale(c),
                              .value = c->mla.kv_rank,
                              .v_stride = c->mla.kv_rank + c->mla.rope};
}

static struct rmsnorm_dims q_norm_dims(const struct block_ctx *ctx)
{
    return (struct rmsnorm_dims){ctx->tokens, ctx->config->mla.q_rank, latent_eps, 0};
}

/* The latent lies before the shared key in rows of kva. */
static struct rmsnorm_dims kv_norm_dims(const struct block_ctx *ctx)
{
    const struct config_mla *m = &ctx->config->mla;
    return (struct rmsnorm_dims){ctx->tokens, m->kv_rank, latent_eps, m->kv_rank + m->rope};
}

static void rotate_q(const struct block_ctx *ctx, float *q, bool inverse)
{
    const struct config *c = ctx->config;
    rope_apply(ctx->num, q + c->mla.nope, ctx->pos, ctx->rope, ctx->tokens, c->heads, c->head, inverse);
}

static void rotate_kva(const struct block_ctx *ctx, float *kva, bool inverse)
{
    const struct config_mla *m = &ctx->config->mla;
    rope_apply(ctx->num, kva + m->kv_rank, ctx->pos, ctx->rope, ctx->tokens, 1, m->kv_rank + m->rope,
               inverse);
}

static struct mla_index_in index_in(const struct block_ctx *ctx, const float *h, const struct unit_weights *w,
                                    union part_work *work)
{
    const size_t at = places(ctx->config).index;
    return (struct mla_index_in){h, work->mla.qa, {.lin = w->lin + at, .vec = w->vec + at}, &work->mla.index};
}

/* In training, where each query may see some keys alone. */
static struct attn_dims trained_dims(const struct block_ctx *ctx, const union part_saved *s)
{
    struct attn_dims dims = attn_dims(ctx->config);
    dims.chosen = mla_index_hides(ctx) ? s->mla.seen : NULL;
    dims.chosen_words = s->mla.words;
    return dims;
}

/* Where it goes; xa by linear. */
struct projected {
    float *q, *qa, *rstd_qa, *kva, *normed;
    float *const *xa;
};

/* What h gives: q and kva, rotated; qa, rstd_qa: where the queries have a latent, it before the
 * norm. normed [T, q_rank] is scratch. */
static void project(const struct block_ctx *ctx, const struct projected *to, const float *h,
                    const struct unit_weights *w)
{
    const struct places at = places(ctx->config);
    const bool latent = ctx->config->mla.q_rank != 0;
    const size_t first = latent ? QA : QB, t = ctx->tokens;
    const struct linear_use uses[] = {
        {latent ? to->qa : to->q, to->xa[first], h, &w->lin[at.lin[first]], t, ctx->set},
        {to->kva, to->xa[KVA], h, &w->lin[at.lin[KVA]], t, ctx->set},
    };
    linear_forward_each(ctx->num, uses, 2);
    if (latent) {
        rmsnorm_forward(ctx->num, to->normed, to->rstd_qa, to->qa, w->vec[at.q_norm], q_norm_dims(ctx));
        linear_forward_each(
            ctx->num, &(struct linear_use){to->q, to->xa[QB], to->normed, &w->lin[at.lin[QB]], t, ctx->set},
            1);
    }
    rotate_q(ctx, to->q, false);
    rotate_kva(ctx, to->kva, false);
}

/* Keys and values of all heads into work, from the latents; xa and rstd are written again with the
 * same. */
static void expand(const struct block_ctx *ctx, float *rstd, float *xa, const float *kva,
                   const struct unit_weights *w, union part_work *work)
{
    const struct places at = places(ctx->config);
    rmsnorm_forward(ctx->num, work->mla.c, rstd, kva, w->vec[at.kv_norm], kv_norm_dims(ctx));
    linear_forward(ctx->num, work->mla.kv, xa, work->mla.c, &w->lin[at.lin[KVB]], ctx->tokens);
    mla_expand_forward(ctx->num, work->mla.k, work->mla.v, work->mla.kv, kva, mla_dims(ctx->config),
                       ctx->tokens);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *s, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct places at = places(ctx->config);
    const size_t t = ctx->tokens;
    project(ctx,
            &(struct projected){s->mla.q, s->mla.qa, s->mla.rstd_qa, s->mla.kva, work->mla.qa, s->mla.xa}, h,
            w);
    if (mla_index_hides(ctx)) {
        const struct mla_index_in in = index_in(ctx, h, w, work);
        mla_index_mask(ctx, s->mla.seen, s->mla.words, &in);
    }
    expand(ctx, s->mla.rstd_kva, s->mla.xa[KVB], s->mla.kva, w, work);
    attn_forward(ctx->num, s->mla.o, s->mla.lse, s->mla.q, work->mla.k, work->mla.v, ctx->seqs,
                 trained_dims(ctx, s));
    linear_forward(ctx->num, y, s->mla.xa[O], s->mla.o, &w->lin[at.lin[O]], t);
}

static void queries_back(const struct block_ctx *ctx, float *dh, union part_dys *d, const union part_saved *s,
                         const struct unit_weights *w)
{
    const struct places at = places(ctx->config);
    const size_t t = ctx->tokens;
    const struct linear *qb = &w->lin[at.lin[QB]];
    rotate_q(ctx, d->mla.q, true);
    if (!ctx->config->mla.q_rank) {
        part_linear_back(ctx->num, dh, d->mla.dyb[QB], d->mla.q, qb, t, true);
        return;
    }
    linear_backward_x(ctx->num, d->mla.qan, d->mla.dyb[QB], d->mla.q, qb, t, false);
    rmsnorm_backward_x(ctx->num, d->mla.qa, d->mla.qan, s->mla.rstd_qa, s->mla.qa, w->vec[at.q_norm],
                       q_norm_dims(ctx));
    part_linear_back(ctx->num, dh, d->mla.dyb[QA], d->mla.qa, &w->lin[at.lin[QA]], t, true);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    const struct places at = places(ctx->config);
    const size_t t = ctx->tokens;
    linear_backward_x(ctx->num, work->mla.o, d->mla.dyb[O], dy, &w->lin[at.lin[O]], t, false);
    expand(ctx, work->mla.rstd, work->mla.xa, s->mla.kva, w, work);
    attn_backward_x(ctx->num, d->mla.q, work->mla.dk, work->mla.dv, work->mla.o, s->mla.o, s->mla.lse,
                    s->mla.q, work->mla.k, work->mla.v, ctx->seqs, trained_dims(ctx, s));
    mla_expand_backward_x(ctx->num, d->mla.kv, d->mla.kva, work->mla.dk, work->mla.dv, mla_dims(ctx->config),
                          t);
    rotate_kva(ctx, d->mla.kva, true);
    linear_backward_x(ctx->num, d->mla.c, d->mla.dyb[KVB], d->mla.kv, &w->lin[at.lin[KVB]], t, false);
    rmsnorm_backward_x(ctx->num, d->mla.kva, d->mla.c, s->mla.rstd_kva, s->mla.kva, w->vec[at.kv_norm],
                       kv_norm_dims(ctx));
    part_linear_back(ctx->num, dh, d->mla.dyb[KVA], d->mla.kva, &w->lin[at.lin[KVA]], t, false);
    queries_back(ctx, dh, d, s, w);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *s, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    const struct places at = places(ctx->config);
    const bool latent = ctx->config->mla.q_rank != 0;
    /* the normalised latents were not kept */
    if (latent)
        rmsnorm_forward(ctx->num, work->mla.qa, work->mla.rstd, s->mla.qa, w->vec[at.q_norm],
                        q_norm_dims(ctx));
    rmsnorm_forward(ctx->num, work->mla.c, work->mla.rstd, s->mla.kva, w->vec[at.kv_norm], kv_norm_dims(ctx));
    const float *const in[LINEARS] = {latent ? work->mla.qa : h, h, work->mla.c, s->mla.o, h};
    const float *const dys[LINEARS] = {d->mla.q, d->mla.kva, d->mla.kv, dy, d->mla.qa};
    for (size_t i = 0; i < linears(ctx->config); i++)
        part_linear_grads(ctx, g, at.lin[i], dys[i], d->mla.dyb[i], s->mla.xa[i], in[i], w, ctx->tokens);
    if (g->full[at.kv_norm])
        rmsnorm_backward_w(ctx->num, g->full[at.kv_norm], d->mla.c, s->mla.rstd_kva, s->mla.kva,
                           kv_norm_dims(ctx));
    if (latent && g->full[at.q_norm])
        rmsnorm_backward_w(ctx->num, g->full[at.q_norm], d->mla.qan, s->mla.rstd_qa, s->mla.qa,
                           q_norm_dims(ctx));
}

/* Without keeping anything: q and, in kva, rows of the cache, the normalised latent and the rotated
 * shared key. */
static void project_rows(const struct block_ctx *ctx, const float *h, const struct unit_weights *w,
                         union part_work *work)
{
    const struct config_mla *m = &ctx->config->mla;
    float *const xa[LINEARS] = {work->mla.xa, work->mla.xa, work->mla.xa, work->mla.xa, work->mla.xa};
    project(ctx,
            &(struct projected){work->mla.q, work->mla.qa, work->mla.rstd, work->mla.kva, work->mla.qa, xa},
            h, w);
    rmsnorm_forward(ctx->num, work->mla.c, work->mla.rstd, work->mla.kva, w->vec[places(ctx->config).kv_norm],
                    kv_norm_dims(ctx));
    for (size_t i = 0; i < ctx->tokens; i++)
        memcpy(work->mla.kva + i * (m->kv_rank + m->rope), work->mla.c + i * m->kv_rank,
               m->kv_rank * sizeof *work->mla.c);
}

/* o of rows first … first+n−1 from what `spans` see in the pool. */
static void attend_absorbed(const struct block_ctx *ctx, const struct paged_pool *latent,
                            const struct paged_span *spans, size_t nspans, size_t first, size_t n,
                            const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const struct linear *kv_b = &w->lin[places(c).lin[KVB]];
    const uint32_t *set = ctx->set ? ctx->set + first : NULL;
    mla_absorb_q(ctx->num, work->mla.latent_q + first * c->heads * latent->width,
                 work->mla.q + first * c->heads * c->head, kv_b, set, mla_dims(c), n);
    attn_paged(ctx->num, work->mla.latent_o, work->mla.latent_q, latent, latent, spans, nspans,
               absorbed_dims(c));
    mla_absorb_o(ctx->num, work->mla.o + first * c->heads * c->mla.value,
                 work->mla.latent_o + first * c->heads * c->mla.kv_rank, kv_b, set, mla_dims(c), n);
}

/* o of the first t tokens of the call, which see all of the cache's len rows up to their own. */
static void attend_all(const struct block_ctx *ctx, const union part_kv *kv, size_t t, size_t len,
                       const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const struct linear *kv_b = &w->lin[places(c).lin[KVB]];
    if (mla_is_expanded(mla_dims(c), t, len)) {
        mla_expanded(ctx->num, work->mla.o, work->mla.q, kv->mla.latent, kv_b, &work->mla.room, mla_dims(c),
                     (float)config_attn_scale(c), t, len);
        return;
    }
    mla_absorb_q(ctx->num, work->mla.latent_q, work->mla.q, kv_b, NULL, mla_dims(c), t);
    attn_cached(ctx->num, work->mla.latent_o, work->mla.latent_q, kv->mla.latent, kv->mla.latent, t, len,
                absorbed_dims(c));
    mla_absorb_o(ctx->num, work->mla.o, work->mla.latent_o, kv_b, NULL, mla_dims(c), t);
}

/* o of the tokens from row `first` on, each of which sees its chosen positions alone. */
static void attend_chosen(const struct block_ctx *ctx, const union part_kv *kv, size_t at, size_t first,
                          const struct mla_index_in *in, const struct unit_weights *w, union part_work *work)
{
    const struct config_mla *m = &ctx->config->mla;
    const size_t n = ctx->tokens - first;
    const struct paged_pool latent = {kv->mla.latent, KV_F32, 1, m->kv_rank + m->rope, 0},
                            keys = {kv->mla.index, KV_F32, 1, m->index_head, 0};
    const struct paged_span rows = {
        .blocks = mla_index_blocks(in->work, at + ctx->tokens), .row = first, .at = at + first, .n = n};
    const size_t spans = mla_index_spans(ctx, &keys, &rows, 1, in);
    attend_absorbed(ctx, &latent, in->work->spans, spans, first, n, w, work);
}

static void forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work)
{
    const struct config_mla *m = &ctx->config->mla;
    const struct mla_index_in in = index_in(ctx, h, w, work);
    const size_t t = ctx->tokens, width = m->kv_rank + m->rope, top = m->index_top;
    const size_t all = !kv->mla.index ? t : at < top ? min_size(t, top - at) : 0;
    project_rows(ctx, h, w, work);
    memcpy(kv->mla.latent + at * width, work->mla.kva, t * width * sizeof *work->mla.kva);
    if (kv->mla.index) {
        mla_index_keys(ctx, &in);
        memcpy(kv->mla.index + at * m->index_head, in.work->k, t * m->index_head * sizeof *in.work->k);
    }
    if (all < t)
        attend_chosen(ctx, kv, at, all, &in, w, work);
    if (all)
        attend_all(ctx, kv, all, at + all, w, work);
    linear_forward(ctx->num, y, work->mla.xa, work->mla.o, &w->lin[places(ctx->config).lin[O]], t);
}

/* Absorbed however many rows there are: what is expanded has other bits. */
static void forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work)
{
    const struct paged_pool *keys = &pool->mla.index;
    const struct mla_index_in in = index_in(ctx, h, w, work);
    const struct linear_use out = {
        y, work->mla.xa, work->mla.o, &w->lin[places(ctx->config).lin[O]], ctx->tokens, ctx->set};
    const struct paged_span *spans = ctx->spans;
    size_t nspans = ctx->nspans;
    project_rows(ctx, h, w, work);
    paged_store(ctx->num, &pool->mla.latent, work->mla.kva, spans, nspans);
    if (keys->width) {
        mla_index_keys(ctx, &in);
        paged_store(ctx->num, keys, in.work->k, spans, nspans);
        nspans = mla_index_spans(ctx, keys, spans, nspans, &in);
        spans = in.work->spans;
    }
    attend_absorbed(ctx, &pool->mla.latent, spans, nspans, 0, ctx->tokens, w, work);
    linear_forward_each(ctx->num, &out, 1);
}

const struct part part_mla = {
    .tensors = mla_tensors,
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
