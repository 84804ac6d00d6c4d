/* SPDX-License-Identifier: MIT
 *
 * See delta_chunk.h. Pure but for a lane of scratch; the thread that computes a head. */
#include "layer/delta_chunk.h"

#include <math.h>
#include <string.h>

float *delta_take(float **at, size_t floats)
{
    float *ret = *at;
    *at += tile_pad(floats);
    return ret;
}

float *delta_chunk_place(struct delta_chunk *c, const struct kernels *kern, struct delta_dims d, float *lane)
{
    const size_t square = (size_t)DELTA_CHUNK * DELTA_CHUNK;
    *c = (struct delta_chunk){.kern = kern, .d = d, .kp = tile_pad(d.key), .vp = tile_pad(d.value)};
    c->q = delta_take(&lane, DELTA_CHUNK * c->kp);
    c->k = delta_take(&lane, DELTA_CHUNK * c->kp);
    c->v = delta_take(&lane, DELTA_CHUNK * c->vp);
    c->kt = delta_take(&lane, d.key * DELTA_CHUNK);
    c->sum = delta_take(&lane, DELTA_CHUNK);
    c->grow = delta_take(&lane, DELTA_CHUNK);
    c->tail = delta_take(&lane, DELTA_CHUNK);
    c->beta = delta_take(&lane, DELTA_CHUNK);
    c->decay = delta_take(&lane, square);
    c->kk = delta_take(&lane, square);
    c->m = delta_take(&lane, square);
    c->a = delta_take(&lane, square);
    c->u = delta_take(&lane, DELTA_CHUNK * c->vp);
    c->rest = delta_take(&lane, DELTA_CHUNK * c->vp);
    return lane;
}

void delta_pack(float *dst, size_t to, const float *src, size_t from, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        memcpy(dst + r * to, src + r * from, width * sizeof *dst);
        memset(dst + r * to + width, 0, (to - width) * sizeof *dst);
    }
}

void delta_scale_rows(const struct kernels *kern, float *x, const float *by, size_t n, size_t width)
{
    for (size_t t = 0; t < n; t++)
        kern->scale(x + t * width, by[t], width);
}

void delta_chunk_load(struct delta_chunk *c, const struct delta_at *at)
{
    const struct delta_dims d = c->d;
    const size_t width = delta_width(d), key_head = at->head / (d.value_heads / d.key_heads);
    const float *q = at->qkv + key_head * d.key, *k = q + d.key_heads * d.key;
    c->n = at->n;
    delta_pack(c->q, c->kp, q, width, c->n, d.key);
    delta_pack(c->k, c->kp, k, width, c->n, d.key);
    delta_pack(c->v, c->vp, at->qkv + 2 * d.key_heads * d.key + at->head * d.value, width, c->n, d.value);
    memset(c->kt, 0, d.key * DELTA_CHUNK * sizeof *c->kt);
    c->kern->transpose(c->kt, DELTA_CHUNK, c->k, c->kp, c->n, d.key);
    for (size_t t = 0; t < c->n; t++) {
        c->sum[t] = (t ? c->sum[t - 1] : 0) + at->g[t * d.value_heads];
        c->beta[t] = at->beta[t * d.value_heads];
        c->grow[t] = expf(c->sum[t]);
    }
    const float all = c->sum[c->n - 1];
    c->last = expf(all);
    for (size_t t = 0; t < c->n; t++)
        c->tail[t] = expf(all - c->sum[t]);
}

void delta_chunk_factors(struct delta_chunk *c)
{
    const struct tile kk = {.c = c->kk,
                            .ldc = DELTA_CHUNK,
                            .a = c->k,
                            .ai = c->kp,
                            .ak = 1,
                            .b = c->kt,
                            .ldb = DELTA_CHUNK,
                            .m = c->n,
                            .n = tile_pad(c->n),
                            .k = c->d.key};
    struct tile qk = kk;
    qk.c = c->m;
    qk.a = c->q;
    c->kern->tile(&kk);
    c->kern->tile(&qk);
    for (size_t t = 0; t < c->n; t++) {
        float *decay = c->decay + t * DELTA_CHUNK, *m = c->m + t * DELTA_CHUNK, *a = c->a + t * DELTA_CHUNK;
        for (size_t s = 0; s <= t; s++)
            decay[s] = c->sum[t] - c->sum[s];
        c->kern->exp_minus(decay, t + 1, 0, 1);
        for (size_t s = 0; s < DELTA_CHUNK; s++) {
            m[s] = s <= t ? m[s] * decay[s] : 0;
            a[s] = s < t ? -c->beta[t] * decay[s] * c->kk[t * DELTA_CHUNK + s] : 0;
        }
    }
}

/* (1 + A)·U = U as it is, from the first row on. */
static void solve(const struct delta_chunk *c)
{
    for (size_t b = 0; b < c->n; b += DELTA_SOLVED) {
        const size_t end = c->n - b < DELTA_SOLVED ? c->n : b + DELTA_SOLVED;
        if (b)
            c->kern->tile(&(struct tile){.c = c->u + b * c->vp,
                                         .ldc = c->vp,
                                         .a = c->a + b * DELTA_CHUNK,
                                         .ai = DELTA_CHUNK,
                                         .ak = 1,
                                         .b = c->u,
                                         .ldb = c->vp,
                                         .m = end - b,
                                         .n = c->vp,
                                         .k = b,
                                         .accumulate = true});
        for (size_t t = b; t < end; t++)
            for (size_t s = b; s < t; s++)
                c->kern->axpy(c->u + t * c->vp, c->a[t * DELTA_CHUNK + s], c->u + s * c->vp, c->vp);
    }
}

void delta_chunk_solve(struct delta_chunk *c, const float *s)
{
    c->kern->tile(&(struct tile){.c = c->rest,
                                 .ldc = c->vp,
                                 .a = c->k,
                                 .ai = c->kp,
                                 .ak = 1,
                                 .b = s,
                                 .ldb = c->vp,
                                 .m = c->n,
                                 .n = c->vp,
                                 .k = c->d.key});
    for (size_t t = 0; t < c->n; t++) {
        float *rest = c->rest + t * c->vp;
        c->kern->scale(rest, -c->grow[t], c->vp);
        c->kern->add(rest, rest, c->v + t * c->vp, c->vp);
    }
    memcpy(c->u, c->rest, c->n * c->vp * sizeof *c->u);
    delta_scale_rows(c->kern, c->u, c->beta, c->n, c->vp);
    solve(c);
}
