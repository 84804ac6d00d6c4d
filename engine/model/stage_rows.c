/* SPDX-License-Identifier: MIT
 *
 * Serving: rows of many sequences in one pass over the stage's layers, with keys and values in a
 * paged pool. Nothing is allocated here. */
#include "model/stage_impl.h"

#include <errno.h>
#include <string.h>

_Static_assert((int)STAGE_KV_BLOCK == (int)PAGED_BLOCK, "the caller's blocks are the pool's");
_Static_assert(STAGE_NO_ADAPTER == LORA_NONE, "the caller's adapters are the linears'");

/* --- what is refused -------------------------------------------------------------------------- */

static int check_blocks(const struct stage *s, const struct stage_piece *p, size_t i, struct err *err)
{
    const size_t end = p->at + p->n, needed = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK;
    if (needed > p->nblocks)
        return err_set(err, -ERANGE,
                       "piece %zu ends at position %zu, but its table has blocks for %zu positions", i, end,
                       p->nblocks * STAGE_KV_BLOCK);
    for (size_t b = 0; b < needed; b++)
        if (p->blocks[b] >= s->spec.kv_blocks)
            return err_set(err, -ERANGE, "piece %zu lies in block %u, but the pool has %zu blocks", i,
                           p->blocks[b], s->spec.kv_blocks);
    return 0;
}

static int check_piece(const struct stage *s, const struct stage_piece *p, size_t i, struct err *err)
{
    if (!p->n)
        return err_set(err, -EINVAL, "piece %zu has no rows", i);
    if (p->n > s->spec.positions || p->at > s->spec.positions - p->n)
        return err_set(err, -E2BIG, "piece %zu has %zu positions from %zu on, but the plan's longest has %zu",
                       i, p->n, p->at, s->spec.positions);
    if (p->adapter != STAGE_NO_ADAPTER && p->adapter >= stage_sets(&s->spec))
        return err_set(err, -ERANGE, "piece %zu wants adapter %u, but there are %zu", i, p->adapter,
                       stage_sets(&s->spec));
    return check_blocks(s, p, i, err);
}

static int check_pieces(const struct stage *s, const struct stage_piece *pieces, size_t n, size_t *ret_rows,
                        struct err *err)
{
    size_t rows = 0;
    if (!s->spec.kv_blocks)
        return err_set(err, -EINVAL, "this stage has no paged KV pool");
    for (size_t i = 0; i < n; i++) {
        const int r = check_piece(s, &pieces[i], i, err);
        if (r)
            return r;
        if (pieces[i].n > s->spec.tokens - rows)
            return err_set(err, -E2BIG, "there are more rows than the plan's %zu", s->spec.tokens);
        rows += pieces[i].n;
    }
    if (!rows)
        return err_set(err, -EINVAL, "there are no rows");
    *ret_rows = rows;
    return 0;
}

/* --- the pass --------------------------------------------------------------------------------- */

/* Pieces as spans, which are shorter; returns how many. */
static size_t lay_out(struct stage *s, const struct stage_piece *pieces, size_t n)
{
    const size_t first = stage_first_row(s, s->spec.positions);
    size_t spans = 0, row = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stage_piece *p = &pieces[i];
        for (size_t t = 0; t < p->n; t++) {
            s->pos[row + t] = (uint32_t)(first + p->at + t);
            s->set[row + t] = p->adapter;
        }
        for (size_t t = 0; t < p->n; t += PAGED_ROWS)
            s->spans[spans++] = (struct paged_span){p->blocks, row + t, p->at + t,
                                                    p->n - t < PAGED_ROWS ? p->n - t : PAGED_ROWS};
        row += p->n;
    }
    return spans;
}

/* Adapters are numbered from the first on, so that is the one chosen meanwhile. */
static void run_layers(struct stage *s, const struct block_ctx *ctx)
{
    const size_t chosen = (size_t)(s->tune - s->tunes);
    stage_select_adapter(s, 0);
    for (size_t l = 0; l < s->layers; l++) {
        float *cur = s->ping[0];
        block_forward_paged(ctx, s->ping[1], &s->pool[l], cur, &s->layer0[l].block, &s->block_work[l]);
        s->ping[0] = s->ping[1];
        s->ping[1] = cur;
    }
    stage_select_adapter(s, chosen);
}

int stage_rows(struct stage *s, const struct stage_piece *pieces, size_t npieces, const uint32_t *ids,
               const float *x, float *y, struct err *err)
{
    const size_t dim = s->spec.config.dim;
    size_t rows = 0;
    int r = check_pieces(s, pieces, npieces, &rows, err);
    if (!r && ids)
        r = stage_check_ids(s, ids, rows, err);
    if (r)
        return r;
    const struct block_ctx ctx = {.num = s->num,
                                  .config = &s->spec.config,
                                  .ropes = s->ropes,
                                  .pos = s->pos,
                                  .tokens = rows,
                                  .spans = s->spans,
                                  .nspans = lay_out(s, pieces, npieces),
                                  .set = s->set};
    if (ids)
        stage_embed(s, s->ping[0], ids, rows);
    else
        memcpy(s->ping[0], x, rows * dim * sizeof *x);
    num_set_invariant(s->num, true);
    run_layers(s, &ctx);
    num_set_invariant(s->num, false);
    s->decoded = rows;
    if (y)
        memcpy(y, s->ping[0], rows * dim * sizeof *y);
    return 0;
}

/* --- the head --------------------------------------------------------------------------------- */

int stage_rows_hidden(struct stage *s, const uint32_t *rows, size_t n, float *hidden, struct err *err)
{
    const size_t dim = s->spec.config.dim;
    for (size_t i = 0; i < n; i++)
        if (rows[i] >= s->decoded)
            return err_set(err, -ERANGE, "row %u is asked for, but the last call had %zu", rows[i],
                           s->decoded);
    for (size_t i = 0; i < n; i++)
        rmsnorm_forward(s->num, hidden + i * dim, s->rstd, s->ping[0] + rows[i] * dim,
                        s->head->block.weights.vec[0], stage_head_dims(s, 1));
    return 0;
}

int stage_rows_logits(struct stage *s, const uint32_t *rows, size_t n, const float **ret_logits,
                      struct err *err)
{
    if (n > s->spec.logit_rows || n > s->spec.tokens)
        return err_set(err, -E2BIG, "logits of %zu rows are asked for, but the plan allows %zu", n,
                       s->spec.logit_rows);
    const int r = stage_rows_hidden(s, rows, n, s->hn, err);
    if (r)
        return r;
    stage_scale_logits(s, s->hn, n);
    num_set_invariant(s->num, true);
    gemm_xwt(s->num, s->logits, s->hn, s->head_w, n, false);
    num_set_invariant(s->num, false);
    *ret_logits = s->logits;
    return 0;
}

float stage_rows_logprob(struct stage *s, size_t at, uint32_t id, struct likely *likely, size_t top)
{
    const size_t vocab = s->head_w.rows;
    return xent_row(s->num, s->logits + at * vocab, vocab, id, likely, top);
}
