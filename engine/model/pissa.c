/* SPDX-License-Identifier: MIT */
#include "model/pissa.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/kernels.h"
#include "num/rng.h"
#include "num/sizes.h"

enum {
    SPARE = 8,   /* vectors beside those that are wanted, which make these converge sooner */
    ROUNDS = 12, /* of both products */
    SWEEPS = 30, /* at most; a few are enough */
};

struct subspace {
    struct num *num; /* borrowed */
    struct mat w;
    size_t n;     /* vectors */
    float *right; /* [n, in] orthonormal */
    float *left;  /* [n, out] W times each of them */
    /* Of the matrix of the lefts' inner products: */
    double *gram;   /* [n, n] */
    double *vector; /* [n, n] row k: the coefficients of eigenvector k */
    size_t *order;  /* [n] the largest first */
};

/* Rows of x [n, width] become orthonormal, each to those before it; twice, for once leaves what
 * rounding made. What is nothing beside the others becomes 0. */
static void straighten(const struct kernels *k, float *x, size_t n, size_t width)
{
    for (size_t r = 0; r < n; r++) {
        float *row = x + r * width;
        const double before = k->sumsq(row, width);
        for (size_t i = 0; i < 2 * r; i++) {
            const float *other = x + i % r * width;
            k->axpy(row, -k->dot(row, other, width), other, width);
        }
        const double after = k->sumsq(row, width);
        k->scale(row, after > before * 1e-12 ? (float)(1 / sqrt(after)) : 0, width);
    }
}

static void iterate(struct subspace *s, struct rng rng)
{
    const struct kernels *k = num_kernels(s->num);
    rng_fill_normal(&rng, s->right, s->n * s->w.cols, 0, 1);
    for (size_t i = 0; i < ROUNDS; i++) {
        straighten(k, s->right, s->n, s->w.cols);
        gemm_xwt(s->num, s->left, s->right, s->w, s->n, false);
        straighten(k, s->left, s->n, s->w.rows);
        gemm_xw(s->num, s->right, s->left, s->w, s->n, false);
    }
    straighten(k, s->right, s->n, s->w.cols);
    gemm_xwt(s->num, s->left, s->right, s->w, s->n, false);
}

/* One rotation of Jacobi's method, which makes gram[p][q] 0 (Golub & Van Loan, section 8.5). */
static void rotate(struct subspace *s, size_t p, size_t q)
{
    double *g = s->gram;
    const size_t n = s->n;
    const double off = g[p * n + q], tau = (g[q * n + q] - g[p * n + p]) / (2 * off),
                 t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau)), c = 1 / sqrt(1 + t * t),
                 sine = t * c;
    for (size_t i = 0; i < n; i++) {
        const double a = g[i * n + p], b = g[i * n + q];
        g[i * n + p] = c * a - sine * b;
        g[i * n + q] = sine * a + c * b;
    }
    for (size_t i = 0; i < n; i++) {
        const double a = g[p * n + i], b = g[q * n + i], v = s->vector[p * n + i], w = s->vector[q * n + i];
        g[p * n + i] = c * a - sine * b;
        g[q * n + i] = sine * a + c * b;
        s->vector[p * n + i] = c * v - sine * w;
        s->vector[q * n + i] = sine * v + c * w;
    }
}

static void decompose(struct subspace *s)
{
    const size_t n = s->n, out = s->w.rows;
    const struct kernels *k = num_kernels(s->num);
    double all = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            s->gram[i * n + j] = (double)k->dot(s->left + i * out, s->left + j * out, out);
            s->vector[i * n + j] = i == j;
            all += i == j ? s->gram[i * n + j] : 0;
        }
    for (size_t sweep = 0; sweep < SWEEPS; sweep++)
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++)
                if (fabs(s->gram[p * n + q]) > 1e-14 * all)
                    rotate(s, p, q);
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && s->gram[s->order[at - 1] * (n + 1)] < s->gram[i * (n + 1)]; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* Σ over the subspace of the coefficients times its vectors x [n, width], times factor. */
static void combine(const struct subspace *s, float *to, const float *x, size_t width, size_t eigen,
                    double factor)
{
    const struct kernels *k = num_kernels(s->num);
    memset(to, 0, width * sizeof *to);
    for (size_t i = 0; i < s->n; i++)
        k->axpy(to, (float)(factor * s->vector[eigen * s->n + i]), x + i * width, width);
}

/* The k-th of `half`, and what stands for its beginning; column [out] is scratch. */
static void put(const struct subspace *s, float *a, float *b, float *column, size_t k, size_t half,
                double scale)
{
    const size_t in = s->w.cols, out = s->w.rows, eigen = s->order[k];
    const double square = s->gram[eigen * (s->n + 1)], sigma = square > 0 ? sqrt(square) : 0,
                 root = sqrt(sigma / scale);
    combine(s, a + k * in, s->right, in, eigen, root);
    combine(s, column, s->left, out, eigen, sigma > 0 ? root / sigma : 0);
    memcpy(a + (half + k) * in, a + k * in, in * sizeof *a);
    for (size_t r = 0; r < out; r++) {
        b[r * 2 * half + k] = column[r];
        b[r * 2 * half + half + k] = -column[r];
    }
}

static void fill(struct subspace *s, float *a, float *b, const struct linear *lin, struct rng rng,
                 float *column)
{
    const size_t half = lin->lora->fixed;
    const enum num_compute compute = num_compute(s->num);
    num_set_compute(s->num, NUM_F32); /* whatever training computes in */
    iterate(s, rng);
    num_set_compute(s->num, compute);
    decompose(s);
    memset(a, 0, 2 * half * s->w.cols * sizeof *a);
    memset(b, 0, 2 * half * s->w.rows * sizeof *b);
    for (size_t k = 0; k < half && k < s->n; k++)
        put(s, a, b, column, k, half, (double)lin->lora->scale);
}

int pissa_init(struct num *num, float *a, float *b, const struct linear *lin, uint64_t seed, const char *name)
{
    const size_t in = lin->w.cols, out = lin->w.rows, most = min_size(in, out);
    struct subspace s = {.num = num, .w = lin->w, .n = min_size(lin->lora->fixed + SPARE, most)};
    float *column = calloc(out + 1, sizeof *column);
    char purpose[256];
    snprintf(purpose, sizeof purpose, "pissa/%s", name);
    s.right = calloc(s.n * in + 1, sizeof *s.right);
    s.left = calloc(s.n * out + 1, sizeof *s.left);
    s.gram = calloc(s.n * s.n + 1, sizeof *s.gram);
    s.vector = calloc(s.n * s.n + 1, sizeof *s.vector);
    s.order = calloc(s.n + 1, sizeof *s.order);
    const bool has_room = column && s.right && s.left && s.gram && s.vector && s.order;
    if (has_room)
        fill(&s, a, b, lin, rng_for(seed, purpose), column);
    free(column);
    free(s.right);
    free(s.left);
    free(s.gram);
    free(s.vector);
    free(s.order);
    return has_room ? 0 : -ENOMEM;
}
