/* SPDX-License-Identifier: MIT
 *
 * Which tensors a Llama holds, and its block: ten visible calls forward, ten back. Called by the stage. */
#include "model/llama.h"

#include "num/vec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The tensors of a layer in the order of the list below: the index is how the recipe finds its weights. */
enum { NORM1, NORM2, Q, K, V, O, GATE, UP, DOWN, LAYER_FIXED };
enum { LINEAR_FIRST = Q, LINEARS = LAYER_FIXED - Q };

static void def_set(struct tensor_def *def, size_t layer, const char *suffix, size_t rows, size_t cols)
{
    *def = (struct tensor_def){.rows = rows, .cols = cols, .linear = cols > 0};
    snprintf(def->name, sizeof def->name, "model.layers.%zu.%s", layer, suffix);
}

static size_t layer_tensors(const struct config *c, size_t layer, struct tensor_def *d)
{
    size_t q = c->heads * c->head, kv = c->kv_heads * c->head;
    def_set(&d[NORM1], layer, "input_layernorm.weight", c->dim, 0);
    def_set(&d[NORM2], layer, "post_attention_layernorm.weight", c->dim, 0);
    def_set(&d[Q], layer, "self_attn.q_proj.weight", q, c->dim);
    def_set(&d[K], layer, "self_attn.k_proj.weight", kv, c->dim);
    def_set(&d[V], layer, "self_attn.v_proj.weight", kv, c->dim);
    def_set(&d[O], layer, "self_attn.o_proj.weight", c->dim, q);
    def_set(&d[GATE], layer, "mlp.gate_proj.weight", c->ffn, c->dim);
    def_set(&d[UP], layer, "mlp.up_proj.weight", c->ffn, c->dim);
    def_set(&d[DOWN], layer, "mlp.down_proj.weight", c->dim, c->ffn);
    size_t n = LAYER_FIXED;
    if (c->attn_bias) {
        def_set(&d[n++], layer, "self_attn.q_proj.bias", q, 0);
        def_set(&d[n++], layer, "self_attn.k_proj.bias", kv, 0);
        def_set(&d[n++], layer, "self_attn.v_proj.bias", kv, 0);
        def_set(&d[n++], layer, "self_attn.o_proj.bias", c->dim, 0);
    }
    if (c->mlp_bias) {
        def_set(&d[n++], layer, "mlp.gate_proj.bias", c->ffn, 0);
        def_set(&d[n++], layer, "mlp.up_proj.bias", c->ffn, 0);
        def_set(&d[n++], layer, "mlp.down_proj.bias", c->dim, 0);
    }
    return n;
}

/* Where the bias of linear `i` lies among the layer's tensors, or −1. */
static int bias_index(const struct config *c, int i)
{
    if (i <= O)
        return c->attn_bias ? LAYER_FIXED + (i - Q) : -1;
    return c->mlp_bias ? LAYER_FIXED + (c->attn_bias ? 4 : 0) + (i - GATE) : -1;
}

static size_t llama_tensors(const struct config *c, size_t unit, struct tensor_def *ret)
{
    struct tensor_def defs[UNIT_MAX_TENSORS];
    size_t n = 0;
    if (unit == 0) {
        defs[n++] =
            (struct tensor_def){.name = "model.embed_tokens.weight", .rows = c->vocab, .cols = c->dim};
    } else if (unit <= c->layers) {
        n = layer_tensors(c, unit - 1, defs);
    } else {
        defs[n++] = (struct tensor_def){.name = "model.norm.weight", .rows = c->dim};
        if (!c->tied)
            defs[n++] = (struct tensor_def){.name = "lm_head.weight", .rows = c->vocab, .cols = c->dim};
    }
    if (ret)
        memcpy(ret, defs, n * sizeof *defs);
    return n;
}

/* --- what is kept ----------------------------------------------------------------------------- */

struct block_saved {
    float *rstd1, *rstd2; /* [T] */
    float *q, *k, *v;     /* [T, heads·head], [T, kv_heads·head]; q and k rotated */
    float *o, *lse;       /* [T, heads·head], [T, heads] */
    float *x2;            /* [T, dim] after attention */
    float *gate, *up;     /* [T, ffn] */
    float *xa[LINEARS];   /* [T, rank] */
};

static size_t lora_rank(const struct block_layout *l, int i)
{
    const struct lora *lora = l->weights ? l->weights->lin[i].lora : NULL;
    return lora ? lora->rank : 0;
}

static struct block_saved *saved_carve(struct slab *slab, const struct block_layout *l)
{
    const struct config *c = l->config;
    struct block_saved s, *at = slab_take(slab, 1, 1, sizeof s);
    size_t t = l->tokens, q = c->heads * c->head, kv = c->kv_heads * c->head;
    s.rstd1 = slab_floats(slab, t, 1);
    s.rstd2 = slab_floats(slab, t, 1);
    s.q = slab_floats(slab, t, q);
    s.k = slab_floats(slab, t, kv);
    s.v = slab_floats(slab, t, kv);
    s.o = slab_floats(slab, t, q);
    s.lse = slab_floats(slab, t, c->heads);
    s.x2 = slab_floats(slab, t, c->dim);
    s.gate = slab_floats(slab, t, c->ffn);
    s.up = slab_floats(slab, t, c->ffn);
    for (int i = 0; i < LINEARS; i++)
        s.xa[i] = slab_floats(slab, t, lora_rank(l, LINEAR_FIRST + i));
    if (at)
        *at = s;
    return at;
}

/* Output gradient of each linear (that of `down` is the block's dy itself), and of the two norms. */
struct block_dys {
    float *dy[LINEARS];  /* [T, out]; DOWN: NULL */
    float *dyb[LINEARS]; /* [T, rank] */
    float *dh1, *dh2;    /* [T, dim] */
};

static struct block_dys *dys_carve(struct slab *slab, const struct block_layout *l)
{
    const struct config *c = l->config;
    struct block_dys d, *at = slab_take(slab, 1, 1, sizeof d);
    size_t t = l->tokens, q = c->heads * c->head, kv = c->kv_heads * c->head;
    const size_t out[LINEARS] = {q, kv, kv, c->dim, c->ffn, c->ffn, 0};
    for (int i = 0; i < LINEARS; i++) {
        d.dy[i] = out[i] ? slab_floats(slab, t, out[i]) : NULL;
        d.dyb[i] = slab_floats(slab, t, lora_rank(l, LINEAR_FIRST + i));
    }
    d.dh1 = slab_floats(slab, t, c->dim);
    d.dh2 = slab_floats(slab, t, c->dim);
    if (at)
        *at = d;
    return at;
}

struct block_work {
    float *h;              /* [T, dim] */
    float *wide;           /* [T, max(ffn, heads·head)] */
    float *q;              /* [T, heads·head], generation and the gradient of o */
    float *xa;             /* [T, largest rank] */
    float *rstd;           /* [T] */
    float *x2, *gate, *up; /* generation only: what training keeps in `saved` */
};

static struct block_work *work_carve(struct slab *slab, const struct block_layout *l)
{
    const struct config *c = l->config;
    struct block_work w, *at = slab_take(slab, 1, 1, sizeof w);
    size_t t = l->tokens, q = c->heads * c->head, rank = 0;
    for (int i = 0; i < LINEARS; i++)
        if (lora_rank(l, LINEAR_FIRST + i) > rank)
            rank = lora_rank(l, LINEAR_FIRST + i);
    w.h = slab_floats(slab, t, c->dim);
    w.wide = slab_floats(slab, t, c->ffn > q ? c->ffn : q);
    w.q = slab_floats(slab, t, q);
    w.xa = slab_floats(slab, t, rank);
    w.rstd = slab_floats(slab, t, 1);
    w.x2 = slab_floats(slab, l->positions ? t : 0, c->dim);
    w.gate = slab_floats(slab, l->positions ? t : 0, c->ffn);
    w.up = slab_floats(slab, l->positions ? t : 0, c->ffn);
    if (at)
        *at = w;
    return at;
}

struct block_kv {
    float *k, *v; /* [positions, kv_heads·head] */
};

static struct block_kv *kv_carve(struct slab *slab, const struct block_layout *l)
{
    struct block_kv kv, *at = slab_take(slab, 1, 1, sizeof kv);
    size_t width = l->config->kv_heads * l->config->head;
    kv.k = slab_floats(slab, l->positions, width);
    kv.v = slab_floats(slab, l->positions, width);
    if (at)
        *at = kv;
    return at;
}

/* --- the recipe ------------------------------------------------------------------------------- */

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx)
{
    return (struct rmsnorm_dims){ctx->tokens, ctx->config->dim, ctx->config->norm_eps};
}

static struct attn_dims attn_dims(const struct config *c)
{
    return (struct attn_dims){c->heads, c->kv_heads, c->head, 1.0f / sqrtf((float)c->head)};
}

/* The half of the block after attention: y = x2 + down(silu(gate(h2))·up(h2)), h2 = norm(x2). */
static void mlp_forward(const struct block_ctx *ctx, float *y, float *gate, float *up, float *rstd,
                        float *const *xa, const float *x2, const struct unit_weights *w,
                        struct block_work *work)
{
    size_t t = ctx->tokens;
    rmsnorm_forward(ctx->num, work->h, rstd, x2, w->vec[NORM2], norm_dims(ctx));
    linear_forward(ctx->num, gate, xa[GATE - Q], work->h, &w->lin[GATE], t);
    linear_forward(ctx->num, up, xa[UP - Q], work->h, &w->lin[UP], t);
    swiglu_forward(ctx->num, work->wide, gate, up, t * ctx->config->ffn);
    linear_forward(ctx->num, y, xa[DOWN - Q], work->wide, &w->lin[DOWN], t);
    vec_add(ctx->num, y, y, x2, t * ctx->config->dim);
}

static void llama_forward(const struct block_ctx *ctx, float *y, struct block_saved *s, const float *x,
                          const struct unit_weights *w, struct block_work *work)
{
    const struct config *c = ctx->config;
    size_t t = ctx->tokens;
    rmsnorm_forward(ctx->num, work->h, s->rstd1, x, w->vec[NORM1], norm_dims(ctx));
    linear_forward(ctx->num, s->q, s->xa[Q - Q], work->h, &w->lin[Q], t);
    linear_forward(ctx->num, s->k, s->xa[K - Q], work->h, &w->lin[K], t);
    linear_forward(ctx->num, s->v, s->xa[V - Q], work->h, &w->lin[V], t);
    rope_apply(ctx->num, s->q, ctx->pos, ctx->rope, t, c->heads, false);
    rope_apply(ctx->num, s->k, ctx->pos, ctx->rope, t, c->kv_heads, false);
    attn_forward(ctx->num, s->o, s->lse, s->q, s->k, s->v, ctx->seqs, attn_dims(c));
    linear_forward(ctx->num, s->x2, s->xa[O - Q], s->o, &w->lin[O], t);
    vec_add(ctx->num, s->x2, s->x2, x, t * c->dim);
    mlp_forward(ctx, y, s->gate, s->up, s->rstd2, s->xa, s->x2, w, work);
}

static void llama_backward_x(const struct block_ctx *ctx, float *dx, struct block_dys *d, const float *dy,
                             const struct block_saved *s, const float *x, const struct unit_weights *w,
                             struct block_work *work)
{
    const struct config *c = ctx->config;
    size_t t = ctx->tokens;
    float *dx2 = d->dy[O - Q]; /* the gradient of x2 is also that of o_proj's output: x2 = x + o_proj(o) */

    /* in the forward pass: y = x2 + down(swiglu(gate(h2), up(h2))) */
    linear_backward_x(ctx->num, work->wide, d->dyb[DOWN - Q], dy, &w->lin[DOWN], t, false);
    swiglu_backward_x(ctx->num, d->dy[GATE - Q], d->dy[UP - Q], work->wide, s->gate, s->up, t * c->ffn);
    linear_backward_x(ctx->num, d->dh2, d->dyb[GATE - Q], d->dy[GATE - Q], &w->lin[GATE], t, false);
    linear_backward_x(ctx->num, d->dh2, d->dyb[UP - Q], d->dy[UP - Q], &w->lin[UP], t, true);
    rmsnorm_backward_x(ctx->num, dx2, d->dh2, s->rstd2, s->x2, w->vec[NORM2], norm_dims(ctx));
    vec_add(ctx->num, dx2, dx2, dy, t * c->dim);

    /* in the forward pass: x2 = x + o_proj(attn(rope(q(h1)), rope(k(h1)), v(h1))) */
    linear_backward_x(ctx->num, work->q, d->dyb[O - Q], dx2, &w->lin[O], t, false);
    attn_backward_x(ctx->num, d->dy[Q - Q], d->dy[K - Q], d->dy[V - Q], work->q, s->o, s->lse, s->q, s->k,
                    s->v, ctx->seqs, attn_dims(c));
    rope_apply(ctx->num, d->dy[Q - Q], ctx->pos, ctx->rope, t, c->heads, true);
    rope_apply(ctx->num, d->dy[K - Q], ctx->pos, ctx->rope, t, c->kv_heads, true);
    if (!dx) { /* the lowest trained layer: only what backward_w of its LoRA needs */
        for (int i = Q; i <= V; i++)
            if (w->lin[i].lora)
                lora_backward_dyb(ctx->num, d->dyb[i - Q], d->dy[i - Q], &w->lin[i], t);
        return;
    }
    linear_backward_x(ctx->num, d->dh1, d->dyb[Q - Q], d->dy[Q - Q], &w->lin[Q], t, false);
    linear_backward_x(ctx->num, d->dh1, d->dyb[K - Q], d->dy[K - Q], &w->lin[K], t, true);
    linear_backward_x(ctx->num, d->dh1, d->dyb[V - Q], d->dy[V - Q], &w->lin[V], t, true);
    rmsnorm_backward_x(ctx->num, dx, d->dh1, s->rstd1, x, w->vec[NORM1], norm_dims(ctx));
    vec_add(ctx->num, dx, dx, dx2, t * c->dim);
}

/* One linear's weight gradients; `in` is its input, recomputed where it was not kept. */
static void linear_grads(const struct block_ctx *ctx, const struct unit_grads *g, int i,
                         const struct block_dys *d, const float *dy, const struct block_saved *s,
                         const float *in, const struct unit_weights *w)
{
    const struct linear *lin = &w->lin[i];
    int bias = bias_index(ctx->config, i);
    if (g->a[i])
        lora_backward_w(ctx->num, g->a[i], g->b[i], dy, d->dyb[i - Q], s->xa[i - Q], in, lin, ctx->tokens);
    if (g->full[i])
        linear_backward_w(ctx->num, g->full[i], bias < 0 ? NULL : g->full[bias], dy, in, ctx->tokens,
                          lin->w.cols, lin->w.rows);
}

static bool wants(const struct unit_grads *g, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (g->a[i] || g->full[i])
            return true;
    return false;
}

static void llama_backward_w(const struct block_ctx *ctx, const struct unit_grads *g,
                             const struct block_dys *d, const float *dy, const struct block_saved *s,
                             const float *x, const struct unit_weights *w, struct block_work *work)
{
    const struct config *c = ctx->config;
    /* The normalised inputs and the activation were not kept: one pass over memory gives them again. */
    if (wants(g, Q, V)) {
        rmsnorm_forward(ctx->num, work->h, work->rstd, x, w->vec[NORM1], norm_dims(ctx));
        for (int i = Q; i <= V; i++)
            linear_grads(ctx, g, i, d, d->dy[i - Q], s, work->h, w);
    }
    linear_grads(ctx, g, O, d, d->dy[O - Q], s, s->o, w);
    if (wants(g, GATE, UP)) {
        rmsnorm_forward(ctx->num, work->h, work->rstd, s->x2, w->vec[NORM2], norm_dims(ctx));
        linear_grads(ctx, g, GATE, d, d->dy[GATE - Q], s, work->h, w);
        linear_grads(ctx, g, UP, d, d->dy[UP - Q], s, work->h, w);
    }
    if (wants(g, DOWN, DOWN)) {
        swiglu_forward(ctx->num, work->wide, s->gate, s->up, ctx->tokens * c->ffn);
        linear_grads(ctx, g, DOWN, d, dy, s, work->wide, w);
    }
    if (g->full[NORM1])
        rmsnorm_backward_w(ctx->num, g->full[NORM1], d->dh1, s->rstd1, x, norm_dims(ctx));
    if (g->full[NORM2])
        rmsnorm_backward_w(ctx->num, g->full[NORM2], d->dh2, s->rstd2, s->x2, norm_dims(ctx));
}

static void llama_forward_cached(const struct block_ctx *ctx, float *y, struct block_kv *kv, size_t at,
                                 const float *x, const struct unit_weights *w, struct block_work *work)
{
    const struct config *c = ctx->config;
    size_t t = ctx->tokens, width = c->kv_heads * c->head;
    float *k = kv->k + at * width, *v = kv->v + at * width;
    float *const xa[LINEARS] = {work->xa, work->xa, work->xa, work->xa, work->xa, work->xa, work->xa};
    rmsnorm_forward(ctx->num, work->h, work->rstd, x, w->vec[NORM1], norm_dims(ctx));
    linear_forward(ctx->num, work->q, work->xa, work->h, &w->lin[Q], t);
    linear_forward(ctx->num, k, work->xa, work->h, &w->lin[K], t);
    linear_forward(ctx->num, v, work->xa, work->h, &w->lin[V], t);
    rope_apply(ctx->num, work->q, ctx->pos, ctx->rope, t, c->heads, false);
    rope_apply(ctx->num, k, ctx->pos, ctx->rope, t, c->kv_heads, false);
    attn_cached(ctx->num, work->wide, work->q, kv->k, kv->v, t, at + t, attn_dims(c));
    linear_forward(ctx->num, work->x2, work->xa, work->wide, &w->lin[O], t);
    vec_add(ctx->num, work->x2, work->x2, x, t * c->dim);
    mlp_forward(ctx, y, work->gate, work->up, work->rstd, xa, work->x2, w, work);
}

const struct family family_llama = {
    .model_type = "llama",
    .tensors = llama_tensors,
    .saved_carve = saved_carve,
    .dys_carve = dys_carve,
    .work_carve = work_carve,
    .kv_carve = kv_carve,
    .forward = llama_forward,
    .backward_x = llama_backward_x,
    .backward_w = llama_backward_w,
    .forward_cached = llama_forward_cached,
};
