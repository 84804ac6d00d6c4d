/* SPDX-License-Identifier: MIT */
#include "grad.h"

#include "layer/layer.h"

struct ctx {
    size_t rows, dim;
    struct twin x, w, c;
    double *y;
};

static const double eps = 1e-5;

static double naive(const void *ctx)
{
    const struct ctx *n = ctx;
    for (size_t r = 0; r < n->rows; r++) {
        const double *x = n->x.d + r * n->dim;
        const double rstd = 1 / sqrt(inner(x, x, n->dim) / (double)n->dim + (double)(float)eps);
        for (size_t j = 0; j < n->dim; j++)
            n->y[r * n->dim + j] = x[j] * rstd * n->w.d[j];
    }
    return inner(n->y, n->c.d, n->c.n);
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{1, 1}, {7, 13}, {65, 64}, {130, 257}, {3, 1000}};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t rows = shapes[i][0], dim = shapes[i][1], n = rows * dim;
        struct pool pool = {0};
        struct ctx x = {rows,
                        dim,
                        twin_random(&pool, "x", n, 0.1f, 2),
                        twin_random(&pool, "w", dim, 1, 0.5f),
                        twin_random(&pool, "c", n, 0, 1),
                        pool_get(&pool, n * sizeof(double))};
        const struct rmsnorm_dims dims = {rows, dim, (float)eps, 0};
        float *y = floats(&pool, n), *rstd = floats(&pool, rows), *dx = floats(&pool, n),
              *dw = floats(&pool, dim);
        rmsnorm_forward(num, y, rstd, x.x.f, x.w.f, dims);
        naive(&x);
        check_close("y", y, x.y, n, 1e-6);
        rmsnorm_backward_x(num, dx, x.c.f, rstd, x.x.f, x.w.f, dims);
        check_grad("x", naive, &x, x.x, dx);
        rmsnorm_backward_w(num, dw, x.c.f, rstd, x.x.f, dims);
        check_grad("w", naive, &x, x.w, dw);
        float *dy = floats(&pool, n);
        memcpy(dy, x.c.f, n * sizeof *dy);
        rmsnorm_backward_x(num, dy, dy, rstd, x.x.f, x.w.f, dims);
        assert_memory_equal(dy, dx, n * sizeof *dy); /* in place */
        float *twice = floats(&pool, dim);
        memcpy(twice, dw, dim * sizeof *twice);
        rmsnorm_backward_w(num, twice, x.c.f, rstd, x.x.f, dims);
        for (size_t j = 0; j < dim; j++)
            assert_true(fabsf(twice[j] - 2 * dw[j]) <= 1e-4f * (1 + fabsf(dw[j]))); /* added, not assigned */
        pool_done(&pool);
    }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
