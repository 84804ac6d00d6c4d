/* SPDX-License-Identifier: MIT
 *
 * Guesses from a text: what followed the same words before, and how many of them pay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

/* A world in which `rows` rows take base + rows µs, and so many guesses are right. */
static size_t length_in(uint64_t base, size_t guessed, size_t right)
{
    struct draft_cost cost = {0};
    struct draft_luck luck = {0};
    for (size_t i = 0; i < 40; i++) {
        draft_cost_saw(&cost, 1 + i % 5, base + 100 * (1 + i % 5));
        draft_luck_saw(&luck, guessed, right);
    }
    return draft_length(&cost, &luck, 1, 16);
}

static void as_many_as_pay(void **state)
{
    struct draft_cost cost = {0};
    struct draft_luck luck = {0};
    (void)state;
    assert_true(length_in(10000, 8, 8) == 16); /* a row costs next to nothing, and all are right */
    assert_true(length_in(1000, 8, 0) == 0);   /* none is right */
    assert_true(length_in(100, 8, 4) < length_in(10000, 8, 4)); /* rows that cost more are fewer */
    assert_true(length_in(1, 8, 1) == 0);
    assert_true(draft_length(&cost, &luck, 1, 16) > 0); /* nothing is known: it is tried */
    assert_int_equal(draft_length(&cost, &luck, 1, 0), 0);
}

static void what_does_not_pay_is_tried_again(void **state)
{
    struct draft_cost cost = {0};
    struct draft_luck luck = {0};
    size_t tries = 0;
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        const size_t n = draft_length(&cost, &luck, 1, 16);
        tries += n > 0;
        draft_luck_saw(&luck, n, 0);
        draft_cost_saw(&cost, 1 + n, 1000 + 500 * n);
    }
    assert_true(tries > 10 && tries < 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_follows_again),
        cmocka_unit_test(as_many_as_pay),
        cmocka_unit_test(what_does_not_pay_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
