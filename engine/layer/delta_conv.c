/* SPDX-License-Identifier: MIT
 *
 * What stands before the delta rule: convolution, norms of q and k, gates. Threads share out
 * channels or tokens, never a sum. Called by blocks, on the computing thread. */
#include "layer/delta.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "num/kernels.h"
#include "num/sizes.h"

enum {
    CHANNELS = 512,  /* that a thread owns at a time */
    SMALL = 1 << 14, /* elements not worth a second thread */
};

static const float l2_eps = 1e-6f;

/* --- the convolution -------------------------------------------------------------------------- */

/* Channels first … first+n−1 and their taps, [taps, n] in a lane. */
struct taps {
    const struct kernels *k;
    float *w;
    size_t first, n, count, width;
};

static struct taps taps_of(struct num *num, const float *w, size_t first, struct delta_dims d)
{
    const size_t width = delta_width(d);
    struct taps t = {num_kernels(num),
                     num_lane(num, omp_get_thread_num()).data,
                     first,
                     min_size(CHANNELS, width - first),
                     d.taps,
                     width};
    if (w)
        t.k->transpose(t.w, t.n, w + first * d.taps, d.taps, t.n, d.taps);
    return t;
}

static size_t parts_of(struct delta_dims d)
{
    return (delta_width(d) + CHANNELS - 1) / CHANNELS;
}

/* Row t of a sequence's x, or what lies in its tail of the rows before; NULL: there is nothing. */
static const float *input(const struct taps *p, const float *x, const float *tail, size_t t, size_t back)
{
    if (back <= t)
        return x + (t - back) * p->width + p->first;
    return tail ? tail + (p->count - 1 + t - back) * p->width + p->first : NULL;
}

static void conv_rows(const struct taps *p, float *y, const float *x, const float *tail, size_t rows)
{
    for (size_t t = 0; t < rows; t++) {
        float *to = y + t * p->width + p->first;
        memset(to, 0, p->n * sizeof *to);
        for (size_t j = 0; j < p->count; j++) {
            const float *from = input(p, x, tail, t, p->count - 1 - j);
            if (from)
                p->k->mul_add(to, p->w + j * p->n, from, p->n);
        }
    }
}

/* The last rows of what was there and of x. */
static void keep_tail(const struct taps *p, float *tail, const float *x, size_t rows, bool is_first)
{
    const size_t keeps = p->count - 1;
    for (size_t j = 0; j < keeps; j++) {
        float *to = tail + j * p->width + p->first;
        const size_t back = keeps - j; /* rows before the next one */
        const float *from = input(p, x, is_first ? NULL : tail, rows, back);
        if (from)
            memmove(to, from, p->n * sizeof *to);
        else
            memset(to, 0, p->n * sizeof *to);
    }
}

void delta_conv_forward(struct num *num, float *y, const float *x, const float *w, struct seqs seqs,
                        struct delta_dims d)
{
    const size_t width = delta_width(d);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (seqs.start[seqs.n] * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < parts_of(d); i++) {
        const struct taps p = taps_of(num, w, i * CHANNELS, d);
        for (size_t s = 0; s < seqs.n; s++)
            conv_rows(&p, y + seqs.start[s] * width, x + seqs.start[s] * width, NULL,
                      seqs.start[s + 1] - seqs.start[s]);
    }
}

void delta_conv_backward_x(struct num *num, float *dx, const float *dy, const float *w, struct seqs seqs,
                           struct delta_dims d)
{
    const size_t width = delta_width(d);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (seqs.start[seqs.n] * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < parts_of(d); i++) {
        const struct taps p = taps_of(num, w, i * CHANNELS, d);
        for (size_t s = 0; s < seqs.n; s++)
            for (size_t t = seqs.start[s]; t < seqs.start[s + 1]; t++) {
                float *to = dx + t * width + p.first;
                memset(to, 0, p.n * sizeof *to);
                for (size_t back = 0; back < d.taps && t + back < seqs.start[s + 1]; back++)
                    p.k->mul_add(to, p.w + (d.taps - 1 - back) * p.n, dy + (t + back) * width + p.first, p.n);
            }
    }
}

void delta_conv_backward_w(struct num *num, float *dw, const float *dy, const float *x, struct seqs seqs,
                           struct delta_dims d)
{
    const size_t width = delta_width(d);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (seqs.start[seqs.n] * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < parts_of(d); i++) {
        const struct taps p = taps_of(num, NULL, i * CHANNELS, d);
        memset(p.w, 0, d.taps * p.n * sizeof *p.w);
        for (size_t s = 0; s < seqs.n; s++)
            for (size_t t = seqs.start[s]; t < seqs.start[s + 1]; t++)
                for (size_t back = 0; back < d.taps && t - seqs.start[s] >= back; back++)
                    p.k->mul_add(p.w + (d.taps - 1 - back) * p.n, dy + t * width + p.first,
                                 x + (t - back) * width + p.first, p.n);
        for (size_t c = 0; c < p.n; c++)
            for (size_t j = 0; j < d.taps; j++)
                dw[(p.first + c) * d.taps + j] += p.w[j * p.n + c];
    }
}

void delta_conv_steps(struct num *num, float *y, const float *x, const float *w, const struct delta_run *runs,
                      size_t n, struct delta_dims d)
{
    const size_t width = delta_width(d);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (n * width > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < parts_of(d); i++) {
        const struct taps p = taps_of(num, w, i * CHANNELS, d);
        for (size_t s = 0; s < n; s++) {
            const struct delta_run *run = &runs[s];
            const float *from = x + run->row * width;
            conv_rows(&p, y + run->row * width, from, run->is_first ? NULL : run->tail, run->n);
            keep_tail(&p, run->tail, from, run->n, run->is_first);
        }
    }
}

/* --- norms of q and k ------------------------------------------------------------------------- */

void delta_norm_forward(struct num *num, float *y, float *scale, size_t tokens, struct delta_dims d)
{
    const struct kernels *k = num_kernels(num);
    const size_t width = delta_width(d), heads = 2 * d.key_heads;
    const float of_q = 1 / sqrtf((float)d.key);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * width > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++) {
            float *x = y + t * width + h * d.key;
            const float by = 1 / sqrtf(k->dot(x, x, d.key) + l2_eps) * (h < d.key_heads ? of_q : 1);
            k->scale(x, by, d.key);
            if (scale)
                scale[t * heads + h] = by;
        }
}

/* With x̂ the head divided by its length: dx = scale·(dy − x̂·(x̂·dy)). */
void delta_norm_backward_x(struct num *num, float *dy, const float *y, const float *scale, size_t tokens,
                           struct delta_dims d)
{
    const struct kernels *k = num_kernels(num);
    const size_t width = delta_width(d), heads = 2 * d.key_heads;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * width > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++) {
            const size_t at = t * width + h * d.key;
            const float longer = h < d.key_heads ? (float)d.key : 1; /* a query's x̂ is √key times y */
            k->axpy(dy + at, -longer * k->dot(y + at, dy + at, d.key), y + at, d.key);
            k->scale(dy + at, scale[t * heads + h], d.key);
        }
}

/* --- the gates -------------------------------------------------------------------------------- */

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

void delta_gates_forward(float *g, float *beta, const float *a, const float *b, const float *a_log,
                         const float *dt_bias, size_t tokens, struct delta_dims d)
{
    for (size_t i = 0; i < tokens * d.value_heads; i++) {
        const size_t h = i % d.value_heads;
        g[i] = -expf(a_log[h]) * softplus(a[i] + dt_bias[h]);
        beta[i] = sigmoid(b[i]);
    }
}

void delta_gates_backward_x(float *da, float *db, float *da_log, const float *dg, const float *dbeta,
                            const float *a, const float *b, const float *a_log, const float *dt_bias,
                            size_t tokens, struct delta_dims d)
{
    for (size_t i = 0; i < tokens * d.value_heads; i++) {
        const size_t h = i % d.value_heads;
        const float x = a[i] + dt_bias[h], steep = -expf(a_log[h]), beta = sigmoid(b[i]), slope = dg[i];
        da_log[i] = slope * steep * softplus(x);
        da[i] = slope * steep * sigmoid(x);
        db[i] = dbeta[i] * beta * (1 - beta);
    }
}
