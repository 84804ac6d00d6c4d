/* SPDX-License-Identifier: MIT
 *
 * The gated delta rule backward, chunk by chunk from a sequence's end: what delta_chunk.h computes
 * is made again from the state before the chunk. Threads share out key heads and sequences, and
 * the value heads of a key head follow one another. Called by blocks, on the computing thread. */
#include "layer/delta.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#include "layer/delta_chunk.h"
#include "num/sizes.h"

enum { SMALL = 1 << 15 };

/* Gradients have the names of what they belong to. All lie in a lane. */
struct back {
    struct delta_chunk c;
    float *s, *st;     /* [key, vp], [value, kp] the state before the chunk, and transposed */
    float *ds, *dst;   /* the same of the gradient of the state behind it */
    float *o, *q, *k;  /* [n, vp], [n, kp], [n, kp] */
    float *u, *wide;   /* [n, vp]; [n, whichever is wider] scratch */
    float *ut;         /* [value, DELTA_CHUNK] */
    float *m;          /* [n, DELTA_CHUNK] of M, later of A, times what they were multiplied by */
    float *sum, *beta; /* [n] of G; of β */
};

static void back_place(struct back *b, const struct kernels *kern, struct delta_dims d, struct scratch lane)
{
    float *at = delta_chunk_place(&b->c, kern, d, lane.data);
    const size_t kp = b->c.kp, vp = b->c.vp;
    b->s = delta_take(&at, d.key * vp);
    b->st = delta_take(&at, d.value * kp);
    b->ds = delta_take(&at, d.key * vp);
    b->dst = delta_take(&at, d.value * kp);
    b->o = delta_take(&at, DELTA_CHUNK * vp);
    b->q = delta_take(&at, DELTA_CHUNK * kp);
    b->k = delta_take(&at, DELTA_CHUNK * kp);
    b->u = delta_take(&at, DELTA_CHUNK * vp);
    b->wide = delta_take(&at, DELTA_CHUNK * max_size(kp, vp));
    b->ut = delta_take(&at, d.value * DELTA_CHUNK);
    b->m = delta_take(&at, (size_t)DELTA_CHUNK * DELTA_CHUNK);
    b->sum = delta_take(&at, DELTA_CHUNK);
    b->beta = delta_take(&at, DELTA_CHUNK);
    assert(at <= lane.data + lane.floats);
}

/* c [m, n] (+)= a·b, with a [m, k] or, transposed, [k, m]; all rows dense but for padding. */
struct back_product {
    const float *a;
    size_t lda;
    bool transposed;
    const float *b;
    size_t ldb;
};
static void product(const struct back *b, float *to, size_t ldc, struct back_product f, size_t m, size_t n,
                    size_t k, bool accumulate)
{
    b->c.kern->tile(&(struct tile){.c = to,
                                   .ldc = ldc,
                                   .a = f.a,
                                   .ai = f.transposed ? 1 : f.lda,
                                   .ak = f.transposed ? f.lda : 1,
                                   .b = f.b,
                                   .ldb = f.ldb,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .accumulate = accumulate});
}

static float dot(const struct back *b, const float *x, const float *y, size_t n)
{
    return b->c.kern->dot(x, y, n);
}

/* to [cols, ld] = xᵀ of x [rows, from], zeros behind. */
static void transpose(const struct back *b, float *to, size_t ld, const float *x, size_t from, size_t rows,
                      size_t cols)
{
    memset(to, 0, cols * ld * sizeof *to);
    b->c.kern->transpose(to, ld, x, from, rows, cols);
}

/* O = e^G·Q·S + M·U: to q, k and the sums, and the part of u. */
static void out_back(struct back *b)
{
    const struct delta_chunk *c = &b->c;
    const size_t n = c->n, sq = DELTA_CHUNK;
    product(b, b->q, c->kp, (struct back_product){b->o, c->vp, false, b->st, c->kp}, n, c->kp, c->d.value,
            false);
    delta_scale_rows(c->kern, b->q, c->grow, n, c->kp);
    for (size_t t = 0; t < n; t++)
        b->sum[t] = dot(b, c->q + t * c->kp, b->q + t * c->kp, c->kp);
    product(b, b->m, sq, (struct back_product){b->o, c->vp, false, b->ut, sq}, n, tile_pad(n), c->d.value,
            false);
    for (size_t t = 0; t < n; t++)
        for (size_t s = 0; s < sq; s++) {
            float *m = b->m + t * sq + s;
            const float moved = s <= t ? *m * c->m[t * sq + s] : 0;
            *m = s <= t ? *m * c->decay[t * sq + s] : 0;
            if (s < t) { /* where they are equal they cancel */
                b->sum[t] += moved;
                b->sum[s] -= moved;
            }
        }
    product(b, b->q, c->kp, (struct back_product){b->m, sq, false, c->k, c->kp}, n, c->kp, n, true);
    product(b, b->k, c->kp, (struct back_product){b->m, sq, true, c->q, c->kp}, n, c->kp, n, false);
    product(b, b->u, c->vp, (struct back_product){c->m, sq, true, b->o, c->vp}, n, c->vp, n, false);
}

/* The state behind the chunk: to k and u, and what the sums have of it. */
static void state_back(struct back *b)
{
    const struct delta_chunk *c = &b->c;
    const size_t n = c->n;
    float last = c->last * dot(b, b->s, b->ds, c->d.key * c->vp);
    product(b, b->wide, c->kp, (struct back_product){c->u, c->vp, false, b->dst, c->kp}, n, c->kp, c->d.value,
            false);
    for (size_t t = 0; t < n; t++) {
        const float *own = b->wide + t * c->kp;
        const float moved = c->tail[t] * dot(b, c->k + t * c->kp, own, c->kp);
        c->kern->axpy(b->k + t * c->kp, c->tail[t], own, c->kp);
        b->sum[t] -= moved;
        last += moved;
    }
    b->sum[n - 1] += last;
    product(b, b->wide, c->vp, (struct back_product){c->k, c->kp, false, b->ds, c->vp}, n, c->vp, c->d.key,
            false);
    for (size_t t = 0; t < n; t++)
        c->kern->axpy(b->u + t * c->vp, c->tail[t], b->wide + t * c->vp, c->vp);
}

/* u becomes (1 + A)⁻ᵀ·u, from the last row on. */
static void solve_back(struct back *b)
{
    const struct delta_chunk *c = &b->c;
    const size_t n = c->n, sq = DELTA_CHUNK;
    for (size_t end = n, at; end; end = at) {
        at = (end - 1) / DELTA_SOLVED * DELTA_SOLVED;
        if (end < n)
            product(b, b->u + at * c->vp, c->vp,
                    (struct back_product){c->a + end * sq + at, sq, true, b->u + end * c->vp, c->vp},
                    end - at, c->vp, n - end, true);
        for (size_t t = end; t-- > at;)
            for (size_t s = at; s < t; s++)
                c->kern->axpy(b->u + s * c->vp, c->a[t * sq + s], b->u + t * c->vp, c->vp);
    }
}

/* β, the factors of A, V and the state, from the gradient of β·(V − e^G·K·S), which lies in u. */
static void system_back(struct back *b)
{
    const struct delta_chunk *c = &b->c;
    const size_t n = c->n, sq = DELTA_CHUNK;
    product(b, b->m, sq, (struct back_product){b->u, c->vp, false, b->ut, sq}, n, tile_pad(n), c->d.value,
            false);
    for (size_t t = 0; t < n; t++) {
        b->beta[t] = dot(b, b->u + t * c->vp, c->rest + t * c->vp, c->vp);
        for (size_t s = 0; s < sq; s++) {
            float *m = b->m + t * sq + s;
            const float of_a = s < t ? -*m : 0, plain = s < t ? of_a * c->decay[t * sq + s] : 0;
            const float moved = s < t ? -of_a * c->a[t * sq + s] : 0;
            *m = plain * c->beta[t];
            if (s < t) {
                b->beta[t] += plain * c->kk[t * sq + s];
                b->sum[t] += moved;
                b->sum[s] -= moved;
            }
        }
    }
    product(b, b->k, c->kp, (struct back_product){b->m, sq, false, c->k, c->kp}, n, c->kp, n, true);
    product(b, b->k, c->kp, (struct back_product){b->m, sq, true, c->k, c->kp}, n, c->kp, n, true);
    delta_scale_rows(c->kern, b->u, c->beta, n, c->vp);
    product(b, b->wide, c->kp, (struct back_product){b->u, c->vp, false, b->st, c->kp}, n, c->kp, c->d.value,
            false);
    for (size_t t = 0; t < n; t++) {
        const float *own = b->wide + t * c->kp;
        b->sum[t] -= c->grow[t] * dot(b, c->k + t * c->kp, own, c->kp);
        c->kern->axpy(b->k + t * c->kp, -c->grow[t], own, c->kp);
    }
}

/* The gradient of the state before the chunk; c.q and c.k are spent. */
static void before_back(struct back *b)
{
    const struct delta_chunk *c = &b->c;
    delta_scale_rows(c->kern, c->q, c->grow, c->n, c->kp);
    delta_scale_rows(c->kern, c->k, c->grow, c->n, c->kp);
    c->kern->scale(c->k, -1, c->n * c->kp);
    c->kern->scale(b->ds, c->last, c->d.key * c->vp);
    product(b, b->ds, c->vp, (struct back_product){c->q, c->kp, true, b->o, c->vp}, c->d.key, c->vp, c->n,
            true);
    product(b, b->ds, c->vp, (struct back_product){c->k, c->kp, true, b->u, c->vp}, c->d.key, c->vp, c->n,
            true);
}

/* Where a chunk's gradients go: rows of dqkv, and of dg and dbeta of its head. */
struct back_to {
    float *dqkv, *dg, *dbeta;
    bool adds; /* another value head of the same key head was before */
};

static void put_rows(const struct back *b, float *to, const float *x, size_t ld, size_t cols, bool adds)
{
    const size_t width = delta_width(b->c.d);
    for (size_t t = 0; t < b->c.n; t++)
        if (adds)
            b->c.kern->add(to + t * width, to + t * width, x + t * ld, cols);
        else
            memcpy(to + t * width, x + t * ld, cols * sizeof *to);
}

static void chunk_store(const struct back *b, const struct back_to *to, size_t head)
{
    const struct delta_dims d = b->c.d;
    float *dq = to->dqkv + head / (d.value_heads / d.key_heads) * d.key, *dk = dq + d.key_heads * d.key;
    put_rows(b, dq, b->q, b->c.kp, d.key, to->adds);
    put_rows(b, dk, b->k, b->c.kp, d.key, to->adds);
    put_rows(b, to->dqkv + 2 * d.key_heads * d.key + head * d.value, b->u, b->c.vp, d.value, false);
    float later = 0;
    for (size_t t = b->c.n; t-- > 0;) { /* G_t is a sum of all g up to t */
        later += b->sum[t];
        to->dg[t * d.value_heads] = later;
        to->dbeta[t * d.value_heads] = b->beta[t];
    }
}

static void chunk_back(struct back *b, const struct delta_at *at, const float *d_o, const float *state)
{
    struct delta_chunk *c = &b->c;
    const struct delta_dims d = c->d;
    if (state)
        delta_pack(b->s, c->vp, state, d.value, d.key, d.value);
    else
        memset(b->s, 0, d.key * c->vp * sizeof *b->s);
    delta_pack(b->o, c->vp, d_o, d.value_heads * d.value, at->n, d.value);
    delta_chunk_load(c, at);
    delta_chunk_factors(c);
    delta_chunk_solve(c, b->s);
    transpose(b, b->st, c->kp, b->s, c->vp, d.key, d.value);
    transpose(b, b->dst, c->kp, b->ds, c->vp, d.key, d.value);
    transpose(b, b->ut, DELTA_CHUNK, c->u, c->vp, c->n, d.value);
    out_back(b);
    state_back(b);
    solve_back(b);
    system_back(b);
    before_back(b);
}

/* All of one sequence that a backward reads and writes. */
struct delta_grads {
    float *dqkv, *dg, *dbeta;
    const float *d_o, *states, *qkv, *g, *beta;
};

static void head_back(struct back *b, const struct delta_grads *x, size_t head, size_t start, size_t end,
                      bool adds)
{
    const struct delta_dims d = b->c.d;
    const size_t width = delta_width(d), heads = d.value_heads;
    memset(b->ds, 0, d.key * b->c.vp * sizeof *b->ds);
    for (size_t last = end, at; last > start; last = at) {
        at = start + (last - start - 1) / DELTA_CHUNK * DELTA_CHUNK;
        const size_t gate = at * heads + head;
        const struct delta_at chunk = {x->qkv + at * width, x->g + gate, x->beta + gate, head, last - at};
        chunk_back(b, &chunk, x->d_o + gate * d.value,
                   at > start ? x->states + delta_saved_at(at, head, d) : NULL);
        chunk_store(b, &(struct back_to){x->dqkv + at * width, x->dg + gate, x->dbeta + gate, adds}, head);
    }
}

void delta_backward_x(struct num *num, float *dqkv, float *dg, float *dbeta, const float *d_o,
                      const float *states, const float *qkv, const float *g, const float *beta,
                      struct seqs seqs, struct delta_dims d)
{
    const struct delta_grads x = {dqkv, dg, dbeta, d_o, states, qkv, g, beta};
    const size_t shared = d.value_heads / d.key_heads, tokens = seqs.start[seqs.n];
    const bool many = num_threads(num) > 1 && tokens * d.value_heads * d.key * d.value > SMALL;
#pragma omp parallel for schedule(dynamic) num_threads(num_threads(num)) if (many)
    for (size_t i = 0; i < seqs.n * d.key_heads; i++) {
        const size_t s = i / d.key_heads, first = i % d.key_heads * shared;
        struct back b;
        back_place(&b, num_kernels(num), d, num_lane(num, omp_get_thread_num()));
        for (size_t h = 0; h < shared; h++)
            head_back(&b, &x, first + h, seqs.start[s], seqs.start[s + 1], h > 0);
    }
}
