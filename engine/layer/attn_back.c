/* SPDX-License-Identifier: MIT
 *
 * Causal grouped-query attention, backward: probabilities are made again from q, k and the saved log-sum,
 * tile by tile. Called by blocks, on the computing thread. A thread owns a whole (sequence, key-value head):
 * dk and dv add over the queries of the group, dq over the keys, each in ascending order. */
#include "layer/layer.h"

#include <assert.h>
#include <omp.h>

#include "layer/attn_tile.h"
#include "num/kernels.h"

struct back_tiles {
    size_t hp, vp, queries, keys;
    float *q, *d_o, *dq; /* [rows, hp], [rows, vp], [rows, hp]; q already scaled */
    float *p, *ds;       /* [rows, keys] */
    float *kt, *vt;      /* [head, keys], [value, keys] */
    float *k, *dk, *dv;  /* [keys, hp], [keys, hp], [keys, vp] */
};

/* One sequence and one group of heads: pointers to its first row. */
struct back_span {
    float *dq, *dk, *dv;
    const float *d_o, *o, *lse, *q, *k, *v;
    size_t len;
};

static size_t back_floats(const struct back_tiles *t, size_t group)
{
    return t->queries * group * (2 * t->hp + t->vp + 2 * t->keys) + t->keys * (3 * t->hp + 2 * t->vp);
}

static void back_sizes(struct back_tiles *t, size_t floats, struct attn_dims dims)
{
    const size_t group = attn_group(dims);
    t->hp = tile_pad(dims.head);
    t->vp = tile_pad(attn_value(dims));
    t->queries = group < ATTN_ROWS ? ATTN_ROWS / group : 1;
    t->keys = ATTN_KEYS;
    while (back_floats(t, group) > floats && t->queries > 1)
        t->queries /= 2;
    while (back_floats(t, group) > floats && t->keys > TILE_PAD)
        t->keys /= 2;
    assert(back_floats(t, group) <= floats);
}

static void back_place(struct back_tiles *t, float *at, size_t group)
{
    const size_t rows = t->queries * group;
    t->q = at, at += rows * t->hp;
    t->d_o = at, at += rows * t->vp;
    t->dq = at, at += rows * t->hp;
    t->p = at, at += rows * t->keys;
    t->ds = at, at += rows * t->keys;
    t->kt = at, at += t->keys * t->hp;
    t->vt = at, at += t->keys * t->vp;
    t->k = at, at += t->keys * t->hp;
    t->dk = at, at += t->keys * t->hp;
    t->dv = at;
}

/* A tile: rows of queries t0 … against keys k0 … k0+nk−1 (t0 ≥ k0, so every row sees the first key). */
struct back_at {
    size_t t0, rows, k0, nk;
};

/* p and ds of rows r0 … r1−1, and their share of dq. */
static void back_rows(const struct kernels *k, struct back_tiles *t, const struct back_span *sp,
                      struct attn_dims dims, struct back_at at, size_t r0, size_t r1)
{
    const size_t group = attn_group(dims), value = attn_value(dims), m = r1 - r0;
    const size_t limit = min_size(at.nk, at.t0 + (r1 - 1) / group + 1 - at.k0);
    float *p = t->p + r0 * t->keys, *ds = t->ds + r0 * t->keys;
    k->tile(&(struct tile){.c = p,
                           .ldc = t->keys,
                           .a = t->q + r0 * t->hp,
                           .ai = t->hp,
                           .ak = 1,
                           .b = t->kt,
                           .ldb = t->keys,
                           .m = m,
                           .n = tile_pad(limit),
                           .k = dims.head});
    k->tile(&(struct tile){.c = ds,
                           .ldc = t->keys,
                           .a = t->d_o + r0 * t->vp,
                           .ai = t->vp,
                           .ak = 1,
                           .b = t->vt,
                           .ldb = t->keys,
                           .m = m,
                           .n = tile_pad(limit),
                           .k = value});
    for (size_t r = r0; r < r1; r++, p += t->keys, ds += t->keys) {
        const size_t slot = (at.t0 + r / group) * dims.heads + r % group;
        const size_t seen = min_size(at.nk, at.t0 + r / group + 1 - at.k0);
        const float delta = k->dot(t->d_o + r * t->vp, sp->o + slot * value, value);
        k->exp_minus(p, seen, sp->lse[slot], 1);
        k->softmax_back(ds, p, delta, seen);
        memset(p + seen, 0, (at.nk - seen) * sizeof *p);
        memset(ds + seen, 0, (at.nk - seen) * sizeof *ds);
    }
    k->tile(&(struct tile){.c = t->dq + r0 * t->hp,
                           .ldc = t->hp,
                           .a = t->ds + r0 * t->keys,
                           .ai = t->keys,
                           .ak = 1,
                           .b = t->k,
                           .ldb = t->hp,
                           .m = m,
                           .n = t->hp,
                           .k = limit});
}

/* The tile's share of dk and dv, a panel of keys at a time: keys c0 … are seen from row `from` on. */
static void back_keys(const struct kernels *k, struct back_tiles *t, struct attn_dims dims, struct back_at at,
                      size_t c0, size_t c1)
{
    const size_t group = attn_group(dims);
    const size_t from = at.k0 + c0 > at.t0 ? (at.k0 + c0 - at.t0) * group : 0;
    if (from >= at.rows)
        return;
    struct tile tile = {.c = t->dv + c0 * t->vp,
                        .ldc = t->vp,
                        .a = t->p + from * t->keys + c0,
                        .ai = 1,
                        .ak = t->keys,
                        .b = t->d_o + from * t->vp,
                        .ldb = t->vp,
                        .m = c1 - c0,
                        .n = t->vp,
                        .k = at.rows - from,
                        .accumulate = true};
    k->tile(&tile);
    tile.c = t->dk + c0 * t->hp;
    tile.a = t->ds + from * t->keys + c0;
    tile.b = t->q + from * t->hp;
    tile.n = tile.ldc = tile.ldb = t->hp;
    k->tile(&tile);
}

static void back_tile(const struct kernels *k, struct back_tiles *t, const struct back_span *sp,
                      struct attn_dims dims, struct back_at at)
{
    const size_t group = attn_group(dims), row = dims.heads * dims.head, queries = at.rows / group;
    attn_pack_group(t->q, t->hp, sp->q + at.t0 * row, queries, dims, dims.head);
    attn_pack_group(t->d_o, t->vp, sp->d_o + at.t0 * dims.heads * attn_value(dims), queries, dims,
                    attn_value(dims));
    k->scale(t->q, dims.scale, at.rows * t->hp);
    const bool diagonal = at.k0 + at.nk > at.t0 + 1;
    const size_t row_step = diagonal ? ATTN_PANEL : at.rows, key_step = diagonal ? ATTN_PANEL : at.nk;
    for (size_t r = 0; r < at.rows; r += row_step)
        back_rows(k, t, sp, dims, at, r, min_size(at.rows, r + row_step));
    for (size_t c = 0; c < at.nk; c += key_step)
        back_keys(k, t, dims, at, c, min_size(at.nk, c + key_step));
    for (size_t r = 0; r < at.rows; r++) {
        float *out = sp->dq + (at.t0 + r / group) * row + r % group * dims.head, *part = t->dq + r * t->hp;
        if (at.k0 == 0)
            memset(out, 0, dims.head * sizeof *out);
        k->axpy(out, dims.scale, part, dims.head);
    }
}

static void back_group(const struct kernels *k, struct back_tiles *t, const struct back_span *sp,
                       struct attn_dims dims)
{
    const size_t stride = dims.kv_heads * dims.head, group = attn_group(dims);
    const size_t value = attn_value(dims), v_stride = attn_v_stride(dims), dv_stride = dims.kv_heads * value;
    for (size_t k0 = 0; k0 < sp->len; k0 += t->keys) {
        const size_t nk = min_size(t->keys, sp->len - k0);
        attn_pack_t(k, t->kt, t->keys, sp->k + k0 * stride, stride, nk, dims.head);
        attn_pack_t(k, t->vt, t->keys, sp->v + k0 * v_stride, v_stride, nk, value);
        attn_pack(t->k, t->hp, sp->k + k0 * stride, stride, nk, dims.head);
        memset(t->dk, 0, nk * t->hp * sizeof *t->dk);
        memset(t->dv, 0, nk * t->vp * sizeof *t->dv);
        for (size_t t0 = k0; t0 < sp->len; t0 += t->queries) {
            const size_t rows = min_size(t->queries, sp->len - t0) * group;
            back_tile(k, t, sp, dims, (struct back_at){.t0 = t0, .rows = rows, .k0 = k0, .nk = nk});
        }
        for (size_t c = 0; c < nk; c++) {
            memcpy(sp->dk + (k0 + c) * stride, t->dk + c * t->hp, dims.head * sizeof *sp->dk);
            memcpy(sp->dv + (k0 + c) * dv_stride, t->dv + c * t->vp, value * sizeof *sp->dv);
        }
    }
}

void attn_backward_x(struct num *num, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                     const float *lse, const float *q, const float *k, const float *v, struct seqs seqs,
                     struct attn_dims dims)
{
    const struct kernels *kern = num_kernels(num);
    const size_t group = attn_group(dims);
    struct back_tiles sizes;
    back_sizes(&sizes, num_lane(num, 0).floats, dims);
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t i = 0; i < seqs.n * dims.kv_heads; i++) {
        struct back_tiles t = sizes;
        back_place(&t, num_lane(num, omp_get_thread_num()).data, group);
        const size_t s = i / dims.kv_heads, kv = i % dims.kv_heads, first = seqs.start[s];
        const size_t value = attn_value(dims), at_o = (first * dims.heads + kv * group) * value;
        const size_t at_q = (first * dims.heads + kv * group) * dims.head;
        const size_t at_k = (first * dims.kv_heads + kv) * dims.head;
        const struct back_span sp = {.dq = dq + at_q,
                                     .dk = dk + at_k,
                                     .dv = dv + (first * dims.kv_heads + kv) * value,
                                     .d_o = d_o + at_o,
                                     .o = o + at_o,
                                     .lse = lse + first * dims.heads + kv * group,
                                     .q = q + at_q,
                                     .k = k + at_k,
                                     .v = v + first * attn_v_stride(dims) + kv * value,
                                     .len = seqs.start[s + 1] - first};
        back_group(kern, &t, &sp, dims);
    }
}
