/* SPDX-License-Identifier: MIT
 *
 * Output head and cross-entropy, over block borders and with unsupervised rows between. */
#include "grad.h"

#include "layer/layer.h"

struct ctx {
    size_t tokens, dim, vocab;
    const int32_t *labels;
    double dscale;
    struct twin h, w;
    double *logprob;
};

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    double total = 0;
    double *logits = malloc(x->vocab * sizeof *logits);
    assert_non_null(logits);
    for (size_t t = 0; t < x->tokens; t++) {
        x->logprob[t] = 0;
        if (x->labels[t] < 0)
            continue;
        double top = -INFINITY, sum = 0;
        for (size_t v = 0; v < x->vocab; v++) {
            logits[v] = inner(x->h.d + t * x->dim, x->w.d + v * x->dim, x->dim);
            top = fmax(top, logits[v]);
        }
        for (size_t v = 0; v < x->vocab; v++)
            sum += exp(logits[v] - top);
        x->logprob[t] = logits[x->labels[t]] - top - log(sum);
        total -= x->logprob[t];
    }
    free(logits);
    return total * x->dscale;
}

static struct ctx setup(struct pool *pool, size_t tokens, size_t dim, size_t vocab)
{
    int32_t *labels = pool_get(pool, tokens * sizeof *labels);
    for (size_t t = 0; t < tokens; t++)
        labels[t] = tokens > 1 && t % 3 == 1 ? -100 : (int32_t)(t * 31 % vocab);
    return (struct ctx){tokens,
                        dim,
                        vocab,
                        labels,
                        0.37f,
                        twin_random(pool, "h", tokens * dim, 0, 1),
                        twin_random(pool, "w", vocab * dim, 0, 0.5f),
                        pool_get(pool, tokens * sizeof(double))};
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 2}, {7, 13, 5}, {65, 24, 101}, {130, 33, 257}, {1600, 3, 19}};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool pool = {0};
        struct ctx x = setup(&pool, shapes[i][0], shapes[i][1], shapes[i][2]);
        const struct mat w = {.data = x.w.f, .dtype = DTYPE_F32, .rows = x.vocab, .cols = x.dim};
        float *dh = floats(&pool, x.h.n), *dw = floats(&pool, x.w.n), *logprob = floats(&pool, x.tokens);
        const struct xent xent = {.labels = x.labels, .dscale = 0.37f, .logprob = logprob};
        memset(dh, 0xff, x.h.n * sizeof *dh); /* must be assigned everywhere */
        const double loss = xent_forward(num, dh, dw, x.h.f, w, &xent, x.tokens), want = naive(&x) / x.dscale;
        assert_true(fabs(loss - want) <= 1e-6 * want);
        check_close("logprob", logprob, x.logprob, x.tokens, 1e-6);
        for (size_t t = 0; t < x.tokens; t++)
            for (size_t j = 0; x.labels[t] < 0 && j < x.dim; j++)
                assert_true(dh[t * x.dim + j] == 0);
        check_grad("h", naive, &x, x.h, dh);
        check_grad("w", naive, &x, x.w, dw);
        const struct xent forward = {.labels = x.labels};
        assert_true(xent_forward(num, NULL, NULL, x.h.f, w, &forward, x.tokens) == loss);
        pool_done(&pool);
    }
    num_free(num);
}

/* A vocabulary so large that a block holds few rows, and logits so far apart that most
 * probabilities vanish.
 */
static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { T = 60, D = 2, V = 200003 };
    struct num *num = unit(2);
    struct pool pool = {0};
    struct ctx x = setup(&pool, T, D, V);
    for (size_t i = 0; i < x.h.n; i++)
        x.h.d[i] = (double)(x.h.f[i] *= 30);
    float *dh = floats(&pool, x.h.n), *logprob = floats(&pool, T);
    const struct xent xent = {.labels = x.labels, .dscale = 0.37f, .logprob = logprob};
    const struct mat w = {.data = x.w.f, .dtype = DTYPE_F32, .rows = V, .cols = D};
    const double loss = xent_forward(num, dh, NULL, x.h.f, w, &xent, T), want = naive(&x) / x.dscale;
    assert_true(fabs(loss - want) <= 1e-6 * want);
    check_close("logprob", logprob, x.logprob, T, 1e-6);
    check_grad("h", naive, &x, x.h, dh);
    pool_done(&pool);
    num_free(num);
}

static void test_nothing_supervised(void **state)
{
    (void)state;
    struct num *num = unit(1);
    const int32_t labels[3] = {-100, -100, -100};
    const float h[6] = {1, 2, 3, 4, 5, 6}, w[4] = {1, 0, 0, 1};
    float dh[6], logprob[3] = {9, 9, 9};
    const struct xent xent = {.labels = labels, .dscale = 1, .logprob = logprob};
    memset(dh, 0xff, sizeof dh);
    assert_true(xent_forward(num, dh, NULL, h,
                             (struct mat){.data = w, .dtype = DTYPE_F32, .rows = 2, .cols = 2}, &xent,
                             3) == 0);
    for (size_t i = 0; i < 6; i++)
        assert_true(dh[i] == 0 && logprob[i / 2] == 0);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_nothing_supervised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
