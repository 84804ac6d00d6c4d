/* SPDX-License-Identifier: MIT
 *
 * How a unit's values are cut for their journey: nothing left out, nothing twice, no piece too
 * large, no factor torn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model/param_piece.h"

enum { LAYERS = 2, DIM = 2048, VOCAB = 5000 };

static const struct config config = {.family = "llama",
                                     .layers = LAYERS,
                                     .dim = DIM,
                                     .ffn = 6000,
                                     .heads = 16,
                                     .kv_heads = 16,
                                     .head = 128,
                                     .vocab = VOCAB,
                                     .dtype = DTYPE_BF16};

static struct param_pieces cut(const struct tune *tune, bool state)
{
    struct param_pieces pieces;
    struct err err = {0};
    if (param_pieces_make(&pieces, tune, family_find(config.family), &config, state, &err))
        fail_msg("%s", err.text);
    return pieces;
}

static void assert_whole(const struct param_pieces *p, const struct tune *tune, size_t values)
{
    for (size_t u = 0; u < LAYERS + 2; u++) {
        size_t at = 0;
        for (size_t i = p->first[u]; i < p->first[u + 1]; i++) {
            assert_int_equal(p->piece[i].unit, u);
            assert_int_equal(p->piece[i].at, at);
            assert_in_range(p->piece[i].n, 1, PARAM_PIECE_VALUES);
            at += p->piece[i].n;
        }
        assert_int_equal(at, values * tune_unit_elements(tune, family_find(config.family), &config, u));
    }
    assert_int_equal(p->first[LAYERS + 2], p->n);
}

static void test_full(void **state)
{
    (void)state;
    const struct tune tune = {.kind = TUNE_FULL, .end_layer = LAYERS};
    for (size_t values = 1; values <= 3; values += 2) {
        struct param_pieces p = cut(&tune, values == 3);
        assert_whole(&p, &tune, values);
        assert_int_equal(param_pieces_largest(&p), PARAM_PIECE_VALUES);
        param_pieces_done(&p);
    }
}

static void test_lora(void **state)
{
    (void)state;
    struct tune tune = {.kind = TUNE_LORA, .rank = 100, .ntargets = 1, .end_layer = 1};
    snprintf(tune.targets[0], sizeof tune.targets[0], "down_proj");
    struct param_pieces p = cut(&tune, true);
    assert_whole(&p, &tune, 3);
    /* 100·6000 and 2048·100 values, and that three times, where a piece has room for 1 Mi: A B | A
     * B | A B */
    assert_int_equal(p.n, 3);
    assert_int_equal(p.piece[1].at, 100 * 6000 + 2048 * 100);
    param_pieces_done(&p);
}

static void test_overlap(void **state)
{
    (void)state;
    const struct param_piece piece = {.unit = 1, .at = 10, .n = 20};
    const struct {
        size_t pos, n;
        struct param_piece_part want;
    } cases[] = {
        {0, 10, {0, 0, 0}}, {0, 12, {10, 2, 0}},   {12, 5, {0, 5, 2}}, {25, 50, {0, 5, 15}},
        {30, 5, {0, 0, 0}}, {0, 100, {10, 20, 0}}, {10, 0, {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct param_piece_part got = param_piece_overlap(&piece, cases[i].pos, cases[i].n);
        assert_int_equal(got.n, cases[i].want.n);
        assert_int_equal(got.first, cases[i].want.first);
        assert_int_equal(got.at, cases[i].want.at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
