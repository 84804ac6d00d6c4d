/* SPDX-License-Identifier: MIT */
#include "tests/lib/slope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "num/rng.h"
#include "num/vec.h"

/* The loss is a sum of f32 logits: its noise, some 1e-6, over the step is what limits the
 * comparison of small gradients, and the bend of the loss that of large ones. */
#define STEP_SMALL 6e-3
#define STEP_LARGE 2e-3
#define LARGE 0.5
#define TOLERANCE 3e-3

static double loss_at(struct chain *c, const struct microbatch *mb, struct param *p, const float *from,
                      const double *direction, double step)
{
    for (size_t i = 0; i < p->n; i++)
        p->w[i] = (float)((double)from[i] + step * direction[i]);
    chain_sync_values(c);
    return chain_forward(c, 0, mb, 0, NULL);
}

/* Error of order step⁴. */
static double slope(struct chain *c, const struct microbatch *mb, struct param *p, const float *from,
                    const double *direction, double step)
{
    double near = loss_at(c, mb, p, from, direction, step) - loss_at(c, mb, p, from, direction, -step);
    double far = loss_at(c, mb, p, from, direction, 2 * step) - loss_at(c, mb, p, from, direction, -2 * step);
    return (8 * near - far) / (12 * step);
}

static double length(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void check_param(struct chain *c, const struct microbatch *mb, struct param *p)
{
    float *from = calloc(p->n, sizeof *from), *random = calloc(p->n, sizeof *random);
    double *direction = calloc(p->n, sizeof *direction);
    assert_non_null(from);
    assert_non_null(random);
    assert_non_null(direction);
    memcpy(from, p->w, p->n * sizeof *from);
    struct rng rng = rng_for(7, p->def.name);
    rng_fill_normal(&rng, random, p->n, 0, 1);
    double whole = sqrt(vec_sumsq(c->num, p->g, p->n));
    for (int along = 0; along < 2; along++) {
        for (size_t i = 0; i < p->n; i++)
            direction[i] = along && whole > 0 ? (double)p->g[i] : (double)random[i];
        double size = length(direction, p->n), got = 0;
        for (size_t i = 0; i < p->n; i++) {
            direction[i] /= size;
            got += direction[i] * (double)p->g[i];
        }
        const double tolerance = TOLERANCE * fmax(whole, 0.1);
        double want = slope(c, mb, p, from, direction, whole > LARGE ? STEP_LARGE : STEP_SMALL);
        /* between the two it is either that may limit: a wrong gradient agrees with no step */
        if (!(fabs(got - want) <= tolerance))
            want = slope(c, mb, p, from, direction, whole > LARGE ? STEP_SMALL : STEP_LARGE);
        if (!(fabs(got - want) <= tolerance))
            fail_msg("%s: gradient %.6g along %s, the loss's slope is %.6g (|g| = %.6g)", p->def.name, got,
                     along ? "itself" : "a random direction", want, whole);
    }
    memcpy(p->w, from, p->n * sizeof *from);
    chain_sync_values(c);
    free(from);
    free(random);
    free(direction);
}

struct checking {
    struct chain *chain;
    const struct microbatch *mb;
};

static int check_one(void *arg, const struct param_def *def)
{
    const struct checking *k = arg;
    if (!def->fixed)
        check_param(k->chain, k->mb, chain_param(k->chain, def->name));
    return 0;
}

void check_slopes(struct chain *c, const struct microbatch *mb)
{
    struct checking k = {c, mb};
    chain_clear_grads(c);
    chain_forward(c, 0, mb, 1, NULL);
    chain_backward(c, 0);
    chain_tie(c);
    for (size_t u = 0; u < c->spec.config.layers + 2; u++)
        tune_params(&c->spec.tune, c->family, &c->spec.config, u, check_one, &k);
}
