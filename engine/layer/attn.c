/* SPDX-License-Identifier: MIT
 *
 * Causal grouped-query attention, forward: tiles of queries against tiles of keys with an online
 * softmax (Dao 2022). Scores have a row for each key: so keys are packed as they lie, and maxima
 * and sums go down columns. Tiles lie in the computing thread's lane of scratch. Called by blocks,
 * on the computing thread; threads share out query tiles, so nothing is summed across them. */
#include "layer/layer.h"

#include <float.h>
#include <math.h>
#include <omp.h>

#include "layer/attn_tile.h"
#include "layer/softcap.h"
#include "num/kernels.h"

_Static_assert((int)ATTN_KEYS == (int)ATTN_RING && ATTN_RING % TILE_PAD == 0, "no tile goes round a ring");

enum {
    DECODE_ROWS = 4, /* up to here, reading the cache dominates and tiles of keys are not worth packing */
    DECODE_KEYS = ATTN_RING, /* scored together */
    SMALL = 1 << 15,         /* products not worth a second thread */
};

/* The score of a key that was not chosen. It is finite: a row may see none of the first keys, and
 * what those give it then is multiplied by zero once it sees one. */
static const float UNCHOSEN = -FLT_MAX;

/* Queries that are the last n of len positions, each attending to itself and everything before. */
struct attn_span {
    float *o, *lse; /* lse may be NULL */
    const float *q, *k, *v;
    size_t n, len;
};

/* What lies across has a column for each row of queries, `wide` of them, a multiple of TILE_PAD: s
 * a row for each key, qt one for each element of a head. */
struct fwd_tiles {
    struct attn_extent size;
    float *q, *o;               /* [rows, hp], [rows, vp] */
    float *qt, *s;              /* [head, wide], [keys, wide] */
    float *k, *v;               /* [keys, hp], [keys, vp] */
    float *max, *sum, *rescale; /* [wide]; the last: of what earlier keys gave */
};

static size_t fwd_floats(const struct attn_extent *is)
{
    return is->wide * (2 * is->hp + is->vp + is->keys + 3) + is->keys * (is->hp + is->vp);
}

static void fwd_place(struct fwd_tiles *t, float *at)
{
    t->q = at, at += t->size.wide * t->size.hp;
    t->o = at, at += t->size.wide * t->size.vp;
    t->qt = at, at += t->size.wide * t->size.hp;
    t->s = at, at += t->size.wide * t->size.keys;
    t->k = at, at += t->size.keys * t->size.hp;
    t->v = at, at += t->size.keys * t->size.vp;
    t->max = at, at += t->size.wide;
    t->sum = at, at += t->size.wide;
    t->rescale = at;
}

/* Scores of keys c0 … c1−1; minus infinity for rows from `row` on that see other keys, but not, or
 * no longer, this one. */
static void fwd_scores(const struct kernels *k, const struct fwd_tiles *t, struct attn_dims dims,
                       struct attn_at at, size_t row, size_t c0, size_t c1)
{
    const size_t group = attn_group(dims), col = attn_first_row(at, c0, group) / TILE_PAD * TILE_PAD;
    k->tile(&(struct tile){.c = t->s + c0 * t->size.wide + col,
                           .ldc = t->size.wide,
                           .a = t->k + c0 * t->size.hp,
                           .ai = t->size.hp,
                           .ak = 1,
                           .b = t->qt + col,
                           .ldb = t->size.wide,
                           .m = c1 - c0,
                           .n = tile_pad(at.rows - col),
                           .k = dims.head});
    for (size_t c = c0; c < c1; c++)
        softcap_apply(t->s + c * t->size.wide + col, at.rows - col, dims.softcap);
    for (size_t c = c0; c < c1; c++)
        for (size_t r = row, end = attn_first_row(at, c, group); r < end; r++)
            t->s[c * t->size.wide + r] = -INFINITY;
    for (size_t c = c0; dims.window && c < c1; c++)
        for (size_t r = attn_end_row(at, c, dims); r < at.rows; r++)
            t->s[c * t->size.wide + r] = -INFINITY;
    attn_hide(t->s, t->size.wide, dims, at, row, c0, c1, UNCHOSEN);
}

/* What the values give rows r0 … r1−1. */
static void fwd_rows(const struct kernels *k, const struct fwd_tiles *t, struct attn_dims dims,
                     struct attn_at at, size_t r0, size_t r1)
{
    for (size_t r = r0; r < r1; r++)
        if (t->rescale[r] != 1)
            k->scale(t->o + r * t->size.vp, t->rescale[r], t->size.vp);
    k->tile(&(struct tile){.c = t->o + r0 * t->size.vp,
                           .ldc = t->size.vp,
                           .a = t->s + r0,
                           .ai = 1,
                           .ak = t->size.wide,
                           .b = t->v,
                           .ldb = t->size.vp,
                           .m = r1 - r0,
                           .n = t->size.vp,
                           .k = attn_seen(at, r1 - 1, attn_group(dims)),
                           .accumulate = true});
}

static size_t row_of(struct attn_dims dims, size_t position)
{
    return dims.ring ? position % dims.ring : position;
}

/* Of keys before the window a ring has other positions' values: they are finite, and multiplied by
 * zero. */
static void fwd_keys(const struct kernels *k, const struct fwd_tiles *t, const struct attn_span *sp,
                     struct attn_dims dims, size_t kv, struct attn_at at)
{
    const size_t group = attn_group(dims), value = attn_value(dims);
    const size_t stride = dims.kv_heads * dims.head, v_stride = attn_v_stride(dims);
    const size_t row = attn_first_row(at, 0, group), whole = attn_first_row(at, at.nk - 1, group),
                 step = whole ? ATTN_PANEL : at.nk, first = row_of(dims, at.k0);
    attn_pack(t->k, t->size.hp, sp->k + first * stride + kv * dims.head, stride, at.nk, dims.head);
    attn_pack(t->v, t->size.vp, sp->v + first * v_stride + kv * value, v_stride, at.nk, value);
    for (size_t c = 0; c < at.nk; c += step)
        fwd_scores(k, t, dims, at, row, c, min_size(at.nk, c + step));
    k->softmax_columns(t->s + row, t->size.wide, at.nk, at.rows - row, t->max + row, t->sum + row,
                       t->rescale + row);
    for (size_t r = row, next; r < at.rows; r = next) {
        next = attn_panel_end(r, at.rows, whole);
        fwd_rows(k, t, dims, at, r, next);
    }
}

static void fwd_store(const struct kernels *k, const struct fwd_tiles *t, const struct attn_span *sp,
                      struct attn_dims dims, size_t kv, size_t t0, size_t rows)
{
    const size_t group = attn_group(dims), value = attn_value(dims);
    for (size_t r = 0; r < rows; r++) {
        const size_t slot = (t0 + r / group) * attn_row_heads(dims) + kv * group + r % group;
        k->scale(t->o + r * t->size.vp, 1 / t->sum[r], value);
        memcpy(sp->o + slot * value, t->o + r * t->size.vp, value * sizeof *sp->o);
        if (sp->lse)
            sp->lse[slot] = t->max[r] + logf(t->sum[r]);
    }
}

/* Queries t0 … of the span, all heads of group kv. */
static void fwd_tile(const struct kernels *k, const struct fwd_tiles *t, const struct attn_span *sp,
                     struct attn_dims dims, size_t kv, size_t t0)
{
    const size_t group = attn_group(dims), queries = min_size(t->size.queries, sp->n - t0),
                 rows = queries * group;
    const size_t first = sp->len - sp->n + t0, end = first + queries;
    attn_pack_group(t->q, t->size.hp, sp->q + (t0 * attn_row_heads(dims) + kv * group) * dims.head, queries,
                    dims, dims.head);
    k->scale(t->q, dims.scale, rows * t->size.hp);
    attn_pack_t(k, t->qt, t->size.wide, t->q, t->size.hp, rows, dims.head);
    memset(t->o, 0, rows * t->size.vp * sizeof *t->o);
    for (size_t r = 0; r < rows; r++)
        attn_softmax_begin(&t->max[r], &t->sum[r], dims, kv * group + r % group);
    for (size_t k0 = attn_first_key(dims, first) / t->size.keys * t->size.keys; k0 < end; k0 += t->size.keys)
        fwd_keys(k, t, sp, dims, kv, attn_against(dims, first, rows, k0, min_size(t->size.keys, end - k0)));
    fwd_store(k, t, sp, dims, kv, t0, rows);
}

void attn_forward(struct num *num, float *o, float *lse, const float *q, const float *k, const float *v,
                  struct seqs seqs, struct attn_dims dims)
{
    const struct kernels *kern = num_kernels(num);
    const size_t q_row = dims.heads * dims.head, k_row = dims.kv_heads * dims.head;
    const size_t o_row = dims.heads * attn_value(dims), v_row = attn_v_stride(dims);
    const struct fwd_tiles sizes = {.size = attn_extent(dims, num_lane(num, 0).floats, fwd_floats)};
    size_t tiles = 0;
    for (size_t s = 0; s < seqs.n; s++)
        tiles += (seqs.start[s + 1] - seqs.start[s] + sizes.size.queries - 1) / sizes.size.queries;
#pragma omp parallel for schedule(dynamic)                                                                   \
    num_threads(num_threads(num)) if (seqs.n && seqs.start[seqs.n] * q_row > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < tiles * dims.kv_heads; i++) {
        struct fwd_tiles t = sizes;
        fwd_place(&t, num_lane(num, omp_get_thread_num()).data);
        size_t tile = i / dims.kv_heads, s = 0, own;
        for (; tile >= (own = (seqs.start[s + 1] - seqs.start[s] + t.size.queries - 1) / t.size.queries); s++)
            tile -= own;
        const size_t at = seqs.start[s], len = seqs.start[s + 1] - at;
        const struct attn_span sp = {.o = o + at * o_row,
                                     .lse = lse + at * dims.heads,
                                     .q = q + at * q_row,
                                     .k = k + at * k_row,
                                     .v = v + at * v_row,
                                     .n = len,
                                     .len = len};
        fwd_tile(kern, &t, &sp, attn_dims_from(dims, at), i % dims.kv_heads, tile * t.size.queries);
    }
}

/* One query with the heads of groups kv0 … kv1−1. K and V are read where they lie, a block of keys
 * at a time for all the groups, so that a thread walks forward through memory. */
struct decode {
    size_t kv0, kv1, vp;
    float *q, *o, *max, *sum; /* [heads of those groups, head], [·, vp], [·], [·] */
    float *s, *v;             /* [group, keys], [keys, vp] */
};

static size_t decode_floats(struct attn_dims dims)
{
    const size_t hp = tile_pad(dims.head), vp = tile_pad(attn_value(dims));
    return dims.heads * (hp + vp + 2) + attn_group(dims) * DECODE_KEYS + DECODE_KEYS * vp;
}

static void decode_init(struct decode *d, float *at, const float *q, struct attn_dims dims,
                        const struct kernels *k)
{
    const size_t group = attn_group(dims), heads = (d->kv1 - d->kv0) * group;
    d->vp = tile_pad(attn_value(dims));
    d->q = at, at += heads * tile_pad(dims.head);
    d->o = at, at += heads * d->vp;
    d->max = at, at += heads;
    d->sum = at, at += heads;
    d->s = at, at += group * DECODE_KEYS;
    d->v = at;
    attn_pack(d->q, dims.head, q + d->kv0 * group * dims.head, dims.head, heads, dims.head);
    k->scale(d->q, dims.scale, heads * dims.head);
    memset(d->o, 0, heads * d->vp * sizeof *d->o);
    for (size_t h = 0; h < heads; h++)
        attn_softmax_begin(&d->max[h], &d->sum[h], dims, d->kv0 * group + h);
}

/* Group kv0 + i against nk keys and values. */
static void decode_block(const struct kernels *k, struct decode *d, struct attn_dims dims, size_t i,
                         const float *keys, const float *values, size_t nk)
{
    const size_t group = attn_group(dims), stride = dims.kv_heads * dims.head;
    const size_t value = attn_value(dims), v_stride = attn_v_stride(dims);
    float *o = d->o + i * group * d->vp;
    k->dots[DTYPE_F32](d->s, DECODE_KEYS, d->q + i * group * dims.head, dims.head, group, keys, stride, nk,
                       dims.head, false);
    for (size_t g = 0; g < group; g++) {
        const size_t h = i * group + g;
        softcap_apply(d->s + g * DECODE_KEYS, nk, dims.softcap);
        const float rescale = k->softmax_online(d->s + g * DECODE_KEYS, nk, &d->max[h], &d->sum[h]);
        if (rescale != 1)
            k->scale(d->o + h * d->vp, rescale, d->vp);
    }
    const bool packed = d->vp != value;
    if (packed)
        attn_pack(d->v, d->vp, values, v_stride, nk, value);
    k->tile(&(struct tile){.c = o,
                           .ldc = d->vp,
                           .a = d->s,
                           .ai = DECODE_KEYS,
                           .ak = 1,
                           .b = packed ? d->v : values,
                           .ldb = packed ? d->vp : v_stride,
                           .m = group,
                           .n = d->vp,
                           .k = nk,
                           .accumulate = true});
}

static void decode_query(const struct kernels *k, float *lane, const struct attn_span *sp,
                         struct attn_dims dims, size_t t0, size_t kv0, size_t kv1)
{
    struct decode d = {.kv0 = kv0, .kv1 = kv1};
    const size_t stride = dims.kv_heads * dims.head, v_stride = attn_v_stride(dims), value = attn_value(dims),
                 end = sp->len - sp->n + t0 + 1;
    decode_init(&d, lane, sp->q + t0 * attn_row_heads(dims) * dims.head, dims, k);
    for (size_t k0 = attn_first_key(dims, end - 1), next; k0 < end; k0 = next) {
        next = min_size(end, (k0 / DECODE_KEYS + 1) * DECODE_KEYS);
        const size_t row = row_of(dims, k0);
        for (size_t i = 0; i < kv1 - kv0; i++)
            decode_block(k, &d, dims, i, sp->k + row * stride + (kv0 + i) * dims.head,
                         sp->v + row * v_stride + (kv0 + i) * value, next - k0);
    }
    const size_t group = attn_group(dims);
    float *o = sp->o + (t0 * attn_row_heads(dims) + kv0 * group) * value;
    for (size_t h = 0; h < (kv1 - kv0) * group; h++) {
        k->scale(d.o + h * d.vp, 1 / d.sum[h], value);
        memcpy(o + h * value, d.o + h * d.vp, value * sizeof *o);
    }
}

static void cached_decode(struct num *num, const struct attn_span *sp, struct attn_dims dims)
{
    const size_t threads = (size_t)num_threads(num), parts = min_size(threads, dims.kv_heads);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (sp->n * sp->len * dims.heads * dims.head > SMALL && threads > 1)
    for (size_t i = 0; i < sp->n * parts; i++) {
        const size_t part = i % parts, kv0 = part * dims.kv_heads / parts,
                     kv1 = (part + 1) * dims.kv_heads / parts;
        decode_query(num_kernels(num), num_lane(num, omp_get_thread_num()).data, sp, dims, i / parts, kv0,
                     kv1);
    }
}

void attn_cached(struct num *num, float *o, const float *q, const float *k, const float *v, size_t n,
                 size_t len, struct attn_dims dims)
{
    const struct attn_span sp = {.o = o, .q = q, .k = k, .v = v, .n = n, .len = len};
    if (n <= DECODE_ROWS && decode_floats(dims) <= num_lane(num, 0).floats) {
        cached_decode(num, &sp, dims);
        return;
    }
    const struct fwd_tiles sizes = {.size = attn_extent(dims, num_lane(num, 0).floats, fwd_floats)};
    const size_t tiles = (n + sizes.size.queries - 1) / sizes.size.queries;
#pragma omp parallel for schedule(dynamic)                                                                   \
    num_threads(num_threads(num)) if (n * len * dims.heads * dims.head > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < tiles * dims.kv_heads; i++) {
        struct fwd_tiles t = sizes;
        fwd_place(&t, num_lane(num, omp_get_thread_num()).data);
        fwd_tile(num_kernels(num), &t, &sp, dims, i % dims.kv_heads, i / dims.kv_heads * sizes.size.queries);
    }
}
