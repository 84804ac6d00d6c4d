/* SPDX-License-Identifier: MIT
 *
 * Latent attention's own steps: expanding keys and values, and generation's two forms. Called by
 * the MLA part of a block, on the computing thread; threads share out tokens or heads, never a
 * sum. */
#include "layer/mla.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#include "num/kernels.h"
#include "num/sizes.h"

enum {
    SMALL = 1 << 14,       /* elements not worth a second thread */
    ROOM_FLOATS = 8 << 20, /* of expanded heads */
    EXPANDED_ROWS = 16,    /* fewer are not worth a product */
};

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

/* A head's share of kv_b_proj: rows first … of it, in f32 and a few at a time, in the computing
 * thread's lane behind `low` [LoRA's rank]. */
struct row_slice {
    struct num *num;
    const struct linear *lin;
    const uint32_t *set; /* adapters of the rows, or NULL */
    struct scratch lane;
    size_t rank; /* LoRA's, the largest; 0: none */
};

/* Of row t, or NULL. */
static const struct lora *slice_lora(const struct row_slice *s, size_t t)
{
    if (!s->set || !s->lin->lora)
        return s->lin->lora;
    const struct lora *lora = s->set[t] == LORA_NONE ? NULL : &s->lin->lora[s->set[t] * s->lin->apart];
    return lora && lora->rank ? lora : NULL;
}

static struct row_slice slice_of(struct num *num, const struct linear *kv_b, const uint32_t *set,
                                 size_t tokens)
{
    struct row_slice s = {num, kv_b, set, num_lane(num, omp_get_thread_num()), 0};
    for (size_t t = 0; t < tokens; t++) {
        const struct lora *lora = slice_lora(&s, t);
        s.rank = lora && lora->rank > s.rank ? lora->rank : s.rank;
    }
    assert(tile_pad(s.rank) + kv_b->w.cols <= s.lane.floats);
    return s;
}

/* What row `row` of W + s·BA is multiplied by: of DoRA its gain. */
static float gain_of(const struct lora *lora, size_t row)
{
    return lora && lora->m ? lora->gain[row] : 1;
}

/* The rows from `row` on, as many as fit but not beyond `end`; returns how many. */
static size_t slice_load(const struct row_slice *s, const float **ret, size_t row, size_t end)
{
    const size_t fit = (s->lane.floats - tile_pad(s->rank)) / s->lin->w.cols;
    const size_t n = end - row < fit ? end - row : fit;
    float *at = s->lane.data + tile_pad(s->rank);
    gemm_rows(s->num, at, s->lin->w, row, n);
    *ret = at;
    return n;
}

/* y [rank of the latent] = q [n] · rows first … first+n−1. */
static void head_q(const struct row_slice *s, float *y, size_t ldy, const float *q, size_t ldq, size_t first,
                   size_t n, size_t tokens)
{
    const struct kernels *k = num_kernels(s->num);
    const size_t cols = s->lin->w.cols;
    for (size_t t = 0; t < tokens; t++)
        memset(y + t * ldy, 0, cols * sizeof *y);
    const float *w;
    for (size_t r = 0, now; r < n; r += now) {
        now = slice_load(s, &w, first + r, first + n);
        for (size_t t = 0; t < tokens; t++) {
            const struct lora *lora = slice_lora(s, t);
            for (size_t i = 0; i < now; i++)
                k->axpy(y + t * ldy, q[t * ldq + r + i] * gain_of(lora, first + r + i), w + i * cols, cols);
        }
    }
    float *low = s->lane.data;
    for (size_t t = 0; t < tokens; t++) {
        const struct lora *lora = slice_lora(s, t);
        const size_t rank = lora ? lora->rank : 0;
        memset(low, 0, rank * sizeof *low);
        for (size_t i = 0; lora && i < n; i++)
            k->axpy(low, lora->scale * (q[t * ldq + i] * gain_of(lora, first + i)),
                    lora->b + (first + i) * rank, rank);
        for (size_t i = 0; i < rank; i++)
            k->axpy(y + t * ldy, low[i], lora->a + i * cols, cols);
    }
}

void mla_absorb_q(struct num *num, float *latent_q, const float *q, const struct linear *kv_b,
                  const uint32_t *set, struct mla_dims d, size_t tokens)
{
    const size_t head = d.nope + d.rope, wide = d.rank + d.rope;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t h = 0; h < d.heads; h++) {
        const struct row_slice s = slice_of(num, kv_b, set, tokens);
        head_q(&s, latent_q + h * wide, d.heads * wide, q + h * head, d.heads * head, h * (d.nope + d.value),
               d.nope, tokens);
        for (size_t t = 0; t < tokens; t++)
            memcpy(latent_q + (t * d.heads + h) * wide + d.rank, q + (t * d.heads + h) * head + d.nope,
                   d.rope * sizeof *q);
    }
}

/* o [n] = rows first … first+n−1 · x [rank of the latent] */
static void head_o(const struct row_slice *s, float *o, size_t ldo, const float *x, size_t ldx, size_t first,
                   size_t n, size_t tokens)
{
    const struct kernels *k = num_kernels(s->num);
    const size_t cols = s->lin->w.cols;
    const float *w;
    for (size_t r = 0, now; r < n; r += now) {
        now = slice_load(s, &w, first + r, first + n);
        k->dots[DTYPE_F32](o + r, ldo, x, ldx, tokens, w, cols, now, cols, false);
    }
    float *low = s->lane.data;
    for (size_t t = 0; t < tokens; t++) {
        const struct lora *lora = slice_lora(s, t);
        if (!lora)
            continue;
        const size_t rank = lora->rank;
        k->dots[DTYPE_F32](low, rank, x + t * ldx, ldx, 1, lora->a, cols, rank, cols, false);
        k->scale(low, lora->scale, rank);
        k->dots[DTYPE_F32](o + t * ldo, ldo, low, rank, 1, lora->b + first * rank, rank, n, rank, true);
        for (size_t i = 0; i < n; i++)
            o[t * ldo + i] *= gain_of(lora, first + i);
    }
}

void mla_absorb_o(struct num *num, float *o, const float *latent_o, const struct linear *kv_b,
                  const uint32_t *set, struct mla_dims d, size_t tokens)
{
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t h = 0; h < d.heads; h++) {
        const struct row_slice s = slice_of(num, kv_b, set, tokens);
        head_o(&s, o + h * d.value, d.heads * d.value, latent_o + h * d.rank, d.heads * d.rank,
               h * (d.nope + d.value) + d.nope, d.value, tokens);
    }
}

/* --- expanded, a few heads at a time ---------------------------------------------------------- */

/* In multiplications of a head. */
bool mla_is_expanded(struct mla_dims d, size_t tokens, size_t len)
{
    const double t = (double)tokens, all = (double)len, pairs = t * all - t * (t - 1) / 2;
    const double latent = (double)d.rank * (double)(d.nope + d.value);
    const double expanded = pairs * (double)(d.nope + d.rope + d.value) + all * latent;
    const double absorbed = pairs * (double)(2 * d.rank + d.rope) + t * latent;
    return tokens >= EXPANDED_ROWS && expanded < absorbed;
}

size_t mla_room_heads(struct mla_dims d, size_t tokens, size_t positions)
{
    if (!mla_is_expanded(d, tokens, tokens)) /* what lies behind them only costs more */
        return 0;
    const size_t out = d.nope + d.value, block = min_size(positions, MLA_BLOCK);
    const size_t each = out * d.rank + block * out + positions * (out + d.rope), shared = block * d.rank;
    const size_t fit = shared < ROOM_FLOATS ? (ROOM_FLOATS - shared) / each : 0;
    return fit ? min_size(fit, d.heads) : 1;
}

/* w [rows, rank of the latent] = rows `first` … of kv_b with its LoRA. */
static void load_rows(struct num *num, float *w, const struct linear *kv_b, size_t first, size_t rows)
{
    const struct kernels *k = num_kernels(num);
    const struct lora *lora = kv_b->lora;
    const size_t cols = kv_b->w.cols;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * cols > SMALL && num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++) {
        gemm_rows(num, w + r * cols, kv_b->w, first + r, 1);
        for (size_t i = 0; lora && i < lora->rank; i++)
            k->axpy(w + r * cols, lora->scale * lora->b[(first + r) * lora->rank + i], lora->a + i * cols,
                    cols);
        if (lora && lora->m)
            k->scale(w + r * cols, lora->gain[first + r], cols);
    }
}

/* Keys and values of the heads whose share of kv_b the room holds, a block of positions at a
 * time. */
static void expand_cache(struct num *num, const struct mla_room *room, const float *latent, struct mla_dims d,
                         size_t len)
{
    const size_t out = d.heads * (d.nope + d.value), wide = d.rank + d.rope;
    const struct mat w = {.data = room->w, .dtype = DTYPE_F32, .rows = out, .cols = d.rank};
    for (size_t at = 0, n; at < len; at += n) {
        n = min_size(len - at, MLA_BLOCK);
        for (size_t i = 0; i < n; i++)
            memcpy(room->c + i * d.rank, latent + (at + i) * wide, d.rank * sizeof *room->c);
        gemm_xwt(num, room->kv, room->c, w, n, false);
        mla_expand_forward(num, room->k + at * d.heads * (d.nope + d.rope), room->v + at * d.heads * d.value,
                           room->kv, latent + at * wide, d, n);
    }
}

void mla_expanded(struct num *num, float *o, const float *q, const float *latent, const struct linear *kv_b,
                  const struct mla_room *room, struct mla_dims d, float scale, size_t tokens, size_t len)
{
    const size_t head = d.nope + d.rope, out = d.nope + d.value;
    struct mla_dims few = d;
    for (size_t h = 0; h < d.heads; h += few.heads) {
        few.heads = min_size(room->heads, d.heads - h);
        load_rows(num, room->w, kv_b, h * out, few.heads * out);
        expand_cache(num, room, latent, few, len);
        attn_cached(num, o + h * d.value, q + h * head, room->k, room->v, tokens, len,
                    (struct attn_dims){.heads = few.heads,
                                       .kv_heads = few.heads,
                                       .head = head,
                                       .scale = scale,
                                       .value = d.value,
                                       .row_heads = d.heads});
    }
}
