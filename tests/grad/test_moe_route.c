/* SPDX-License-Identifier: MIT
 *
 * The router against a naive f64 twin: which experts, with what weight, and the slope of the
 * weights; and the same bits with any number of threads. */
#include "grad.h"

#include "layer/moe.h"

struct shape {
    struct moe_route route;
    size_t tokens;
    bool biased;
};

static const struct shape shapes[] = {
    {{1, 1, 1, 1, false, false, 1}, 3, false},    {{7, 3, 1, 1, false, false, 1.5f}, 33, false},
    {{8, 2, 4, 2, false, false, 16}, 65, false},  {{12, 5, 1, 1, false, true, 1}, 20, false},
    {{16, 4, 4, 2, true, true, 2.5f}, 129, true}, {{64, 8, 8, 4, true, true, 2.5f}, 300, true},
    {{9, 9, 3, 3, true, false, 1}, 5, true},
};

struct ctx {
    const struct shape *s;
    struct twin logits, bias, c;
    const uint32_t *chosen; /* as the layer chose: the slope is taken with the choice held */
    double *weight;
};

static void naive_scores(const struct ctx *x, size_t t, double *score)
{
    const size_t n = x->s->route.experts;
    const double *l = x->logits.d + t * n;
    double sum = 0;
    for (size_t e = 0; e < n; e++)
        sum += score[e] = x->s->route.sigmoid ? 1 / (1 + exp(-l[e])) : exp(l[e]);
    for (size_t e = 0; !x->s->route.sigmoid && e < n; e++)
        score[e] /= sum;
}

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct moe_route r = x->s->route;
    double score[64];
    for (size_t t = 0; t < x->s->tokens; t++) {
        double sum = 0;
        naive_scores(x, t, score);
        for (size_t j = 0; j < r.chosen; j++)
            sum += score[x->chosen[t * r.chosen + j]];
        for (size_t j = 0; j < r.chosen; j++)
            x->weight[t * r.chosen + j] =
                (double)r.scale * score[x->chosen[t * r.chosen + j]] / (r.norm ? sum : 1);
    }
    return inner(x->weight, x->c.d, x->c.n);
}

/* The choice by sorting: groups, then experts within those that are left. */
static void naive_choice(const struct ctx *x, size_t t, bool *ret)
{
    const struct moe_route r = x->s->route;
    const size_t n = r.experts / r.groups;
    double score[64], group[64];
    bool open[64] = {false};
    naive_scores(x, t, score);
    for (size_t e = 0; e < r.experts; e++)
        score[e] += x->s->biased ? x->bias.d[e] : 0;
    for (size_t g = 0; g < r.groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (size_t e = g * n; e < (g + 1) * n; e++)
            if (score[e] > first) {
                second = first;
                first = score[e];
            } else {
                second = fmax(second, score[e]);
            }
        group[g] = x->s->biased ? first + second : first;
    }
    for (size_t k = 0; k < r.groups_chosen; k++) {
        size_t best = r.groups;
        for (size_t g = 0; g < r.groups; g++)
            if (!open[g] && (best == r.groups || group[g] > group[best]))
                best = g;
        open[best] = true;
    }
    memset(ret, 0, r.experts * sizeof *ret);
    for (size_t k = 0; k < r.chosen; k++) {
        size_t best = r.experts;
        for (size_t e = 0; e < r.experts; e++)
            if (open[e / n] && !ret[e] && (best == r.experts || score[e] > score[best]))
                best = e;
        ret[best] = true;
    }
}

struct routed {
    uint32_t *chosen;
    float *score, *weight, *dlogits;
};

static struct routed run(struct pool *pool, struct num *num, const struct ctx *x)
{
    const struct moe_route r = x->s->route;
    const size_t t = x->s->tokens;
    struct routed out = {pool_get(pool, t * r.chosen * sizeof(uint32_t)), floats(pool, t * r.experts),
                         floats(pool, t * r.chosen), floats(pool, t * r.experts)};
    memcpy(out.score, x->logits.f, x->logits.n * sizeof *out.score);
    moe_route_forward(num, out.chosen, out.weight, out.score, x->s->biased ? x->bias.f : NULL, r, t);
    moe_route_backward_x(num, out.dlogits, x->c.f, out.chosen, out.score, r, t);
    return out;
}

static struct ctx setup(struct pool *pool, const struct shape *s)
{
    /* biases so large that biased scores are negative too */
    return (struct ctx){.s = s,
                        .logits = twin_random(pool, "logits", s->tokens * s->route.experts, 0, 1),
                        .bias = twin_random(pool, "bias", s->route.experts, -0.5f, 0.5f),
                        .c = twin_random(pool, "c", s->tokens * s->route.chosen, 0, 1),
                        .weight = pool_get(pool, s->tokens * s->route.chosen * sizeof(double))};
}

static void test_twin(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool pool = {0};
        struct ctx x = setup(&pool, &shapes[i]);
        const struct moe_route r = shapes[i].route;
        const struct routed got = run(&pool, num, &x);
        bool want[64];
        for (size_t t = 0; t < shapes[i].tokens; t++) {
            const uint32_t *at = got.chosen + t * r.chosen;
            naive_choice(&x, t, want);
            for (size_t j = 0; j < r.chosen; j++) {
                assert_true(want[at[j]]);
                assert_true(j == 0 || at[j] > at[j - 1]);
            }
        }
        x.chosen = got.chosen;
        naive(&x);
        check_close("weight", got.weight, x.weight, x.c.n, 2e-6);
        check_grad("logits", naive, &x, x.logits, got.dlogits);
        pool_done(&pool);
    }
    num_free(num);
}

/* Unchosen groups are out of question even where all biased scores of the chosen ones are
 * negative. */
static void test_negative_scores(void **state)
{
    (void)state;
    struct num *num = unit(1);
    const struct moe_route r = {4, 2, 2, 1, true, true, 1};
    const float bias[4] = {-2, -2, -9, -1.5f};
    float score[4] = {0, 0, 0, 0}, weight[2];
    uint32_t chosen[2];
    moe_route_forward(num, chosen, weight, score, bias, r, 1);
    assert_int_equal(chosen[0], 0); /* group 0: −3; group 1: −9.5, though expert 3 alone is the best */
    assert_int_equal(chosen[1], 1);
    assert_true(weight[0] == 0.5f && weight[1] == 0.5f);
    num_free(num);
}

static void test_threads_same_bits(void **state)
{
    (void)state;
    struct pool pool = {0};
    const struct ctx x = setup(&pool, &shapes[5]);
    struct num *one = unit(1), *three = unit(3);
    const struct routed a = run(&pool, one, &x), b = run(&pool, three, &x);
    assert_memory_equal(a.chosen, b.chosen, x.c.n * sizeof *a.chosen);
    assert_memory_equal(a.weight, b.weight, x.c.n * sizeof *a.weight);
    assert_memory_equal(a.dlogits, b.dlogits, x.logits.n * sizeof *a.dlogits);
    num_free(one);
    num_free(three);
    pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_negative_scores),
        cmocka_unit_test(test_threads_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
