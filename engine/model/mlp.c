/* SPDX-License-Identifier: MIT
 *
 * The dense MLP as a part of a block, y = down(act(gate(h), up(h))), and its pieces, which
 * experts use too. Gate and up may be one linear. Called by block.c and moe.c, on the computing
 * thread. */
#include "model/part.h"

#include <stdio.h>

static size_t linears(bool fused)
{
    return fused ? MLP_FUSED : MLP_LINEARS;
}

void mlp_tensors(struct tensor_list *list, const char *stem, const char *const *names, size_t ffn, size_t dim,
                 bool bias)
{
    for (size_t i = 0; i < MLP_LINEARS * (bias ? 2 : 1); i++) {
        char name[64];
        const bool down = i % MLP_LINEARS == MLP_DOWN;
        snprintf(name, sizeof name, "%s.%s.%s", stem, names[i % MLP_LINEARS],
                 i < MLP_LINEARS ? "weight" : "bias");
        if (i < MLP_LINEARS)
            tensor_shared(list, name, down ? dim : ffn, down ? ffn : dim, SLICE_ANY);
        else
            tensor_shared(list, name, down ? dim : ffn, 0, SLICE_ANY);
    }
}

void mlp_saved_carve(struct mlp_saved *ret, struct slab *slab, const struct part_layout *l, size_t first,
                     bool fused, size_t tokens, size_t ffn)
{
    ret->gate = slab_floats(slab, tokens, ffn);
    ret->up = slab_floats(slab, tokens, ffn);
    for (size_t i = 0; i < linears(fused); i++)
        ret->xa[i] = slab_floats(slab, tokens, part_rank(l, first + i));
}

void mlp_dys_carve(struct mlp_dys *ret, struct slab *slab, const struct part_layout *l, size_t first,
                   bool fused, size_t tokens, size_t ffn, size_t whole_ffn)
{
    ret->gate = slab_floats(slab, tokens, ffn);
    ret->up = slab_floats(slab, tokens, ffn);
    for (size_t i = 0; i < 2; i++)
        ret->all[i] = slab_floats(slab, whole_ffn ? tokens : 0, whole_ffn);
    ret->both = slab_floats(slab, fused ? tokens : 0, 2 * ffn);
    for (size_t i = 0; i < linears(fused); i++)
        ret->dyb[i] = slab_floats(slab, tokens, part_rank(l, first + i));
}

/* Both of each row from one product. */
static void fused_forward(struct num *num, const struct mlp_saved *saved, const float *h,
                          const struct linear *lin, const uint32_t *set, size_t tokens, float *wide)
{
    const size_t both = lin[MLP_BOTH].w.rows, ffn = both / 2;
    const struct linear_use use = {wide, saved->xa[MLP_BOTH], h, &lin[MLP_BOTH], tokens, set};
    linear_forward_each(num, &use, 1);
    part_columns_take(saved->gate, ffn, wide, both, 0, tokens);
    part_columns_take(saved->up, ffn, wide, both, ffn, tokens);
}

static size_t ffn_of(const struct linear *lin, struct mlp_kind kind)
{
    return kind.fused ? lin[MLP_BOTH].w.rows / 2 : lin[MLP_GATE].w.rows;
}

void mlp_forward(const struct block_ctx *ctx, float *y, const struct mlp_saved *saved, const float *h,
                 const struct linear *lin, struct mlp_kind kind, float *wide)
{
    struct num *num = ctx->num;
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN, tokens = ctx->tokens;
    const uint32_t *set = ctx->set;
    if (kind.fused) {
        fused_forward(num, saved, h, lin, set, tokens, wide);
    } else {
        const struct linear_use both[] = {{saved->gate, saved->xa[MLP_GATE], h, &lin[MLP_GATE], tokens, set},
                                          {saved->up, saved->xa[MLP_UP], h, &lin[MLP_UP], tokens, set}};
        linear_forward_each(num, both, 2);
    }
    glu_forward(num, wide, saved->gate, saved->up, kind.glu, tokens * ffn_of(lin, kind));
    const float *in = part_gather_wide(ctx, wide, tokens, lin[last].w.cols, SLICE_ANY);
    linear_forward_each(num, &(struct linear_use){y, saved->xa[last], in, &lin[last], tokens, set}, 1);
}

void mlp_backward_x(const struct block_ctx *ctx, float *dh, const struct mlp_dys *dys, const float *dy,
                    const struct mlp_saved *saved, const struct unit_weights *w, size_t first,
                    struct mlp_kind kind, size_t tokens, float *wide)
{
    const struct linear *lin = w->lin + first;
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN, ffn = ffn_of(lin, kind),
                 dim = lin[MLP_GATE].w.cols;
    const struct slice_rows own = part_own(ctx, lin[last].w.cols, SLICE_ANY),
                            inputs = part_own(ctx, dim, SLICE_ANY);
    part_shared_back(ctx, wide, dys->dyb[last], dy, w, first + last, own, tokens, false);
    glu_backward_x(ctx->num, dys->gate, dys->up, wide, saved->gate, saved->up, kind.glu, tokens * ffn);
    if (kind.fused) {
        part_columns_put(dys->both, 2 * ffn, 0, dys->gate, ffn, tokens);
        part_columns_put(dys->both, 2 * ffn, ffn, dys->up, ffn, tokens);
        part_linear_back(ctx->num, dh, dys->dyb[MLP_BOTH], dys->both, &lin[MLP_BOTH], tokens, false);
        return;
    }
    const float *gate = part_gather_back(ctx, dys->all[0], dys->gate, w, first + MLP_GATE, SLICE_ANY),
                *up = part_gather_back(ctx, dys->all[1], dys->up, w, first + MLP_UP, SLICE_ANY);
    float *to = part_own_dh(ctx, dh);
    part_shared_back(ctx, to, dys->dyb[MLP_GATE], gate, w, first + MLP_GATE, inputs, tokens, false);
    part_shared_back(ctx, to, dys->dyb[MLP_UP], up, w, first + MLP_UP, inputs, tokens, true);
    part_gather_dh(ctx, dh, tokens, dim);
}

void mlp_backward_w(const struct block_ctx *ctx, const struct unit_grads *g, size_t first,
                    const struct mlp_dys *dys, const float *dy, const struct mlp_saved *saved, const float *h,
                    const struct unit_weights *w, struct mlp_kind kind, size_t tokens, float *wide)
{
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN;
    const float *const apart[] = {ctx->gather ? dys->all[0] : dys->gate, ctx->gather ? dys->all[1] : dys->up};
    for (size_t i = 0; i < last; i++)
        part_linear_grads(ctx, g, first + i, kind.fused ? dys->both : apart[i], dys->dyb[i], saved->xa[i], h,
                          w, tokens);
    if (!part_wants(g, first + last, 1))
        return;
    /* the activation was not kept: one pass over memory gives it again */
    glu_forward(ctx->num, wide, saved->gate, saved->up, kind.glu, tokens * ffn_of(&w->lin[first], kind));
    const float *in = part_gather_wide(ctx, wide, tokens, w->lin[first + last].w.cols, SLICE_ANY);
    part_linear_grads(ctx, g, first + last, dy, dys->dyb[last], saved->xa[last], in, w, tokens);
}

/* --- the part --------------------------------------------------------------------------------- */

static void dense_tensors(struct tensor_list *list, const struct config *c)
{
    static const char *const names[MLP_LINEARS] = {"gate_proj", "up_proj", "down_proj"};
    if (!c->fused) {
        mlp_tensors(list, "mlp", names, c->ffn, c->dim, c->mlp_bias);
        return;
    }
    tensor_linear(list, "mlp.gate_up_proj.weight", 2 * c->ffn, c->dim);
    tensor_linear(list, "mlp.down_proj.weight", c->dim, c->ffn);
}

static struct mlp_kind kind_of(const struct block_ctx *ctx)
{
    return (struct mlp_kind){ctx->config->glu, ctx->config->fused};
}

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    (void)bwd_x_only; /* the backward to the weights makes activations again from what there is */
    mlp_saved_carve(&ret->mlp, slab, l, 0, l->config->fused, l->tokens, l->config->ffn);
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    mlp_dys_carve(&ret->mlp, slab, l, 0, l->config->fused, l->tokens, l->config->ffn,
                  l->whole ? l->whole->ffn : 0);
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    ret->mlp.wide = slab_floats(slab, l->tokens, (l->config->fused ? 2 : 1) * l->config->ffn);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    float *out = ctx->gather ? ctx->gather->own : y;
    mlp_forward(ctx, out, &saved->mlp, h, w->lin, kind_of(ctx), work->mlp.wide);
    if (ctx->gather)
        part_gather_columns(ctx, y, out, ctx->tokens, ctx->config->dim, SLICE_ANY);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *dys, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    mlp_backward_x(ctx, dh, &dys->mlp, dy, &saved->mlp, w, 0, kind_of(ctx), ctx->tokens, work->mlp.wide);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *dys,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    mlp_backward_w(ctx, g, 0, &dys->mlp, dy, &saved->mlp, h, w, kind_of(ctx), ctx->tokens, work->mlp.wide);
}

const struct part part_mlp = {
    .tensors = dense_tensors,
    .saved_carve = saved_carve,
    .dys_carve = dys_carve,
    .work_carve = work_carve,
    .forward = forward,
    .backward_x = backward_x,
    .backward_w = backward_w,
};
