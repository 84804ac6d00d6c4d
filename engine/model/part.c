/* SPDX-License-Identifier: MIT
 *
 * What the parts of a block share: listing tensors, LoRA ranks, gradients of one linear. Called by
 * parts, on the computing thread. */
#include "model/part.h"

#include <stdio.h>
#include <string.h>

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
    tensor_add(list, name, (struct tensor_def){.rows = rows, .cols = cols, .linear = true});
}

void tensor_vector(struct tensor_list *list, const char *name, size_t rows)
{
    tensor_add(list, name, (struct tensor_def){.rows = rows});
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

void part_linear_grads(struct num *num, const struct unit_grads *g, size_t linear, const float *dy,
                       const float *dyb, const float *xa, const float *in, const struct unit_weights *w,
                       size_t tokens)
{
    const struct linear *lin = &w->lin[linear];
    if (g->a[linear])
        lora_backward_w(num, g->a[linear], g->b[linear], dy, dyb, xa, in, lin, tokens);
    if (g->full[linear])
        linear_backward_w(num, g->full[linear], g->bias[linear], dy, in, tokens, lin->w.cols, lin->w.rows);
}

void part_linear_back(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                      size_t tokens, bool accumulate)
{
    if (dx)
        linear_backward_x(num, dx, dyb, dy, lin, tokens, accumulate);
    else if (lin->lora)
        lora_backward_dyb(num, dyb, dy, lin, tokens);
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
    *ret = (struct paged_pool){.type = l->kv_type, .kv_heads = kv_heads, .width = width};
    ret->data = slab_take(slab, l->blocks, paged_block_bytes(ret), 1);
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
