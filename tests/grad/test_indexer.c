/* SPDX-License-Identifier: MIT
 *
 * The indexer of sparse attention: its norm and its choice against naive f64 twins, keys that score
 * alike, keys in blocks anywhere in a pool, and the same choice with any number of threads. */
#include "grad.h"

#include "layer/indexer.h"

enum { KEYS = 700, BLOCKS = KEYS / PAGED_BLOCK + 1, ROWS = 7 };

struct shape {
    struct indexer_dims dims;
    size_t alike; /* each key is that of the position before it modulo this; 0: all differ */
};
static const struct shape shapes[] = {
    {{1, 2, 1}, 0}, {{3, 6, 64}, 0}, {{70, 24, 21}, 0}, {{16, 128, 300}, 0}, {{4, 8, 50}, 9}, {{2, 4, 90}, 1},
};
/* Positions of the queries: the first that sees too many keys, and further ones. */
static const size_t places[ROWS] = {0, 1, 15, 16, 63, 300, KEYS - 1};

struct scored {
    double score;
    uint32_t at;
};

/* The best first; of equals the lowest position. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : x->at < y->at ? -1 : 1;
}

struct case_of {
    struct twin q, w, k;
    uint32_t *blocks, *chosen;
    float *scores;
    struct paged_pool pool;
    struct paged_span rows[ROWS];
};

static struct case_of setup(struct pool *pool, const struct shape *s)
{
    const struct indexer_dims d = s->dims;
    struct case_of c = {.q = twin_random(pool, "q", ROWS * d.heads * d.head, 0, 1),
                        .w = twin_random(pool, "w", ROWS * d.heads, 0, 1),
                        .k = twin_random(pool, "k", KEYS * d.head, 0, 1),
                        .blocks = pool_get(pool, BLOCKS * sizeof(uint32_t)),
                        .chosen = pool_get(pool, ROWS * d.top * sizeof(uint32_t)),
                        .scores = floats(pool, ROWS * KEYS)};
    float *data = floats(pool, BLOCKS * PAGED_BLOCK * d.head);
    struct rng rng = rng_for(SEED, "blocks");
    rng_permutation(&rng, c.blocks, BLOCKS);
    for (size_t t = 0; t < KEYS; t++) {
        const size_t from = s->alike ? t % s->alike : t;
        memcpy(c.k.d + t * d.head, c.k.d + from * d.head, d.head * sizeof(double));
        memcpy(data + (c.blocks[t / PAGED_BLOCK] * PAGED_BLOCK + t % PAGED_BLOCK) * d.head,
               c.k.f + from * d.head, d.head * sizeof *data);
    }
    c.pool = (struct paged_pool){.data = data, .type = KV_F32, .kv_heads = 1, .width = d.head};
    for (size_t r = 0; r < ROWS; r++)
        c.rows[r] = (struct paged_span){
            .blocks = c.blocks, .row = r, .at = places[r] < d.top ? d.top : places[r], .n = 1};
    return c;
}

static void naive(const struct case_of *c, struct indexer_dims d, size_t r, uint32_t *ret)
{
    struct scored all[KEYS];
    const size_t n = c->rows[r].at + 1;
    for (size_t t = 0; t < n; t++) {
        all[t] = (struct scored){0, (uint32_t)t};
        for (size_t h = 0; h < d.heads; h++)
            all[t].score += c->w.d[r * d.heads + h] *
                            fmax(0, inner(c->q.d + (r * d.heads + h) * d.head, c->k.d + t * d.head, d.head));
    }
    qsort(all, n, sizeof *all, by_score);
    bool *is_chosen = calloc(n, sizeof *is_chosen);
    assert_non_null(is_chosen);
    for (size_t i = 0; i < d.top; i++)
        is_chosen[all[i].at] = true;
    for (size_t t = 0, m = 0; t < n; t++)
        if (is_chosen[t])
            ret[m++] = (uint32_t)t;
    free(is_chosen);
}

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct indexer_dims d = shapes[i].dims;
        struct pool pool = {0};
        struct case_of c = setup(&pool, &shapes[i]);
        uint32_t *want = pool_get(&pool, d.top * sizeof *want);
        for (int threads = 1; threads <= 3; threads++) {
            struct num *num = unit(threads);
            memset(c.chosen, 0xff, ROWS * d.top * sizeof *c.chosen);
            indexer_choose(num, c.chosen, c.q.f, c.w.f, &c.pool, c.rows, ROWS, d, c.scores, KEYS);
            for (size_t r = 0; r < ROWS; r++) {
                naive(&c, d, r, want);
                if (memcmp(c.chosen + r * d.top, want, d.top * sizeof *want) != 0)
                    fail_msg("shape %zu, %d threads: the query at %zu chose other keys", i, threads,
                             c.rows[r].at);
            }
            num_free(num);
        }
        pool_done(&pool);
    }
}

static void test_norm(void **state)
{
    (void)state;
    enum { NORMS = 5, DIM = 33, STRIDE = 40 };
    struct num *num = unit(2);
    struct pool pool = {0};
    struct twin x = twin_random(&pool, "x", NORMS * STRIDE, 3, 2), w = twin_random(&pool, "w", DIM, 1, 1),
                b = twin_random(&pool, "b", DIM, 0, 1);
    float *y = floats(&pool, NORMS * DIM);
    double *want = pool_get(&pool, NORMS * DIM * sizeof *want);
    for (size_t r = 0; r < NORMS; r++) {
        const double *from = x.d + r * STRIDE;
        double mean = 0, var = 0;
        for (size_t i = 0; i < DIM; i++)
            mean += from[i] / DIM;
        for (size_t i = 0; i < DIM; i++)
            var += (from[i] - mean) * (from[i] - mean) / DIM;
        for (size_t i = 0; i < DIM; i++)
            want[r * DIM + i] = (from[i] - mean) / sqrt(var + 1e-6) * w.d[i] + b.d[i];
    }
    layernorm_forward(num, y, x.f, w.f, b.f, (struct rmsnorm_dims){NORMS, DIM, 1e-6f, STRIDE});
    check_close("y", y, want, NORMS * DIM, 1e-6);
    pool_done(&pool);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
