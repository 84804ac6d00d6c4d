/* SPDX-License-Identifier: MIT
 *
 * Slabs: measuring and carving walk the same list, pieces do not overlap, and sizes that do not fit
 * are refused instead of wrapped around. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "num/poison.h"
#include "num/slab.h"
#include "tests/lib/near.h"

enum { PIECES = 5 };
static const struct {
    size_t n, m, size;
} pieces[PIECES] = {{3, 5, 4}, {1, 1, 1}, {0, 7, 4}, {16, 1, 4}, {100, 3, 8}};

static void carve(struct slab *slab, char *at[PIECES])
{
    for (size_t i = 0; i < PIECES; i++)
        at[i] = slab_take(slab, pieces[i].n, pieces[i].m, pieces[i].size);
}

static void measures_and_carves_alike(void **state)
{
    struct slab slab = {0};
    struct err err;
    char *at[PIECES];
    (void)state;
    carve(&slab, at);
    size_t measured = slab.used;
    assert_int_equal(measured, 64 + 64 + 0 + 64 + 2432 + PIECES * POISON_GAP);
    for (size_t i = 0; i < PIECES; i++)
        assert_null(at[i]);
    must(slab_alloc(&slab, "the test", &err), &err);
    assert_int_equal(slab.used, 0);
    carve(&slab, at);
    assert_int_equal(slab.used, measured);
    for (size_t i = 0; i < PIECES; i++) {
        size_t bytes = pieces[i].n * pieces[i].m * pieces[i].size;
        assert_int_equal((uintptr_t)at[i] % 64, 0);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(at[i][k], 0);
        memset(at[i], (int)i + 1, bytes);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < pieces[i].n * pieces[i].m * pieces[i].size; k++)
            assert_int_equal(at[i][k], i + 1);
    slab_free(&slab);
    assert_null(slab.base);
    slab_free(&slab);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        size_t n, m, size;
    } wrap[] = {{SIZE_MAX, 2, 1}, {SIZE_MAX / 4, 4, 4}, {SIZE_MAX, 1, 1}, {SIZE_MAX - 63, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof wrap / sizeof *wrap; i++) {
        struct slab slab = {0};
        struct err err;
        slab_take(&slab, 1, 1, 64);
        assert_null(slab_take(&slab, wrap[i].n, wrap[i].m, wrap[i].size));
        assert_true(slab.overflow);
        assert_int_equal(slab.used, 64 + POISON_GAP);
        must_refuse(slab_alloc(&slab, "the activations", &err), -EOVERFLOW, &err, "the activations");
        assert_null(slab.base);
    }
}

static void what_is_joined_tells_its_overflow(void **state)
{
    struct slab first = {0}, second = {0};
    struct err err;
    (void)state;
    slab_take(&first, 1, 1, 64);
    slab_take(&second, 1, 1, 200);
    slab_join(&first, &second);
    assert_int_equal(first.used, 256 + POISON_GAP);
    assert_false(first.overflow);
    slab_take(&second, SIZE_MAX, 2, 1);
    slab_join(&first, &second);
    must_refuse(slab_alloc(&first, "the activations", &err), -EOVERFLOW, &err, "the activations");
}

static void more_than_there_is_is_refused(void **state)
{
    struct slab slab = {0};
    struct err err;
    (void)state;
    slab_take(&slab, (size_t)1 << 60, 1, 1); /* an address space has 2^47 or 2^56 bytes */
    must_refuse(slab_alloc(&slab, "the activations", &err), -ENOMEM, &err,
                "the activations needs 1099511627776 MiB, which the system refuses");
    slab_free(&slab);
}

static void nothing_is_something_too(void **state)
{
    struct slab slab = {0};
    struct err err;
    (void)state;
    must(slab_alloc(&slab, "nothing", &err), &err);
    assert_non_null(slab.base);
    assert_non_null(slab_take(&slab, 0, 5, 4)); /* not NULL, which means that one is measuring */
    slab_free(&slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_and_carves_alike),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(what_is_joined_tells_its_overflow),
        cmocka_unit_test(more_than_there_is_is_refused),
        cmocka_unit_test(nothing_is_something_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
