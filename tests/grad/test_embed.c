/* SPDX-License-Identifier: MIT */
#include "grad.h"

#include "layer/layer.h"

struct ctx {
    size_t tokens, dim;
    const uint32_t *ids;
    struct twin w, c;
    double *y;
};

static double naive(const void *ctx)
{
    const struct ctx *x = ctx;
    for (size_t t = 0; t < x->tokens; t++)
        memcpy(x->y + t * x->dim, x->w.d + x->ids[t] * x->dim, x->dim * sizeof *x->y);
    return inner(x->y, x->c.d, x->c.n);
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1}, {7, 13, 5}, {130, 300, 11}}; /* tokens, dim, vocabulary */
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t tokens = shapes[i][0], dim = shapes[i][1], vocab = shapes[i][2];
        struct pool pool = {0};
        uint32_t *ids = pool_get(&pool, tokens * sizeof *ids);
        for (size_t t = 0; t < tokens; t++)
            ids[t] = (uint32_t)(t * t % vocab);
        struct ctx x = {tokens,
                        dim,
                        ids,
                        twin_random(&pool, "w", vocab * dim, 0, 1),
                        twin_random(&pool, "c", tokens * dim, 0, 1),
                        pool_get(&pool, tokens * dim * sizeof(double))};
        float *y = floats(&pool, tokens * dim), *dw = floats(&pool, vocab * dim);
        embed_forward(num, y, ids,
                      (struct mat){.data = x.w.f, .dtype = DTYPE_F32, .rows = vocab, .cols = dim}, tokens);
        naive(&x);
        check_close("y", y, x.y, tokens * dim, 0);
        embed_backward_w(num, dw, x.c.f, ids, tokens, dim);
        check_grad("w", naive, &x, x.w, dw);
        pool_done(&pool);
    }
    num_free(num);
}

/* A table in bf16 at an odd address, as a file may hold it. */
static void test_stored(void **state)
{
    (void)state;
    struct num *num = unit(1);
    const uint16_t table[6] = {0x3f80, 0xbf80, 0x4000, 0x3f00, 0x0000, 0x4049}; /* 1 −1 2 | 0.5 0 3.140625 */
    unsigned char raw[1 + sizeof table];
    memcpy(raw + 1, table, sizeof table);
    const uint32_t ids[2] = {1, 0};
    float y[6];
    embed_forward(num, y, ids, (struct mat){.data = raw + 1, .dtype = DTYPE_BF16, .rows = 2, .cols = 3}, 2);
    const float want[6] = {0.5f, 0, 3.140625f, 1, -1, 2};
    assert_memory_equal(y, want, sizeof want);
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
