/* SPDX-License-Identifier: MIT
 *
 * Gradient checks: each layer has a naive f64 twin in its test. The f32 forward is compared with
 * the twin's, and the f32 backward with central differences of the twin's loss along random
 * directions. Since the differences are taken in f64, the tolerance is the rounding of the f32 code
 * alone: see check_grad. Included once by each test_*.c here. */
#ifndef TESTS_GRAD_H
#define TESTS_GRAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/num.h"
#include "num/rng.h"

enum { SEED = 20240229 };

/* Everything a case allocates, freed together. */
struct pool {
    void *items[64];
    size_t n;
};

static inline void *pool_get(struct pool *pool, size_t bytes)
{
    assert_true(pool->n < 64);
    void *p = calloc(1, bytes ? bytes : 1);
    assert_non_null(p);
    return pool->items[pool->n++] = p;
}

static inline void pool_done(struct pool *pool)
{
    while (pool->n)
        free(pool->items[--pool->n]);
}

static inline float *floats(struct pool *pool, size_t n)
{
    return pool_get(pool, n * sizeof(float));
}

/* The same numbers in f32 for the layer and in f64 for its twin. */
struct twin {
    float *f;
    double *d;
    size_t n;
};

static inline struct twin twin_random(struct pool *pool, const char *name, size_t n, float mean, float std)
{
    struct twin t = {floats(pool, n), pool_get(pool, n * sizeof(double)), n};
    struct rng rng = rng_for(SEED, name);
    rng_fill_normal(&rng, t.f, n, mean, std);
    for (size_t i = 0; i < n; i++)
        t.d[i] = (double)t.f[i];
    return t;
}

static inline struct num *unit(int threads)
{
    struct num *num = NULL;
    struct err err = {0};
    if (num_new(&num, threads, &err) != 0)
        fail_msg("num_new: %s", err.text);
    return num;
}

/* Largest |got − want| ≤ tol · largest |want|. */
static inline void check_close(const char *what, const float *got, const double *want, size_t n, double tol)
{
    double worst = 0, top = 1e-30;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const double e = fabs((double)got[i] - want[i]);
        if (!(e <= worst)) {
            worst = e;
            at = i;
        }
        top = fmax(top, fabs(want[i]));
    }
    if (!(worst <= tol * top))
        fail_msg("%s[%zu]: %.9g, expected %.9g (tolerance %g of %g; seed %d)", what, at, (double)got[at],
                 want[at], tol, top, SEED);
}

/* grad against the slope of loss(ctx) as x moves along three random directions. A unit-normal
 * direction u gives slopes of size ‖grad‖; f32 products of up to a few thousand terms are good to
 * about 1e-6 of that, the central difference (h = 1e-5, error h²) to 1e-9, so 2e-5 leaves a margin
 * of ten and still sees a wrong element among thousands; 2e-6 is for gradients that are exactly
 * zero but for rounding. */
static inline void check_grad(const char *what, double (*loss)(const void *ctx), const void *ctx,
                              struct twin x, const float *grad)
{
    double *was = malloc((x.n + 1) * sizeof *was), *u = malloc((x.n + 1) * sizeof *u);
    assert_non_null(was);
    assert_non_null(u);
    memcpy(was, x.d, x.n * sizeof *was);
    struct rng rng = rng_for(SEED, what);
    for (int k = 0; k < 3; k++) {
        double slope = 0, norm = 0;
        for (size_t i = 0; i < x.n; i++) {
            float f;
            rng_fill_normal(&rng, &f, 1, 0, 1);
            u[i] = (double)f;
            slope += u[i] * (double)grad[i];
            norm += (double)grad[i] * (double)grad[i];
        }
        const double h = 1e-5;
        double side[2];
        for (int s = 0; s < 2; s++) {
            for (size_t i = 0; i < x.n; i++)
                x.d[i] = was[i] + (s ? h : -h) * u[i];
            side[s] = loss(ctx);
        }
        memcpy(x.d, was, x.n * sizeof *was);
        const double want = (side[1] - side[0]) / (2 * h);
        if (!(fabs(slope - want) <= 2e-5 * sqrt(norm) + 2e-6))
            fail_msg("d%s: slope %.9g, by differences %.9g (‖grad‖ %g; seed %d)", what, slope, want,
                     sqrt(norm), SEED);
    }
    free(was);
    free(u);
}

static inline double inner(const double *a, const double *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

#endif
