/* SPDX-License-Identifier: MIT
 *
 * What the parts of a block share: listing tensors, LoRA ranks, gradients of one linear. Called by
 * parts, on the computing thread. */
#include "model/part.h"

#include <stdio.h>
#include <string.h>

#include "layer/dora.h"

void tensor_add(struct tensor_list *list, const char *name, struct tensor_def def)
{
    if (list->answer)
        return;
    snprintf(def.name, sizeof def.name, "%s%s", list->prefix, name);
    def.part = list->part;
    list->answer = list->visit(list->arg, &def);
}

void tensor_linear(struct tensor_list *list, const char *name, size_t rows, size_t cols)
{
    tensor_shared(list, name, rows, cols, 0);
}

void tensor_vector(struct tensor_list *list, const char *name, size_t rows)
{
    tensor_shared(list, name, rows, 0, 0);
}

void tensor_shared(struct tensor_list *list, const char *name, size_t rows, size_t cols, size_t grain)
{
    tensor_add(list, name, (struct tensor_def){.rows = rows, .cols = cols, .grain = grain, .linear = cols});
}

struct gather_columns part_columns_of(const struct part_gather *g, float *to, const float *own, size_t rows,
                                      size_t width, size_t grain)
{
    const size_t count = g->how->slice.count;
    struct gather_columns what = {.to = to, .own = own, .rows = rows, .width = width};
    for (size_t i = 0; i < count; i++)
        what.first[i] = slice_rows((struct slice){i, count}, width, grain).first;
    what.first[count] = width;
    return what;
}

/* Once it has failed, what is computed is worth nothing, and no other rank waits for more of it. */
int part_gather_run(struct part_gather *g, const struct gather_columns *what)
{
    if (!g->failed)
        g->failed = g->how->run(g->how->owner, what, &g->err);
    return g->failed;
}

void part_gather_columns(const struct block_ctx *ctx, float *to, const float *own, size_t rows, size_t width,
                         size_t grain)
{
    const struct gather_columns what = part_columns_of(ctx->gather, to, own, rows, width, grain);
    if (part_gather_run(ctx->gather, &what))
        memset(to, 0, rows * width * sizeof *to);
}

void part_gather_first(const struct block_ctx *ctx, float *x, size_t rows, size_t width)
{
    struct gather_columns what = {.to = x, .own = x, .rows = rows, .width = width};
    for (size_t i = 1; i <= ctx->gather->how->slice.count; i++)
        what.first[i] = width;
    part_gather_run(ctx->gather, &what);
}

size_t part_rank(const struct part_layout *l, size_t linear)
{
    return l->lin[linear].widest;
}

size_t part_max_rank(const struct part_layout *l, size_t first, size_t linears)
{
    size_t most = 0;
    for (size_t i = first; i < first + linears; i++)
        most = part_rank(l, i) > most ? part_rank(l, i) : most;
    return most;
}

void part_linear_back(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                      size_t tokens, bool accumulate)
{
    if (dx)
        linear_backward_x(num, dx, dyb, dy, lin, tokens, accumulate);
    else if (lin->lora)
        lora_backward_dyb(num, dyb, dy, lin, tokens);
}

/* --- slices that train ------------------------------------------------------------------------ */

struct slice_rows part_own(const struct block_ctx *ctx, size_t width, size_t grain)
{
    return ctx->gather ? slice_rows(ctx->gather->how->slice, width, grain) : (struct slice_rows){0, width};
}

const float *part_gather_back(const struct block_ctx *ctx, float *all, const float *dy,
                              const struct unit_weights *w, size_t tensor, size_t grain)
{
    if (!ctx->gather)
        return dy;
    part_gather_columns(ctx, all, dy, ctx->tokens, w->whole[tensor].rows, grain);
    return all;
}

const float *part_gather_wide(const struct block_ctx *ctx, const float *own, size_t rows, size_t width,
                              size_t grain)
{
    if (!ctx->gather)
        return own;
    part_gather_columns(ctx, ctx->gather->wide, own, rows, width, grain);
    return ctx->gather->wide;
}

float *part_own_dh(const struct block_ctx *ctx, float *dh)
{
    return ctx->gather && dh ? ctx->gather->own : dh;
}

void part_gather_dh(const struct block_ctx *ctx, float *dh, size_t rows, size_t width)
{
    if (ctx->gather && dh)
        part_gather_columns(ctx, dh, ctx->gather->own, rows, width, SLICE_ANY);
}

/* A linear with all its outputs, whatever the slice. */
static struct linear whole_linear(const struct block_ctx *ctx, const struct unit_weights *w, size_t linear,
                                  struct lora *room)
{
    struct linear lin = w->lin[linear];
    if (!ctx->gather)
        return lin;
    lin.w = w->whole[linear];
    if (lin.lora) {
        *room = lora_moved(lin.lora, -(ptrdiff_t)w->cut[linear].first);
        lin.lora = room;
    }
    return lin;
}

/* Of a slice the rows of a matrix, and the values of its bias, that are its own. */
static void full_grads(const struct block_ctx *ctx, const struct unit_grads *g, size_t linear,
                       const float *dy, const float *in, const struct unit_weights *w, size_t tokens)
{
    const struct mat own = w->lin[linear].w;
    float *dw = g->full[linear], *dbias = g->bias[linear];
    if (ctx->gather && w->whole[linear].rows > own.rows) {
        const size_t first = w->cut[linear].first;
        part_columns_take(ctx->gather->own, own.rows, dy, w->whole[linear].rows, first, tokens);
        dy = ctx->gather->own;
        dw += first * own.cols;
        dbias = dbias ? dbias + first : NULL;
    }
    linear_backward_w(ctx->num, dw, dbias, dy, in, tokens, own.cols, own.rows);
}

/* Of DoRA a slice keeps what its own rows gave, so it adds to their magnitudes' gradient. */
static void own_magnitudes(const struct block_ctx *ctx, float *dm, size_t linear, const float *dy,
                           const float *xa, const struct unit_weights *w, size_t tokens)
{
    const struct linear *lin = &w->lin[linear];
    const size_t first = w->cut[linear].first;
    part_columns_take(ctx->gather->own, lin->w.rows, dy, w->whole[linear].rows, first, tokens);
    dora_backward_m(ctx->num, dm + first, ctx->gather->own, xa, lin, tokens);
}

void part_linear_grads(const struct block_ctx *ctx, const struct unit_grads *g, size_t linear,
                       const float *dy, const float *dyb, const float *xa, const float *in,
                       const struct unit_weights *w, size_t tokens)
{
    struct lora room;
    const struct linear lin = whole_linear(ctx, w, linear, &room);
    float *dm = g->m[linear];
    const bool is_part = dm && lin.w.rows > w->lin[linear].w.rows;
    if (g->a[linear])
        lora_backward_w(ctx->num, (struct lora_grads){g->a[linear], g->b[linear], is_part ? NULL : dm}, dy,
                        dyb, xa, in, &lin, tokens);
    if (is_part)
        own_magnitudes(ctx, dm, linear, dy, xa, w, tokens);
    if (g->full[linear])
        full_grads(ctx, g, linear, dy, in, w, tokens);
}

void part_shared_back(const struct block_ctx *ctx, float *dx, float *dyb, const float *dy,
                      const struct unit_weights *w, size_t linear, struct slice_rows own, size_t tokens,
                      bool accumulate)
{
    struct lora room;
    struct linear lin = whole_linear(ctx, w, linear, &room);
    if (own.n < lin.w.cols)
        lin.w = gemm_columns(lin.w, own.first, own.n);
    part_linear_back(ctx->num, dx, dyb, dy, &lin, tokens, accumulate);
}

bool part_wants(const struct unit_grads *g, size_t first, size_t linears)
{
    for (size_t i = first; i < first + linears; i++)
        if (g->a[i] || g->full[i])
            return true;
    return false;
}

void part_pool_carve(struct paged_pool *ret, struct slab *slab, const struct part_layout *l, size_t kv_heads,
                     size_t width)
{
    const size_t ring = l->ring_blocks, rings = l->states + l->kept;
    *ret = (struct paged_pool){.type = l->kv_type, .kv_heads = kv_heads, .width = width, .ring = ring};
    ret->data = slab_take(slab, ring ? rings : l->blocks, (ring ? ring : 1) * paged_block_bytes(ret), 1);
}

void part_columns_take(float *to, size_t width, const float *x, size_t stride, size_t from, size_t tokens)
{
    for (size_t t = 0; t < tokens; t++)
        memcpy(to + t * width, x + t * stride + from, width * sizeof *to);
}

void part_columns_put(float *x, size_t stride, size_t from, const float *own, size_t width, size_t tokens)
{
    for (size_t t = 0; t < tokens; t++)
        memcpy(x + t * stride + from, own + t * width, width * sizeof *x);
}
