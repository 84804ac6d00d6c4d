/* SPDX-License-Identifier: MIT */
#include "grad.h"

#include "layer/layer.h"

struct ctx {
    size_t tokens, heads, head, width; /* of a head, `width` elements are rotated */
    enum rope_pairs pairs;
    const uint32_t *pos;
    const double *inv_freq;
    double mscale;
    struct twin x, c;
    double *y;
};

static double naive(const void *ctx)
{
    const struct ctx *r = ctx;
    const size_t half = r->width / 2;
    for (size_t t = 0; t < r->tokens * r->heads; t++) {
        memcpy(r->y + t * r->head, r->x.d + t * r->head, r->head * sizeof *r->y);
        for (size_t i = 0; i < half; i++) {
            const size_t one = t * r->head + (r->pairs == ROPE_HALVES ? i : 2 * i);
            const size_t two = t * r->head + (r->pairs == ROPE_HALVES ? i + half : 2 * i + 1);
            const double angle = r->pos[t / r->heads] * r->inv_freq[i];
            r->y[one] = r->mscale * (r->x.d[one] * cos(angle) - r->x.d[two] * sin(angle));
            r->y[two] = r->mscale * (r->x.d[two] * cos(angle) + r->x.d[one] * sin(angle));
        }
    }
    return inner(r->y, r->c.d, r->c.n);
}

static void test_twin(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 2}, {7, 3, 8}, {65, 2, 24}, {130, 4, 64}, {5, 1, 128}};
    static const size_t beside[] = {0, 3, 0, 8, 1}; /* elements of a head that are left alone */
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t tokens = shapes[i][0], heads = shapes[i][1], width = shapes[i][2],
                     head = width + beside[i], n = tokens * heads * head;
        const enum rope_pairs pairs = i % 2 ? ROPE_NEIGHBOURS : ROPE_HALVES;
        struct pool pool = {0};
        double inv_freq[64];
        for (size_t j = 0; j < width / 2; j++)
            inv_freq[j] = pow(10000, -(double)j / (double)(width / 2));
        uint32_t *pos = pool_get(&pool, tokens * sizeof *pos);
        for (size_t t = 0; t < tokens; t++)
            pos[t] = (uint32_t)(t * 37 % 500);
        struct ctx x = {tokens,
                        heads,
                        head,
                        width,
                        pairs,
                        pos,
                        inv_freq,
                        1.25,
                        twin_random(&pool, "x", n, 0, 1),
                        twin_random(&pool, "c", n, 0, 1),
                        pool_get(&pool, n * sizeof(double))};
        struct rope rope;
        struct err err;
        assert_int_equal(rope_init(&rope, inv_freq, 500, width, pairs, 1.25, &err), 0);
        float *y = floats(&pool, n), *dx = floats(&pool, n);
        memcpy(y, x.x.f, n * sizeof *y);
        rope_apply(num, y, pos, &rope, tokens, heads, head, false);
        naive(&x);
        check_close("y", y, x.y, n, 1e-6);
        memcpy(dx, x.c.f, n * sizeof *dx);
        rope_apply(num, dx, pos, &rope, tokens, heads, head, true);
        check_grad("x", naive, &x, x.x, dx);
        rope_done(&rope);
        pool_done(&pool);
    }
    num_free(num);
}

static void test_refuses_odd_head(void **state)
{
    (void)state;
    struct rope rope;
    struct err err;
    const double inv_freq[2] = {1, 0.5};
    assert_true(rope_init(&rope, inv_freq, 8, 3, ROPE_HALVES, 1, &err) < 0);
    assert_non_null(strstr(err.text, "head width 3"));
    assert_true(rope_init(&rope, inv_freq, SIZE_MAX / 4, 4, ROPE_HALVES, 1, &err) < 0);
    assert_non_null(strstr(err.text, "lower the context"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_refuses_odd_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
