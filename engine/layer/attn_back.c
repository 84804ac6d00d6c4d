/* SPDX-License-Identifier: MIT
 *
 * Causal grouped-query attention, backward: probabilities are made again from q, k and the saved
 * log-sum, tile by tile. Called by blocks, on the computing thread. A thread owns a whole
 * (sequence, key-value head): dk and dv add up what each tile of queries gives, dq what each tile
 * of keys gives, in ascending order. */
#include "layer/layer.h"

#include <math.h>
#include <omp.h>

#include "layer/attn_tile.h"
#include "layer/softcap.h"
#include "num/kernels.h"

/* What lies across has a column for each row of queries, `wide` of them, a multiple of TILE_PAD: p
 * and ds a row for each key, qt and d_ot one for each element of a head. */
struct back_tiles {
    struct attn_extent size;
    float *q, *d_o, *dq; /* [rows, hp], [rows, vp], [rows, hp]; q already scaled */
    float *qt, *d_ot;    /* [head, wide], [value, wide] */
    float *lse, *delta;  /* [wide] */
    float *p, *ds;       /* [keys, wide] */
    float *k, *v;        /* [keys, hp], [keys, vp] */
    float *dk, *dv;      /* what these queries add: [keys, hp], [keys, vp] */
};

/* One sequence and one group of heads: pointers to its first row. */
struct back_span {
    float *dq, *dk, *dv;
    const float *d_o, *o, *lse, *q, *k, *v;
    size_t len;
};

static size_t back_floats(const struct attn_extent *is)
{
    const size_t width = is->hp + is->vp;
    return is->wide * (2 * width + is->hp + 2 + 2 * is->keys) + is->keys * 2 * width;
}

static void back_place(struct back_tiles *t, float *at)
{
    t->q = at, at += t->size.wide * t->size.hp;
    t->d_o = at, at += t->size.wide * t->size.vp;
    t->dq = at, at += t->size.wide * t->size.hp;
    t->qt = at, at += t->size.wide * t->size.hp;
    t->d_ot = at, at += t->size.wide * t->size.vp;
    t->lse = at, at += t->size.wide;
    t->delta = at, at += t->size.wide;
    t->p = at, at += t->size.wide * t->size.keys;
    t->ds = at, at += t->size.wide * t->size.keys;
    t->k = at, at += t->size.keys * t->size.hp;
    t->v = at, at += t->size.keys * t->size.vp;
    t->dk = at, at += t->size.keys * t->size.hp;
    t->dv = at;
}

/* softmax_back of scores that are capped, and on through the cap. */
static void capped_back(const struct kernels *k, const struct back_tiles *t, float *p, float *ds,
                        size_t first, size_t end, float cap)
{
    float slope[SOFTCAP_PART];
    for (size_t r = first, n; r < end; r += n) {
        n = min_size(SOFTCAP_PART, end - r);
        softcap_apply(p + r, n, cap);
        softcap_slope(slope, p + r, n, cap);
        k->softmax_back(p + r, ds + r, t->lse + r, t->delta + r, n);
        softcap_back(ds + r, slope, n);
    }
}

/* p and ds of keys c0 … c1−1. */
static void back_scores(const struct kernels *k, const struct back_tiles *t, struct attn_dims dims,
                        struct attn_at at, size_t c0, size_t c1)
{
    const size_t col = attn_first_row(at, c0, attn_group(dims)) / TILE_PAD * TILE_PAD;
    struct tile tile = {.c = t->p + c0 * t->size.wide + col,
                        .ldc = t->size.wide,
                        .a = t->k + c0 * t->size.hp,
                        .ai = t->size.hp,
                        .ak = 1,
                        .b = t->qt + col,
                        .ldb = t->size.wide,
                        .m = c1 - c0,
                        .n = tile_pad(at.rows - col),
                        .k = dims.head};
    k->tile(&tile);
    tile.c = t->ds + c0 * t->size.wide + col;
    tile.a = t->v + c0 * t->size.vp;
    tile.ai = t->size.vp;
    tile.b = t->d_ot + col;
    tile.k = attn_value(dims);
    k->tile(&tile);
    for (size_t c = c0; c < c1; c++) {
        float *p = t->p + c * t->size.wide, *ds = t->ds + c * t->size.wide;
        const size_t first = attn_first_row(at, c, attn_group(dims));
        memset(p, 0, first * sizeof *p); /* rows of a panel that see other keys of it, but not this one */
        memset(ds, 0, first * sizeof *ds);
        const size_t end = attn_end_row(at, c, dims);
        if (dims.softcap > 0)
            capped_back(k, t, p, ds, first, end, dims.softcap);
        else
            k->softmax_back(p + first, ds + first, t->lse + first, t->delta + first, end - first);
        memset(p + end, 0, (at.rows - end) * sizeof *p);
        memset(ds + end, 0, (at.rows - end) * sizeof *ds);
    }
    attn_hide(t->p, t->size.wide, dims, at, 0, c0, c1, 0);
    attn_hide(t->ds, t->size.wide, dims, at, 0, c0, c1, 0);
}

/* What the queries give dv and dk of keys c0 … c1−1. */
static void back_keys(const struct kernels *k, const struct back_tiles *t, struct attn_dims dims,
                      struct attn_at at, size_t c0, size_t c1)
{
    const size_t from = attn_first_row(at, c0, attn_group(dims));
    struct tile tile = {.c = t->dv + c0 * t->size.vp,
                        .ldc = t->size.vp,
                        .a = t->p + c0 * t->size.wide + from,
                        .ai = t->size.wide,
                        .ak = 1,
                        .b = t->d_o + from * t->size.vp,
                        .ldb = t->size.vp,
                        .m = c1 - c0,
                        .n = t->size.vp,
                        .k = at.rows - from};
    k->tile(&tile);
    tile.c = t->dk + c0 * t->size.hp;
    tile.a = t->ds + c0 * t->size.wide + from;
    tile.b = t->q + from * t->size.hp;
    tile.n = tile.ldc = tile.ldb = t->size.hp;
    k->tile(&tile);
}

/* What the keys give dq of rows r0 … r1−1: the first keys begin it, for every row sees them; with a
 * window it is zero before. */
static void back_rows(const struct kernels *k, const struct back_tiles *t, struct attn_dims dims,
                      struct attn_at at, size_t r0, size_t r1)
{
    k->tile(&(struct tile){.c = t->dq + r0 * t->size.hp,
                           .ldc = t->size.hp,
                           .a = t->ds + r0,
                           .ai = 1,
                           .ak = t->size.wide,
                           .b = t->k,
                           .ldb = t->size.hp,
                           .m = r1 - r0,
                           .n = t->size.hp,
                           .k = attn_seen(at, r1 - 1, attn_group(dims)),
                           .accumulate = at.k0 > 0 || dims.window});
}

static void back_tile(const struct kernels *k, const struct back_tiles *t, const struct back_span *sp,
                      struct attn_dims dims, struct attn_at at)
{
    const size_t value = attn_value(dims), stride = dims.kv_heads * dims.head;
    const size_t v_stride = attn_v_stride(dims), dv_stride = dims.kv_heads * value;
    const size_t group = attn_group(dims), whole = attn_first_row(at, at.nk - 1, group),
                 step = whole ? ATTN_PANEL : at.nk;
    attn_pack(t->k, t->size.hp, sp->k + at.k0 * stride, stride, at.nk, dims.head);
    attn_pack(t->v, t->size.vp, sp->v + at.k0 * v_stride, v_stride, at.nk, value);
    for (size_t c = 0; c < at.nk; c += step) {
        back_scores(k, t, dims, at, c, min_size(at.nk, c + step));
        back_keys(k, t, dims, at, c, min_size(at.nk, c + step));
    }
    for (size_t r = attn_first_row(at, 0, group), next; r < at.rows; r = next) {
        next = attn_panel_end(r, at.rows, whole);
        back_rows(k, t, dims, at, r, next);
    }
    for (size_t c = 0; c < at.nk; c++) {
        float *dk = sp->dk + (at.k0 + c) * stride, *dv = sp->dv + (at.k0 + c) * dv_stride;
        k->add(dk, dk, t->dk + c * t->size.hp, dims.head);
        k->add(dv, dv, t->dv + c * t->size.vp, value);
    }
}

/* Queries t0 … with all the keys they see. */
static void back_queries(const struct kernels *k, const struct back_tiles *t, const struct back_span *sp,
                         struct attn_dims dims, size_t t0)
{
    const size_t group = attn_group(dims), value = attn_value(dims), row = dims.heads * dims.head;
    const size_t queries = min_size(t->size.queries, sp->len - t0), rows = queries * group,
                 end = t0 + queries;
    attn_pack_group(t->q, t->size.hp, sp->q + t0 * row, queries, dims, dims.head);
    attn_pack_group(t->d_o, t->size.vp, sp->d_o + t0 * dims.heads * value, queries, dims, value);
    k->scale(t->q, dims.scale, rows * t->size.hp);
    attn_pack_t(k, t->qt, t->size.wide, t->q, t->size.hp, rows, dims.head);
    attn_pack_t(k, t->d_ot, t->size.wide, t->d_o, t->size.vp, rows, value);
    for (size_t r = 0; r < rows; r++) {
        const size_t slot = (t0 + r / group) * dims.heads + r % group;
        t->lse[r] = sp->lse[slot];
        t->delta[r] = k->dot(t->d_o + r * t->size.vp, sp->o + slot * value, value);
    }
    if (dims.window)
        memset(t->dq, 0, rows * t->size.hp * sizeof *t->dq);
    for (size_t k0 = attn_first_key(dims, t0) / t->size.keys * t->size.keys; k0 < end; k0 += t->size.keys)
        back_tile(k, t, sp, dims, attn_against(dims, t0, rows, k0, min_size(t->size.keys, end - k0)));
    k->scale(t->dq, dims.scale, rows * t->size.hp);
    for (size_t r = 0; r < rows; r++)
        memcpy(sp->dq + (t0 + r / group) * row + r % group * dims.head, t->dq + r * t->size.hp,
               dims.head * sizeof *t->dq);
}

static void back_group(const struct kernels *k, const struct back_tiles *t, const struct back_span *sp,
                       struct attn_dims dims)
{
    const size_t value = attn_value(dims);
    for (size_t i = 0; i < sp->len; i++) {
        memset(sp->dk + i * dims.kv_heads * dims.head, 0, dims.head * sizeof *sp->dk);
        memset(sp->dv + i * dims.kv_heads * value, 0, value * sizeof *sp->dv);
    }
    for (size_t t0 = 0; t0 < sp->len; t0 += t->size.queries)
        back_queries(k, t, sp, dims, t0);
}

void attn_backward_x(struct num *num, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                     const float *lse, const float *q, const float *k, const float *v, struct seqs seqs,
                     struct attn_dims dims)
{
    const struct kernels *kern = num_kernels(num);
    const size_t group = attn_group(dims);
    const struct back_tiles sizes = {.size = attn_extent(dims, num_lane(num, 0).floats, back_floats)};
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t i = 0; i < seqs.n * dims.kv_heads; i++) {
        struct back_tiles t = sizes;
        back_place(&t, num_lane(num, omp_get_thread_num()).data);
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
        back_group(kern, &t, &sp, attn_dims_from(dims, first));
    }
}

/* In the forward pass a sink takes exp(sink − lse) of the softmax and gives nothing for it. */
void attn_sinks_backward(struct num *num, float *dsink, const float *d_o, const float *o, const float *lse,
                         size_t tokens, struct attn_dims dims)
{
    const struct kernels *k = num_kernels(num);
    const size_t value = attn_value(dims);
    for (size_t i = 0; i < tokens * dims.heads; i++)
        dsink[i] = -expf(dims.sinks[i % dims.heads] - lse[i]) * k->dot(d_o + i * value, o + i * value, value);
}
