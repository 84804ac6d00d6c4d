/* SPDX-License-Identifier: MIT
 *
 * The dense MLP as a part of a block, y = down(silu(gate(h))·up(h)), and its pieces, which experts
 * use too. Called by block.c and moe.c, on the computing thread. */
#include "model/part.h"

#include <stdio.h>

void mlp_tensors(struct tensor_list *list, const char *stem, size_t ffn, size_t dim, bool bias)
{
    static const char *const names[MLP_LINEARS] = {"gate_proj", "up_proj", "down_proj"};
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
                     size_t tokens, size_t ffn)
{
    ret->gate = slab_floats(slab, tokens, ffn);
    ret->up = slab_floats(slab, tokens, ffn);
    for (size_t i = 0; i < MLP_LINEARS; i++)
        ret->xa[i] = slab_floats(slab, tokens, part_rank(l, first + i));
}

void mlp_dys_carve(struct mlp_dys *ret, struct slab *slab, const struct part_layout *l, size_t first,
                   size_t tokens, size_t ffn)
{
    ret->gate = slab_floats(slab, tokens, ffn);
    ret->up = slab_floats(slab, tokens, ffn);
    for (size_t i = 0; i < MLP_LINEARS; i++)
        ret->dyb[i] = slab_floats(slab, tokens, part_rank(l, first + i));
}

void mlp_forward(struct num *num, float *y, const struct mlp_saved *saved, const float *h,
                 const struct linear *lin, const uint32_t *set, size_t tokens, float *wide)
{
    const struct linear_use both[] = {{saved->gate, saved->xa[MLP_GATE], h, &lin[MLP_GATE], tokens, set},
                                      {saved->up, saved->xa[MLP_UP], h, &lin[MLP_UP], tokens, set}};
    const struct linear_use down = {y, saved->xa[MLP_DOWN], wide, &lin[MLP_DOWN], tokens, set};
    linear_forward_each(num, both, 2);
    swiglu_forward(num, wide, saved->gate, saved->up, tokens * lin[MLP_GATE].w.rows);
    linear_forward_each(num, &down, 1);
}

void mlp_backward_x(struct num *num, float *dh, const struct mlp_dys *dys, const float *dy,
                    const struct mlp_saved *saved, const struct linear *lin, size_t tokens, float *wide,
                    bool accumulate)
{
    linear_backward_x(num, wide, dys->dyb[MLP_DOWN], dy, &lin[MLP_DOWN], tokens, false);
    swiglu_backward_x(num, dys->gate, dys->up, wide, saved->gate, saved->up, tokens * lin[MLP_GATE].w.rows);
    part_linear_back(num, dh, dys->dyb[MLP_GATE], dys->gate, &lin[MLP_GATE], tokens, accumulate);
    part_linear_back(num, dh, dys->dyb[MLP_UP], dys->up, &lin[MLP_UP], tokens, true);
}

void mlp_backward_w(struct num *num, const struct unit_grads *g, size_t first, const struct mlp_dys *dys,
                    const float *dy, const struct mlp_saved *saved, const float *h,
                    const struct unit_weights *w, size_t tokens, float *wide)
{
    part_linear_grads(num, g, first + MLP_GATE, dys->gate, dys->dyb[MLP_GATE], saved->xa[MLP_GATE], h, w,
                      tokens);
    part_linear_grads(num, g, first + MLP_UP, dys->up, dys->dyb[MLP_UP], saved->xa[MLP_UP], h, w, tokens);
    if (!part_wants(g, first + MLP_DOWN, 1))
        return;
    /* the activation was not kept: one pass over memory gives it again */
    swiglu_forward(num, wide, saved->gate, saved->up, tokens * w->lin[first].w.rows);
    part_linear_grads(num, g, first + MLP_DOWN, dy, dys->dyb[MLP_DOWN], saved->xa[MLP_DOWN], wide, w, tokens);
}

/* --- the part --------------------------------------------------------------------------------- */

static void dense_tensors(struct tensor_list *list, const struct config *c)
{
    mlp_tensors(list, "mlp", c->ffn, c->dim, c->mlp_bias);
}

static void saved_carve(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l)
{
    (void)bwd_x_only; /* the backward to the weights makes activations again from what there is */
    mlp_saved_carve(&ret->mlp, slab, l, 0, l->tokens, l->config->ffn);
}

static void dys_carve(union part_dys *ret, struct slab *slab, const struct part_layout *l)
{
    mlp_dys_carve(&ret->mlp, slab, l, 0, l->tokens, l->config->ffn);
}

static void work_carve(union part_work *ret, struct slab *slab, const struct part_layout *l)
{
    ret->mlp.wide = slab_floats(slab, l->tokens, l->config->ffn);
}

static void forward(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work)
{
    mlp_forward(ctx->num, y, &saved->mlp, h, w->lin, ctx->set, ctx->tokens, work->mlp.wide);
}

static void backward_x(const struct block_ctx *ctx, float *dh, union part_dys *dys, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work)
{
    mlp_backward_x(ctx->num, dh, &dys->mlp, dy, &saved->mlp, w->lin, ctx->tokens, work->mlp.wide, false);
}

static void backward_w(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *dys,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work)
{
    mlp_backward_w(ctx->num, g, 0, &dys->mlp, dy, &saved->mlp, h, w, ctx->tokens, work->mlp.wide);
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
