/* SPDX-License-Identifier: MIT */
#include "grad.h"

#include "layer/layer.h"

static const struct glu kinds[] = {{GLU_SILU, 0}, {GLU_GELU_TANH, 0}, {GLU_CLAMPED, 2.5f}, {GLU_SIGMOID, 0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct ctx {
    struct glu glu;
    struct twin g, u, c;
    double *y;
};

static double activation(struct glu glu, double g, double u)
{
    const double limit = (double)glu.limit;
    switch (glu.kind) {
    case GLU_GELU_TANH: return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    case GLU_CLAMPED:
        g = fmin(g, limit);
        return g / (1 + exp(-1.702 * g)) * (fmax(-limit, fmin(u, limit)) + 1);
    case GLU_SIGMOID: return u / (1 + exp(-g));
    default: return g / (1 + exp(-g)) * u;
    }
}

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    for (size_t i = 0; i < x->g.n; i++)
        x->y[i] = activation(x->glu, x->g.d[i], x->u.d[i]);
    return inner(x->y, x->c.d, x->c.n);
}

static void off_bend(struct twin x, size_t i, double limit)
{
    if (fabs(fabs(x.d[i]) - limit) < 0.1)
        x.d[i] = (double)(x.f[i] *= 1.2f);
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 65, 1000, 50021};
    struct num *num = unit(2);
    for (size_t i = 0; i < KINDS * sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i / KINDS];
        const struct glu glu = kinds[i % KINDS];
        struct pool pool = {0};
        struct ctx x = {glu, twin_random(&pool, "g", n, 0, 3), twin_random(&pool, "u", n, 0, 1),
                        twin_random(&pool, "c", n, 0, 1), pool_get(&pool, n * sizeof(double))};
        for (size_t k = 0; glu.kind == GLU_CLAMPED && k < n; k++) { /* a bend has no slope */
            off_bend(x.g, k, (double)glu.limit);
            off_bend(x.u, k, (double)glu.limit);
        }
        float *y = floats(&pool, n), *dg = floats(&pool, n), *du = floats(&pool, n);
        glu_forward(num, y, x.g.f, x.u.f, glu, n);
        naive(&x);
        check_close("y", y, x.y, n, 1e-6);
        glu_backward_x(num, dg, du, x.c.f, x.g.f, x.u.f, glu, n);
        check_grad("g", naive, &x, x.g, dg);
        check_grad("u", naive, &x, x.u, du);
        glu_backward_x(num, x.g.f, x.u.f, x.c.f, x.g.f, x.u.f, glu, n); /* on the inputs */
        assert_memory_equal(x.g.f, dg, n * sizeof *dg);
        assert_memory_equal(x.u.f, du, n * sizeof *du);
        pool_done(&pool);
    }
    num_free(num);
}

/* Gates far out: the sigmoid is 0 or 1 and nothing becomes NaN. */
static void test_extremes(void **state)
{
    (void)state;
    struct num *num = unit(1);
    const float g[6] = {-1e4f, -100, -88, 88, 100, 1e4f}, u[6] = {1, 1, 1, 1, 1, 1};
    float y[6], dg[6], du[6];
    for (size_t kind = 0; kind < 2; kind++) { /* the clamped one has no far */
        const struct glu glu = kinds[kind];
        glu_forward(num, y, g, u, glu, 6);
        glu_backward_x(num, dg, du, u, g, u, glu, 6);
        for (size_t i = 0; i < 6; i++) {
            const float step = i < 3 ? 0.0f : 1.0f;
            assert_true(fabsf(y[i] - step * g[i]) < 1e-30f && fabsf(du[i] - step * g[i]) < 1e-30f);
            assert_true(fabsf(dg[i] - step) < 1e-30f);
        }
    }
    const float nan[1] = {NAN}, one[1] = {1};
    glu_forward(num, y, nan, one, kinds[2], 1); /* what is broken stays so */
    glu_forward(num, y + 1, one, nan, kinds[2], 1);
    assert_true(isnan(y[0]) && isnan(y[1]));
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
