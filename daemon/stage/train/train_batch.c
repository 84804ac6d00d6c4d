/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void batch_done(struct batch *b)
{
    free(b->ids);
    free(b->labels);
    free(b->starts);
    free(b->seqs);
    free(b->mb);
    free(b->logp);
    *b = (struct batch){0};
}

int batch_alloc(struct batch *b, const struct job_plan *p)
{
    size_t n = p->microbatches * p->round_steps;
    b->ids = calloc(n * p->tokens, sizeof *b->ids);
    b->labels = calloc(n * p->tokens, sizeof *b->labels);
    b->starts = calloc(n * (p->seqs + 1), sizeof *b->starts);
    b->seqs = calloc(n, sizeof *b->seqs);
    b->mb = calloc(n, sizeof *b->mb);
    b->logp = calloc(n * p->seqs, sizeof *b->logp);
    return b->ids && b->labels && b->starts && b->seqs && b->mb && b->logp ? 0 : -ENOMEM;
}

/* The rows of a pack, behind what microbatch b->n holds; `at` is where its tokens begin,
 * start[seqs] how many it has. */
static size_t batch_add(struct batch *b, const struct stage_data *d, size_t pack, size_t at, uint32_t *start,
                        size_t seqs, struct batch_sum *sum)
{
    size_t n;
    const uint32_t *rows = data_packs_at(d->packs, pack, &n);
    for (size_t i = 0; i < n; i++, seqs++) {
        const struct data_row row = data_row(d->data, rows[i]);
        memcpy(b->ids + at + start[seqs], row.ids, row.n * sizeof *b->ids);
        memcpy(b->labels + at + start[seqs], row.labels, row.n * sizeof *b->labels);
        start[seqs + 1] = start[seqs] + (uint32_t)row.n;
        sum->supervised += row.supervised;
    }
    sum->pairs += data_together(d->data) > 1;
    return seqs;
}

struct batch_sum batch_fill(struct batch *b, const struct head *h, const struct stage_data *d,
                            const size_t *packs, size_t n, size_t each)
{
    const struct job_plan *p = &h->plan;
    struct batch_sum sum = {0};
    for (size_t k = 0; k < n; b->n++) {
        const size_t at = b->n * p->tokens;
        uint32_t *start = b->starts + b->n * (p->seqs + 1);
        size_t seqs = 0;
        start[0] = 0;
        for (size_t i = 0; i < each && k < n; i++, k++)
            seqs = batch_add(b, d, packs[k], at, start, seqs, &sum);
        sum.tokens += start[seqs];
        b->seqs[b->n] = (struct seqs){seqs, start};
        b->mb[b->n] =
            (struct head_mb){.ids = b->ids + at, .labels = b->labels + at, .logp = b->logp + b->n * p->seqs};
    }
    return sum;
}

double batch_loss(const struct batch *b, size_t first, size_t end)
{
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += b->mb[i].loss;
    return sum;
}
