/* SPDX-License-Identifier: MIT
 *
 * AdamW over several steps against a plain f64 transcription of the algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/rng.h"
#include "train/adamw.h"

struct plain {
    double w, m, v;
};

static void plain_step(struct plain *p, double g, const struct adamw *o, int step)
{
    const double beta1 = (double)o->beta1, beta2 = (double)o->beta2, lr = (double)o->lr;
    p->w *= 1 - lr * (double)o->weight_decay;
    p->m = beta1 * p->m + (1 - beta1) * g;
    p->v = beta2 * p->v + (1 - beta2) * g * g;
    const double denom = sqrt(p->v) / sqrt(1 - pow(beta2, step)) + (double)o->eps;
    p->w -= lr / (1 - pow(beta1, step)) * p->m / denom;
}

static void check_run(struct num *num, size_t n, const struct adamw *opt, float gscale)
{
    float *w = malloc((n + 1) * sizeof *w), *m = calloc(n + 1, sizeof *m), *v = calloc(n + 1, sizeof *v);
    float *g = malloc((n + 1) * sizeof *g);
    struct plain *p = calloc(n + 1, sizeof *p);
    assert_true(w && m && v && g && p);
    struct rng rng = rng_for(17, "adamw");
    rng_fill_normal(&rng, w, n, 0, 1);
    for (size_t i = 0; i < n; i++)
        p[i].w = (double)w[i];
    for (int step = 1; step <= 20; step++) {
        rng_fill_normal(&rng, g, n, 0.1f, 0.3f);
        adamw_step(num, w, m, v, g, n, gscale, opt, (uint64_t)step);
        for (size_t i = 0; i < n; i++)
            plain_step(&p[i], (double)gscale * (double)g[i], opt, step);
    }
    for (size_t i = 0; i < n; i++) /* twenty steps of a few roundings each of values near 1 */
        assert_true(fabs((double)w[i] - p[i].w) <= 4e-6 && fabs((double)m[i] - p[i].m) <= 1e-6 &&
                    fabs((double)v[i] - p[i].v) <= 1e-6);
    free(w), free(m), free(v), free(g), free(p);
}

static void test_steps(void **state)
{
    (void)state;
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 2, NULL), 0);
    const struct adamw usual = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f}, strong = {0.1f, 0.8f, 0.95f, 1e-5f, 0.5f};
    static const size_t sizes[] = {0, 1, 7, 17, 40000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_run(num, sizes[i], &usual, 1);
        check_run(num, sizes[i], &strong, 0.25f);
    }
    num_free(num);
}

/* The first step moves by the rate, whatever the size of the gradient; no gradient moves nothing
 * but the decay. */
static void test_first_step(void **state)
{
    (void)state;
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    const struct adamw opt = {0.01f, 0.9f, 0.999f, 1e-8f, 0};
    float w[3] = {1, 1, 1}, m[3] = {0}, v[3] = {0};
    const float g[3] = {1e-3f, -50, 0}, kept[3] = {1e-3f, -50, 0};
    adamw_step(num, w, m, v, g, 3, 1, &opt, 1);
    assert_true(fabsf(w[0] - 0.99f) < 1e-6f && fabsf(w[1] - 1.01f) < 1e-6f && w[2] == 1);
    assert_memory_equal(g, kept, sizeof g);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_first_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
