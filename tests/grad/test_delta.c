/* SPDX-License-Identifier: MIT
 *
 * The gated delta rule, its convolution, norms and gates against naive f64 twins, differences,
 * token by token, and other thread counts. */
#include "grad.h"

#include "layer/delta.h"

struct shape {
    struct delta_dims d;
    size_t seqs;
    uint32_t start[5];
};

static const struct shape shapes[] = {
    {{1, 1, 8, 8, 4}, 1, {0, 1}},
    {{2, 4, 16, 12, 4}, 3, {0, 5, 6, 70}},      /* a chunk, and one behind it */
    {{1, 3, 24, 16, 4}, 2, {0, 64, 192}},       /* whole chunks */
    {{2, 2, 9, 33, 2}, 4, {0, 0, 33, 33, 230}}, /* odd widths, sequences of nothing, several chunks */
    {{1, 2, 128, 128, 4}, 1, {0, 81}},          /* as released */
    {{1, 1, 256, 256, 8}, 1, {0, 67}},          /* the widest */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct ctx {
    const struct shape *s;
    struct twin x, w;              /* of the convolution, [T, width] and [width, taps], */
    struct twin qkv, g, beta;      /* of the rule, */
    struct twin a, b, a_log, bias; /* and of the gates */
    struct twin c;                 /* what the outputs are multiplied by, [T, width] */
    double *out, *more;            /* [T, width] */
};

static size_t tokens_of(const struct shape *s)
{
    return s->start[s->seqs];
}

static size_t row_of(const struct ctx *x, size_t t)
{
    size_t i = 0;
    while (x->s->start[i + 1] <= t)
        i++;
    return x->s->start[i];
}

static struct ctx setup(struct pool *pool, const struct shape *s)
{
    const size_t width = delta_width(s->d), n = tokens_of(s), gates = n * s->d.value_heads;
    struct ctx x = {.s = s,
                    .x = twin_random(pool, "x", n * width, 0, 1),
                    .w = twin_random(pool, "w", width * s->d.taps, 0, 1),
                    .qkv = twin_random(pool, "qkv", n * width, 0, 1 / sqrtf((float)s->d.key)),
                    .g = twin_random(pool, "g", gates, 0, 1),
                    .beta = twin_random(pool, "beta", gates, 0, 1),
                    .a = twin_random(pool, "a", gates, 0, 3),
                    .b = twin_random(pool, "b", gates, 0, 2),
                    .a_log = twin_random(pool, "a_log", s->d.value_heads, 0, 1),
                    .bias = twin_random(pool, "bias", s->d.value_heads, 0, 1),
                    .c = twin_random(pool, "c", n * width, 0, 1),
                    .out = pool_get(pool, n * width * sizeof(double)),
                    .more = pool_get(pool, n * width * sizeof(double))};
    for (size_t i = 0; i < gates; i++) { /* some states are forgotten at once, some stay */
        x.g.d[i] = (double)(x.g.f[i] = -x.g.f[i] * x.g.f[i] * (i % 7 ? 0.1f : 3));
        x.beta.d[i] = (double)(x.beta.f[i] = 1 / (1 + expf(-x.beta.f[i])));
    }
    return x;
}

/* --- twins ------------------------------------------------------------------------------------ */

static double naive_rule(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct delta_dims d = x->s->d;
    const size_t width = delta_width(d), n = tokens_of(x->s), wide = d.value_heads * d.value;
    double *s = malloc(d.key * d.value * sizeof *s), *u = malloc(d.value * sizeof *u);
    assert_non_null(s);
    assert_non_null(u);
    for (size_t h = 0; h < d.value_heads; h++)
        for (size_t t = 0; t < n; t++) {
            const double *q = x->qkv.d + t * width + h / (d.value_heads / d.key_heads) * d.key,
                         *k = q + d.key_heads * d.key,
                         *v = x->qkv.d + t * width + 2 * d.key_heads * d.key + h * d.value;
            const double keep = row_of(x, t) == t ? 0 : exp(x->g.d[t * d.value_heads + h]);
            for (size_t i = 0; i < d.key * d.value; i++)
                s[i] = keep > 0 ? s[i] * keep : 0;
            for (size_t j = 0; j < d.value; j++) {
                u[j] = v[j];
                for (size_t i = 0; i < d.key; i++)
                    u[j] -= s[i * d.value + j] * k[i];
                u[j] *= x->beta.d[t * d.value_heads + h];
            }
            for (size_t j = 0; j < d.value; j++) {
                double *o = x->out + t * wide + h * d.value + j;
                *o = 0;
                for (size_t i = 0; i < d.key; i++) {
                    s[i * d.value + j] += k[i] * u[j];
                    *o += s[i * d.value + j] * q[i];
                }
            }
        }
    free(s);
    free(u);
    return inner(x->out, x->c.d, n * wide);
}

static double naive_conv(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct delta_dims d = x->s->d;
    const size_t width = delta_width(d), n = tokens_of(x->s);
    for (size_t t = 0; t < n; t++)
        for (size_t c = 0; c < width; c++) {
            double *y = &x->out[t * width + c];
            *y = 0;
            for (size_t j = 0; j < d.taps; j++)
                if (t + j >= row_of(x, t) + d.taps - 1)
                    *y += x->w.d[c * d.taps + j] * x->x.d[(t + j + 1 - d.taps) * width + c];
        }
    return inner(x->out, x->c.d, n * width);
}

static double naive_norm(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct delta_dims d = x->s->d;
    const size_t width = delta_width(d), n = tokens_of(x->s);
    memcpy(x->out, x->x.d, n * width * sizeof *x->out);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < 2 * d.key_heads; h++) {
            double *y = x->out + t * width + h * d.key;
            const double by =
                1 / sqrt(inner(y, y, d.key) + 1e-6) / (h < d.key_heads ? sqrt((double)d.key) : 1);
            for (size_t i = 0; i < d.key; i++)
                y[i] *= by;
        }
    return inner(x->out, x->c.d, n * width);
}

/* c has numbers for both. */
static double naive_gates(const void *ctx)
{
    const struct ctx *x = ctx;
    const size_t heads = x->s->d.value_heads, n = tokens_of(x->s) * heads;
    for (size_t i = 0; i < n; i++) {
        x->out[i] = -exp(x->a_log.d[i % heads]) * log1p(exp(x->a.d[i] + x->bias.d[i % heads]));
        x->more[i] = 1 / (1 + exp(-x->b.d[i]));
    }
    return inner(x->out, x->c.d, n) + inner(x->more, x->c.d + n, n);
}

/* --- against them ----------------------------------------------------------------------------- */

static void each_shape(void (*check)(struct num *num, const struct ctx *x, struct pool *pool))
{
    struct num *num = unit(2);
    for (size_t i = 0; i < SHAPES; i++) {
        struct pool pool = {0};
        const struct ctx x = setup(&pool, &shapes[i]);
        check(num, &x, &pool);
        pool_done(&pool);
    }
    num_free(num);
}

static struct seqs seqs_of(const struct shape *s)
{
    return (struct seqs){s->seqs, s->start};
}

static void check_rule(struct num *num, const struct ctx *x, struct pool *pool)
{
    const struct shape *s = x->s;
    const size_t n = tokens_of(s) * s->d.value_heads;
    float *o = floats(pool, n * s->d.value),
          *states = floats(pool, delta_saved(tokens_of(s)) * delta_state_floats(s->d)),
          *dqkv = floats(pool, x->qkv.n), *dg = floats(pool, n), *dbeta = floats(pool, n);
    delta_forward(num, o, states, x->qkv.f, x->g.f, x->beta.f, seqs_of(s), s->d);
    naive_rule(x);
    check_close("o", o, x->out, n * s->d.value, 1e-5);
    delta_backward_x(num, dqkv, dg, dbeta, x->c.f, states, x->qkv.f, x->g.f, x->beta.f, seqs_of(s), s->d);
    check_grad("qkv", naive_rule, x, x->qkv, dqkv);
    check_grad("beta", naive_rule, x, x->beta, dbeta);
    check_grad("g", naive_rule, x, x->g, dg);
}

static void check_conv(struct num *num, const struct ctx *x, struct pool *pool)
{
    const struct shape *s = x->s;
    float *y = floats(pool, x->x.n), *dx = floats(pool, x->x.n), *dw = floats(pool, x->w.n);
    delta_conv_forward(num, y, x->x.f, x->w.f, seqs_of(s), s->d);
    naive_conv(x);
    check_close("y", y, x->out, x->x.n, 2e-6);
    delta_conv_backward_x(num, dx, x->c.f, x->w.f, seqs_of(s), s->d);
    delta_conv_backward_w(num, dw, x->c.f, x->x.f, seqs_of(s), s->d);
    check_grad("x", naive_conv, x, x->x, dx);
    check_grad("w", naive_conv, x, x->w, dw);
}

static void check_norm(struct num *num, const struct ctx *x, struct pool *pool)
{
    const struct shape *s = x->s;
    float *y = floats(pool, x->x.n), *d = floats(pool, x->x.n),
          *scale = floats(pool, tokens_of(s) * 2 * s->d.key_heads);
    memcpy(y, x->x.f, x->x.n * sizeof *y);
    memcpy(d, x->c.f, x->x.n * sizeof *d);
    delta_norm_forward(num, y, scale, tokens_of(s), s->d);
    naive_norm(x);
    check_close("y", y, x->out, x->x.n, 2e-6);
    delta_norm_backward_x(num, d, y, scale, tokens_of(s), s->d);
    check_grad("x", naive_norm, x, x->x, d);
}

static void check_gates(struct num *num, const struct ctx *x, struct pool *pool)
{
    (void)num;
    const struct shape *s = x->s;
    const size_t heads = s->d.value_heads, n = tokens_of(s) * heads;
    float *g = floats(pool, n), *beta = floats(pool, n), *da = floats(pool, n), *db = floats(pool, n),
          *each = floats(pool, n), *log = floats(pool, heads), *bias = floats(pool, heads);
    delta_gates_forward(g, beta, x->a.f, x->b.f, x->a_log.f, x->bias.f, tokens_of(s), s->d);
    naive_gates(x);
    check_close("g", g, x->out, n, 2e-6);
    check_close("beta", beta, x->more, n, 2e-6);
    delta_gates_backward_x(da, db, each, x->c.f, x->c.f + n, x->a.f, x->b.f, x->a_log.f, x->bias.f,
                           tokens_of(s), s->d);
    for (size_t i = 0; i < n; i++) {
        log[i % heads] += each[i];
        bias[i % heads] += da[i];
    }
    check_grad("a", naive_gates, x, x->a, da);
    check_grad("b", naive_gates, x, x->b, db);
    check_grad("a_log", naive_gates, x, x->a_log, log);
    check_grad("bias", naive_gates, x, x->bias, bias);
}

static void rule(void **state)
{
    (void)state;
    each_shape(check_rule);
}

static void convolution(void **state)
{
    (void)state;
    each_shape(check_conv);
}

static void norms(void **state)
{
    (void)state;
    each_shape(check_norm);
}

static void gates(void **state)
{
    (void)state;
    each_shape(check_gates);
}

/* --- token by token --------------------------------------------------------------------------- */

/* All sequences in calls of a few rows: of each its next `step`. */
static void run_steps(struct num *num, const struct ctx *x, struct pool *pool, size_t step, float *y,
                      float *o)
{
    const struct shape *s = x->s;
    float *state = floats(pool, s->seqs * delta_state_floats(s->d)),
          *tail = floats(pool, s->seqs * delta_tail_floats(s->d));
    for (size_t i = 0; i < s->seqs * delta_state_floats(s->d); i++)
        state[i] = NAN; /* of who had the place before */
    for (size_t i = 0; i < s->seqs * delta_tail_floats(s->d); i++)
        tail[i] = NAN;
    for (size_t done = 0, left = 1; left; done += step) {
        struct delta_run runs[4];
        size_t n = 0;
        left = 0;
        for (size_t i = 0; i < s->seqs; i++) {
            const size_t at = s->start[i] + done, end = s->start[i + 1];
            if (at >= end)
                continue;
            runs[n++] =
                (struct delta_run){state + i * delta_state_floats(s->d), tail + i * delta_tail_floats(s->d),
                                   at, end - at < step ? end - at : step, !done};
            left = 1;
        }
        delta_conv_steps(num, y, x->x.f, x->w.f, runs, n, s->d);
        delta_steps(num, o, x->qkv.f, x->g.f, x->beta.f, runs, n, s->d);
    }
}

static void check_steps(struct num *num, const struct ctx *x, struct pool *pool)
{
    const size_t n = tokens_of(x->s) * x->s->d.value_heads * x->s->d.value;
    float *y = floats(pool, x->x.n), *o = floats(pool, n), *other_y = floats(pool, x->x.n),
          *other = floats(pool, n);
    run_steps(num, x, pool, 1, y, o);
    naive_rule(x);
    check_close("o", o, x->out, n, 1e-5);
    naive_conv(x);
    check_close("y", y, x->out, x->x.n, 2e-6);
    for (size_t step = 2; step <= 64; step += 31) {
        run_steps(num, x, pool, step, other_y, other);
        assert_memory_equal(other_y, y, x->x.n * sizeof *y);
        assert_memory_equal(other, o, n * sizeof *o);
    }
}

static void steps_in_any_cut(void **state)
{
    (void)state;
    each_shape(check_steps);
}

/* --- bits ------------------------------------------------------------------------------------- */

struct outcome {
    float *o, *states, *dqkv, *dg, *dbeta;
};

static struct outcome run(struct num *num, const struct ctx *x, struct pool *pool, size_t first, size_t n)
{
    const struct delta_dims d = x->s->d;
    const uint32_t *start = x->s->start + first;
    uint32_t own[5];
    for (size_t i = 0; i <= n; i++)
        own[i] = start[i] - start[0];
    const size_t t = own[n], at = start[0], width = delta_width(d), heads = d.value_heads;
    struct outcome r = {floats(pool, t * heads * d.value),
                        floats(pool, delta_saved(t) * delta_state_floats(d)), floats(pool, t * width),
                        floats(pool, t * heads), floats(pool, t * heads)};
    const struct seqs seqs = {n, own};
    const float *qkv = x->qkv.f + at * width, *g = x->g.f + at * heads, *beta = x->beta.f + at * heads;
    delta_forward(num, r.o, r.states, qkv, g, beta, seqs, d);
    delta_backward_x(num, r.dqkv, r.dg, r.dbeta, x->c.f + at * heads * d.value, r.states, qkv, g, beta, seqs,
                     d);
    return r;
}

/* Threads share out heads but no sum; and sequences laid end to end do not see one another. */
static void threads_and_neighbours_leave_the_bits(void **state)
{
    (void)state;
    const struct shape *s = &shapes[3];
    struct pool pool = {0};
    const struct ctx x = setup(&pool, s);
    const size_t from = s->start[3], n = tokens_of(s), heads = s->d.value_heads, width = delta_width(s->d);
    struct num *one = unit(1);
    const struct outcome whole = run(one, &x, &pool, 0, s->seqs), alone = run(one, &x, &pool, 3, 1);
    assert_memory_equal(alone.o, whole.o + from * heads * s->d.value,
                        (n - from) * heads * s->d.value * sizeof(float));
    assert_memory_equal(alone.dqkv, whole.dqkv + from * width, (n - from) * width * sizeof(float));
    assert_memory_equal(alone.dg, whole.dg + from * heads, (n - from) * heads * sizeof(float));
    num_free(one);
    for (int threads = 2; threads <= 3; threads++) {
        struct num *num = unit(threads);
        const struct outcome other = run(num, &x, &pool, 0, s->seqs);
        assert_memory_equal(other.o, whole.o, n * heads * s->d.value * sizeof(float));
        assert_memory_equal(other.dqkv, whole.dqkv, n * width * sizeof(float));
        assert_memory_equal(other.dg, whole.dg, n * heads * sizeof(float));
        assert_memory_equal(other.dbeta, whole.dbeta, n * heads * sizeof(float));
        num_free(num);
    }
    pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule),
        cmocka_unit_test(convolution),
        cmocka_unit_test(norms),
        cmocka_unit_test(gates),
        cmocka_unit_test(steps_in_any_cut),
        cmocka_unit_test(threads_and_neighbours_leave_the_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
