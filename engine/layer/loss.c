/* SPDX-License-Identifier: MIT
 *
 * Output head and cross-entropy in one pass over blocks of supervised rows: the logits of a block
 * live in the unit's scratch, become their own gradient in place, and are gone before the next
 * block. Called by the last stage, on the computing thread. Blocks run in order, so the head's
 * gradient is added in row order. */
#include "layer/layer.h"

#include <assert.h>
#include <string.h>

#include "layer/softcap.h"
#include "num/kernels.h"

enum {
    ROWS_MAX = 1024, /* of a block: more than this no longer helps the matrix product */
    SMALL = 1 << 14,
};

struct loss_block {
    uint32_t rows[ROWS_MAX]; /* the supervised tokens in it */
    double loss[ROWS_MAX];   /* −log p of each */
    size_t n, cap;
    float *h, *dh, *logits; /* borrowed: scratch; [cap, d], [cap, d], [cap, V] */
};

static size_t count_supervised(const int32_t *labels, size_t tokens)
{
    size_t n = 0;
    for (size_t t = 0; t < tokens; t++)
        n += labels[t] >= 0;
    return n;
}

static size_t most_rows(size_t vocab, size_t dim)
{
    const size_t fit = NUM_BLOCK_FLOATS / (vocab + 2 * dim);
    assert(fit > 0); /* one row of logits is larger only beyond thirty million tokens */
    return fit < ROWS_MAX ? fit : ROWS_MAX;
}

/* Blocks of one size for `supervised` rows: a short last one would read the whole head for
 * little. */
static size_t block_rows(size_t supervised, size_t vocab, size_t dim)
{
    const size_t most = most_rows(vocab, dim);
    const size_t blocks = supervised ? (supervised + most - 1) / most : 1;
    return (supervised + blocks - 1) / blocks;
}

size_t xent_rows(size_t tokens, size_t vocab, size_t dim)
{
    const size_t most = most_rows(vocab, dim);
    return tokens < most ? tokens : most;
}

size_t xent_scratch(size_t tokens, size_t vocab, size_t dim)
{
    return block_rows(tokens, vocab, dim) * (vocab + 2 * dim);
}

static void block_init(struct loss_block *b, const struct num *num, size_t supervised, size_t vocab,
                       size_t dim)
{
    b->n = 0;
    b->cap = block_rows(supervised, vocab, dim);
    b->h = num_block(num).data;
    b->dh = b->h + b->cap * dim;
    b->logits = b->dh + b->cap * dim;
}

/* Takes the next supervised tokens from *at on. */
static void block_gather(struct loss_block *b, const float *h, const int32_t *labels, size_t tokens,
                         size_t dim, size_t *at)
{
    b->n = 0;
    for (; *at < tokens && b->n < b->cap; ++*at)
        if (labels[*at] >= 0) {
            memcpy(b->h + b->n * dim, h + *at * dim, dim * sizeof *h);
            b->rows[b->n++] = (uint32_t)*at;
        }
}

/* The `top` likeliest of a row, by insertion: few are wanted, and most logits are smaller than the
 * last of them. */
static void row_likely(struct likely *ret, size_t top, const float *row, size_t vocab, double lse)
{
    size_t n = 0;
    for (size_t id = 0; id < vocab; id++) {
        if (n == top && row[id] <= row[ret[n - 1].id])
            continue;
        size_t at = n < top ? n++ : n - 1;
        for (; at > 0 && row[id] > row[ret[at - 1].id]; at--)
            ret[at] = ret[at - 1];
        ret[at].id = (uint32_t)id;
    }
    for (size_t i = 0; i < n; i++)
        ret[i].logprob = (float)((double)row[ret[i].id] - lse);
}

void logits_cap(struct num *num, float *logits, size_t n, float softcap)
{
    enum { PART = 1024 };
    const size_t parts = softcap > 0 ? (n + PART - 1) / PART : 0;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < parts; i++)
        softcap_apply(logits + i * PART, n - i * PART < PART ? n - i * PART : PART, softcap);
}

float xent_row(struct num *num, const float *logits, size_t vocab, uint32_t id, struct likely *likely,
               size_t top)
{
    const double lse = num_kernels(num)->logsumexp(logits, vocab);
    if (top)
        row_likely(likely, top, logits, vocab, lse);
    return (float)-(lse - (double)logits[id]);
}

/* (softmax − onehot) · dscale, and on through the cap. */
static void row_back(const struct kernels *k, float *row, size_t vocab, size_t label, double lse,
                     float dscale, float softcap)
{
    float slope[SOFTCAP_PART];
    const size_t step = softcap > 0 ? SOFTCAP_PART : vocab;
    for (size_t at = 0, n; at < vocab; at += n) {
        n = vocab - at < step ? vocab - at : step;
        if (softcap > 0)
            softcap_slope(slope, row + at, n, softcap);
        k->exp_minus(row + at, n, (float)lse, dscale);
        if (label >= at && label - at < n)
            row[label] -= dscale;
        if (softcap > 0)
            softcap_back(row + at, slope, n);
    }
}

/* logits → losses, and → dlogits = (softmax − onehot) · dscale in place where a gradient is
 * wanted. */
static void block_softmax(struct num *num, struct loss_block *b, const struct xent *xent, size_t vocab)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (b->n * vocab > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < b->n; i++) {
        float *row = b->logits + i * vocab;
        softcap_apply(row, vocab, xent->softcap);
        const size_t label = (size_t)xent->labels[b->rows[i]];
        const double lse = k->logsumexp(row, vocab);
        b->loss[i] = lse - (double)row[label];
        if (xent->logprob)
            xent->logprob[b->rows[i]] = (float)-b->loss[i];
        if (xent->dscale != 0)
            row_back(k, row, vocab, label, lse, xent->dscale * (xent->weight ? xent->weight[b->rows[i]] : 1),
                     xent->softcap);
    }
}

static void block_logits(struct num *num, struct loss_block *b, struct mat w,
                         const struct xent_shared *shared)
{
    gemm_xwt(num, shared ? shared->own : b->logits, b->h, w, b->n, false);
    if (shared)
        shared->gather(shared->owner, b->logits, shared->own, b->n, shared->whole.rows);
}

/* dh of a sum over all logits, of which each who shares the head makes some inputs. Rows of each
 * block are counted from 0, so each block draws numbers of its own. */
static void block_dh(struct num *num, struct loss_block *b, struct mat w, const struct xent_shared *shared)
{
    w.stream += b->rows[0];
    if (!shared) {
        gemm_xw(num, b->dh, b->logits, w, b->n, false);
        return;
    }
    struct mat columns = gemm_columns(shared->whole, shared->input, shared->inputs);
    columns.stream = w.stream;
    gemm_xw(num, shared->own, b->logits, columns, b->n, false);
    shared->gather(shared->owner, b->dh, shared->own, b->n, w.cols);
}

static void block_dw(struct num *num, const struct loss_block *b, float *dw, struct mat w,
                     const struct xent_shared *shared)
{
    const float *dlogits = b->logits;
    if (shared) {
        for (size_t i = 0; i < b->n; i++)
            memcpy(shared->own + i * w.rows, b->logits + i * shared->whole.rows + shared->first,
                   w.rows * sizeof *dlogits);
        dlogits = shared->own;
        dw += shared->first * w.cols;
    }
    gemm_dw(num, dw, dlogits, b->h, b->n, w.rows, w.cols, 1);
}

static void block_backward(struct num *num, struct loss_block *b, float *dh, float *dw, struct mat w,
                           const struct xent_shared *shared)
{
    const size_t dim = w.cols;
    block_dh(num, b, w, shared);
    for (size_t i = 0; i < b->n; i++)
        memcpy(dh + b->rows[i] * dim, b->dh + i * dim, dim * sizeof *dh);
    if (dw)
        block_dw(num, b, dw, w, shared);
}

double xent_forward(struct num *num, float *dh, float *dw, const float *h, struct mat w,
                    const struct xent *xent, size_t tokens)
{
    const size_t vocab = xent->shared ? xent->shared->whole.rows : w.rows;
    struct loss_block b;
    block_init(&b, num, count_supervised(xent->labels, tokens), vocab, w.cols);
    double total = 0;
    if (xent->dscale != 0)
        memset(dh, 0, tokens * w.cols * sizeof *dh);
    if (xent->logprob)
        memset(xent->logprob, 0, tokens * sizeof *xent->logprob);
    for (size_t at = 0; at < tokens;) {
        block_gather(&b, h, xent->labels, tokens, w.cols, &at);
        if (b.n == 0)
            break;
        block_logits(num, &b, w, xent->shared);
        block_softmax(num, &b, xent, vocab);
        for (size_t i = 0; i < b.n; i++)
            total += b.loss[i];
        if (xent->dscale != 0)
            block_backward(num, &b, dh, dw, w, xent->shared);
    }
    return total;
}
