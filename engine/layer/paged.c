/* SPDX-License-Identifier: MIT
 *
 * See paged.h. A tile is some rows of a span with some heads that share keys. Keys are taken 64 at
 * a time from position 0 on, as attn.c does it for few rows: so the online softmax of each row
 * meets the same keys together. Threads share out tiles, never a sum. Called by blocks, on the
 * computing thread. */
#include "layer/paged.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "layer/attn_tile.h"
#include "layer/softcap.h"
#include "num/kernels.h"
#include "num/row8.h"
#include "num/sizes.h"

enum {
    KEYS = 64,       /* scored together: whole blocks */
    SMALL = 1 << 14, /* elements not worth a second thread */
};

/* Of one position of one head. */
static size_t row_bytes(const struct paged_pool *pool)
{
    switch (pool->type) {
    case KV_INT8: return row8_bytes(pool->width);
    case KV_BF16: return pool->width * dtype_size(DTYPE_BF16);
    default: return pool->width * dtype_size(DTYPE_F32);
    }
}

static char *block_at(const struct paged_pool *pool, size_t block, size_t kv)
{
    return (char *)pool->data + (block * pool->kv_heads + kv) * PAGED_BLOCK * row_bytes(pool);
}

/* Which block of the pool has positions 16i … 16i+15 of a span's sequence. */
static size_t block_of(const struct paged_pool *pool, const struct paged_span *span, size_t i)
{
    return pool->ring ? span->state * pool->ring + i % pool->ring : span->blocks[i];
}

size_t paged_block_bytes(const struct paged_pool *pool)
{
    return pool->kv_heads * PAGED_BLOCK * row_bytes(pool);
}

static void store_row(char *row, const float *x, const struct paged_pool *pool)
{
    if (pool->type == KV_INT8)
        row8_from_f32(row, x, pool->width);
    else
        dtype_from_f32(row, x, pool->type == KV_BF16 ? DTYPE_BF16 : DTYPE_F32, pool->width);
}

void paged_store(struct num *num, const struct paged_pool *pool, const float *x,
                 const struct paged_span *spans, size_t n)
{
    const size_t width = pool->width, bytes = row_bytes(pool);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (n * pool->kv_heads * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < spans[i].n; t++) {
            const size_t at = spans[i].at + t;
            for (size_t kv = 0; kv < pool->kv_heads; kv++)
                store_row(block_at(pool, block_of(pool, &spans[i], at / PAGED_BLOCK), kv) +
                              at % PAGED_BLOCK * bytes,
                          x + ((spans[i].row + t) * pool->kv_heads + kv) * width, pool);
        }
}

/* Row r is query r / heads of the span, head r mod heads of those the tile has. */
struct paged_tile {
    const struct kernels *k;
    const struct paged_pool *keys, *values;
    const struct paged_span *span;
    struct attn_dims dims;
    size_t kv, first, heads; /* head of the keys; of the queries: first one, how many */
    size_t rows, vp;         /* vp: value, padded */
    float *q, *o;            /* [rows, head], [rows, vp] */
    float *s;                /* [rows, KEYS] */
    float *wide;             /* [KEYS, wide_row] keys or values as f32 */
    float *max, *sum;        /* [rows] */
};

/* Of keys or of values, whichever are wider. */
static size_t wide_row(struct attn_dims dims)
{
    const size_t vp = tile_pad(attn_value(dims));
    return dims.head > vp ? dims.head : vp;
}

static size_t tile_floats(struct attn_dims dims, size_t rows)
{
    const size_t vp = tile_pad(attn_value(dims));
    return rows * (dims.head + vp + KEYS + 2) + 3 * TILE_PAD + KEYS * wide_row(dims);
}

static float *take(float **at, size_t floats)
{
    float *ret = *at;
    *at += tile_pad(floats);
    return ret;
}

static void tile_begin(struct paged_tile *t, float *lane, const float *q)
{
    const size_t head = t->dims.head, own = t->heads * head;
    t->rows = t->span->n * t->heads;
    t->vp = tile_pad(attn_value(t->dims));
    t->o = take(&lane, t->rows * t->vp);
    t->s = take(&lane, t->rows * KEYS);
    t->wide = take(&lane, KEYS * wide_row(t->dims));
    t->q = take(&lane, t->rows * head);
    t->max = take(&lane, t->rows);
    t->sum = take(&lane, t->rows);
    for (size_t i = 0; i < t->span->n; i++)
        memcpy(t->q + i * own, q + ((t->span->row + i) * t->dims.heads + t->first) * head, own * sizeof *q);
    t->k->scale(t->q, t->dims.scale, t->rows * head);
    memset(t->o, 0, t->rows * t->vp * sizeof *t->o);
    for (size_t r = 0; r < t->rows; r++)
        attn_softmax_begin(&t->max[r], &t->sum[r], t->dims, t->first + r % t->heads);
}

/* Which of nk keys from position k0 on query i sees: from … end−1. */
struct paged_seen {
    size_t from, end;
};
static struct paged_seen seen(const struct paged_tile *t, size_t i, size_t k0, size_t nk)
{
    const size_t end = t->span->at + i + 1, from = attn_first_key(t->dims, end - 1);
    struct paged_seen s = {from > k0 ? from - k0 : 0, end > k0 ? min_size(nk, end - k0) : 0};
    s.from = min_size(s.from, s.end);
    return s;
}

/* Latent attention's values are the first part of its keys: these stay widened. */
static bool has_wide_values(const struct paged_tile *t)
{
    return t->keys->type == KV_INT8 && t->keys->data == t->values->data && t->vp <= t->dims.head;
}

/* The first `width` elements of n rows of a block, as f32 [n, apart], with zeros between. */
static void widen(const struct kernels *k, float *to, const struct paged_pool *pool, const char *rows,
                  size_t n, size_t width, size_t apart)
{
    const size_t bytes = row_bytes(pool);
    for (size_t c = 0; c < n; c++, to += apart) {
        if (pool->type == KV_INT8)
            k->row8_to_f32(to, rows + c * bytes, pool->width, width);
        else
            k->to_f32[pool->type == KV_BF16 ? DTYPE_BF16 : DTYPE_F32](to, rows + c * bytes, width);
        memset(to + width, 0, (apart - width) * sizeof *to);
    }
}

const float *paged_block(struct num *num, const struct paged_pool *pool, size_t block, size_t n, float *wide)
{
    const char *rows = block_at(pool, block, 0);
    if (pool->type == KV_F32)
        return (const void *)rows;
    widen(num_kernels(num), wide, pool, rows, n, pool->width, pool->width);
    return wide;
}

/* Of n keys of a block, the first of which is key c of those scored together. Bytes are widened
 * once for all heads that share them. */
static void block_scores(const struct paged_tile *t, size_t c, const char *keys, size_t n)
{
    const size_t head = t->dims.head;
    const void *w = keys;
    size_t ldw = t->keys->width;
    enum dtype type = t->keys->type == KV_BF16 ? DTYPE_BF16 : DTYPE_F32;
    if (t->keys->type == KV_INT8) {
        float *to = t->wide + (has_wide_values(t) ? c * head : 0);
        widen(t->k, to, t->keys, keys, n, head, head);
        w = to;
        ldw = head;
    }
    t->k->dots[type](t->s + c, KEYS, t->q, head, t->rows, w, ldw, n, head, false);
}

/* Of rows `row` … end−1, which see the same of the keys that were scored together. */
static void tile_softmax(const struct paged_tile *t, struct paged_seen own, size_t row, size_t end)
{
    for (size_t r = row; r < end && own.from < own.end; r++) {
        softcap_apply(t->s + r * KEYS + own.from, own.end - own.from, t->dims.softcap);
        const float rescale =
            t->k->softmax_online(t->s + r * KEYS + own.from, own.end - own.from, &t->max[r], &t->sum[r]);
        if (rescale != 1)
            t->k->scale(t->o + r * t->vp, rescale, t->vp);
    }
}

/* Scores of nk keys from position k0 on, and their softmax. */
static void tile_scores(const struct paged_tile *t, size_t k0, size_t nk)
{
    for (size_t c = 0; c < nk; c += PAGED_BLOCK)
        block_scores(t, c, block_at(t->keys, block_of(t->keys, t->span, (k0 + c) / PAGED_BLOCK), t->kv),
                     min_size(PAGED_BLOCK, nk - c));
    for (size_t i = 0; i < t->span->n; i++)
        tile_softmax(t, seen(t, i, k0, nk), i * t->heads, (i + 1) * t->heads);
}

/* n values from the block's first on, as a tile needs them: f32, rows of whole vectors. c: as
 * above. */
static const float *values_of(const struct paged_tile *t, size_t c, size_t block, size_t n, size_t *ret_apart)
{
    const size_t value = attn_value(t->dims);
    const char *from = block_at(t->values, block, t->kv);
    *ret_apart = t->dims.head;
    if (has_wide_values(t))
        return t->wide + c * t->dims.head;
    *ret_apart = t->values->width;
    if (t->values->type == KV_F32 && t->vp == value)
        return (const void *)from;
    *ret_apart = t->vp;
    widen(t->k, t->wide, t->values, from, n, value, t->vp);
    return t->wide;
}

/* What n values give queries i … end−1. c: their place among the scores. */
static void tile_values(const struct paged_tile *t, const float *v, size_t apart, size_t i, size_t end,
                        size_t c, size_t n)
{
    if (!n)
        return;
    const size_t row = i * t->heads;
    t->k->tile(&(struct tile){.c = t->o + row * t->vp,
                              .ldc = t->vp,
                              .a = t->s + row * KEYS + c,
                              .ai = KEYS,
                              .ak = 1,
                              .b = v,
                              .ldb = apart,
                              .m = (end - i) * t->heads,
                              .n = t->vp,
                              .k = n,
                              .accumulate = true});
}

static bool sees_alike(struct paged_seen a, struct paged_seen b)
{
    return a.from == b.from && a.end == b.end;
}

/* Nobody is given what it does not see, not even times zero: it may not be finite. */
static void tile_gather(const struct paged_tile *t, size_t k0, size_t nk)
{
    for (size_t c = 0; c < nk; c += PAGED_BLOCK) {
        const size_t n = min_size(PAGED_BLOCK, nk - c);
        size_t apart, i = 0;
        const float *v = values_of(t, c, block_of(t->values, t->span, (k0 + c) / PAGED_BLOCK), n, &apart);
        for (size_t next; i < t->span->n; i = next) {
            const struct paged_seen own = seen(t, i, k0 + c, n);
            for (next = i + 1; next < t->span->n && sees_alike(own, seen(t, next, k0 + c, n)); next++) {
            }
            tile_values(t, v + own.from * apart, apart, i, next, c + own.from, own.end - own.from);
        }
    }
}

/* Keys and values of chosen positions k0 … k0+nk−1, beside each other as f32: the latter are the
 * former's first part. */
static void tile_chosen(const struct paged_tile *t, size_t k0, size_t nk)
{
    const size_t head = t->dims.head, apart = wide_row(t->dims);
    for (size_t c = 0; c < nk; c++) {
        const size_t at = t->span->chosen[k0 + c];
        const char *block = block_at(t->keys, block_of(t->keys, t->span, at / PAGED_BLOCK), t->kv);
        widen(t->k, t->wide + c * apart, t->keys, block + at % PAGED_BLOCK * row_bytes(t->keys), 1, head,
              apart);
    }
    t->k->dots[DTYPE_F32](t->s, KEYS, t->q, head, t->rows, t->wide, apart, nk, head, false);
    tile_softmax(t, (struct paged_seen){0, nk}, 0, t->rows);
    tile_values(t, t->wide, apart, 0, 1, 0, nk);
}

static void tile_run(struct paged_tile *t, float *lane, float *o, const float *q)
{
    const size_t end = t->span->at + t->span->n, value = attn_value(t->dims);
    const size_t first = t->span->chosen ? end : attn_first_key(t->dims, t->span->at) / KEYS * KEYS;
    tile_begin(t, lane, q);
    for (size_t k0 = first; k0 < end; k0 += KEYS) {
        tile_scores(t, k0, min_size(KEYS, end - k0));
        tile_gather(t, k0, min_size(KEYS, end - k0));
    }
    for (size_t k0 = 0; t->span->chosen && k0 < t->span->nchosen; k0 += KEYS)
        tile_chosen(t, k0, min_size(KEYS, t->span->nchosen - k0));
    for (size_t r = 0; r < t->rows; r++) {
        const size_t row = t->span->row + r / t->heads, head = t->first + r % t->heads;
        t->k->scale(t->o + r * t->vp, 1 / t->sum[r], value);
        memcpy(o + (row * t->dims.heads + head) * value, t->o + r * t->vp, value * sizeof *o);
    }
}

/* Heads of a tile: all that share keys, but fewer where threads would have nothing to do, or a lane
 * no room. */
static size_t heads_of(const struct num *num, size_t spans, struct attn_dims dims)
{
    size_t heads = attn_group(dims);
    const size_t tiles = spans * dims.kv_heads, threads = (size_t)num_threads(num),
                 floats = num_lane(num, 0).floats;
    while (heads > 1 && (tile_floats(dims, PAGED_ROWS * heads) > floats ||
                         (heads % 2 == 0 && tiles * (attn_group(dims) / heads) < threads)))
        heads /= heads % 2 ? heads : 2;
    assert(tile_floats(dims, PAGED_ROWS * heads) <= floats);
    return heads;
}

void attn_paged(struct num *num, float *o, const float *q, const struct paged_pool *k,
                const struct paged_pool *v, const struct paged_span *spans, size_t n, struct attn_dims dims)
{
    const size_t heads = heads_of(num, n, dims), group = attn_group(dims), parts = dims.heads / heads;
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t i = 0; i < n * parts; i++) {
        struct paged_tile t = {.k = num_kernels(num),
                               .keys = k,
                               .values = v,
                               .span = &spans[i / parts],
                               .dims = dims,
                               .kv = i % parts * heads / group,
                               .first = i % parts * heads,
                               .heads = heads};
        tile_run(&t, num_lane(num, omp_get_thread_num()).data, o, q);
    }
}
