/* SPDX-License-Identifier: MIT
 *
 * Linear layers, LoRA with and without dropout, bias, accumulation. */
#include "grad.h"

#include "layer/layer.h"

struct shape {
    size_t tokens, in, out, rank; /* rank 0 = no LoRA */
    float dropout;
    bool bias;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1, 0, true},        {7, 13, 5, 3, 0.3f, false},    {65, 64, 24, 8, 0, true},
    {130, 70, 33, 4, 0.5f, true}, {7, 24, 17, 0, 0, true},       {65, 31, 64, 0, 0, false},
    {3, 300, 9, 4, 0.1f, false},  {130, 257, 40, 1, 0.1f, true},
};

struct ctx {
    const struct shape *s;
    struct linear lin;
    struct twin x, w, bias, a, b, c;
    double *y, *xa;
};

static double naive(const void *ctx)
{
    const struct ctx *n = ctx;
    const struct shape *s = n->s;
    for (size_t t = 0; t < s->tokens; t++) {
        for (size_t r = 0; r < s->rank; r++) {
            double sum = 0;
            for (size_t i = 0; i < s->in; i++)
                sum += (double)rng_dropout(n->lin.lora->drop, t * s->in + i, s->dropout) *
                       n->x.d[t * s->in + i] * n->a.d[r * s->in + i];
            n->xa[t * s->rank + r] = sum;
        }
        for (size_t o = 0; o < s->out; o++) {
            const double base =
                inner(n->x.d + t * s->in, n->w.d + o * s->in, s->in) + (s->bias ? n->bias.d[o] : 0);
            const double low = inner(n->xa + t * s->rank, n->b.d + o * s->rank, s->rank);
            n->y[t * s->out + o] = base + (s->rank ? (double)n->lin.lora->scale * low : 0);
        }
    }
    return inner(n->y, n->c.d, n->c.n);
}

static struct ctx setup(struct pool *pool, const struct shape *s)
{
    struct ctx x = {.s = s,
                    .x = twin_random(pool, "x", s->tokens * s->in, 0, 1),
                    .w = twin_random(pool, "w", s->out * s->in, 0, 0.2f),
                    .bias = twin_random(pool, "bias", s->out, 0, 1),
                    .a = twin_random(pool, "a", s->rank * s->in, 0, 0.2f),
                    .b = twin_random(pool, "b", s->out * s->rank, 0, 0.5f),
                    .c = twin_random(pool, "c", s->tokens * s->out, 0, 1),
                    .y = pool_get(pool, s->tokens * s->out * sizeof(double)),
                    .xa = pool_get(pool, s->tokens * s->rank * sizeof(double))};
    struct lora *lora = pool_get(pool, sizeof *lora);
    *lora = (struct lora){.a = x.a.f,
                          .b = x.b.f,
                          .rank = s->rank,
                          .scale = 1.5f,
                          .dropout = s->dropout,
                          .drop = rng_for(SEED, "dropout/test")};
    x.lin = (struct linear){{.data = x.w.f, .dtype = DTYPE_F32, .rows = s->out, .cols = s->in},
                            s->bias ? x.bias.f : NULL,
                            s->rank ? lora : NULL,
                            0,
                            s->rank};
    return x;
}

static void check_lora(struct num *num, struct pool *pool, struct ctx *x, const float *dyb, const float *xa)
{
    const struct shape *s = x->s;
    float *da = floats(pool, x->a.n), *db = floats(pool, x->b.n), *alone = floats(pool, s->tokens * s->rank);
    check_close("xa", xa, x->xa, s->tokens * s->rank, 2e-6);
    lora_backward_w(num, (struct lora_grads){da, db, NULL}, x->c.f, dyb, xa, x->x.f, &x->lin, s->tokens);
    check_grad("a", naive, x, x->a, da);
    check_grad("b", naive, x, x->b, db);
    lora_backward_dyb(num, alone, x->c.f, &x->lin, s->tokens);
    assert_memory_equal(alone, dyb, s->tokens * s->rank * sizeof *alone);
}

static void test_twin(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        struct pool pool = {0};
        struct ctx x = setup(&pool, s);
        float *y = floats(&pool, x.c.n), *xa = floats(&pool, s->tokens * s->rank), *dx = floats(&pool, x.x.n);
        float *dyb = floats(&pool, s->tokens * s->rank), *dw = floats(&pool, x.w.n),
              *dbias = floats(&pool, s->out);
        linear_forward(num, y, xa, x.x.f, &x.lin, s->tokens);
        naive(&x);
        check_close("y", y, x.y, x.c.n, 2e-6);
        linear_backward_x(num, dx, dyb, x.c.f, &x.lin, s->tokens, false);
        check_grad("x", naive, &x, x.x, dx);
        linear_backward_w(num, dw, dbias, x.c.f, x.x.f, s->tokens, s->in, s->out);
        check_grad("w", naive, &x, x.w, dw);
        if (s->bias)
            check_grad("bias", naive, &x, x.bias, dbias);
        if (s->rank)
            check_lora(num, &pool, &x, dyb, xa);
        linear_backward_x(num, dx, dyb, x.c.f, &x.lin, s->tokens, true);
        for (size_t j = 0; j < x.x.n; j++) /* twice the gradient: q, k and v share an input */
            x.x.f[j] = dx[j] / 2;
        check_grad("x", naive, &x, x.x, x.x.f);
        pool_done(&pool);
    }
    num_free(num);
}

/* Distance of two vectors, of the length of the second. */
static double apart(const float *a, const float *b, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(off / all);
}

/* What a linear gives, forward and back. */
struct results {
    float *y, *xa, *dx, *dyb, *da, *db;
};

static struct results results_of(struct num *num, struct pool *pool, const struct ctx *x)
{
    const struct shape *s = x->s;
    const struct results r = {floats(pool, x->c.n), floats(pool, s->tokens * s->rank),
                              floats(pool, x->x.n), floats(pool, s->tokens * s->rank),
                              floats(pool, x->a.n), floats(pool, x->b.n)};
    linear_forward(num, r.y, r.xa, x->x.f, &x->lin, s->tokens);
    linear_backward_x(num, r.dx, r.dyb, x->c.f, &x->lin, s->tokens, false);
    lora_backward_w(num, (struct lora_grads){.a = r.da, .b = r.db}, x->c.f, r.dyb, r.xa, x->x.f, &x->lin,
                    s->tokens);
    return r;
}

/* In bf16 and in bytes the products with the weight are off by what rounding two factors makes: of
 * bf16 2⁻⁹ each at most, of bytes the 127th of a block's largest, some three times what is usual,
 * and √12 less on average. LoRA's own products and gradients have the bits of f32. */
static void test_few_bits(void **state)
{
    (void)state;
    static const struct shape wide[] = {{130, 700, 330, 4, 0, true}, {65, 96, 1100, 8, 0.3f, false}};
    static const double most[NUM_COMPUTES] = {[NUM_BF16] = 4e-3, [NUM_BYTES] = 1.8e-2};
    struct num *num = unit(2);
    const struct rng noise = rng_for(SEED, "round/test");
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const struct shape *s = &wide[i];
        struct pool pool = {0};
        const struct ctx x = setup(&pool, s);
        num_set_compute(num, NUM_F32);
        const struct results f32 = results_of(num, &pool, &x);
        num_set_noise(num, noise.key);
        for (int compute = NUM_BF16; compute <= NUM_BYTES; compute++) {
            num_set_compute(num, (enum num_compute)compute);
            const struct results low = results_of(num, &pool, &x);
            const double y = apart(low.y, f32.y, x.c.n), dx = apart(low.dx, f32.dx, x.x.n);
            if (!(y > 0 && y < most[compute] && dx > 0 && dx < most[compute]))
                fail_msg("%s: y is off by %g, dx by %g", num_compute_name((enum num_compute)compute), y, dx);
            assert_memory_equal(low.xa, f32.xa, s->tokens * s->rank * sizeof(float));
            assert_memory_equal(low.dyb, f32.dyb, s->tokens * s->rank * sizeof(float));
            assert_memory_equal(low.da, f32.da, x.a.n * sizeof(float));
            assert_memory_equal(low.db, f32.db, x.b.n * sizeof(float));
        }
        pool_done(&pool);
    }
    num_free(num);
}

/* A frozen weight in bf16 gives what its f32 copy gives: exactly with few rows, to rounding with
 * many. */
static void test_stored_weight(void **state)
{
    (void)state;
    enum { IN = 70, OUT = 33, T = 40 };
    struct num *num = unit(2);
    struct pool pool = {0};
    struct twin x = twin_random(&pool, "x", T * IN, 0, 1), w = twin_random(&pool, "w", OUT * IN, 0, 1);
    uint16_t *half = pool_get(&pool, OUT * IN * sizeof *half);
    for (size_t i = 0; i < OUT * IN; i++) {
        uint32_t bits;
        memcpy(&bits, &w.f[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(&w.f[i], &bits, sizeof bits);
    }
    const struct linear full = {{.data = w.f, .dtype = DTYPE_F32, .rows = OUT, .cols = IN}, NULL, NULL, 0, 0},
                        stored = {
                            {.data = half, .dtype = DTYPE_BF16, .rows = OUT, .cols = IN}, NULL, NULL, 0, 0};
    float *a = floats(&pool, T * IN), *b = floats(&pool, T * IN);
    static const size_t tokens[] = {1, 5, 12, 13, T};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        linear_forward(num, a, NULL, x.f, &full, tokens[i]);
        linear_forward(num, b, NULL, x.f, &stored, tokens[i]);
        for (size_t j = 0; j < tokens[i] * OUT; j++)
            assert_true(fabsf(a[j] - b[j]) <= (tokens[i] <= 12 ? 0 : 2e-5f));
        linear_backward_x(num, a, NULL, x.f, &full, tokens[i], false);
        linear_backward_x(num, b, NULL, x.f, &stored, tokens[i], false);
        for (size_t j = 0; j < tokens[i] * IN; j++)
            assert_true(fabsf(a[j] - b[j]) <= 2e-5f);
    }
    pool_done(&pool);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_few_bits),
                                       cmocka_unit_test(test_stored_weight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
