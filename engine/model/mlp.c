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
            tensor_linear(list, name, down ? dim : ffn, down ? ffn : dim);
        else
            tensor_vector(list, name, down ? dim : ffn);
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
                   bool fused, size_t tokens, size_t ffn)
{
    ret->gate = slab_floats(slab, tokens, ffn);
    ret->up = slab_floats(slab, tokens, ffn);
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

void mlp_forward(struct num *num, float *y, const struct mlp_saved *saved, const float *h,
                 const struct linear *lin, struct mlp_kind kind, const uint32_t *set, size_t tokens,
                 float *wide)
{
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN;
    const struct linear_use down = {y, saved->xa[last], wide, &lin[last], tokens, set};
    if (kind.fused) {
        fused_forward(num, saved, h, lin, set, tokens, wide);
    } else {
        const struct linear_use both[] = {{saved->gate, saved->xa[MLP_GATE], h, &lin[MLP_GATE], tokens, set},
                                          {saved->up, saved->xa[MLP_UP], h, &lin[MLP_UP], tokens, set}};
        linear_forward_each(num, both, 2);
    }
    glu_forward(num, wide, saved->gate, saved->up, kind.glu, tokens * ffn_of(lin, kind));
    linear_forward_each(num, &down, 1);
}

void mlp_backward_x(struct num *num, float *dh, const struct mlp_dys *dys, const float *dy,
                    const struct mlp_saved *saved, const struct linear *lin, struct mlp_kind kind,
                    size_t tokens, float *wide, bool accumulate)
{
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN, ffn = ffn_of(lin, kind);
    linear_backward_x(num, wide, dys->dyb[last], dy, &lin[last], tokens, false);
    glu_backward_x(num, dys->gate, dys->up, wide, saved->gate, saved->up, kind.glu, tokens * ffn);
    if (kind.fused) {
        part_columns_put(dys->both, 2 * ffn, 0, dys->gate, ffn, tokens);
        part_columns_put(dys->both, 2 * ffn, ffn, dys->up, ffn, tokens);
        part_linear_back(num, dh, dys->dyb[MLP_BOTH], dys->both, &lin[MLP_BOTH], tokens, accumulate);
        return;
    }
    part_linear_back(num, dh, dys->dyb[MLP_GATE], dys->gate, &lin[MLP_GATE], tokens, accumulate);
    part_linear_back(num, dh, dys->dyb[MLP_UP], dys->up, &lin[MLP_UP], tokens, true);
}

void mlp_backward_w(struct num *num, const struct unit_grads *g, size_t first, const struct mlp_dys *dys,
                    const float *dy, const struct mlp_saved *saved, const float *h,
                    const struct unit_weights *w, struct mlp_kind kind, size_t tokens, float *wide)
{
    const size_t last = kind.fused ? MLP_FUSED_DOWN : MLP_DOWN;
    if (kind.fused) {
        part_linear_grads(num, g, first + MLP_BOTH, dys->both, dys->dyb[MLP_BOTH], saved->xa[MLP_BOTH], h, w,
                          tokens);
    } else {
        part_linear_grads(num, g, first + MLP_GATE, dys->gate, dys->dyb[MLP_GATE], saved->xa[MLP_GATE], h, w,
                          tokens);
        part_linear_grads(num, g, first + MLP_UP, dys->up, dys->dyb[MLP_UP], saved->xa[MLP_UP], h, w, tokens);
    }
    if (!part_wants(g, first + last, 1))
        return;
    /* the activation was not kept: one pass over memory gives it again */
    glu_forward(num, wide, saved->gate, saved->up, kind.glu, tokens * ffn_of(&w->lin[first], kind));
    part_linear_grads(num, g, first + last, dy, dys->dyb[last], saved->xa[last], wide, w, tokens);
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
    mlp_dys_carve(&ret->mlp, slab, l, 0, l->config->fused, l->tokens, l->config->ffn);
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    ret->mlp.wide = slab_floats(slab, l->tokens, (l->config->fused ? 2 : 1) * l->config->ffn);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    mlp_forward(ctx->num, y, &saved->mlp, h, w->lin, kind_of(ctx), ctx->set, ctx->tokens, work->mlp.wide);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *dys, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    mlp_backward_x(ctx->num, dh, &dys->mlp, dy, &saved->mlp, w->lin, kind_of(ctx), ctx->tokens,
                   work->mlp.wide, false);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *dys,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    mlp_backward_w(ctx->num, g, 0, &dys->mlp, dy, &saved->mlp, h, w, kind_of(ctx), ctx->tokens,
                   work->mlp.wide);
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
