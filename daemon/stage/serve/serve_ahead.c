/* SPDX-License-Identifier: MIT
 *
 * For the layer of the model that predicts a token more: what the model gave at each position is
 * kept until the layer reads it, right before its next guess. Of a prompt it is read at once, as
 * much of it comes together. What the layer has of a sequence may begin anywhere, for what others
 * have computed of a text is not given again. */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The layer reads the next n positions: x [n, dim]. −ENOSPC: there are no blocks for them. */
static int read_rows(struct server_run *s, struct seq *q, const float *x, size_t n, struct err *err)
{
    const size_t end = q->drafted_to + n;
    const float *logits;
    if (kv_pool_grow(draft_model_pool(s->draft), &q->drafted, end))
        return -ENOSPC;
    const struct stage_piece piece = {.blocks = q->drafted.blocks,
                                      .nblocks = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                                      .at = q->drafted_to,
                                      .n = n,
                                      .adapter = STAGE_NO_ADAPTER};
    memcpy(draft_model_in(s->draft), x, n * s->plan->dim * sizeof *x);
    const int r = draft_model_pass(s->draft, &piece, 1, q->ids + q->drafted_from + q->drafted_to + 1, NULL, 0,
                                   &logits, err);
    q->drafted_to = end;
    return r;
}

/* What was kept, and all of x [n, dim] but the last row, which the next guess begins with. */
static int read_all(struct server_run *s, struct seq *q, const float *x, size_t n, struct err *err)
{
    int r = q->nkept ? read_rows(s, q, q->kept, q->nkept, err) : 0;
    if (!r)
        q->nkept = 0;
    return r || n < 2 ? r : read_rows(s, q, x, n - 1, err);
}

/* Rows x [n, dim] of positions at … of a sequence. */
static int keep(struct server_run *s, struct seq *q, size_t at, const float *x, size_t n, struct err *err)
{
    const size_t dim = s->plan->dim, most = smaller(DRAFT_KEEPS, s->plan->tokens);
    int r = 0;
    if (!q->kept && !(q->kept = malloc(most * dim * sizeof *q->kept)))
        return err_set(err, -ENOMEM, "out of memory for guesses");
    if (q->drafted_from + q->drafted_to + q->nkept != at) {
        seq_drop_draft(s, q);
        q->drafted_from = at;
    }
    if (q->nkept + n > most) {
        r = read_all(s, q, x, n, err);
        if (r == -ENOSPC) {
            seq_drop_draft(s, q);
            q->drafted_from = at + n - 1;
            r = 0;
        }
        x += (n - 1) * dim;
        n = 1;
    }
    memcpy(q->kept + q->nkept * dim, x, n * dim * sizeof *x);
    q->nkept += n;
    return r;
}

void guess_from(struct server_run *s, const struct flight *f, const struct rows_answer *a)
{
    const float *x = rows_answer_hidden(a, &f->batch);
    const size_t dim = s->plan->dim;
    struct err err;
    int r = 0;
    if (!s->draft || !draft_model_is_ahead(s->draft) || f->batch.nhidden != f->batch.nrows)
        return;
    for (size_t i = 0; i < f->batch.npieces && !r; x += f->batch.pieces[i++].n * dim) {
        const struct stage_piece *p = &f->batch.pieces[i];
        struct seq *q = f->of_piece[i];
        if (q->is_dead || q->ending || q->ask->kind == ASK_EMBED || q->ask->has_no_answer)
            continue;
        const size_t end = smaller(p->at + p->n, smaller(q->computed, q->n - 1));
        if (end > p->at)
            r = keep(s, q, p->at, x, end - p->at, &err);
    }
    if (r)
        guess_without(s, &err);
}
