/* SPDX-License-Identifier: MIT */
#include "grad.h"

#include "layer/layer.h"

struct ctx {
    struct twin g, u, c;
    double *y;
};

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    for (size_t i = 0; i < x->g.n; i++)
        x->y[i] = x->g.d[i] / (1 + exp(-x->g.d[i])) * x->u.d[i];
    return inner(x->y, x->c.d, x->c.n);
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 65, 1000, 50021};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i];
        struct pool pool = {0};
        struct ctx x = {twin_random(&pool, "g", n, 0, 3), twin_random(&pool, "u", n, 0, 1),
                        twin_random(&pool, "c", n, 0, 1), pool_get(&pool, n * sizeof(double))};
        float *y = floats(&pool, n), *dg = floats(&pool, n), *du = floats(&pool, n);
        swiglu_forward(num, y, x.g.f, x.u.f, n);
        naive(&x);
        check_close("y", y, x.y, n, 1e-6);
        swiglu_backward_x(num, dg, du, x.c.f, x.g.f, x.u.f, n);
        check_grad("g", naive, &x, x.g, dg);
        check_grad("u", naive, &x, x.u, du);
        swiglu_backward_x(num, x.g.f, x.u.f, x.c.f, x.g.f, x.u.f, n); /* on the inputs */
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
    swiglu_forward(num, y, g, u, 6);
    swiglu_backward_x(num, dg, du, u, g, u, 6);
    for (size_t i = 0; i < 6; i++) {
        const float step = i < 3 ? 0.0f : 1.0f;
        assert_true(fabsf(y[i] - step * g[i]) < 1e-30f && fabsf(du[i] - step * g[i]) < 1e-30f);
        assert_true(fabsf(dg[i] - step) < 1e-30f);
    }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
