/* SPDX-License-Identifier: MIT
 *
 * See indexer.h. Threads share out rows and keys for the scores, then rows for the choice; a score
 * is one sum over heads in their order. Called by the latent part of a block, on the computing
 * thread. */
#include "layer/indexer.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "num/kernels.h"
#include "num/sizes.h"

enum {
    HEADS = 64,      /* scored together against a block of keys */
    SPAN = 256,      /* keys that a thread takes at a time: whole blocks */
    SMALL = 1 << 14, /* elements not worth a second thread */
    DIGIT = 8,       /* bits of a score that are looked at together */
    DIGITS = 1 << DIGIT,
};

void layernorm_forward(struct num *num, float *y, const float *x, const float *w, const float *b,
                       struct rmsnorm_dims dims)
{
    const size_t rows = dims.rows, dim = dims.dim, stride = dims.stride ? dims.stride : dim;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * dim > SMALL && num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++) {
        const float *from = x + r * stride;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < dim; i++)
            sum += (double)from[i];
        const float mean = (float)(sum / (double)dim);
        for (size_t i = 0; i < dim; i++)
            squares += (double)(from[i] - mean) * (double)(from[i] - mean);
        const float rstd = 1 / sqrtf((float)(squares / (double)dim) + dims.eps);
        for (size_t i = 0; i < dim; i++)
            y[r * dim + i] = (from[i] - mean) * rstd * w[i] + b[i];
    }
}

/* --- scores ----------------------------------------------------------------------------------- */

/* score [n] of n keys [n, head], at most a block of them; lane [HEADS, PAGED_BLOCK]. */
static void score_block(const struct kernels *k, float *score, const float *q, const float *w,
                        const float *keys, size_t n, struct indexer_dims d, float *lane)
{
    memset(score, 0, n * sizeof *score);
    for (size_t h = 0, heads; h < d.heads; h += heads) {
        heads = min_size(HEADS, d.heads - h);
        k->dots[DTYPE_F32](lane, PAGED_BLOCK, q + h * d.head, d.head, heads, keys, d.head, n, d.head, false);
        for (size_t i = 0; i < heads; i++)
            for (size_t c = 0; c < n; c++)
                score[c] += w[h + i] * fmaxf(lane[i * PAGED_BLOCK + c], 0);
    }
}

static void score_span(struct num *num, float *scores, const float *q, const float *w,
                       const struct paged_pool *keys, const struct paged_span *row, size_t k0,
                       struct indexer_dims d)
{
    float *lane = num_lane(num, omp_get_thread_num()).data, *wide = lane + HEADS * PAGED_BLOCK;
    for (size_t c = k0; c <= row->at && c < k0 + SPAN; c += PAGED_BLOCK) {
        const size_t n = min_size(PAGED_BLOCK, row->at + 1 - c);
        const float *own = paged_block(num, keys, row->blocks[c / PAGED_BLOCK], n, wide);
        score_block(num_kernels(num), scores + c, q + row->row * d.heads * d.head, w + row->row * d.heads,
                    own, n, d, lane);
    }
}

/* --- the choice ------------------------------------------------------------------------------- */

/* In the order of scores; that of what is no number is some order too. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* The rank of the last of `top` chosen ones among n; *ret_left: how many of that rank are. */
static uint32_t last_rank(const float *score, size_t n, size_t top, size_t *ret_left)
{
    uint32_t rank = 0, known = 0;
    for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
        size_t count[DIGITS] = {0}, digit = DIGITS - 1;
        for (size_t i = 0; i < n; i++) {
            const uint32_t own = rank_of(score[i]);
            if ((own & known) == rank)
                count[own >> shift & (DIGITS - 1)]++;
        }
        for (; top > count[digit]; digit--)
            top -= count[digit];
        rank |= (uint32_t)digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    *ret_left = top;
    return rank;
}

static void choose(uint32_t *ret, const float *score, size_t n, size_t top)
{
    size_t left, m = 0;
    const uint32_t last = last_rank(score, n, top, &left);
    for (size_t i = 0; m < top; i++) {
        const uint32_t own = rank_of(score[i]);
        if (own == last ? left > 0 : own > last) {
            ret[m++] = (uint32_t)i;
            left -= own == last;
        }
    }
}

void indexer_choose(struct num *num, uint32_t *chosen, const float *q, const float *w,
                    const struct paged_pool *keys, const struct paged_span *rows, size_t n,
                    struct indexer_dims d, float *scores, size_t stride)
{
    size_t spans = 0;
    for (size_t i = 0; i < n; i++)
        spans = max_size(spans, rows[i].at / SPAN + 1);
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t i = 0; i < n * spans; i++)
        score_span(num, scores + i / spans * stride, q, w, keys, &rows[i / spans], i % spans * SPAN, d);
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t i = 0; i < n; i++)
        choose(chosen + i * d.top, scores + i * stride, rows[i].at + 1, d.top);
}
