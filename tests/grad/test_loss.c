/* SPDX-License-Identifier: MIT
 *
 * Output head and cross-entropy, over block borders and with unsupervised rows between. */
#include "grad.h"

#include "layer/layer.h"
#include "layer/preference.h"

struct ctx {
    size_t tokens, dim, vocab;
    const int32_t *labels;
    double dscale;
    struct twin h, w;
    double *logprob;
    double cap; /* 0: none */
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
            if (x->cap > 0)
                logits[v] = x->cap * tanh(logits[v] / x->cap);
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
                        pool_get(pool, tokens * sizeof(double)),
                        0};
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 2}, {7, 13, 5}, {65, 24, 101}, {130, 33, 257}, {1600, 3, 19}};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool pool = {0};
        struct ctx x = setup(&pool, shapes[i][0], shapes[i][1], shapes[i][2]);
        x.cap = i % 2 ? 1.5 : 0;
        const struct mat w = {.data = x.w.f, .dtype = DTYPE_F32, .rows = x.vocab, .cols = x.dim};
        float *dh = floats(&pool, x.h.n), *dw = floats(&pool, x.w.n), *logprob = floats(&pool, x.tokens);
        const struct xent xent = {
            .labels = x.labels, .dscale = 0.37f, .logprob = logprob, .softcap = (float)x.cap};
        memset(dh, 0xff, x.h.n * sizeof *dh); /* must be assigned everywhere */
        const double loss = xent_forward(num, dh, dw, x.h.f, w, &xent, x.tokens), want = naive(&x) / x.dscale;
        assert_true(fabs(loss - want) <= 1e-6 * want);
        check_close("logprob", logprob, x.logprob, x.tokens, 1e-6);
        for (size_t t = 0; t < x.tokens; t++)
            for (size_t j = 0; x.labels[t] < 0 && j < x.dim; j++)
                assert_true(dh[t * x.dim + j] == 0);
        check_grad("h", naive, &x, x.h, dh);
        check_grad("w", naive, &x, x.w, dw);
        const struct xent forward = {.labels = x.labels, .softcap = (float)x.cap};
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

/* A weight for each row: its part of the gradient is that of the row alone, times the weight. */
static void test_weights(void **state)
{
    (void)state;
    enum { T = 65, D = 24, V = 101 };
    struct num *num = unit(2);
    struct pool pool = {0};
    struct ctx x = setup(&pool, T, D, V);
    const struct mat w = {.data = x.w.f, .dtype = DTYPE_F32, .rows = V, .cols = D};
    float *all = floats(&pool, x.h.n), *dh = floats(&pool, x.h.n), *weight = floats(&pool, T),
          *dw = floats(&pool, x.w.n), *one = floats(&pool, x.w.n);
    for (size_t t = 0; t < T; t++)
        weight[t] = t == 3 ? -2 : 0;
    const struct xent plain = {.labels = x.labels, .dscale = 0.5f},
                      weighted = {.labels = x.labels, .dscale = 0.5f, .weight = weight};
    const double loss = xent_forward(num, all, NULL, x.h.f, w, &plain, T);
    assert_true(xent_forward(num, dh, dw, x.h.f, w, &weighted, T) == loss);
    for (size_t i = 0; i < x.h.n; i++)
        assert_true(i / D == 3 ? fabsf(dh[i] + 2 * all[i]) <= 1e-6f : dh[i] == 0);
    float row[D];
    xent_forward(num, row, one, x.h.f + 3 * D, w, &(struct xent){.labels = x.labels + 3, .dscale = -1}, 1);
    for (size_t i = 0; i < x.w.n; i++)
        assert_true(fabsf(dw[i] - one[i]) <= 1e-6f);
    pool_done(&pool);
    num_free(num);
}

/* --- pairs of answers ------------------------------------------------------------------------- */

/* Rafailov et al. 2023, eq. 7, and Hong et al. 2024, eq. 3, 4, 6 and 7, as they are printed. */
static long double printed(const struct pair_loss *how, long double chosen, long double rejected,
                           const struct pair_answer *pair, long double ref)
{
    if (how->kind == LOSS_DPO)
        return -logl(1 / (1 + expl(-how->beta * (chosen - rejected - ref))));
    const long double p = expl(chosen / pair[0].n), q = expl(rejected / pair[1].n),
                      ratio = logl((p / (1 - p)) / (q / (1 - q)));
    return -chosen / pair[0].n - how->beta * logl(1 / (1 + expl(-ratio)));
}

static void test_pairs(void **state)
{
    (void)state;
    static const struct pair_answer pairs[][PAIR_ANSWERS] = {
        {{-3, 2}, {-8, 5}}, {{-40, 7}, {-12, 3}}, {{-0.1, 1}, {-90, 60}}, {{-2, 4}, {-2, 4}}};
    static const struct pair_loss hows[] = {{LOSS_DPO, 0.1}, {LOSS_DPO, 2}, {LOSS_ORPO, 0.1}, {LOSS_ORPO, 3}};
    const long double step = 1e-5L;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
            const struct pair_answer *pair = pairs[i];
            const long double c = pair[0].logp, r = pair[1].logp, ref = -1.5L;
            double weight[PAIR_ANSWERS];
            const double loss = preference_loss(&hows[k], pair, (double)ref, weight);
            const long double want = printed(&hows[k], c, r, pair, ref),
                              up = (printed(&hows[k], c + step, r, pair, ref) -
                                    printed(&hows[k], c - step, r, pair, ref)) /
                                   (2 * step),
                              down = (printed(&hows[k], c, r + step, pair, ref) -
                                      printed(&hows[k], c, r - step, pair, ref)) /
                                     (2 * step);
            assert_true(fabsl(loss - want) <= 1e-12L * (1 + fabsl(want)));
            assert_true(fabsl(weight[0] + up) <= 1e-8L && fabsl(weight[1] + down) <= 1e-8L);
        }
    double weight[PAIR_ANSWERS]; /* as sure as can be, and far beyond what exp holds */
    const struct pair_answer sure[] = {{0, 3}, {-1e6, 3}}, wrong[] = {{-1e6, 3}, {0, 3}};
    for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
        assert_true(isfinite(preference_loss(&hows[k], sure, 0, weight)));
        assert_true(isfinite(weight[0]) && isfinite(weight[1]));
        assert_true(isfinite(preference_loss(&hows[k], wrong, 0, weight)));
        assert_true(isfinite(weight[0]) && isfinite(weight[1]));
        assert_true(isnan(preference_loss(&hows[k], (struct pair_answer[]){{NAN, 1}, {-1, 1}}, 0, weight)));
    }
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
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
