/* SPDX-License-Identifier: MIT
 *
 * Attention against a naive f64 twin, differences, the cache, and other thread counts. */
#include "grad.h"

#include "layer/layer.h"

struct shape {
    struct attn_dims dims;
    size_t seqs;
    uint32_t start[5];
};

/* Below, at and far above the scores. */
static const float sinks[8] = {0.5f, -1, 3, -20, 9, 0, 1, 2};

static const struct shape shapes[] = {
    {{1, 1, 8, 0.35f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 1}},
    {{2, 2, 24, 0.2f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 2, {0, 7, 8}},
    {{8, 2, 64, 0.125f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 65}},
    {{4, 4, 8, 0.35f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 3, {0, 65, 66, 130}},
    {{4, 1, 24, 0.2f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 2, {0, 7, 137}},
    {{3, 3, 64, 0.125f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 2, {0, 130, 200}},
    {{6, 2, 9, 0.3f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 4, {0, 0, 33, 33, 99}},
    {{4, 4, 24, 0.2f, 12, 0, 0, 0, 0, 0, NULL, NULL, 0}, 2, {0, 70, 131}}, /* values narrower than keys */
    {{4, 2, 9, 0.3f, 33, 0, 0, 0, 0, 0, NULL, NULL, 0}, 2, {0, 5, 140}},   /* and wider */
    {{2, 2, 16, 0.25f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0},
     2,
     {0, 30, 431}}, /* several tiles of queries, the last a part of one */
    {{10, 2, 16, 0.25f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0},
     1,
     {0, 90}}, /* and of groups that do not fill theirs */
    {{64, 1, 8, 0.35f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 9}}, /* the largest group */
    {{2, 1, 1024, 0.03f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0},
     1,
     {0, 70}}, /* the widest head: tiles cut down to the scratch */
    /* narrower than a tile of keys, one key, wider than the sequence; some with sinks */
    {{4, 2, 8, 0.35f, 0, 0, 0, 5, 0, 0, NULL, NULL, 0}, 3, {0, 3, 70, 300}},
    {{6, 2, 9, 0.3f, 0, 0, 0, 1, 0, 0, sinks, NULL, 0}, 2, {0, 5, 140}},
    {{2, 2, 16, 0.25f, 0, 0, 0, 70, 0, 0, sinks, NULL, 0}, 2, {0, 30, 431}},
    {{4, 1, 24, 0.2f, 12, 0, 0, 64, 0, 0, NULL, NULL, 0}, 1, {0, 333}},
    {{4, 1, 24, 0.2f, 0, 0, 0, 500, 0, 0, sinks, NULL, 0}, 1, {0, 137}},
    {{2, 1, 1024, 0.03f, 0, 0, 0, 9, 0, 0, NULL, NULL, 0}, 1, {0, 90}},
    {{8, 2, 24, 0.2f, 0, 0, 0, 0, 0, 0, sinks, NULL, 0}, 2, {0, 7, 137}},
    /* caps that hold most scores, or few; with a window as well */
    {{4, 2, 24, 0.2f, 0, 0, 0, 0, 0, 0.5f, NULL, NULL, 0}, 2, {0, 7, 137}},
    {{6, 2, 9, 0.3f, 0, 0, 0, 21, 0, 2, NULL, NULL, 0}, 2, {0, 70, 240}},
    /* where there are words, each query sees a few keys that are drawn */
    {{3, 3, 24, 0.2f, 12, 0, 0, 0, 0, 0, NULL, NULL, 3}, 3, {0, 5, 75, 220}},
    {{4, 2, 16, 0.25f, 0, 0, 0, 0, 0, 0, NULL, NULL, 4}, 1, {0, 200}},
};
enum { CHOSEN = 3 }; /* at most, of a query */

static size_t value_of(struct attn_dims a)
{
    return a.value ? a.value : a.head;
}

struct ctx {
    const struct shape *s;
    struct twin q, k, v, c, sinks;
    double *o; /* [T, heads, head] */
    double *lse;
    struct attn_dims dims; /* with what was drawn */
};

/* Does the query of token t see its sequence's key s? */
static bool sees(const struct ctx *x, size_t t, size_t s)
{
    return !x->dims.chosen || x->dims.chosen[t * x->dims.chosen_words + s / 64] >> s % 64 & 1;
}

static uint64_t *draw(struct pool *pool, const struct shape *s)
{
    uint64_t *seen = pool_get(pool, s->start[s->seqs] * s->dims.chosen_words * sizeof *seen);
    struct rng rng = rng_for(SEED, "chosen");
    for (size_t i = 0; i < s->seqs; i++)
        for (size_t t = s->start[i]; t < s->start[i + 1]; t++)
            for (size_t k = 0; k < CHOSEN; k++) {
                const size_t at = rng_below(&rng, t + 1 - s->start[i]);
                seen[t * s->dims.chosen_words + at / 64] |= UINT64_C(1) << at % 64;
            }
    return seen;
}

static void naive_query(const struct ctx *x, size_t first, size_t t, size_t h, double *score)
{
    const struct attn_dims a = x->s->dims;
    const size_t kv = h / (a.heads / a.kv_heads);
    const double *q = x->q.d + (t * a.heads + h) * a.head;
    const size_t value = value_of(a), begin = first;
    double *o = x->o + (t * a.heads + h) * value, top = -INFINITY, sum = 0;
    if (a.window && t + 1 - first > a.window)
        first = t + 1 - a.window;
    for (size_t s = first; s <= t; s++) {
        score[s] = (double)a.scale * inner(q, x->k.d + (s * a.kv_heads + kv) * a.head, a.head);
        if (a.softcap > 0)
            score[s] = (double)a.softcap * tanh(score[s] / (double)a.softcap);
        if (!sees(x, t, s - begin))
            score[s] = -INFINITY;
        top = fmax(top, score[s]);
    }
    if (a.sinks)
        top = fmax(top, x->sinks.d[h]);
    for (size_t s = first; s <= t; s++)
        sum += exp(score[s] - top);
    sum += a.sinks ? exp(x->sinks.d[h] - top) : 0;
    memset(o, 0, value * sizeof *o);
    for (size_t s = first; s <= t; s++)
        for (size_t i = 0; i < value; i++)
            o[i] += exp(score[s] - top) / sum * x->v.d[(s * a.kv_heads + kv) * value + i];
    x->lse[t * a.heads + h] = top + log(sum);
}

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    const struct shape *s = x->s;
    double *score = malloc((s->start[s->seqs] + 1) * sizeof *score);
    assert_non_null(score);
    for (size_t i = 0; i < s->seqs; i++)
        for (size_t t = s->start[i]; t < s->start[i + 1]; t++)
            for (size_t h = 0; h < s->dims.heads; h++)
                naive_query(x, s->start[i], t, h, score);
    free(score);
    return inner(x->o, x->c.d, x->c.n);
}

static struct ctx setup(struct pool *pool, const struct shape *s)
{
    const size_t tokens = s->start[s->seqs], nq = tokens * s->dims.heads * s->dims.head;
    const size_t nk = tokens * s->dims.kv_heads * s->dims.head, value = value_of(s->dims);
    const size_t nv = tokens * s->dims.kv_heads * value, no = tokens * s->dims.heads * value;
    struct twin own = twin_random(pool, "sinks", s->dims.heads, 0, 1);
    for (size_t h = 0; s->dims.sinks && h < s->dims.heads; h++)
        own.d[h] = (double)(own.f[h] = s->dims.sinks[h]);
    struct attn_dims dims = s->dims;
    dims.chosen = dims.chosen_words ? draw(pool, s) : NULL;
    return (struct ctx){.s = s,
                        .dims = dims,
                        .sinks = own,
                        .q = twin_random(pool, "q", nq, 0, 1),
                        .k = twin_random(pool, "k", nk, 0, 1),
                        .v = twin_random(pool, "v", nv, 0, 1),
                        .c = twin_random(pool, "c", no, 0, 1),
                        .o = pool_get(pool, no * sizeof(double)),
                        .lse = pool_get(pool, tokens * s->dims.heads * sizeof(double))};
}

static void check_sinks(struct num *num, const struct ctx *x, const float *o, const float *lse,
                        struct pool *pool)
{
    const size_t heads = x->s->dims.heads, tokens = x->s->start[x->s->seqs];
    float *each = floats(pool, tokens * heads), *sum = floats(pool, heads);
    attn_sinks_backward(num, each, x->c.f, o, lse, tokens, x->s->dims);
    memset(sum, 0, heads * sizeof *sum);
    for (size_t i = 0; i < tokens * heads; i++)
        sum[i % heads] += each[i];
    check_grad("sinks", naive, x, x->sinks, sum);
}

static void test_twin(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        struct pool pool = {0};
        struct ctx x = setup(&pool, s);
        const struct seqs seqs = {s->seqs, s->start};
        float *o = floats(&pool, x.c.n), *lse = floats(&pool, s->start[s->seqs] * s->dims.heads);
        attn_forward(num, o, lse, x.q.f, x.k.f, x.v.f, seqs, x.dims);
        naive(&x);
        /* Outputs average unit normals with f32 weights that are off by an exponent's rounding,
         * 1e-6. */
        check_close("o", o, x.o, x.c.n, 5e-6);
        check_close("lse", lse, x.lse, s->start[s->seqs] * s->dims.heads, 2e-6);
        float *dq = floats(&pool, x.q.n), *dk = floats(&pool, x.k.n), *dv = floats(&pool, x.v.n);
        attn_backward_x(num, dq, dk, dv, x.c.f, o, lse, x.q.f, x.k.f, x.v.f, seqs, x.dims);
        check_grad("q", naive, &x, x.q, dq);
        check_grad("k", naive, &x, x.k, dk);
        check_grad("v", naive, &x, x.v, dv);
        if (s->dims.sinks)
            check_sinks(num, &x, o, lse, &pool);
        pool_done(&pool);
    }
    num_free(num);
}

/* The last n positions against a cache, whatever n: the few-rows path, the tiles, and the edges
 * between them.
 */
static void test_cached(void **state)
{
    (void)state;
    static const struct shape whole[] = {
        {{8, 2, 64, 0.125f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 300}},
        {{3, 3, 24, 0.2f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 300}},
        {{4, 2, 24, 0.2f, 12, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 300}},
        {{8, 2, 24, 0.2f, 0, 0, 0, 7, 0, 0, sinks, NULL, 0}, 1, {0, 300}},
        {{4, 2, 24, 0.2f, 12, 0, 0, 70, 0, 0.5f, NULL, NULL, 0}, 1, {0, 300}}};
    static const size_t newest[] = {1, 2, 4, 5, 63, 97, 300};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        struct pool pool = {0};
        struct ctx x = setup(&pool, &whole[i]);
        const struct attn_dims dims = whole[i].dims;
        const size_t len = 300;
        float *o = floats(&pool, x.c.n);
        naive(&x);
        for (size_t j = 0; j < sizeof newest / sizeof *newest; j++) {
            const size_t at = (len - newest[j]) * dims.heads;
            attn_cached(num, o, x.q.f + at * dims.head, x.k.f, x.v.f, newest[j], len, dims);
            check_close("cached o", o, x.o + at * value_of(dims), newest[j] * dims.heads * value_of(dims),
                        5e-6);
        }
        pool_done(&pool);
    }
    num_free(num);
}

/* Scores far apart, in ascending and descending order, exercise every rescaling of the online
 * softmax. */
static void test_large_scores(void **state)
{
    (void)state;
    struct num *num = unit(1);
    struct pool pool = {0};
    static const struct shape s = {{2, 1, 8, 1.0f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}, 1, {0, 150}};
    struct ctx x = setup(&pool, &s);
    for (size_t t = 0; t < 150; t++)
        for (size_t i = 0; i < 8; i++) {
            x.k.f[t * 8 + i] *= 1 + (float)(t % 64);
            x.k.d[t * 8 + i] = (double)x.k.f[t * 8 + i];
        }
    float *o = floats(&pool, x.q.n), *lse = floats(&pool, 300);
    attn_forward(num, o, lse, x.q.f, x.k.f, x.v.f, (struct seqs){1, s.start}, s.dims);
    naive(&x);
    check_close("o", o, x.o, x.q.n, 1e-4); /* scores near 400 are themselves only good to 3e-5 */
    check_close("lse", lse, x.lse, 300, 1e-6);
    pool_done(&pool);
    num_free(num);
}

/* Threads share out tiles and heads but no sum, so any number of them gives the same bits. */
static void test_threads_same_bits(void **state)
{
    (void)state;
    const struct shape *s = &shapes[3];
    struct pool pool = {0};
    struct ctx x = setup(&pool, s);
    float *out[3][5];
    for (int i = 0; i < 3; i++) {
        struct num *num = unit(i == 0 ? 1 : i + 1);
        const struct seqs seqs = {s->seqs, s->start};
        const size_t n[5] = {x.q.n, s->start[s->seqs] * s->dims.heads, x.q.n, x.k.n, x.v.n};
        for (int j = 0; j < 5; j++)
            out[i][j] = floats(&pool, n[j]);
        attn_forward(num, out[i][0], out[i][1], x.q.f, x.k.f, x.v.f, seqs, s->dims);
        attn_backward_x(num, out[i][2], out[i][3], out[i][4], x.c.f, out[i][0], out[i][1], x.q.f, x.k.f,
                        x.v.f, seqs, s->dims);
        for (int j = 0; j < 5; j++)
            assert_memory_equal(out[0][j], out[i][j], n[j] * sizeof(float));
        num_free(num);
    }
    pool_done(&pool);
}

/* Sequences laid end to end do not see one another: the second alone gives the same bits. */
static void test_sequences_apart(void **state)
{
    (void)state;
    const struct shape *s = &shapes[5];
    struct num *num = unit(1);
    struct pool pool = {0};
    struct ctx x = setup(&pool, s);
    const uint32_t alone[2] = {0, 70};
    const size_t at = 130 * 3 * 64, n = 70 * 3 * 64;
    float *o = floats(&pool, x.q.n), *lse = floats(&pool, 600), *one = floats(&pool, n),
          *one_lse = floats(&pool, 210);
    attn_forward(num, o, lse, x.q.f, x.k.f, x.v.f, (struct seqs){2, s->start}, s->dims);
    attn_forward(num, one, one_lse, x.q.f + at, x.k.f + at, x.v.f + at, (struct seqs){1, alone}, s->dims);
    assert_memory_equal(one, o + at, n * sizeof(float));
    assert_memory_equal(one_lse, lse + 130 * 3, 210 * sizeof(float));
    pool_done(&pool);
    num_free(num);
}

/* Where all keys are chosen, there are the bits of attention without a choice. */
static void test_all_chosen(void **state)
{
    (void)state;
    const struct shape *s = &shapes[3];
    struct num *num = unit(2);
    struct pool pool = {0};
    struct ctx x = setup(&pool, s);
    const size_t n[5] = {x.q.n, s->start[s->seqs] * s->dims.heads, x.q.n, x.k.n, x.v.n};
    uint64_t *all = pool_get(&pool, s->start[s->seqs] * 2 * sizeof *all);
    memset(all, 0xff, s->start[s->seqs] * 2 * sizeof *all);
    float *out[2][5];
    for (int i = 0; i < 2; i++) {
        struct attn_dims dims = s->dims;
        dims.chosen = i ? all : NULL;
        dims.chosen_words = 2;
        for (int j = 0; j < 5; j++)
            out[i][j] = floats(&pool, n[j]);
        attn_forward(num, out[i][0], out[i][1], x.q.f, x.k.f, x.v.f, (struct seqs){s->seqs, s->start}, dims);
        attn_backward_x(num, out[i][2], out[i][3], out[i][4], x.c.f, out[i][0], out[i][1], x.q.f, x.k.f,
                        x.v.f, (struct seqs){s->seqs, s->start}, dims);
        for (int j = 0; j < 5; j++)
            assert_memory_equal(out[0][j], out[i][j], n[j] * sizeof(float));
    }
    pool_done(&pool);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_threads_same_bits),
        cmocka_unit_test(test_sequences_apart),
        cmocka_unit_test(test_all_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
