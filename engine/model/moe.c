/* SPDX-License-Identifier: MIT
 *
 * A mixture of experts as a part of a block: y = Σ weight·expert(h) over the chosen experts, and
 * the shared experts' output where there are any. The tokens of each expert are computed together,
 * and experts with few of them at once, and an expert nobody chose is not even read. Called by
 * block.c, on the computing thread. */
#include "model/part.h"

#include <stdio.h>
#include <string.h>

/* The part's tensors: the router, what is added for its choice and its own bias where there are
 * such, three linears of each routed expert, with biases or without, then those of the shared
 * experts. */
enum { ROUTER };

enum {
    TOGETHER = 16,  /* experts computed together at most */
    FEW_ROWS = 128, /* there is room for so many rows of them however few tokens there are */
};

static size_t choice_bias(const struct config *c)
{
    return c->moe.bias ? ROUTER + 1 : 0;
}

static size_t expert_at(const struct config *c, size_t expert)
{
    return ROUTER + 1 + c->moe.bias + c->mlp_bias + expert * MLP_LINEARS * (c->mlp_bias ? 2 : 1);
}

static size_t shared_at(const struct config *c)
{
    return expert_at(c, c->moe.experts);
}

static size_t shared_gate_at(const struct config *c)
{
    return shared_at(c) + MLP_LINEARS;
}

const struct moe_names moe_usual_names = {
    .router = "mlp.gate.weight",
    .bias = "mlp.gate.e_score_correction_bias",
    .experts = "mlp.experts",
    .shared = "mlp.shared_experts",
    .linears = {"gate_proj", "up_proj", "down_proj"},
};

static struct mlp_kind kind_of(const struct config *c)
{
    return (struct mlp_kind){c->glu, false};
}

static struct moe_route route_of(const struct config *c)
{
    const struct config_moe *m = &c->moe;
    return (struct moe_route){m->experts, m->chosen, m->groups,      m->groups_chosen,
                              m->sigmoid, m->norm,   (float)m->scale};
}

/* Passes an expert's tensors on, marked as such. */
static int visit_cold(void *arg, const struct tensor_def *def)
{
    struct tensor_list *list = arg;
    struct tensor_def cold = *def;
    cold.cold = true;
    cold.weave = list->names->weave;
    return list->visit(list->arg, &cold);
}

static void moe_tensors(struct tensor_list *list, const struct config *c)
{
    const struct moe_names *names = list->names;
    struct tensor_list experts = *list;
    experts.visit = visit_cold;
    experts.arg = list;
    tensor_add(list, names->router, (struct tensor_def){.rows = c->moe.experts, .cols = c->dim});
    if (c->moe.bias)
        tensor_add(list, names->bias, (struct tensor_def){.rows = c->moe.experts, .fixed = true});
    if (c->mlp_bias)
        tensor_vector(list, names->router_bias, c->moe.experts);
    for (size_t e = 0; e < c->moe.experts; e++) {
        char stem[40];
        snprintf(stem, sizeof stem, "%s.%zu", names->experts, e);
        if (!list->answer)
            mlp_tensors(&experts, stem, names->linears, c->moe.ffn, c->dim, c->mlp_bias);
        list->answer = list->answer ? list->answer : experts.answer;
    }
    if (c->moe.shared_ffn)
        mlp_tensors(list, names->shared, names->linears, c->moe.shared_ffn, c->dim, false);
    if (c->moe.shared_gate)
        tensor_add(list, names->shared_gate, (struct tensor_def){.rows = 1, .cols = c->dim});
}

/* --- memory ----------------------------------------------------------------------------------- */

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    (void)bwd_x_only; /* the backward to the weights makes activations again from what there is */
    const struct config *c = l->config;
    const struct config_moe *m = &c->moe;
    const size_t t = l->tokens, rows = t * m->chosen;
    ret->moe.score = slab_floats(slab, t, m->experts);
    ret->moe.weight = slab_floats(slab, rows, 1);
    ret->moe.chosen = slab_take(slab, rows, 1, sizeof *ret->moe.chosen);
    ret->moe.groups.start = slab_take(slab, m->experts + 1, 1, sizeof *ret->moe.groups.start);
    ret->moe.groups.pick = slab_take(slab, rows, 1, sizeof *ret->moe.groups.pick);
    ret->moe.gate = slab_floats(slab, rows, m->ffn);
    ret->moe.up = slab_floats(slab, rows, m->ffn);
    for (size_t i = 0; i < MLP_LINEARS; i++)
        ret->moe.xa[i] = slab_floats(slab, rows, part_rank(l, expert_at(c, 0) + i));
    if (m->shared_ffn)
        mlp_saved_carve(&ret->moe.shared, slab, l, shared_at(c), false, t, m->shared_ffn);
    ret->moe.shared_y = slab_floats(slab, m->shared_gate ? t : 0, c->dim);
    ret->moe.shared_score = slab_floats(slab, m->shared_gate ? t : 0, 1);
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config *c = l->config;
    const struct config_moe *m = &c->moe;
    const size_t t = l->tokens, rows = t * m->chosen;
    ret->moe.logits = slab_floats(slab, t, m->experts);
    ret->moe.gate = slab_floats(slab, rows, m->ffn);
    ret->moe.up = slab_floats(slab, rows, m->ffn);
    for (size_t i = 0; i < MLP_LINEARS; i++)
        ret->moe.dyb[i] = slab_floats(slab, rows, part_rank(l, expert_at(c, 0) + i));
    if (m->shared_ffn)
        mlp_dys_carve(&ret->moe.shared, slab, l, shared_at(c), false, t, m->shared_ffn,
                      l->whole ? l->whole->moe.shared_ffn : 0);
    for (size_t i = 0; i < 2; i++)
        ret->moe.all[i] = slab_floats(slab, l->whole ? rows : 0, l->whole ? l->whole->moe.ffn : 0);
    ret->moe.shared_y = slab_floats(slab, m->shared_gate ? t : 0, c->dim);
    ret->moe.shared_score = slab_floats(slab, m->shared_gate ? t : 0, 1);
}

size_t part_moe_rows(const struct config *c, size_t tokens)
{
    const size_t all = tokens * c->moe.chosen, few = all < FEW_ROWS ? all : FEW_ROWS;
    return few > tokens ? few : tokens;
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config_moe *m = &l->config->moe;
    const size_t t = l->tokens, rows = part_moe_rows(l->config, t);
    struct slab shared = *slab; /* computed before the others */
    slab_floats(&shared, t, m->shared_ffn);
    ret->moe.rows = rows;
    ret->moe.wide = slab_floats(slab, rows, m->ffn);
    slab_join(slab, &shared);
    ret->moe.x = slab_floats(slab, rows, l->config->dim);
    ret->moe.y = slab_floats(slab, rows, l->config->dim);
    ret->moe.act = slab_floats(slab, t, m->ffn);
    ret->moe.dweight = slab_floats(slab, t, m->chosen);
    ret->moe.set = slab_take(slab, l->blocks ? rows : 0, 1, sizeof *ret->moe.set);
}

/* --- one expert's rows ------------------------------------------------------------------------ */

struct expert {
    struct moe_rows rows;
    size_t first; /* of its tensors */
    struct mlp_saved saved;
    struct mlp_dys dys;
};

static size_t rows_of(const union part_saved *s, size_t e)
{
    return s->moe.groups.start[e + 1] - s->moe.groups.start[e];
}

static size_t lora_rank(const struct linear *lin)
{
    return lin->lora ? lin->lora->rank : 0;
}

/* dys: NULL in the forward pass. */
static struct expert expert_of(const struct config *c, const union part_saved *s, const union part_dys *d,
                               const struct unit_weights *w, size_t e)
{
    const size_t from = s->moe.groups.start[e], ffn = c->moe.ffn,
                 across = w->lin[expert_at(c, e) + MLP_DOWN].w.cols;
    struct expert x = {.rows = {s->moe.groups.pick + from, rows_of(s, e), c->moe.chosen},
                       .first = expert_at(c, e),
                       .saved = {.gate = s->moe.gate + from * ffn, .up = s->moe.up + from * ffn}};
    if (d) {
        x.dys.gate = d->moe.gate + from * ffn;
        x.dys.up = d->moe.up + from * ffn;
    }
    for (size_t i = 0; i < 2 && d && across > ffn; i++)
        x.dys.all[i] = d->moe.all[i] + from * across;
    for (size_t i = 0; i < MLP_LINEARS; i++) {
        const size_t rank = lora_rank(&w->lin[x.first + i]);
        x.saved.xa[i] = s->moe.xa[i] + from * rank;
        x.dys.dyb[i] = d ? d->moe.dyb[i] + from * rank : NULL;
    }
    return x;
}

/* --- the recipe ------------------------------------------------------------------------------- */

/* The adapter of each row, which is that of its token. */
static const uint32_t *sets_of(const struct block_ctx *ctx, uint32_t *to, struct moe_rows rows)
{
    for (size_t r = 0; ctx->set && r < rows.n; r++)
        to[r] = ctx->set[rows.pick[r] / rows.chosen];
    return ctx->set ? to : NULL;
}

/* Columns of y that are computed here: of a slice its own. */
static size_t own_width(const struct block_ctx *ctx, const struct unit_weights *w)
{
    return w->lin[expert_at(ctx->config, 0) + MLP_DOWN].w.rows;
}

/* n experts whose rows follow one another: their gates and ups at once, then their downs, for with
 * few rows waking the threads for each product takes longer than some products. */
static void experts_forward(const struct block_ctx *ctx, float *y, const struct expert *x, size_t n,
                            const union part_saved *s, const float *h, const struct unit_weights *w,
                            union part_work *work)
{
    const size_t dim = ctx->config->dim, ffn = ctx->config->moe.ffn, own = own_width(ctx, w);
    const size_t across = w->lin[x[0].first + MLP_DOWN].w.cols;
    const float *act = ctx->gather ? ctx->gather->wide : work->moe.wide;
    struct moe_rows all = x[0].rows;
    struct linear_use wide[2 * TOGETHER], down[TOGETHER];
    size_t at = 0;
    for (size_t i = 0; i < n; at += x[i].rows.n, i++) {
        const struct linear *lin = &w->lin[x[i].first];
        const struct mlp_saved *to = &x[i].saved;
        const float *in = work->moe.x + at * dim;
        const size_t rows = x[i].rows.n;
        const uint32_t *set = sets_of(ctx, work->moe.set + at, x[i].rows);
        wide[2 * i] = (struct linear_use){to->gate, to->xa[MLP_GATE], in, &lin[MLP_GATE], rows, set};
        wide[2 * i + 1] = (struct linear_use){to->up, to->xa[MLP_UP], in, &lin[MLP_UP], rows, set};
        down[i] = (struct linear_use){
            work->moe.y + at * own, to->xa[MLP_DOWN], act + at * across, &lin[MLP_DOWN], rows, set};
    }
    all.n = at;
    moe_gather(ctx->num, work->moe.x, h, NULL, all, dim);
    linear_forward_each(ctx->num, wide, 2 * n);
    glu_forward(ctx->num, work->moe.wide, x[0].saved.gate, x[0].saved.up, ctx->config->glu, at * ffn);
    if (ctx->gather)
        part_gather_columns(ctx, ctx->gather->wide, work->moe.wide, at, across, SLICE_ANY);
    linear_forward_each(ctx->num, down, n);
    for (size_t i = 0; i < n; i++)
        moe_scatter_add(ctx->num, y, down[i].y, s->moe.weight, x[i].rows, own);
}

/* What the shared experts give, to y. */
static void shared_forward(const struct block_ctx *ctx, float *y, union part_saved *s, const float *h,
                           const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens;
    float *out = c->moe.shared_gate ? s->moe.shared_y : y;
    mlp_forward(ctx, out, &s->moe.shared, h, &w->lin[shared_at(c)], kind_of(c), work->moe.wide);
    if (!c->moe.shared_gate)
        return;
    gemm_xwt(ctx->num, s->moe.shared_score, h, w->lin[shared_gate_at(c)].w, t, false);
    moe_gate_forward(ctx->num, y, s->moe.shared_score, out, t, own_width(ctx, w));
}

/* Their part of dh. */
static void shared_back(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                        const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const size_t t = ctx->tokens;
    const bool gated = c->moe.shared_gate;
    if (gated)
        moe_gate_backward_x(ctx->num, d->moe.shared_y, d->moe.shared_score, dy, s->moe.shared_score,
                            s->moe.shared_y, t, c->dim);
    mlp_backward_x(ctx, dh, &d->moe.shared, gated ? d->moe.shared_y : dy, &s->moe.shared, w, shared_at(c),
                   kind_of(c), t, work->moe.wide);
    if (gated)
        gemm_xw(ctx->num, dh, d->moe.shared_score, w->lin[shared_gate_at(c)].w, t, true);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *s, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const struct moe_route route = route_of(c);
    const size_t t = ctx->tokens;
    float *to = ctx->gather ? ctx->gather->own : y;
    linear_forward(ctx->num, s->moe.score, NULL, h, &w->lin[ROUTER], t);
    if (ctx->gather)
        part_gather_first(ctx, s->moe.score, t, route.experts);
    moe_route_forward(ctx->num, s->moe.chosen, s->moe.weight, s->moe.score,
                      c->moe.bias ? w->vec[choice_bias(c)] : NULL, route, t);
    moe_group(&s->moe.groups, s->moe.chosen, route, t);
    if (c->moe.shared_ffn)
        shared_forward(ctx, to, s, h, w, work);
    else
        memset(to, 0, t * own_width(ctx, w) * sizeof *to);
    for (size_t e = 0; e < route.experts;) {
        struct expert x[TOGETHER];
        size_t n = 0;
        for (size_t rows = 0; e < route.experts && n < TOGETHER && rows + rows_of(s, e) <= work->moe.rows;
             e++)
            if (rows_of(s, e)) {
                x[n++] = expert_of(c, s, NULL, w, e);
                rows += rows_of(s, e);
            }
        if (n)
            experts_forward(ctx, to, x, n, s, h, w, work);
    }
    if (ctx->gather)
        part_gather_columns(ctx, y, to, t, c->dim, SLICE_ANY);
}

/* In the forward pass: y += weight·(down(act) + bias). The weight's gradient is dy·down(act) +
 * dy·bias = (dy·down)·act + dy·bias, so the outputs of the experts need not be kept; what goes
 * further down is then multiplied by the weight. */
static void expert_back(const struct block_ctx *ctx, float *dh, const struct expert *x, const float *dy,
                        const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    struct num *num = ctx->num;
    const struct linear *lin = &w->lin[x->first];
    const size_t n = x->rows.n, dim = ctx->config->dim, ffn = ctx->config->moe.ffn;
    moe_gather(num, work->moe.y, dy, NULL, x->rows, dim);
    linear_backward_x(num, work->moe.wide, x->dys.dyb[MLP_DOWN], work->moe.y, &lin[MLP_DOWN], n, false);
    glu_forward(num, work->moe.act, x->saved.gate, x->saved.up, ctx->config->glu, n * ffn);
    moe_weight_back(num, work->moe.dweight, work->moe.wide, work->moe.act, x->rows, ffn);
    if (lin[MLP_DOWN].bias)
        moe_bias_back(num, work->moe.dweight, work->moe.y, lin[MLP_DOWN].bias, x->rows, dim);
    moe_scale(num, work->moe.wide, s->moe.weight, x->rows, ffn);
    moe_scale(num, x->dys.dyb[MLP_DOWN], s->moe.weight, x->rows, lora_rank(&lin[MLP_DOWN]));
    glu_backward_x(num, x->dys.gate, x->dys.up, work->moe.wide, x->saved.gate, x->saved.up, ctx->config->glu,
                   n * ffn);
    linear_backward_x(num, work->moe.x, x->dys.dyb[MLP_GATE], x->dys.gate, &lin[MLP_GATE], n, false);
    linear_backward_x(num, work->moe.x, x->dys.dyb[MLP_UP], x->dys.up, &lin[MLP_UP], n, true);
    moe_scatter_add(num, dh, work->moe.x, NULL, x->rows, dim);
}

/* --- the same of a slice ---------------------------------------------------------------------- */

/* What a slice has of a gradient is some of its columns, and the weight's gradient sums over all of
 * them: as do the products with gate and up. So the ranks gather the rows of all experts at once,
 * twice two. First the gradient of each activation, and the activation. */
static void down_back(const struct block_ctx *ctx, const struct expert *x, const float *dy,
                      const struct unit_weights *w, union part_work *work)
{
    const size_t last = x->first + MLP_DOWN, n = x->rows.n;
    const struct slice_rows own = part_own(ctx, w->lin[last].w.cols, SLICE_ANY);
    moe_gather(ctx->num, work->moe.y, dy, NULL, x->rows, ctx->config->dim);
    part_shared_back(ctx, x->dys.gate, x->dys.dyb[MLP_DOWN], work->moe.y, w, last, own, n, false);
    glu_forward(ctx->num, x->dys.up, x->saved.gate, x->saved.up, ctx->config->glu, n * ctx->config->moe.ffn);
}

/* Then those of gate and up. */
static void activation_back(const struct block_ctx *ctx, const struct expert *x, const float *dy,
                            const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    struct num *num = ctx->num;
    const size_t last = x->first + MLP_DOWN, n = x->rows.n, dim = ctx->config->dim,
                 ffn = ctx->config->moe.ffn;
    const float *bias = w->lin[last].bias;
    moe_weight_back(num, work->moe.dweight, x->dys.all[0], x->dys.all[1], x->rows, w->lin[last].w.cols);
    if (bias) {
        moe_gather(num, work->moe.y, dy, NULL, x->rows, dim);
        moe_bias_back(num, work->moe.dweight, work->moe.y, bias - w->cut[last].first, x->rows, dim);
    }
    memcpy(work->moe.wide, x->dys.gate, n * ffn * sizeof *work->moe.wide);
    moe_scale(num, work->moe.wide, s->moe.weight, x->rows, ffn);
    moe_scale(num, x->dys.dyb[MLP_DOWN], s->moe.weight, x->rows, lora_rank(&w->lin[last]));
    glu_backward_x(num, x->dys.gate, x->dys.up, work->moe.wide, x->saved.gate, x->saved.up, ctx->config->glu,
                   n * ffn);
}

/* And of their inputs some columns. */
static void inputs_back(const struct block_ctx *ctx, float *own_dh, const struct expert *x,
                        const struct unit_weights *w, union part_work *work)
{
    const struct slice_rows inputs = part_own(ctx, ctx->config->dim, SLICE_ANY);
    const size_t n = x->rows.n;
    part_shared_back(ctx, work->moe.x, x->dys.dyb[MLP_GATE], x->dys.all[0], w, x->first + MLP_GATE, inputs, n,
                     false);
    part_shared_back(ctx, work->moe.x, x->dys.dyb[MLP_UP], x->dys.all[1], w, x->first + MLP_UP, inputs, n,
                     true);
    moe_scatter_add(ctx->num, own_dh, work->moe.x, NULL, x->rows, inputs.n);
}

static void gather_experts(const struct block_ctx *ctx, const union part_dys *d, const union part_saved *s,
                           const struct unit_weights *w)
{
    const size_t rows = s->moe.groups.start[ctx->config->moe.experts],
                 across = w->lin[expert_at(ctx->config, 0) + MLP_DOWN].w.cols;
    part_gather_columns(ctx, d->moe.all[0], d->moe.gate, rows, across, SLICE_ANY);
    part_gather_columns(ctx, d->moe.all[1], d->moe.up, rows, across, SLICE_ANY);
}

static void slice_back(const struct block_ctx *ctx, float *dh, const union part_dys *d, const float *dy,
                       const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const struct slice_rows inputs = part_own(ctx, c->dim, SLICE_ANY);
    for (int pass = 0; pass < 3; pass++) {
        if (pass)
            gather_experts(ctx, d, s, w);
        if (pass == 2)
            part_columns_take(ctx->gather->own, inputs.n, dh, c->dim, inputs.first, ctx->tokens);
        for (size_t e = 0; e < c->moe.experts; e++) {
            const struct expert x = expert_of(c, s, d, w, e);
            if (!x.rows.n)
                continue;
            if (pass == 0)
                down_back(ctx, &x, dy, w, work);
            else if (pass == 1)
                activation_back(ctx, &x, dy, s, w, work);
            else
                inputs_back(ctx, ctx->gather->own, &x, w, work);
        }
    }
    part_gather_dh(ctx, dh, ctx->tokens, c->dim);
}

/* --- backward --------------------------------------------------------------------------------- */

/* dh is always there: below an MLP lies its attention. */
static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *d, const float *dy,
                       const union part_saved *s, const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    const struct moe_route route = route_of(c);
    const size_t t = ctx->tokens;
    if (c->moe.shared_ffn)
        shared_back(ctx, dh, d, dy, s, w, work);
    else
        memset(dh, 0, t * c->dim * sizeof *dh);
    for (size_t e = 0; e < route.experts && !ctx->gather; e++) {
        const struct expert x = expert_of(c, s, d, w, e);
        if (x.rows.n)
            expert_back(ctx, dh, &x, dy, s, w, work);
    }
    if (ctx->gather)
        slice_back(ctx, dh, d, dy, s, w, work);
    moe_route_backward_x(ctx->num, d->moe.logits, work->moe.dweight, s->moe.chosen, s->moe.score, route, t);
    gemm_xw(ctx->num, dh, d->moe.logits, w->lin[ROUTER].w, t, true);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *d,
                       const float *dy, const union part_saved *s, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    const struct config *c = ctx->config;
    if (g->full[ROUTER])
        linear_backward_w(ctx->num, g->full[ROUTER], g->bias[ROUTER], d->moe.logits, h, ctx->tokens, c->dim,
                          c->moe.experts);
    if (c->moe.shared_ffn)
        mlp_backward_w(ctx, g, shared_at(c), &d->moe.shared, c->moe.shared_gate ? d->moe.shared_y : dy,
                       &s->moe.shared, h, w, kind_of(c), ctx->tokens, work->moe.wide);
    if (c->moe.shared_gate && g->full[shared_gate_at(c)])
        linear_backward_w(ctx->num, g->full[shared_gate_at(c)], NULL, d->moe.shared_score, h, ctx->tokens,
                          c->dim, 1);
    for (size_t e = 0; e < c->moe.experts; e++) {
        const struct expert x = expert_of(c, s, d, w, e);
        if (!x.rows.n || !part_wants(g, x.first, MLP_LINEARS))
            continue;
        moe_gather(ctx->num, work->moe.x, h, NULL, x.rows, c->dim);
        moe_gather(ctx->num, work->moe.y, dy, s->moe.weight, x.rows, c->dim);
        mlp_backward_w(ctx, g, x.first, &x.dys, work->moe.y, &x.saved, work->moe.x, w, kind_of(c), x.rows.n,
                       work->moe.wide);
    }
}

const struct part part_moe = {
    .tensors = moe_tensors,
    .saved_carve = saved_carve,
    .dys_carve = dys_carve,
    .work_carve = work_carve,
    .forward = forward,
    .backward_x = backward_x,
    .backward_w = backward_w,
};
