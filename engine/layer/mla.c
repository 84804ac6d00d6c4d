/* SPDX-License-Identifier: MIT
 *
 * Latent attention's own steps: expanding keys and values, and the absorbed form of generation. Called by the
 * MLA part of a block, on the computing thread; threads share out tokens or heads, never a sum. */
#include "layer/mla.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#include "num/kernels.h"

enum { SMALL = 1 << 14 }; /* elements not worth a second thread */

void mla_expand_forward(struct num *num, float *k, float *v, const float *kv, const float *kva,
                        struct mla_dims d, size_t tokens)
{
    const size_t head = d.nope + d.rope, from = d.nope + d.value;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * d.heads * from > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < d.heads; h++) {
            const size_t at = t * d.heads + h;
            memcpy(k + at * head, kv + at * from, d.nope * sizeof *k);
            memcpy(k + at * head + d.nope, kva + t * (d.rank + d.rope) + d.rank, d.rope * sizeof *k);
            memcpy(v + at * d.value, kv + at * from + d.nope, d.value * sizeof *v);
        }
}

void mla_expand_backward_x(struct num *num, float *dkv, float *dkva, const float *dk, const float *dv,
                           struct mla_dims d, size_t tokens)
{
    const struct kernels *kern = num_kernels(num);
    const size_t head = d.nope + d.rope, to = d.nope + d.value;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * d.heads * to > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        float *shared = dkva + t * (d.rank + d.rope) + d.rank;
        memset(shared, 0, d.rope * sizeof *shared);
        for (size_t h = 0; h < d.heads; h++) {
            const size_t at = t * d.heads + h;
            memcpy(dkv + at * to, dk + at * head, d.nope * sizeof *dkv);
            memcpy(dkv + at * to + d.nope, dv + at * d.value, d.value * sizeof *dkv);
            kern->add(shared, shared, dk + at * head + d.nope, d.rope);
        }
    }
}

/* --- absorbed --------------------------------------------------------------------------------- */

/* A head's share of kv_b_proj: rows first … of it, in f32 and a few at a time, in the computing thread's lane
 * behind `low` [LoRA's rank]. */
struct slice {
    struct num *num;
    const struct linear *lin;
    struct scratch lane;
    size_t rank; /* LoRA's; 0: none */
};

static struct slice slice_of(struct num *num, const struct linear *kv_b)
{
    const size_t rank = kv_b->lora ? kv_b->lora->rank : 0;
    struct slice s = {num, kv_b, num_lane(num, omp_get_thread_num()), rank};
    assert(tile_pad(rank) + kv_b->w.cols <= s.lane.floats);
    return s;
}

/* The rows from `row` on, as many as fit but not beyond `end`; returns how many. */
static size_t slice_load(const struct slice *s, const float **ret, size_t row, size_t end)
{
    const size_t fit = (s->lane.floats - tile_pad(s->rank)) / s->lin->w.cols;
    const size_t n = end - row < fit ? end - row : fit;
    float *at = s->lane.data + tile_pad(s->rank);
    gemm_rows(s->num, at, s->lin->w, row, n);
    *ret = at;
    return n;
}

/* y [rank of the latent] = q [n] · rows first … first+n−1. */
static void head_q(const struct slice *s, float *y, size_t ldy, const float *q, size_t ldq, size_t first,
                   size_t n, size_t tokens)
{
    const struct kernels *k = num_kernels(s->num);
    const struct lora *lora = s->lin->lora;
    const size_t cols = s->lin->w.cols;
    for (size_t t = 0; t < tokens; t++)
        memset(y + t * ldy, 0, cols * sizeof *y);
    const float *w;
    for (size_t r = 0, now; r < n; r += now) {
        now = slice_load(s, &w, first + r, first + n);
        for (size_t t = 0; t < tokens; t++)
            for (size_t i = 0; i < now; i++)
                k->axpy(y + t * ldy, q[t * ldq + r + i], w + i * cols, cols);
    }
    float *low = s->lane.data;
    for (size_t t = 0; lora && t < tokens; t++) {
        memset(low, 0, s->rank * sizeof *low);
        for (size_t i = 0; i < n; i++)
            k->axpy(low, lora->scale * q[t * ldq + i], lora->b + (first + i) * s->rank, s->rank);
        for (size_t i = 0; i < s->rank; i++)
            k->axpy(y + t * ldy, low[i], lora->a + i * cols, cols);
    }
}

void mla_absorb_q(struct num *num, float *latent_q, const float *q, const struct linear *kv_b,
                  struct mla_dims d, size_t tokens)
{
    const size_t head = d.nope + d.rope, wide = d.rank + d.rope;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t h = 0; h < d.heads; h++) {
        const struct slice s = slice_of(num, kv_b);
        head_q(&s, latent_q + h * wide, d.heads * wide, q + h * head, d.heads * head, h * (d.nope + d.value),
               d.nope, tokens);
        for (size_t t = 0; t < tokens; t++)
            memcpy(latent_q + (t * d.heads + h) * wide + d.rank, q + (t * d.heads + h) * head + d.nope,
                   d.rope * sizeof *q);
    }
}

/* o [n] = rows first … first+n−1 · x [rank of the latent] */
static void head_o(const struct slice *s, float *o, size_t ldo, const float *x, size_t ldx, size_t first,
                   size_t n, size_t tokens)
{
    const struct kernels *k = num_kernels(s->num);
    const struct lora *lora = s->lin->lora;
    const size_t cols = s->lin->w.cols;
    const float *w;
    for (size_t r = 0, now; r < n; r += now) {
        now = slice_load(s, &w, first + r, first + n);
        k->dots[DTYPE_F32](o + r, ldo, x, ldx, tokens, w, cols, now, cols, false);
    }
    float *low = s->lane.data;
    for (size_t t = 0; lora && t < tokens; t++) {
        k->dots[DTYPE_F32](low, s->rank, x + t * ldx, ldx, 1, lora->a, cols, s->rank, cols, false);
        k->scale(low, lora->scale, s->rank);
        k->dots[DTYPE_F32](o + t * ldo, ldo, low, s->rank, 1, lora->b + first * s->rank, s->rank, n, s->rank,
                           true);
    }
}

void mla_absorb_o(struct num *num, float *o, const float *latent_o, const struct linear *kv_b,
                  struct mla_dims d, size_t tokens)
{
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t h = 0; h < d.heads; h++) {
        const struct slice s = slice_of(num, kv_b);
        head_o(&s, o + h * d.value, d.heads * d.value, latent_o + h * d.rank, d.heads * d.rank,
               h * (d.nope + d.value) + d.nope, d.value, tokens);
    }
}
