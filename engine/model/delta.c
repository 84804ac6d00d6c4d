/* SPDX-License-Identifier: MIT
 *
 * The gated delta rule as a part of a block: the attention of linear layers (Qwen3-Next, Qwen3.5).
 * Its projections are four linears, or two whose rows are grouped by key head. Training keeps what
 * stands before the convolution, and makes the rest again. Generation keeps a state and the last
 * inputs of the convolution, whatever the position. Called by block.c, on the computing thread. */
#include "model/part.h"

#include <string.h>

#include "num/sizes.h"
#include "num/vec.h"

/* The part's tensors in order; a few vectors follow. */
enum { QKV, Z, B, A, OUT, LINEARS };
enum { QKVZ, BA, FUSED_OUT, FUSED }; /* where two are one */
enum { CONV, A_LOG, DT_BIAS, NORM, VECTORS };

static const struct glu silu = {GLU_SILU, 0}, own_gate = {GLU_SIGMOID, 0}; /* x·σ(x) where both are x */

static size_t linears(const struct config *c)
{
    return c->delta.fused ? FUSED : LINEARS;
}

static size_t out_at(const struct config *c)
{
    return c->delta.fused ? FUSED_OUT : OUT;
}

static struct delta_dims dims_of(const struct config *c)
{
    const struct config_delta *d = &c->delta;
    return (struct delta_dims){d->key_heads, d->value_heads, d->key, d->value, d->taps};
}

static size_t width(const struct config *c)
{
    return delta_width(dims_of(c));
}

static size_t value_width(const struct config *c)
{
    return c->delta.value_heads * c->delta.value;
}

static size_t wide_width(const struct config *c)
{
    return c->delta.fused ? width(c) + value_width(c) : 0;
}

static size_t ba_width(const struct config *c)
{
    return c->delta.fused ? 2 * c->delta.value_heads : 0;
}

static void delta_tensors(struct tensor_list *list, const struct config *c)
{
    const size_t heads = c->delta.value_heads;
    if (c->delta.fused) {
        tensor_linear(list, "linear_attn.in_proj_qkvz.weight", wide_width(c), c->dim);
        tensor_linear(list, "linear_attn.in_proj_ba.weight", 2 * heads, c->dim);
    } else {
        tensor_linear(list, "linear_attn.in_proj_qkv.weight", width(c), c->dim);
        tensor_linear(list, "linear_attn.in_proj_z.weight", value_width(c), c->dim);
        tensor_linear(list, "linear_attn.in_proj_b.weight", heads, c->dim);
        tensor_linear(list, "linear_attn.in_proj_a.weight", heads, c->dim);
    }
    tensor_linear(list, "linear_attn.out_proj.weight", c->dim, value_width(c));
    tensor_add(list, "linear_attn.conv1d.weight",
               (struct tensor_def){.rows = width(c) * c->delta.taps, .taps = c->delta.taps});
    tensor_vector(list, "linear_attn.A_log", heads);
    tensor_vector(list, "linear_attn.dt_bias", heads);
    tensor_vector(list, "linear_attn.norm.weight", c->delta.value);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, heads = c->delta.value_heads;
    ret->delta.mixed = slab_floats(slab, t, width(c));
    ret->delta.z = slab_floats(slab, t, value_width(c));
    ret->delta.b = slab_floats(bwd_x_only, t, heads);
    ret->delta.a = slab_floats(bwd_x_only, t, heads);
    ret->delta.states = slab_floats(bwd_x_only, delta_saved(t), delta_state_floats(dims_of(c)));
    ret->delta.o = slab_floats(slab, t, value_width(c));
    ret->delta.rstd = slab_floats(slab, t, heads);
    for (size_t i = 0; i < linears(c); i++)
        ret->delta.xa[i] = slab_floats(slab, t, part_rank(l, i));
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, heads = c->delta.value_heads;
    ret->delta.mixed = slab_floats(slab, c->delta.fused ? 0 : t, width(c));
    ret->delta.z = slab_floats(slab, t, value_width(c));
    ret->delta.b = slab_floats(slab, t, heads);
    ret->delta.a = slab_floats(slab, t, heads);
    ret->delta.wide = slab_floats(slab, t, wide_width(c));
    ret->delta.ba = slab_floats(slab, t, ba_width(c));
    ret->delta.conv = slab_floats(slab, t, width(c));
    ret->delta.norm = slab_floats(slab, t, value_width(c));
    ret->delta.a_log = slab_floats(slab, t, heads);
    for (size_t i = 0; i < linears(c); i++)
        ret->delta.dyb[i] = slab_floats(slab, t, part_rank(l, i));
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const size_t t = l->tokens, heads = c->delta.value_heads, caching = part_cached_rows(l),
                 back = t - caching;
    ret->delta.qkv = slab_floats(slab, t, width(c));
    ret->delta.wide = slab_floats(slab, t, wide_width(c));
    ret->delta.ba = slab_floats(slab, t, ba_width(c));
    ret->delta.y = slab_floats(slab, t, value_width(c));
    ret->delta.norm = slab_floats(slab, back, value_width(c));
    ret->delta.g = slab_floats(slab, t, heads);
    ret->delta.beta = slab_floats(slab, t, heads);
    ret->delta.rstd = slab_floats(slab, t, heads);
    ret->delta.xa = slab_floats(slab, caching, part_max_rank(l, 0, linears(c)));
    ret->delta.dqkv = slab_floats(slab, back, width(c));
    ret->delta.scale = slab_floats(slab, back, 2 * c->delta.key_heads);
    ret->delta.dg = slab_floats(slab, back, heads);
    ret->delta.dbeta = slab_floats(slab, back, heads);
    ret->delta.mixed = slab_floats(slab, caching, width(c));
    ret->delta.z = slab_floats(slab, caching, value_width(c));
    ret->delta.b = slab_floats(slab, caching, heads);
    ret->delta.a = slab_floats(slab, caching, heads);
    ret->delta.o = slab_floats(slab, caching, value_width(c));
    ret->delta.runs = slab_take(slab, l->blocks ? t : 0, 1, sizeof *ret->delta.runs);
    ret->delta.guess_state = slab_floats(slab, l->guesses > 0, delta_state_floats(dims_of(c)));
    ret->delta.guess_tail = slab_floats(slab, l->guesses > 0, delta_tail_floats(dims_of(c)));
    ret->delta.again_qkv = slab_floats(slab, l->guesses, width(c));
    ret->delta.again_o = slab_floats(slab, l->guesses, value_width(c));
    ret->delta.again_g = slab_floats(slab, l->guesses, heads);
    ret->delta.again_beta = slab_floats(slab, l->guesses, heads);
}

static void kv_carve(union part_kv *ret, struct slab *slab, const struct part_layout *l)
{
    const struct delta_dims d = dims_of(l->config);
    ret->delta.state = slab_floats(slab, 1, delta_state_floats(d));
    ret->delta.tail = slab_floats(slab, 1, delta_tail_floats(d));
}

static void pool_carve(union part_pool *ret, struct slab *slab, const struct part_layout *l)
{
    const struct delta_dims d = dims_of(l->config);
    ret->delta.state = slab_floats(slab, l->states + l->kept, delta_state_floats(d));
    ret->delta.tail = slab_floats(slab, l->states + l->kept, delta_tail_floats(d));
    ret->delta.mixed = slab_floats(slab, l->states * l->guesses, delta_width(d));
    ret->delta.b = slab_floats(slab, l->states * l->guesses, d.value_heads);
    ret->delta.a = slab_floats(slab, l->states * l->guesses, d.value_heads);
    ret->delta.guesses = l->guesses;
}

/* --- the recipe ------------------------------------------------------------------------------- */

static struct rmsnorm_dims norm_dims(const struct block_ctx *ctx)
{
    const struct config *c = ctx->config;
    return (struct rmsnorm_dims){ctx->tokens * c->delta.value_heads, c->delta.value, c->norm_eps, 0};
}

static const float *vector(const struct block_ctx *ctx, const struct unit_weights *w, size_t which)
{
    return w->vec[linears(ctx->config) + which];
}

/* Where the linears' outputs go, xa by linear; wide and ba: scratch of the fused ones. */
struct delta_projected {
    float *mixed, *z, *b, *a, *wide, *ba;
    float *const *xa;
};

/* A run of columns of a fused row, and where it lies otherwise. */
struct fused_columns {
    float *at; /* in a row of `stride` */
    size_t stride, n;
};

/* Key head h's columns in a row of in_proj_qkvz: q, k, v and z; of in_proj_ba: b and a. */
enum { COLUMNS_WIDE = 4, COLUMNS_BA = 2 };
static void columns_of(struct fused_columns ret[COLUMNS_WIDE + COLUMNS_BA], const struct config *c, size_t h,
                       const struct delta_projected *to)
{
    const struct config_delta *d = &c->delta;
    const size_t shared = d->value_heads / d->key_heads, values = shared * d->value,
                 keys = d->key_heads * d->key, row = width(c);
    ret[0] = (struct fused_columns){to->mixed + h * d->key, row, d->key};
    ret[1] = (struct fused_columns){to->mixed + keys + h * d->key, row, d->key};
    ret[2] = (struct fused_columns){to->mixed + 2 * keys + h * values, row, values};
    ret[3] = (struct fused_columns){to->z + h * values, value_width(c), values};
    ret[4] = (struct fused_columns){to->b + h * shared, d->value_heads, shared};
    ret[5] = (struct fused_columns){to->a + h * shared, d->value_heads, shared};
}

/* Between a fused row and its parts: `joins` writes the row, else the parts. */
static void regroup(float *fused, size_t stride, const struct fused_columns *parts, size_t nparts,
                    size_t first, size_t tokens, bool joins)
{
    for (size_t i = 0; i < nparts; first += parts[i].n, i++)
        for (size_t t = 0; t < tokens; t++) {
            float *a = fused + t * stride + first, *b = parts[i].at + t * parts[i].stride;
            memcpy(joins ? a : b, joins ? b : a, parts[i].n * sizeof *a);
        }
}

static void regroup_all(const struct block_ctx *ctx, const struct delta_projected *p, bool joins)
{
    const struct config *c = ctx->config;
    const size_t heads = c->delta.key_heads, wide = wide_width(c), ba = ba_width(c);
    for (size_t h = 0; h < heads; h++) {
        struct fused_columns parts[COLUMNS_WIDE + COLUMNS_BA];
        columns_of(parts, c, h, p);
        regroup(p->wide, wide, parts, COLUMNS_WIDE, h * (wide / heads), ctx->tokens, joins);
        regroup(p->ba, ba, parts + COLUMNS_WIDE, COLUMNS_BA, h * (ba / heads), ctx->tokens, joins);
    }
}

static void project(const struct block_ctx *ctx, const struct delta_projected *to, const float *h,
                    const struct unit_weights *w)
{
    const bool fused = ctx->config->delta.fused;
    float *const outs[] = {fused ? to->wide : to->mixed, fused ? to->ba : to->z, to->b, to->a};
    struct linear_use uses[OUT];
    for (size_t i = 0; i < out_at(ctx->config); i++)
        uses[i] = (struct linear_use){outs[i], to->xa[i], h, &w->lin[i], ctx->tokens, ctx->set};
    linear_forward_each(ctx->num, uses, out_at(ctx->config));
    if (fused)
        regroup_all(ctx, to, false);
}

/* y = norm(o)·silu(z); the norm alone goes to `norm`, which may be y. */
static void gate_out(const struct block_ctx *ctx, float *y, float *norm, float *rstd, const float *o,
                     const float *z, const struct unit_weights *w)
{
    rmsnorm_forward(ctx->num, norm, rstd, o, vector(ctx, w, NORM), norm_dims(ctx));
    glu_forward(ctx->num, y, z, norm, silu, ctx->tokens * value_width(ctx->config));
}

/* q, k and v as the rule wants them from the convolution's output, in place; scale as in
 * delta_norm_forward. */
static void activate(const struct block_ctx *ctx, float *qkv, float *scale, const float *conv)
{
    glu_forward(ctx->num, qkv, conv, conv, own_gate, ctx->tokens * width(ctx->config));
    delta_norm_forward(ctx->num, qkv, scale, ctx->tokens, dims_of(ctx->config));
}

static void gates(const struct block_ctx *ctx, float *g, float *beta, const float *a, const float *b,
                  const struct unit_weights *w)
{
    delta_gates_forward(g, beta, a, b, vector(ctx, w, A_LOG), vector(ctx, w, DT_BIAS), ctx->tokens,
                        dims_of(ctx->config));
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *s, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t out = out_at(c);
    project(ctx,
            &(struct delta_projected){s->delta.mixed, s->delta.z, s->delta.b, s->delta.a, work->delta.wide,
                                      work->delta.ba, s->delta.xa},
            h, w);
    delta_conv_forward(ctx->num, work->delta.qkv, s->delta.mixed, vector(ctx, w, CONV), ctx->seqs,
                       dims_of(c));
    activate(ctx, work->delta.qkv, NULL, work->delta.qkv);
    gates(ctx, work->delta.g, work->delta.beta, s->delta.a, s->delta.b, w);
    delta_forward(ctx->num, s->delta.o, s->delta.states, work->delta.qkv, work->delta.g, work->delta.beta,
                  ctx->seqs, dims_of(c));
    gate_out(ctx, work->delta.y, work->delta.y, s->delta.rstd, s->delta.o, s->delta.z, w);
    linear_forward(ctx->num, y, s->delta.xa[out], work->delta.y, &w->lin[out], ctx->tokens);
}

/* From the gradient of qkv, which lies in work->delta.dqkv, to that of the convolution's input. */
static void conv_back(const struct block_ctx *ctx, float *dmixed, union part_dys *d,
                      const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t n = ctx->tokens * width(c);
    delta_norm_backward_x(ctx->num, work->delta.dqkv, work->delta.qkv, work->delta.scale, ctx->tokens,
                          dims_of(c));
    glu_backward_x(ctx->num, d->delta.conv, work->delta.qkv, work->delta.dqkv, d->delta.conv, d->delta.conv,
                   own_gate, n);
    vec_add(ctx->num, d->delta.conv, d->delta.conv, work->delta.qkv, n);
    delta_conv_backward_x(ctx->num, dmixed, d->delta.conv, vector(ctx, w, CONV), ctx->seqs, dims_of(c));
}

static void project_back(const struct block_ctx *ctx, float *dh, const union part_dys *d, float *dmixed,
                         const struct unit_weights *w)
{
    const bool fused = ctx->config->delta.fused;
    const float *const dys[] = {fused ? d->delta.wide : dmixed, fused ? d->delta.ba : d->delta.z, d->delta.b,
                                d->delta.a};
    if (fused)
        regroup_all(ctx,
                    &(struct delta_projected){dmixed, d->delta.z, d->delta.b, d->delta.a, d->delta.wide,
                                              d->delta.ba, NULL},
                    true);
    for (size_t i = 0; i < out_at(ctx->config); i++)
        part_linear_back(ctx->num, dh, d->delta.dyb[i], dys[i], &w->lin[i], ctx->tokens, i > 0);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t out = out_at(c), t = ctx->tokens;
    float *dmixed = c->delta.fused ? work->delta.dqkv : d->delta.mixed;
    linear_backward_x(ctx->num, work->delta.y, d->delta.dyb[out], dy, &w->lin[out], t, false);
    rmsnorm_forward(ctx->num, work->delta.norm, work->delta.rstd, s->delta.o, vector(ctx, w, NORM),
                    norm_dims(ctx));
    glu_backward_x(ctx->num, d->delta.z, d->delta.norm, work->delta.y, s->delta.z, work->delta.norm, silu,
                   t * value_width(c));
    rmsnorm_backward_x(ctx->num, work->delta.y, d->delta.norm, s->delta.rstd, s->delta.o,
                       vector(ctx, w, NORM), norm_dims(ctx));
    delta_conv_forward(ctx->num, d->delta.conv, s->delta.mixed, vector(ctx, w, CONV), ctx->seqs, dims_of(c));
    activate(ctx, work->delta.qkv, work->delta.scale, d->delta.conv);
    gates(ctx, work->delta.g, work->delta.beta, s->delta.a, s->delta.b, w);
    delta_backward_x(ctx->num, work->delta.dqkv, work->delta.dg, work->delta.dbeta, work->delta.y,
                     s->delta.states, work->delta.qkv, work->delta.g, work->delta.beta, ctx->seqs,
                     dims_of(c));
    conv_back(ctx, dmixed, d, w, work);
    delta_gates_backward_x(d->delta.a, d->delta.b, d->delta.a_log, work->delta.dg, work->delta.dbeta,
                           s->delta.a, s->delta.b, vector(ctx, w, A_LOG), vector(ctx, w, DT_BIAS), t,
                           dims_of(c));
    project_back(ctx, dh, d, dmixed, w);
}

/* dw [heads] += rows of dy [T, heads], in the order of tokens. */
static void add_rows(float *dw, const float *dy, size_t tokens, size_t heads)
{
    for (size_t i = 0; dw && i < tokens * heads; i++)
        dw[i % heads] += dy[i];
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *s, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t out = out_at(c), n = linears(c), heads = c->delta.value_heads;
    const bool fused = c->delta.fused;
    const float *const dys[] = {fused ? d->delta.wide : d->delta.mixed, fused ? d->delta.ba : d->delta.z,
                                fused ? dy : d->delta.b, d->delta.a, dy};
    if (part_wants(g, out, 1)) /* what out_proj was given was not kept */
        gate_out(ctx, work->delta.y, work->delta.y, work->delta.rstd, s->delta.o, s->delta.z, w);
    for (size_t i = 0; i < n; i++)
        part_linear_grads(ctx, g, i, dys[i], d->delta.dyb[i], s->delta.xa[i], i == out ? work->delta.y : h, w,
                          ctx->tokens);
    if (g->full[n + CONV])
        delta_conv_backward_w(ctx->num, g->full[n + CONV], d->delta.conv, s->delta.mixed, ctx->seqs,
                              dims_of(c));
    add_rows(g->full[n + A_LOG], d->delta.a_log, ctx->tokens, heads);
    add_rows(g->full[n + DT_BIAS], d->delta.a, ctx->tokens, heads);
    if (g->full[n + NORM])
        rmsnorm_backward_w(ctx->num, g->full[n + NORM], d->delta.norm, s->delta.rstd, s->delta.o,
                           norm_dims(ctx));
}

/* --- generation ------------------------------------------------------------------------------- */

/* n rows of what the linears gave, and where what follows from them goes. */
struct delta_rows {
    const float *mixed, *b, *a;
    float *qkv, *o, *g, *beta;
    size_t n;
};

/* Rows from `row` on of a call. */
static struct delta_rows rows_from(const struct block_ctx *ctx, const union part_work *work, size_t row,
                                   size_t n)
{
    const size_t wide = width(ctx->config), value = value_width(ctx->config),
                 heads = ctx->config->delta.value_heads;
    return (struct delta_rows){work->delta.mixed + row * wide, work->delta.b + row * heads,
                               work->delta.a + row * heads,    work->delta.qkv + row * wide,
                               work->delta.o + row * value,    work->delta.g + row * heads,
                               work->delta.beta + row * heads, n};
}

/* Brings the states of some runs of those rows up to date. */
static void run_rows(const struct block_ctx *of_all, const struct delta_rows *rows,
                     const struct delta_run *runs, size_t n, const struct unit_weights *w)
{
    const struct delta_dims d = dims_of(of_all->config);
    struct block_ctx ctx = *of_all;
    ctx.tokens = rows->n;
    delta_conv_steps(ctx.num, rows->qkv, rows->mixed, vector(&ctx, w, CONV), runs, n, d);
    activate(&ctx, rows->qkv, NULL, rows->qkv);
    gates(&ctx, rows->g, rows->beta, rows->a, rows->b, w);
    delta_steps(ctx.num, rows->o, rows->qkv, rows->g, rows->beta, runs, n, d);
}

static void project_rows(const struct block_ctx *ctx, const float *h, const struct unit_weights *w,
                         union part_work *work)
{
    float *const xa = work->delta.xa, *const xas[LINEARS] = {xa, xa, xa, xa, xa};
    project(ctx,
            &(struct delta_projected){work->delta.mixed, work->delta.z, work->delta.b, work->delta.a,
                                      work->delta.wide, work->delta.ba, xas},
            h, w);
}

static void rows_out(const struct block_ctx *ctx, float *y, const struct unit_weights *w,
                     union part_work *work)
{
    const struct linear_use out = {y,           work->delta.xa, work->delta.y, &w->lin[out_at(ctx->config)],
                                   ctx->tokens, ctx->set};
    gate_out(ctx, work->delta.y, work->delta.y, work->delta.rstd, work->delta.o, work->delta.z, w);
    linear_forward_each(ctx->num, &out, 1);
}

static void forward_cached(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work)
{
    const struct delta_run run = {kv->delta.state, kv->delta.tail, 0, ctx->tokens, at == 0};
    const struct delta_rows rows = rows_from(ctx, work, 0, ctx->tokens);
    project_rows(ctx, h, w, work);
    run_rows(ctx, &rows, &run, 1, w);
    rows_out(ctx, y, w, work);
}

/* Of one sequence: its state, or what stands in for it, with n rows from `row` on. */
static struct delta_run run_of(const struct block_ctx *ctx, const union part_pool *pool, size_t state,
                               size_t row, size_t n)
{
    const struct delta_dims d = dims_of(ctx->config);
    return (struct delta_run){pool->delta.state + state * delta_state_floats(d),
                              pool->delta.tail + state * delta_tail_floats(d), row, n, false};
}

/* The first run->n logged positions of a state. */
static void run_log(const struct block_ctx *ctx, const union part_pool *pool, size_t state,
                    const struct delta_run *run, const struct unit_weights *w, union part_work *work)
{
    const size_t first = state * pool->delta.guesses, heads = ctx->config->delta.value_heads;
    const struct delta_rows rows = {pool->delta.mixed + first * width(ctx->config),
                                    pool->delta.b + first * heads,
                                    pool->delta.a + first * heads,
                                    work->delta.again_qkv,
                                    work->delta.again_o,
                                    work->delta.again_g,
                                    work->delta.again_beta,
                                    run->n};
    run_rows(ctx, &rows, run, 1, w);
}

/* log [guesses, wide]: loses its first rows, `stay` follow them, and then come those of x. */
static void log_rows(float *log, size_t lost, size_t stay, const float *x, size_t n, size_t wide)
{
    memmove(log, log + lost * wide, stay * wide * sizeof *log);
    memcpy(log + stay * wide, x, n * wide * sizeof *log);
}

/* The positions of a piece that may be taken back: on a copy of its state, which is forgotten, and
 * to its log, from which they are taken in once they are known to stay. */
static void run_guesses(const struct block_ctx *ctx, const union part_pool *pool, const struct state_piece *p,
                        const struct unit_weights *w, union part_work *work)
{
    const struct delta_dims d = dims_of(ctx->config);
    const size_t stay = p->at > p->stays ? p->at - p->stays : 0, lost = stay ? p->stays - p->reached : 0,
                 first = p->stays > p->at ? p->stays - p->at : 0, n = p->n - first,
                 log = p->state * pool->delta.guesses;
    const struct delta_rows rows = rows_from(ctx, work, p->row + first, n);
    struct delta_run run = run_of(ctx, pool, p->state, 0, stay);
    memcpy(work->delta.guess_state, run.state, delta_state_floats(d) * sizeof(float));
    memcpy(work->delta.guess_tail, run.tail, delta_tail_floats(d) * sizeof(float));
    run.state = work->delta.guess_state;
    run.tail = work->delta.guess_tail;
    log_rows(pool->delta.mixed + log * delta_width(d), lost, stay, rows.mixed, n, delta_width(d));
    log_rows(pool->delta.b + log * d.value_heads, lost, stay, rows.b, n, d.value_heads);
    log_rows(pool->delta.a + log * d.value_heads, lost, stay, rows.a, n, d.value_heads);
    run.is_first = !p->stays;
    if (stay)
        run_log(ctx, pool, p->state, &run, w, work);
    run.is_first = !p->stays && !stay;
    run.n = n;
    run_rows(ctx, &rows, &run, 1, w);
}

static void forward_paged(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work)
{
    const struct delta_rows rows = rows_from(ctx, work, 0, ctx->tokens);
    size_t runs = 0;
    project_rows(ctx, h, w, work);
    for (size_t i = 0; i < ctx->npieces; i++) {
        const struct state_piece *p = &ctx->pieces[i];
        struct delta_run logged = run_of(ctx, pool, p->state, 0, min_size(p->at, p->stays) - p->reached);
        logged.is_first = !p->reached;
        if (logged.n)
            run_log(ctx, pool, p->state, &logged, w, work);
        if (p->stays <= p->at)
            continue;
        struct delta_run *run = &work->delta.runs[runs++];
        *run = run_of(ctx, pool, p->state, p->row, min_size(p->n, p->stays - p->at));
        run->is_first = !p->at;
    }
    if (runs)
        run_rows(ctx, &rows, work->delta.runs, runs, w);
    for (size_t i = 0; i < ctx->npieces; i++)
        if (ctx->pieces[i].stays < ctx->pieces[i].at + ctx->pieces[i].n)
            run_guesses(ctx, pool, &ctx->pieces[i], w, work);
    rows_out(ctx, y, w, work);
}

static void state_copy(const union part_pool *pool, const struct config *c, size_t to, size_t from)
{
    const size_t state = delta_state_floats(dims_of(c)), tail = delta_tail_floats(dims_of(c));
    memcpy(pool->delta.state + to * state, pool->delta.state + from * state, state * sizeof(float));
    memcpy(pool->delta.tail + to * tail, pool->delta.tail + from * tail, tail * sizeof(float));
}

const struct part part_delta = {
    .tensors = delta_tensors,
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
