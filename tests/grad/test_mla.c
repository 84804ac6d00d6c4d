/* SPDX-License-Identifier: MIT
 *
 * Latent attention: expanding and its slopes, the absorbed form against the expanded one in f64,
 * with and without LoRA, a chunk of a prompt against a cache in both forms, and the same bits with
 * any number of threads. */
#include "grad.h"

#include "layer/mla.h"

struct shape {
    struct mla_dims dims;
    size_t tokens, lora, behind; /* positions of the cache before the tokens */
};
static const struct shape shapes[] = {
    {{1, 1, 2, 1, 3}, 1, 0, 0},
    {{4, 16, 8, 12, 32}, 33, 4, 0},
    {{3, 5, 4, 7, 65}, 9, 3, 0},
    {{16, 24, 16, 33, 130}, 70, 0, 0},
};

struct ctx {
    struct shape s;
    struct twin kv, kva, ck, cv; /* the loss is ck·k + cv·v */
};

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct mla_dims d = x->s.dims;
    const size_t head = d.nope + d.rope, wide = d.nope + d.value;
    double loss = 0;
    for (size_t at = 0; at < x->s.tokens * d.heads; at++) {
        const double *kv = x->kv.d + at * wide;
        loss += inner(kv, x->ck.d + at * head, d.nope);
        loss +=
            inner(x->kva.d + at / d.heads * (d.rank + d.rope) + d.rank, x->ck.d + at * head + d.nope, d.rope);
        loss += inner(kv + d.nope, x->cv.d + at * d.value, d.value);
    }
    return loss;
}

static void test_expand(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct mla_dims d = shapes[i].dims;
        const size_t t = shapes[i].tokens, rows = t * d.heads;
        struct pool pool = {0};
        struct ctx x = {shapes[i], twin_random(&pool, "kv", rows * (d.nope + d.value), 0, 1),
                        twin_random(&pool, "kva", t * (d.rank + d.rope), 0, 1),
                        twin_random(&pool, "ck", rows * (d.nope + d.rope), 0, 1),
                        twin_random(&pool, "cv", rows * d.value, 0, 1)};
        float *k = floats(&pool, x.ck.n), *v = floats(&pool, x.cv.n);
        float *dkv = floats(&pool, x.kv.n), *dkva = floats(&pool, x.kva.n);
        mla_expand_forward(num, k, v, x.kv.f, x.kva.f, d, t);
        double loss = 0;
        for (size_t j = 0; j < x.ck.n; j++)
            loss += (double)k[j] * x.ck.d[j];
        for (size_t j = 0; j < x.cv.n; j++)
            loss += (double)v[j] * x.cv.d[j];
        assert_true(fabs(loss - naive(&x)) < 1e-9 * (1 + fabs(loss)) * (double)rows);
        mla_expand_backward_x(num, dkv, dkva, x.ck.f, x.cv.f, d, t);
        check_grad("kv", naive, &x, x.kv, dkv);
        check_grad("kva", naive, &x, x.kva, dkva); /* its latent part: no slope, zero gradient */
        pool_done(&pool);
    }
    num_free(num);
}

struct absorbed {
    struct shape s;
    struct twin q, c, latent_o, w, a, b;
    struct lora lora;
    struct linear lin;
};

static struct absorbed setup(struct pool *pool, struct shape s)
{
    const struct mla_dims d = s.dims;
    const size_t out = d.heads * (d.nope + d.value), rows = s.tokens * d.heads;
    return (struct absorbed){.s = s,
                             .q = twin_random(pool, "q", rows * (d.nope + d.rope), 0, 1),
                             .c = twin_random(pool, "c", (s.behind + s.tokens) * (d.rank + d.rope), 0, 1),
                             .latent_o = twin_random(pool, "latent", rows * d.rank, 0, 1),
                             .w = twin_random(pool, "w", out * d.rank, 0, 0.2f),
                             .a = twin_random(pool, "a", s.lora * d.rank, 0, 0.2f),
                             .b = twin_random(pool, "b", out * s.lora, 0, 0.2f)};
}

static void bind(struct absorbed *x)
{
    const struct mla_dims d = x->s.dims;
    x->lora = (struct lora){.a = x->a.f, .b = x->b.f, .rank = x->s.lora, .scale = 1.5f};
    x->lin = (struct linear){
        {.data = x->w.f, .dtype = DTYPE_F32, .rows = d.heads * (d.nope + d.value), .cols = d.rank},
        NULL,
        x->s.lora ? &x->lora : NULL,
        0,
        x->s.lora ? x->lora.rank : 0};
}

/* Row `row` of kv_b_proj with its LoRA, times x [rank]. */
static double naive_row(const struct absorbed *x, size_t row, const double *in)
{
    const size_t rank = x->s.dims.rank;
    double sum = inner(x->w.d + row * rank, in, rank);
    for (size_t r = 0; r < x->s.lora; r++)
        sum += 1.5 * x->b.d[row * x->s.lora + r] * inner(x->a.d + r * rank, in, rank);
    return sum;
}

/* latent_q·(c; key) is what the expanded query and key give. */
static void check_q(const struct absorbed *x, const float *latent_q)
{
    const struct mla_dims d = x->s.dims;
    const size_t wide = d.rank + d.rope, head = d.nope + d.rope;
    for (size_t at = 0; at < x->s.tokens * d.heads; at++) {
        const size_t h = at % d.heads;
        const double *c = x->c.d + at / d.heads * wide, *q = x->q.d + at * head;
        double want = inner(q + d.nope, c + d.rank, d.rope), got = 0, size = 0;
        for (size_t i = 0; i < d.nope; i++)
            want += q[i] * naive_row(x, h * (d.nope + d.value) + i, c);
        for (size_t i = 0; i < wide; i++) {
            got += (double)latent_q[at * wide + i] * c[i];
            size += fabs((double)latent_q[at * wide + i] * c[i]);
        }
        if (!(fabs(got - want) <= 2e-6 * (1 + size)))
            fail_msg("score of head %zu: %.9g, expected %.9g", h, got, want);
    }
}

static void test_absorbed(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct mla_dims d = shapes[i].dims;
        struct pool pool = {0};
        struct absorbed x = setup(&pool, shapes[i]);
        bind(&x);
        const size_t t = shapes[i].tokens, rows = t * d.heads;
        float *latent_q = floats(&pool, rows * (d.rank + d.rope)), *o = floats(&pool, rows * d.value);
        double *want = pool_get(&pool, rows * d.value * sizeof *want);
        mla_absorb_q(num, latent_q, x.q.f, &x.lin, NULL, d, t);
        check_q(&x, latent_q);
        mla_absorb_o(num, o, x.latent_o.f, &x.lin, NULL, d, t);
        for (size_t at = 0; at < rows; at++)
            for (size_t j = 0; j < d.value; j++)
                want[at * d.value + j] =
                    naive_row(&x, at % d.heads * (d.nope + d.value) + d.nope + j, x.latent_o.d + at * d.rank);
        check_close("o", o, want, rows * d.value, 5e-6);
        pool_done(&pool);
    }
    num_free(num);
}

/* o [tokens, heads, value] of the newest of all positions. */
static void naive_cached(double *o, const struct absorbed *x, struct pool *pool)
{
    const struct mla_dims d = x->s.dims;
    const size_t head = d.nope + d.rope, out = d.nope + d.value, len = x->s.behind + x->s.tokens;
    double *kv = pool_get(pool, len * d.heads * out * sizeof *kv), *p = pool_get(pool, len * sizeof *p);
    for (size_t i = 0; i < len * d.heads * out; i++)
        kv[i] = naive_row(x, i % (d.heads * out), x->c.d + i / (d.heads * out) * (d.rank + d.rope));
    for (size_t at = 0; at < x->s.tokens * d.heads; at++) {
        const size_t seen = x->s.behind + at / d.heads + 1, h = at % d.heads;
        double sum = 0;
        for (size_t i = 0; i < seen; i++) {
            const double *k = kv + (i * d.heads + h) * out, *q = x->q.d + at * head;
            p[i] = exp(0.125 * (inner(q, k, d.nope) +
                                inner(q + d.nope, x->c.d + i * (d.rank + d.rope) + d.rank, d.rope)));
            sum += p[i];
        }
        for (size_t i = 0; i < seen; i++)
            for (size_t j = 0; j < d.value; j++)
                o[at * d.value + j] += p[i] / sum * kv[(i * d.heads + h) * out + d.nope + j];
    }
}

static struct mla_room room_for(struct pool *pool, struct mla_dims d, size_t heads, size_t len)
{
    const size_t out = heads * (d.nope + d.value), block = len < MLA_BLOCK ? len : MLA_BLOCK;
    return (struct mla_room){.heads = heads,
                             .w = floats(pool, out * d.rank),
                             .c = floats(pool, block * d.rank),
                             .kv = floats(pool, block * out),
                             .k = floats(pool, len * heads * (d.nope + d.rope)),
                             .v = floats(pool, len * heads * d.value)};
}

/* All heads at once and fewer, in a block of positions and in more; the absorbed form beside it. */
static void test_expanded(void **state)
{
    (void)state;
    static const struct shape cases[] = {
        {{4, 16, 8, 12, 32}, 33, 4, 0},
        {{4, 16, 8, 12, 32}, 16, 4, 530},
        {{3, 5, 4, 7, 65}, 19, 0, 101},
        {{3, 5, 4, 7, 65}, 1, 3, MLA_BLOCK - 1},
    };
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mla_dims d = cases[i].dims;
        const size_t t = cases[i].tokens, len = cases[i].behind + t, rows = t * d.heads;
        struct pool pool = {0};
        struct absorbed x = setup(&pool, cases[i]);
        bind(&x);
        double *want = pool_get(&pool, rows * d.value * sizeof *want);
        float *o = floats(&pool, rows * d.value), *latent_q = floats(&pool, rows * (d.rank + d.rope)),
              *latent_o = floats(&pool, rows * d.rank);
        naive_cached(want, &x, &pool);
        for (size_t heads = 1; heads <= d.heads; heads++) {
            const struct mla_room room = room_for(&pool, d, heads, len);
            memset(o, 0, rows * d.value * sizeof *o);
            mla_expanded(num, o, x.q.f, x.c.f, &x.lin, &room, d, 0.125f, t, len);
            check_close("expanded", o, want, rows * d.value, 5e-6);
        }
        mla_absorb_q(num, latent_q, x.q.f, &x.lin, NULL, d, t);
        attn_cached(num, latent_o, latent_q, x.c.f, x.c.f, t, len,
                    (struct attn_dims){.heads = d.heads,
                                       .kv_heads = 1,
                                       .head = d.rank + d.rope,
                                       .scale = 0.125f,
                                       .value = d.rank,
                                       .v_stride = d.rank + d.rope});
        mla_absorb_o(num, o, latent_o, &x.lin, NULL, d, t);
        check_close("absorbed", o, want, rows * d.value, 5e-6);
        pool_done(&pool);
    }
    num_free(num);
}

/* DeepSeek-V2-Lite: a token alone reads latents, a chunk of a prompt expands them, however long the
 * cache is. */
static void test_form(void **state)
{
    (void)state;
    const struct mla_dims lite = {16, 128, 64, 128, 512}, plain = {8, 128, 64, 128, 64};
    assert_false(mla_is_expanded(lite, 1, 1));
    assert_false(mla_is_expanded(lite, 1, 8192));
    assert_false(mla_is_expanded(lite, 64, 8192));
    assert_true(mla_is_expanded(lite, 64, 64));
    assert_true(mla_is_expanded(lite, 512, 512));
    assert_true(mla_is_expanded(lite, 512, 1 << 20));
    assert_false(mla_is_expanded(plain, 512, 512)); /* a latent no wider than a key */
    assert_int_equal(mla_room_heads(lite, 1, 8192), 0);
    assert_int_equal(mla_room_heads(lite, 512, 512), 16);
    assert_int_equal(mla_room_heads(lite, 512, 8192), 2);
    assert_int_equal(mla_room_heads(lite, 512, 1 << 20), 1);
    assert_int_equal(mla_room_heads(plain, 512, 512), 0);
}

static void test_threads_same_bits(void **state)
{
    (void)state;
    const struct mla_dims d = shapes[1].dims;
    struct pool pool = {0};
    struct absorbed x = setup(&pool, shapes[1]);
    bind(&x);
    const size_t rows = shapes[1].tokens * d.heads;
    float *q[2], *o[2];
    for (int i = 0; i < 2; i++) {
        struct num *num = unit(i ? 3 : 1);
        q[i] = floats(&pool, rows * (d.rank + d.rope));
        o[i] = floats(&pool, rows * d.value);
        mla_absorb_q(num, q[i], x.q.f, &x.lin, NULL, d, shapes[1].tokens);
        mla_absorb_o(num, o[i], x.latent_o.f, &x.lin, NULL, d, shapes[1].tokens);
        num_free(num);
    }
    assert_memory_equal(q[0], q[1], rows * (d.rank + d.rope) * sizeof(float));
    assert_memory_equal(o[0], o[1], rows * d.value * sizeof(float));
    pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_absorbed),
        cmocka_unit_test(test_expanded),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_threads_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
