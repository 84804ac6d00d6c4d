/* SPDX-License-Identifier: MIT
 *
 * Rows by expert: grouping is a stable sort, what is gathered and added back is a weighted sum over
 * the chosen experts, its slopes, and the same bits with any number of threads. The experts are one
 * matrix each. */
#include "grad.h"

#include "layer/moe.h"
#include "num/gemm.h"

struct shape {
    size_t tokens, experts, chosen, dim;
};
static const struct shape shapes[] = {{1, 4, 2, 3}, {33, 7, 3, 20}, {130, 16, 4, 65}, {5, 3, 3, 1}};

struct ctx {
    struct shape s;
    struct twin x, w, weight, c; /* w [experts, dim, dim] */
    uint32_t *chosen;
    double *y;
};

static double naive(const void *ctx)
{
    const struct ctx *k = ctx;
    const struct shape s = k->s;
    memset(k->y, 0, s.tokens * s.dim * sizeof *k->y);
    for (size_t i = 0; i < s.tokens * s.chosen; i++)
        for (size_t o = 0; o < s.dim; o++)
            k->y[i / s.chosen * s.dim + o] +=
                k->weight.d[i] *
                inner(k->w.d + (k->chosen[i] * s.dim + o) * s.dim, k->x.d + i / s.chosen * s.dim, s.dim);
    return inner(k->y, k->c.d, k->c.n);
}

static struct ctx setup(struct pool *pool, struct shape s)
{
    struct ctx k = {.s = s,
                    .x = twin_random(pool, "x", s.tokens * s.dim, 0, 1),
                    .w = twin_random(pool, "w", s.experts * s.dim * s.dim, 0, 0.2f),
                    .weight = twin_random(pool, "weight", s.tokens * s.chosen, 0.5f, 0.2f),
                    .c = twin_random(pool, "c", s.tokens * s.dim, 0, 1),
                    .chosen = pool_get(pool, s.tokens * s.chosen * sizeof(uint32_t)),
                    .y = pool_get(pool, s.tokens * s.dim * sizeof(double))};
    struct rng rng = rng_for(SEED, "chosen");
    for (size_t t = 0; t < s.tokens; t++) { /* the last expert is left out where it can be */
        uint32_t perm[16];
        rng_permutation(&rng, perm, s.experts > s.chosen ? s.experts - 1 : s.experts);
        memcpy(k.chosen + t * s.chosen, perm, s.chosen * sizeof *perm);
    }
    return k;
}

struct out {
    struct moe_groups groups;
    float *y, *dx, *dweight;
};

/* As the MoE part of a block does it. */
static struct out run(struct pool *pool, struct num *num, const struct ctx *k)
{
    const struct shape s = k->s;
    const struct moe_route route = {.experts = s.experts, .chosen = s.chosen};
    struct out out = {{pool_get(pool, (s.experts + 1) * sizeof(uint32_t)),
                       pool_get(pool, s.tokens * s.chosen * sizeof(uint32_t))},
                      floats(pool, k->x.n),
                      floats(pool, k->x.n),
                      floats(pool, k->weight.n)};
    float *rows = floats(pool, k->x.n), *wide = floats(pool, k->x.n);
    moe_group(&out.groups, k->chosen, route, s.tokens);
    for (size_t e = 0; e < s.experts; e++) {
        const uint32_t from = out.groups.start[e];
        const struct moe_rows r = {out.groups.pick + from, out.groups.start[e + 1] - from, s.chosen};
        const struct mat w = {
            .data = k->w.f + e * s.dim * s.dim, .dtype = DTYPE_F32, .rows = s.dim, .cols = s.dim};
        moe_gather(num, rows, k->x.f, NULL, r, s.dim);
        gemm_xwt(num, wide, rows, w, r.n, false);
        moe_scatter_add(num, out.y, wide, k->weight.f, r, s.dim);
        moe_gather(num, rows, k->c.f, NULL, r, s.dim);
        moe_weight_back(num, out.dweight, rows, wide, r, s.dim);
        moe_scale(num, rows, k->weight.f, r, s.dim);
        gemm_xw(num, wide, rows, w, r.n, false);
        moe_scatter_add(num, out.dx, wide, NULL, r, s.dim);
    }
    return out;
}

static void test_twin(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool pool = {0};
        struct ctx k = setup(&pool, shapes[i]);
        const struct out got = run(&pool, num, &k);
        naive(&k);
        check_close("y", got.y, k.y, k.x.n, 5e-6);
        check_grad("x", naive, &k, k.x, got.dx);
        check_grad("weight", naive, &k, k.weight, got.dweight);
        pool_done(&pool);
    }
    num_free(num);
}

static void test_grouping(void **state)
{
    (void)state;
    const uint32_t chosen[] = {2, 0, 1, 2, 0, 2};
    uint32_t start[5], pick[6];
    const struct moe_groups g = {start, pick};
    moe_group(&g, chosen, (struct moe_route){.experts = 4, .chosen = 2}, 3);
    static const uint32_t starts[] = {0, 2, 3, 6, 6}, picks[] = {1, 4, 2, 0, 3, 5};
    assert_memory_equal(start, starts, sizeof starts);
    assert_memory_equal(pick, picks, sizeof picks);
}

static void test_weighted_gather(void **state)
{
    (void)state;
    struct num *num = unit(1);
    const float x[] = {1, 2, 3, 4}, weight[] = {0.5f, 2, 3, 4};
    const uint32_t pick[] = {3, 0};
    float rows[4];
    moe_gather(num, rows, x, weight, (struct moe_rows){pick, 2, 2}, 2);
    assert_true(rows[0] == 12 && rows[1] == 16 && rows[2] == 0.5f && rows[3] == 1);
    num_free(num);
}

static void test_threads_same_bits(void **state)
{
    (void)state;
    struct pool pool = {0};
    const struct ctx k = setup(&pool, shapes[2]);
    struct num *one = unit(1), *three = unit(3);
    const struct out a = run(&pool, one, &k), b = run(&pool, three, &k);
    assert_memory_equal(a.y, b.y, k.x.n * sizeof(float));
    assert_memory_equal(a.dx, b.dx, k.x.n * sizeof(float));
    assert_memory_equal(a.dweight, b.dweight, k.weight.n * sizeof(float));
    num_free(one);
    num_free(three);
    pool_done(&pool);
}

/* y = σ(score)·x of each token; c and w have numbers enough. */
static double naive_gate(const void *ctx)
{
    const struct ctx *k = ctx;
    for (size_t i = 0; i < k->s.tokens * k->s.dim; i++)
        k->y[i] = k->x.d[i] / (1 + exp(-k->weight.d[i / k->s.dim]));
    return inner(k->y, k->c.d, k->c.n);
}

static void test_gate(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool pool = {0};
        struct ctx k = setup(&pool, shapes[i]);
        const size_t tokens = k.s.tokens, n = tokens * k.s.dim;
        float *score = floats(&pool, tokens), *y = floats(&pool, n), *dx = floats(&pool, n),
              *dlogits = floats(&pool, tokens);
        k.weight.n = tokens; /* the first of them are the logits */
        memcpy(score, k.weight.f, tokens * sizeof *score);
        moe_gate_forward(num, y, score, k.x.f, tokens, k.s.dim);
        naive_gate(&k);
        check_close("y", y, k.y, n, 2e-6);
        moe_gate_backward_x(num, dx, dlogits, k.c.f, score, k.x.f, tokens, k.s.dim);
        check_grad("x", naive_gate, &k, k.x, dx);
        check_grad("logits", naive_gate, &k, k.weight, dlogits);
        pool_done(&pool);
    }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_grouping),
        cmocka_unit_test(test_weighted_gather),
        cmocka_unit_test(test_threads_same_bits),
        cmocka_unit_test(test_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
