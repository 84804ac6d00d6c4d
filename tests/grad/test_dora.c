/* SPDX-License-Identifier: MIT
 *
 * DoRA against a twin in f64: outputs, the gradients of input, factors and magnitudes, with the
 * norm of each row held fixed, as the paper has it; and rows that have one adapter each. */
#include "grad.h"

#include "layer/dora.h"

struct shape {
    size_t tokens, in, out, rank;
    float dropout;
    bool bias;
};

static const struct shape shapes[] = {{1, 1, 1, 1, 0, true},       {7, 13, 5, 3, 0.3f, false},
                                      {65, 64, 24, 8, 0, true},    {130, 70, 333, 4, 0.5f, true},
                                      {65, 31, 64, 2, 0, false},   {3, 300, 9, 4, 0.1f, false},
                                      {200, 64, 257, 16, 0, true}, {130, 257, 40, 1, 0.1f, true}};

struct ctx {
    const struct shape *s;
    struct linear lin;
    struct lora *lora;
    struct twin x, w, bias, a, b, m, c;
    double *norm, *y;
};

static double naive(const void *ctx)
{
    const struct ctx *n = ctx;
    const struct shape *s = n->s;
    for (size_t t = 0; t < s->tokens; t++) {
        double low[16] = {0};
        for (size_t r = 0; r < s->rank; r++)
            for (size_t i = 0; i < s->in; i++)
                low[r] += (double)rng_dropout(n->lora->drop, t * s->in + i, s->dropout) *
                          n->x.d[t * s->in + i] * n->a.d[r * s->in + i];
        for (size_t o = 0; o < s->out; o++) {
            const double both = inner(n->x.d + t * s->in, n->w.d + o * s->in, s->in) +
                                (double)n->lora->scale * inner(low, n->b.d + o * s->rank, s->rank);
            n->y[t * s->out + o] = n->m.d[o] / n->norm[o] * both + (s->bias ? n->bias.d[o] : 0);
        }
    }
    return inner(n->y, n->c.d, n->c.n);
}

static double norm_of(const struct ctx *x, size_t o)
{
    double sum = 0;
    for (size_t i = 0; i < x->s->in; i++) {
        double v = x->w.d[o * x->s->in + i];
        for (size_t r = 0; r < x->s->rank; r++)
            v += (double)x->lora->scale * x->b.d[o * x->s->rank + r] * x->a.d[r * x->s->in + i];
        sum += v * v;
    }
    return sqrt(sum);
}

static struct ctx setup(struct num *num, struct pool *pool, const struct shape *s)
{
    struct ctx x = {.s = s,
                    .x = twin_random(pool, "x", s->tokens * s->in, 0, 1),
                    .w = twin_random(pool, "w", s->out * s->in, 0, 0.2f),
                    .bias = twin_random(pool, "bias", s->out, 0, 1),
                    .a = twin_random(pool, "a", s->rank * s->in, 0, 0.2f),
                    .b = twin_random(pool, "b", s->out * s->rank, 0, 0.5f),
                    .m = twin_random(pool, "m", s->out, 1, 0.5f),
                    .c = twin_random(pool, "c", s->tokens * s->out, 0, 1),
                    .norm = pool_get(pool, s->out * sizeof(double)),
                    .y = pool_get(pool, s->tokens * s->out * sizeof(double)),
                    .lora = pool_get(pool, sizeof *x.lora)};
    *x.lora = (struct lora){.a = x.a.f,
                            .b = x.b.f,
                            .rank = s->rank,
                            .scale = 1.5f,
                            .dropout = s->dropout,
                            .drop = rng_for(SEED, "dropout/test"),
                            .m = x.m.f,
                            .inv = floats(pool, s->out),
                            .gain = floats(pool, s->out)};
    x.lin = (struct linear){.w = {.data = x.w.f, .dtype = DTYPE_F32, .rows = s->out, .cols = s->in},
                            .bias = s->bias ? x.bias.f : NULL,
                            .lora = x.lora};
    for (size_t o = 0; o < s->out; o++)
        x.norm[o] = norm_of(&x, o);
    float *norm = floats(pool, s->out);
    dora_norms(num, norm, &x.lin);
    check_close("norms", norm, x.norm, s->out, 1e-6);
    dora_gains(x.lora->inv, x.lora->gain, norm, x.m.f, s->out);
    return x;
}

static void test_twin(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        struct pool pool = {0};
        struct ctx x = setup(num, &pool, s);
        const size_t kept = s->tokens * (s->rank + s->out);
        float *y = floats(&pool, x.c.n), *xa = floats(&pool, kept), *dyb = floats(&pool, kept),
              *dx = floats(&pool, x.x.n), *alone = floats(&pool, kept);
        const struct lora_grads g = {floats(&pool, x.a.n), floats(&pool, x.b.n), floats(&pool, x.m.n)};
        linear_forward(num, y, xa, x.x.f, &x.lin, s->tokens);
        naive(&x);
        check_close("y", y, x.y, x.c.n, 2e-6);
        linear_backward_x(num, dx, dyb, x.c.f, &x.lin, s->tokens, false);
        check_grad("x", naive, &x, x.x, dx);
        lora_backward_w(num, g, x.c.f, dyb, xa, x.x.f, &x.lin, s->tokens);
        check_grad("a", naive, &x, x.a, g.a);
        check_grad("b", naive, &x, x.b, g.b);
        check_grad("m", naive, &x, x.m, g.m);
        lora_backward_dyb(num, alone, x.c.f, &x.lin, s->tokens);
        assert_memory_equal(alone, dyb, kept * sizeof *alone);
        pool_done(&pool);
    }
    num_free(num);
}

/* What begins with the norms as its magnitudes computes what the weights and factors do. */
static void test_begins_with_gains_of_one(void **state)
{
    (void)state;
    struct num *num = unit(2);
    struct pool pool = {0};
    struct ctx x = setup(num, &pool, &shapes[2]);
    float *norm = floats(&pool, x.s->out);
    dora_norms(num, norm, &x.lin);
    dora_gains(x.lora->inv, x.lora->gain, norm, norm, x.s->out);
    for (size_t o = 0; o < x.s->out; o++)
        assert_true(x.lora->gain[o] == 1);
    pool_done(&pool);
    num_free(num);
}

/* Rows of one call with DoRA, LoRA or neither: each as in a call of its own. */
static void test_rows_of_several(void **state)
{
    (void)state;
    enum { ROWS = 7 };
    static const uint32_t set[ROWS] = {0, 0, 1, LORA_NONE, 1, 1, 0};
    struct num *num = unit(2);
    struct pool pool = {0};
    const struct shape shape = {ROWS, 70, 33, 4, 0, true};
    struct ctx x = setup(num, &pool, &shape);
    struct lora both[2] = {*x.lora, *x.lora};
    both[1].m = NULL;
    struct linear lin = x.lin;
    lin.lora = both;
    lin.apart = 1;
    float *y = floats(&pool, x.c.n), *want = floats(&pool, x.c.n), *xa = floats(&pool, ROWS * (4 + 33));
    num_set_invariant(num, true);
    linear_forward_each(num, &(struct linear_use){y, xa, x.x.f, &lin, ROWS, set}, 1);
    for (size_t t = 0; t < ROWS; t++) {
        struct linear one = lin;
        one.lora = set[t] == LORA_NONE ? NULL : &both[set[t]];
        linear_forward(num, want + t * 33, xa, x.x.f + t * 70, &one, 1);
    }
    assert_memory_equal(y, want, x.c.n * sizeof *y);
    pool_done(&pool);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin),
                                       cmocka_unit_test(test_begins_with_gains_of_one),
                                       cmocka_unit_test(test_rows_of_several)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
