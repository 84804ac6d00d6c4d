/* SPDX-License-Identifier: MIT
 *
 * See mla_index.h. Called by mla.c, on the computing thread. */
#include "model/mla_index.h"

#include <string.h>

#include "layer/indexer.h"
#include "num/sizes.h"

/* Places of its tensors, from the first one on. */
enum { QUERIES, KEYS, WEIGHTS, NORM, NORM_BIAS };

static const float norm_eps = 1e-6f; /* whatever rms_norm_eps says */

void mla_index_tensors(struct tensor_list *list, const struct config *c)
{
    const struct config_mla *m = &c->mla;
    if (!m->index_top)
        return;
    tensor_add(list, "self_attn.indexer.wq_b.weight",
               (struct tensor_def){
                   .rows = m->index_heads * m->index_head, .cols = m->q_rank, .linear = true, .fixed = true});
    tensor_add(list, "self_attn.indexer.wk.weight",
               (struct tensor_def){.rows = m->index_head, .cols = c->dim, .linear = true, .fixed = true});
    tensor_add(list, "self_attn.indexer.weights_proj.weight",
               (struct tensor_def){.rows = m->index_heads, .cols = c->dim, .fixed = true});
    tensor_add(list, "self_attn.indexer.k_norm.weight",
               (struct tensor_def){.rows = m->index_head, .fixed = true});
    tensor_add(list, "self_attn.indexer.k_norm.bias",
               (struct tensor_def){.rows = m->index_head, .fixed = true});
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Of a text. */
static size_t longest_of(const struct part_layout *l)
{
    return part_cached_rows(l) ? l->longest : min_size(l->longest, l->tokens);
}

bool mla_index_matters(const struct part_layout *l)
{
    return l->config->mla.index_top && longest_of(l) > l->config->mla.index_top;
}

struct slab mla_index_carve(struct mla_index_work *ret, struct slab *slab, const struct part_layout *l)
{
    const struct config_mla *m = &l->config->mla;
    const size_t t = mla_index_matters(l) ? l->tokens : 0, longest = t ? longest_of(l) : 0;
    const size_t cached = t ? part_cached_rows(l) : 0, rows = cached ? cached : INDEXER_ROWS;
    ret->blocks = slab_take(slab, t ? longest / PAGED_BLOCK + 1 : 0, 1, sizeof *ret->blocks);
    ret->spans = slab_take(slab, cached, 1, sizeof *ret->spans);
    ret->chosen = slab_take(slab, t ? rows : 0, m->index_top, sizeof *ret->chosen);
    struct slab within = *slab;
    ret->q = slab_floats(&within, t, m->index_heads * m->index_head);
    ret->k = slab_floats(&within, t, m->index_head);
    ret->w = slab_floats(&within, t, m->index_heads);
    ret->scores = slab_floats(&within, t ? INDEXER_ROWS : 0, longest);
    ret->stride = longest;
    return within;
}

/* --- the choice ------------------------------------------------------------------------------- */

static struct indexer_dims dims_of(const struct block_ctx *ctx)
{
    const struct config_mla *m = &ctx->config->mla;
    return (struct indexer_dims){m->index_heads, m->index_head, m->index_top};
}

/* The first elements are rotated by the tables of the attention, but in halves. */
static void rotate(const struct block_ctx *ctx, float *x, size_t heads)
{
    struct rope halves = *ctx->rope;
    halves.pairs = ROPE_HALVES;
    rope_apply(ctx->num, x, ctx->pos, &halves, ctx->tokens, heads, ctx->config->mla.index_head, false);
}

static struct linear_use use_of(const struct block_ctx *ctx, const struct mla_index_in *in, size_t tensor,
                                float *y, const float *x)
{
    return (struct linear_use){y, NULL, x, &in->w.lin[tensor], ctx->tokens, NULL};
}

void mla_index_keys(const struct block_ctx *ctx, const struct mla_index_in *in)
{
    const struct linear_use use = use_of(ctx, in, KEYS, in->work->k, in->h);
    linear_forward_each(ctx->num, &use, 1);
    layernorm_forward(ctx->num, in->work->k, in->work->k, in->w.vec[NORM], in->w.vec[NORM_BIAS],
                      (struct rmsnorm_dims){ctx->tokens, ctx->config->mla.index_head, norm_eps, 0});
    rotate(ctx, in->work->k, 1);
}

static void queries(const struct block_ctx *ctx, const struct mla_index_in *in)
{
    const struct linear_use uses[] = {use_of(ctx, in, QUERIES, in->work->q, in->qa),
                                      use_of(ctx, in, WEIGHTS, in->work->w, in->h)};
    linear_forward_each(ctx->num, uses, 2);
    rotate(ctx, in->work->q, ctx->config->mla.index_heads);
}

static void choose(const struct block_ctx *ctx, uint32_t *chosen, const struct paged_pool *keys,
                   const struct paged_span *rows, size_t n, const struct mla_index_work *work)
{
    indexer_choose(ctx->num, chosen, work->q, work->w, keys, rows, n, dims_of(ctx), work->scores,
                   work->stride);
}

const uint32_t *mla_index_blocks(const struct mla_index_work *work, size_t len)
{
    for (size_t b = 0; b <= len / PAGED_BLOCK; b++)
        work->blocks[b] = (uint32_t)b;
    return work->blocks;
}

/* --- training --------------------------------------------------------------------------------- */

bool mla_index_hides(const struct block_ctx *ctx)
{
    const size_t top = ctx->config->mla.index_top;
    for (size_t s = 0; top && s < ctx->seqs.n; s++)
        if (ctx->seqs.start[s + 1] - ctx->seqs.start[s] > top)
            return true;
    return false;
}

static void mark(uint64_t *seen, const uint32_t *chosen, size_t n)
{
    for (size_t i = 0; i < n; i++)
        seen[chosen[i] / 64] |= UINT64_C(1) << chosen[i] % 64;
}

/* Of the sequence whose tokens are start … start+len−1. */
static void mask_sequence(const struct block_ctx *ctx, uint64_t *seen, size_t words,
                          const struct mla_index_work *work, size_t start, size_t len)
{
    const size_t width = ctx->config->mla.index_head, top = ctx->config->mla.index_top;
    const struct paged_pool keys = {work->k + start * width, KV_F32, 1, width, 0};
    const uint32_t *blocks = mla_index_blocks(work, len);
    struct paged_span rows[INDEXER_ROWS];
    for (size_t at = top, n; at < len; at += n) {
        n = min_size(len - at, INDEXER_ROWS);
        for (size_t i = 0; i < n; i++)
            rows[i] = (struct paged_span){.blocks = blocks, .row = start + at + i, .at = at + i, .n = 1};
        choose(ctx, work->chosen, &keys, rows, n, work);
        for (size_t i = 0; i < n; i++)
            mark(seen + (start + at + i) * words, work->chosen + i * top, top);
    }
}

void mla_index_mask(const struct block_ctx *ctx, uint64_t *seen, size_t words, const struct mla_index_in *in)
{
    const size_t top = ctx->config->mla.index_top;
    mla_index_keys(ctx, in);
    queries(ctx, in);
    for (size_t s = 0; s < ctx->seqs.n; s++) {
        const size_t start = ctx->seqs.start[s], len = ctx->seqs.start[s + 1] - start,
                     all = min_size(len, top);
        memset(seen + start * words, 0xff, all * words * sizeof *seen);
        memset(seen + (start + all) * words, 0, (len - all) * words * sizeof *seen);
        mask_sequence(ctx, seen, words, in->work, start, len);
    }
}

/* --- generation and serving ------------------------------------------------------------------- */

/* The first rows of a span: those that see all before them. */
static size_t seeing_all(const struct paged_span *span, size_t top)
{
    return span->at < top ? min_size(span->n, top - span->at) : 0;
}

size_t mla_index_spans(const struct block_ctx *ctx, const struct paged_pool *keys,
                       const struct paged_span *spans, size_t n, const struct mla_index_in *in)
{
    const size_t top = ctx->config->mla.index_top;
    const struct mla_index_work *work = in->work;
    size_t whole = 0;
    for (size_t i = 0; i < n; i++)
        if (spans[i].at < top) {
            work->spans[whole] = spans[i];
            work->spans[whole++].n = seeing_all(&spans[i], top);
        }
    size_t all = whole;
    for (size_t i = 0; i < n; i++)
        for (size_t t = seeing_all(&spans[i], top); t < spans[i].n; t++, all++)
            work->spans[all] = (struct paged_span){.blocks = spans[i].blocks,
                                                   .row = spans[i].row + t,
                                                   .at = spans[i].at + t,
                                                   .n = 1,
                                                   .chosen = work->chosen + (all - whole) * top,
                                                   .nchosen = top};
    if (all > whole)
        queries(ctx, in);
    for (size_t i = whole, now; i < all; i += now) {
        now = min_size(all - i, INDEXER_ROWS);
        choose(ctx, work->chosen + (i - whole) * top, keys, work->spans + i, now, work);
    }
    return all;
}
