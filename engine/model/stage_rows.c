/* SPDX-License-Identifier: MIT
 *
 * Serving: rows of many sequences in one pass over the stage's layers, with keys and values in a
 * paged pool. Nothing is allocated here. */
#include "model/stage_impl.h"

#include <errno.h>
#include <string.h>

#include "num/sizes.h"

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

/* Where the state is before a piece. */
static struct state_at state_before(const struct stage *s, const struct stage_piece *p)
{
    if (p->from)
        return (struct state_at){s->states[s->spec.states + p->from - 1].reached, 0};
    return p->at ? s->states[p->state] : (struct state_at){0, 0};
}

static int check_numbers(const struct stage *s, const struct stage_piece *pieces, size_t i, struct err *err)
{
    const struct stage_piece *p = &pieces[i];
    const uint32_t kept = p->from > p->keep ? p->from : p->keep;
    if (p->state >= s->spec.states)
        return err_set(err, -ERANGE, "piece %zu wants state %u, but there are %zu", i, p->state,
                       s->spec.states);
    if (kept > s->spec.kept)
        return err_set(err, -ERANGE, "piece %zu wants kept state %u, but there are %zu", i, kept,
                       s->spec.kept);
    if (p->guessed > s->spec.guesses)
        return err_set(err, -ERANGE, "piece %zu has %u guesses, but the plan allows %zu", i, p->guessed,
                       s->spec.guesses);
    for (size_t k = 0; k < i; k++)
        if (pieces[k].state == p->state)
            return err_set(err, -EINVAL, "pieces %zu and %zu have the same state %u", k, i, p->state);
    return 0;
}

/* Nothing is known of what only stands in for a state. */
static int check_state(const struct stage *s, const struct stage_piece *pieces, size_t i, struct err *err)
{
    const struct stage_piece *p = &pieces[i];
    struct state_at *next = s->states + s->spec.states + s->spec.kept;
    if (!s->has_state || s->spec.stands_in)
        return 0;
    const int r = check_numbers(s, pieces, i, err);
    if (r)
        return r;
    const struct state_at before = state_before(s, p);
    if (p->at < before.reached || p->at - before.reached > before.logged)
        return err_set(err, -EINVAL, "piece %zu begins at position %zu, but its state has reached %zu", i,
                       p->at, before.reached + (p->at < before.reached ? 0 : before.logged));
    if (p->guessed > p->at + p->n - before.reached)
        return err_set(err, -EINVAL, "piece %zu guesses %u positions, but its state has reached %zu", i,
                       p->guessed, before.reached);
    next[p->state] = (struct state_at){p->at + p->n - p->guessed, p->guessed};
    if (p->keep)
        next[s->spec.states + p->keep - 1] = (struct state_at){p->at + p->n - p->guessed, 0};
    return 0;
}

static int check_pieces(const struct stage *s, const struct stage_piece *pieces, size_t n, size_t *ret_rows,
                        struct err *err)
{
    const size_t states = s->spec.states + s->spec.kept;
    size_t rows = 0;
    if (!s->spec.kv_blocks)
        return err_set(err, -EINVAL, "this stage has no paged KV pool");
    memcpy(s->states + states, s->states, states * sizeof *s->states);
    for (size_t i = 0; i < n; i++) {
        int r = check_piece(s, &pieces[i], i, err);
        r = r ? r : check_state(s, pieces, i, err);
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
        const bool goes_on = s->has_state && !s->spec.stands_in;
        s->pieces[i] = (struct state_piece){.state = p->state,
                                            .row = row,
                                            .at = p->at,
                                            .n = p->n,
                                            .reached = goes_on ? state_before(s, p).reached : p->at,
                                            .stays = p->at + p->n - (goes_on ? p->guessed : 0)};
        for (size_t t = 0; t < p->n; t++) {
            s->pos[row + t] = (uint32_t)(first + p->at + t);
            s->set[row + t] = p->adapter;
        }
        for (size_t t = 0; t < p->n; t += PAGED_ROWS)
            s->spans[spans++] = (struct paged_span){.blocks = p->blocks,
                                                    .row = row + t,
                                                    .at = p->at + t,
                                                    .n = min_size(p->n - t, PAGED_ROWS),
                                                    .state = p->state};
        row += p->n;
    }
    return spans;
}

/* States that pieces begin with, or that they keep. */
static void copy_states(const struct stage *s, size_t layer, const struct stage_piece *pieces, size_t n,
                        bool keeps)
{
    for (size_t i = 0; i < n && s->has_state; i++) {
        const size_t kept = s->spec.states + (keeps ? pieces[i].keep : pieces[i].from) - 1;
        if (keeps ? pieces[i].keep : pieces[i].from)
            block_state_copy(&s->layer0[layer].block, &s->pool[layer], &s->spec.config,
                             keeps ? kept : pieces[i].state, keeps ? pieces[i].state : kept);
    }
}

/* Adapters are numbered from the first on, so that is the one chosen meanwhile. */
static void run_layers(struct stage *s, const struct block_ctx *ctx, const struct stage_piece *pieces)
{
    const size_t chosen = (size_t)(s->tune - s->tunes);
    stage_select_adapter(s, 0);
    for (size_t l = 0; l < s->layers; l++) {
        float *cur = s->ping[0];
        copy_states(s, l, pieces, ctx->npieces, false);
        unit_ready(&s->layer0[l], s->num);
        block_forward_paged(ctx, s->ping[1], &s->pool[l], cur, &s->layer0[l].block, &s->block_work[l]);
        copy_states(s, l, pieces, ctx->npieces, true);
        s->ping[0] = s->ping[1];
        s->ping[1] = cur;
    }
    stage_select_adapter(s, chosen);
}

/* eh_proj [norm of the embeddings, norm of x]; the order is that of released files. */
static void embed_ahead(struct stage *s, const uint32_t *ids, const float *x, size_t rows)
{
    enum { TABLE, NORM_OF_IDS, NORM_OF_X, PROJ };
    const struct unit_weights *w = &s->embed->block.weights;
    const struct rmsnorm_dims dims = stage_head_dims(s, rows);
    const size_t dim = dims.dim;
    for (size_t half = 0; half < 2; half++) {
        if (!half)
            stage_embed(s, s->ping[0], ids, rows);
        rmsnorm_forward(s->num, s->ping[1], s->rstd, half ? x : s->ping[0],
                        w->vec[half ? NORM_OF_X : NORM_OF_IDS], dims);
        for (size_t t = 0; t < rows; t++)
            memcpy(s->both + (2 * t + half) * dim, s->ping[1] + t * dim, dim * sizeof *x);
    }
    gemm_xwt(s->num, s->ping[0], s->both, w->lin[PROJ].w, rows, false);
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
                                  .config = &s->own,
                                  .gather = stage_gather(s),
                                  .ropes = s->ropes,
                                  .pos = s->pos,
                                  .tokens = rows,
                                  .spans = s->spans,
                                  .nspans = lay_out(s, pieces, npieces),
                                  .pieces = s->pieces,
                                  .npieces = npieces,
                                  .set = s->set};
    memcpy(s->states, s->states + s->spec.states + s->spec.kept,
           (s->spec.states + s->spec.kept) * sizeof *s->states);
    num_set_invariant(s->num, true);
    if (ids && x)
        embed_ahead(s, ids, x, rows);
    else if (ids)
        stage_embed(s, s->ping[0], ids, rows);
    else
        memcpy(s->ping[0], x, rows * dim * sizeof *x);
    run_layers(s, &ctx, pieces);
    num_set_invariant(s->num, false);
    s->decoded = rows;
    if (y)
        memcpy(y, s->ping[0], rows * dim * sizeof *y);
    return stage_gathered(s, err);
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
    const int failed = stage_multiply_head(s, s->hn, n);
    num_set_invariant(s->num, false);
    *ret_logits = s->logits;
    return failed ? stage_gathered(s, err) : 0;
}

float stage_rows_logprob(struct stage *s, size_t at, uint32_t id, struct likely *likely, size_t top)
{
    const size_t vocab = s->spec.config.vocab;
    return xent_row(s->num, s->logits + at * vocab, vocab, id, likely, top);
}
