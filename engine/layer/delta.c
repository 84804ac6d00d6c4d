/* SPDX-License-Identifier: MIT
 *
 * The gated delta rule forward: in chunks for training, token by token for generation. Threads
 * share out heads, never a sum. Called by blocks, on the computing thread. */
#include "layer/delta.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#include "layer/delta_chunk.h"
#include "num/sizes.h"

enum { SMALL = 1 << 15 }; /* products not worth a second thread */

static bool is_worth_threads(const struct num *num, size_t tokens, struct delta_dims d)
{
    return num_threads(num) > 1 && tokens * d.value_heads * d.key * d.value > SMALL;
}

/* --- chunks ----------------------------------------------------------------------------------- */

/* e^G·Q·S + M·U to o, and the state after the chunk. c->q and c->k are spent. */
static void chunk_out(struct delta_chunk *c, float *o, float *s)
{
    float *to = c->rest; /* no longer needed */
    delta_scale_rows(c->kern, c->q, c->grow, c->n, c->kp);
    c->kern->tile(&(struct tile){.c = to,
                                 .ldc = c->vp,
                                 .a = c->q,
                                 .ai = c->kp,
                                 .ak = 1,
                                 .b = s,
                                 .ldb = c->vp,
                                 .m = c->n,
                                 .n = c->vp,
                                 .k = c->d.key});
    c->kern->tile(&(struct tile){.c = to,
                                 .ldc = c->vp,
                                 .a = c->m,
                                 .ai = DELTA_CHUNK,
                                 .ak = 1,
                                 .b = c->u,
                                 .ldb = c->vp,
                                 .m = c->n,
                                 .n = c->vp,
                                 .k = c->n,
                                 .accumulate = true});
    for (size_t t = 0; t < c->n; t++)
        memcpy(o + t * c->d.value_heads * c->d.value, to + t * c->vp, c->d.value * sizeof *o);
    delta_scale_rows(c->kern, c->k, c->tail, c->n, c->kp);
    c->kern->scale(s, c->last, c->d.key * c->vp);
    c->kern->tile(&(struct tile){.c = s,
                                 .ldc = c->vp,
                                 .a = c->k,
                                 .ai = 1,
                                 .ak = c->kp,
                                 .b = c->u,
                                 .ldb = c->vp,
                                 .m = c->d.key,
                                 .n = c->vp,
                                 .k = c->n,
                                 .accumulate = true});
}

void delta_forward(struct num *num, float *o, float *states, const float *qkv, const float *g,
                   const float *beta, struct seqs seqs, struct delta_dims d)
{
    const size_t width = delta_width(d), heads = d.value_heads;
#pragma omp parallel for schedule(dynamic)                                                                   \
    num_threads(num_threads(num)) if (is_worth_threads(num, seqs.start[seqs.n], d))
    for (size_t i = 0; i < seqs.n * heads; i++) {
        const size_t start = seqs.start[i / heads], end = seqs.start[i / heads + 1], h = i % heads;
        struct delta_chunk c;
        const struct scratch lane = num_lane(num, omp_get_thread_num());
        float *s = delta_chunk_place(&c, num_kernels(num), d, lane.data);
        assert(s + d.key * c.vp <= lane.data + lane.floats);
        memset(s, 0, d.key * c.vp * sizeof *s);
        for (size_t at = start; at < end; at += DELTA_CHUNK) {
            if (at > start) {
                float *to = states + delta_saved_at(at, h, d);
                for (size_t p = 0; p < d.key; p++)
                    memcpy(to + p * d.value, s + p * c.vp, d.value * sizeof *to);
            }
            delta_chunk_load(&c,
                             &(struct delta_at){qkv + at * width, g + at * heads + h, beta + at * heads + h,
                                                h, min_size(DELTA_CHUNK, end - at)});
            delta_chunk_factors(&c);
            delta_chunk_solve(&c, s);
            chunk_out(&c, o + (at * heads + h) * d.value, s);
        }
    }
}

/* --- steps ------------------------------------------------------------------------------------ */

static void head_steps(const struct kernels *k, float *o, const float *qkv, const float *g, const float *beta,
                       const struct delta_run *run, size_t h, struct delta_dims d)
{
    const size_t width = delta_width(d), key_head = h / (d.value_heads / d.key_heads);
    float *s = run->state + h * d.key * d.value;
    if (run->is_first)
        memset(s, 0, d.key * d.value * sizeof *s);
    for (size_t t = run->row; t < run->row + run->n; t++) {
        const float *q = qkv + t * width + key_head * d.key, *key = q + d.key_heads * d.key;
        float decay = g[t * d.value_heads + h];
        k->exp_minus(&decay, 1, 0, 1);
        k->delta(&(struct delta_step){.o = o + (t * d.value_heads + h) * d.value,
                                      .s = s,
                                      .q = q,
                                      .k = key,
                                      .v = qkv + t * width + 2 * d.key_heads * d.key + h * d.value,
                                      .decay = decay,
                                      .beta = beta[t * d.value_heads + h],
                                      .qk = k->dot(q, key, d.key),
                                      .keys = d.key,
                                      .n = d.value});
    }
}

void delta_steps(struct num *num, float *o, const float *qkv, const float *g, const float *beta,
                 const struct delta_run *runs, size_t n, struct delta_dims d)
{
    size_t tokens = 0;
    for (size_t i = 0; i < n; i++)
        tokens += runs[i].n;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (is_worth_threads(num, tokens, d))
    for (size_t h = 0; h < d.value_heads; h++)
        for (size_t i = 0; i < n; i++)
            head_steps(num_kernels(num), o, qkv, g, beta, &runs[i], h, d);
}
