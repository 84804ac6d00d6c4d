/* SPDX-License-Identifier: MIT
 *
 * Guesses from a text: what followed the same words before, and how many of them pay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <string.h>

#include "daemon/stage/serve/serve_draft.h"

enum { MOST = 8 };

static void assert_guess(const uint32_t *ids, size_t n, const uint32_t *want, size_t nwant)
{
    uint32_t got[MOST];
    assert_int_equal(draft_find(ids, n, got, nwant ? nwant : MOST), nwant);
    if (nwant)
        assert_memory_equal(got, want, nwant * sizeof *want);
}

static void what_followed_before_follows_again(void **state)
{
    static const uint32_t once[] = {1, 2, 3, 4, 5, 9, 2, 3}, longer[] = {1, 2, 3, 7, 8, 2, 3, 6, 1, 2, 3},
                          last[] = {2, 3, 7, 2, 3, 6, 2, 3}, again[] = {5, 1, 2, 1, 2},
                          fresh[] = {1, 2, 3, 2}, want_once[] = {4, 5, 9}, want_longer[] = {7, 8},
                          want_last[] = {6}, want_again[] = {1, 2, 1, 2, 1};
    (void)state;
    assert_guess(once, 8, want_once, 3);
    assert_guess(longer, 11, want_longer, 2); /* three alike say more than two nearer ones */
    assert_guess(last, 8, want_last, 1);      /* of equal places the nearest */
    assert_guess(again, 5, want_again, 5);    /* one that repeats itself goes on */
    assert_guess(fresh, 4, NULL, 0);
    assert_guess(fresh, 1, NULL, 0);
    assert_guess(fresh, 0, NULL, 0);
}

/* --- who guesses, and how many ---------------------------------------------------------------- */

/* A world in which `rows` rows take base + 100 rows µs, and a pass of the draft model pass + 10
 * rows; so many of 8 guesses were right. */
struct world_of {
    uint64_t base, pass;
    size_t text, model; /* right of 8, by kind */
};

static struct draft_known known_in(const struct world_of *w, struct draft_luck own[DRAFT_KINDS])
{
    struct draft_known known = {0};
    memset(own, 0, DRAFT_KINDS * sizeof *own);
    for (size_t i = 0; i < 40; i++) {
        draft_cost_saw(&known.cost, 1 + i % 5, w->base + 100 * (1 + i % 5));
        draft_cost_saw(&known.pass, 1 + i % 5, w->pass + 10 * (1 + i % 5));
        draft_luck_saw(&own[DRAFT_TEXT], 8, w->text);
        draft_luck_saw(&own[DRAFT_MODEL], 8, w->model);
        draft_luck_saw(&known.luck[DRAFT_TEXT], 8, w->text);
        draft_luck_saw(&known.luck[DRAFT_MODEL], 8, w->model);
    }
    return known;
}

/* Of one sequence with so many guesses from its text. behind 0: there is no draft model. */
static struct draft_case chosen_in(const struct world_of *w, size_t found, size_t behind)
{
    struct draft_luck own[DRAFT_KINDS];
    struct draft_known known = known_in(w, own);
    struct draft_case c = {.most = 16,
                           .found = found,
                           .behind = behind,
                           .left = 128,
                           .luck = {&own[DRAFT_TEXT], &own[DRAFT_MODEL]}};
    draft_choose(&known, &c, 1);
    return c;
}

static size_t length_in(uint64_t base, size_t right)
{
    return chosen_in(&(struct world_of){base, 1, right, 0}, 16, 0).length;
}

static void as_many_as_pay(void **state)
{
    struct draft_luck own[DRAFT_KINDS] = {0};
    struct draft_known known = {0};
    struct draft_case c = {.most = 16, .found = 16, .luck = {&own[0], &own[1]}};
    (void)state;
    assert_int_equal(length_in(10000, 8), 16);            /* a row costs next to nothing, and all are right */
    assert_int_equal(length_in(1000, 0), 0);              /* none is right */
    assert_true(length_in(100, 4) < length_in(10000, 4)); /* rows that cost more are fewer */
    assert_int_equal(length_in(1, 1), 0);
    draft_choose(&known, &c, 1);
    assert_true(c.length > 0); /* nothing is known: it is tried */
    c.most = 0;
    draft_choose(&known, &c, 1);
    assert_int_equal(c.length, 0);
    draft_choose(&known, NULL, 0);
}

static void assert_kind(const struct draft_case *c, enum draft_kind kind)
{
    assert_true(c->length > 0);
    assert_int_equal(c->kind, kind);
}

static void who_is_right_for_his_price(void **state)
{
    struct draft_case c;
    (void)state;
    c = chosen_in(&(struct world_of){10000, 500, 1, 8}, 16, 1); /* it is cheap, and right */
    assert_kind(&c, DRAFT_MODEL);
    c = chosen_in(&(struct world_of){10000, 500, 8, 8}, 16, 1); /* the text is as good, and free */
    assert_kind(&c, DRAFT_TEXT);
    c = chosen_in(&(struct world_of){10000, 500, 8, 8}, 0, 1); /* but there is none */
    assert_kind(&c, DRAFT_MODEL);
    c = chosen_in(&(struct world_of){10000, 12000, 0, 8}, 0, 1); /* dearer than the model itself */
    assert_int_equal(c.length, 0);
    c = chosen_in(&(struct world_of){10000, 500, 0, 0}, 0, 1); /* never right */
    assert_int_equal(c.length, 0);
    c = chosen_in(&(struct world_of){10000, 500, 0, 8}, 0, 0); /* not to be asked */
    assert_int_equal(c.length, 0);
    const size_t near = chosen_in(&(struct world_of){10000, 3000, 0, 6}, 0, 1).length;
    assert_true(near > 0 && near < 16);                              /* a pass costs a third: a few */
    c = chosen_in(&(struct world_of){10000, 3000, 0, 6}, 0, 100000); /* and more than that to read */
    assert_int_equal(c.length, 0);
}

/* What is too dear for one sequence may pay for many. */
static void passes_are_shared(void **state)
{
    enum { N = 8 };
    const struct world_of w = {10000, 7000, 0, 5};
    struct draft_luck own[N][DRAFT_KINDS];
    struct draft_known known = {0};
    struct draft_case c[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        known = known_in(&w, own[i]);
        c[i] = (struct draft_case){.most = 3, .behind = 1, .left = 128, .luck = {&own[i][0], &own[i][1]}};
    }
    draft_choose(&known, c, 1);
    const size_t alone = c[0].length;
    draft_choose(&known, c, N);
    for (size_t i = 0; i < N; i++)
        assert_true(c[i].length >= alone);
    draft_luck_saw(&own[3][DRAFT_MODEL], 8, 0);
    for (size_t i = 0; i < 200; i++) /* of one answer it is never right: that one guesses nothing */
        draft_luck_saw(&own[3][DRAFT_MODEL], 8, 0);
    draft_choose(&known, c, N);
    assert_int_equal(c[3].length, 0);
}

/* Tries of a kind that is never right, in 1000 microbatches. */
static size_t tries_of(enum draft_kind kind, size_t behind)
{
    struct draft_known known = {0};
    struct draft_luck own[DRAFT_KINDS] = {0};
    size_t tries = 0;
    for (size_t i = 0; i < 1000; i++) {
        struct draft_case c = {.most = 16,
                               .found = kind == DRAFT_TEXT ? 16 : 0,
                               .behind = kind == DRAFT_MODEL ? behind : 0,
                               .left = 128,
                               .luck = {&own[0], &own[1]}};
        draft_choose(&known, &c, 1);
        assert_true(!c.length || c.kind == kind);
        tries += c.length > 0;
        draft_luck_saw(&own[kind], c.length, 0);
        draft_luck_saw(&known.luck[kind], c.length, 0);
        draft_cost_saw(&known.cost, 1 + c.length, 1000 + 500 * c.length);
        for (size_t k = 0; k < c.length && kind == DRAFT_MODEL; k++)
            draft_cost_saw(&known.pass, 1 + k % 2, 300);
    }
    return tries;
}

static void what_does_not_pay_is_tried_again(void **state)
{
    (void)state;
    assert_in_range(tries_of(DRAFT_TEXT, 0), 10, 40);
    assert_in_range(tries_of(DRAFT_MODEL, 1), 10, 60);
    assert_in_range(tries_of(DRAFT_MODEL, 40), 1, 20); /* the more it must read first, the less */
    assert_in_range(tries_of(DRAFT_MODEL, 4000), 0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_follows_again), cmocka_unit_test(as_many_as_pay),
        cmocka_unit_test(who_is_right_for_his_price),         cmocka_unit_test(passes_are_shared),
        cmocka_unit_test(what_does_not_pay_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
