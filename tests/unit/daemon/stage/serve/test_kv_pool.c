/* SPDX-License-Identifier: MIT
 *
 * Blocks of keys and values: sequences that begin alike share them, what nobody holds is kept until
 * its block is needed, the oldest first; and a long run of draws against what must always hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/serve/kept_states.h"
#include "daemon/stage/serve/kv_pool.h"
#include "engine/model/stage.h"

enum { B = STAGE_KV_BLOCK, BLOCKS = 8, TEXT = 6 * B };

static struct kv_pool *pool_of(size_t blocks)
{
    struct kv_pool *p = kv_pool_new(blocks, 7);
    assert_non_null(p);
    return p;
}

static void fill(uint32_t *ids, size_t n, uint32_t first)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = first + (uint32_t)i;
}

/* A sequence of n tokens that is computed; how many positions were there. */
static int64_t computed(struct kv_pool *p, struct kv_table *t, const uint32_t *ids, size_t n)
{
    const int64_t shared = kv_pool_share(p, t, ids, n);
    assert_int_equal(kv_pool_grow(p, t, n), 0);
    kv_pool_note(p, t, ids, n);
    return shared;
}

static void texts_that_begin_alike_share_full_blocks(void **state)
{
    uint32_t ids[TEXT], other[TEXT];
    struct kv_table a = {0}, b = {0}, c = {0};
    struct kv_pool *p = pool_of(BLOCKS);
    (void)state;
    fill(ids, TEXT, 0);
    memcpy(other, ids, sizeof other);
    other[B + 3] = 999;
    assert_int_equal(computed(p, &a, ids, 2 * B + 5), 0);
    assert_int_equal(kv_pool_used(p), 3);
    assert_int_equal(computed(p, &b, ids, 2 * B + 9), 2 * B);
    assert_memory_equal(a.blocks, b.blocks, 2 * sizeof *a.blocks);
    assert_int_not_equal(a.blocks[2], b.blocks[2]); /* a block that is not full is its sequence's own */
    assert_int_equal(computed(p, &c, other, 2 * B + 9), B);
    assert_int_equal(kv_pool_used(p), 6);
    kv_pool_drop(p, &a);
    kv_pool_drop(p, &b);
    kv_pool_drop(p, &c);
    assert_int_equal(kv_pool_left(p), BLOCKS);
    kv_pool_free(p);
}

/* What another adapter has computed of the same text is of no use. */
static void only_tables_of_one_root_share(void **state)
{
    uint32_t ids[TEXT];
    struct kv_table a = {.root = 1}, b = {.root = 2}, c = {.root = UINT32_MAX}, again = {.root = 1};
    struct kv_pool *p = pool_of(2 * BLOCKS);
    (void)state;
    fill(ids, TEXT, 0);
    assert_int_equal(computed(p, &a, ids, 2 * B + 5), 0);
    assert_int_equal(computed(p, &b, ids, 2 * B + 5), 0);
    assert_int_equal(computed(p, &c, ids, 2 * B + 5), 0);
    kv_pool_drop(p, &a);
    assert_int_equal(computed(p, &again, ids, 2 * B + 5), 2 * B);
    assert_int_equal(computed(p, &a, ids, 2 * B + 5), 2 * B); /* its root has stayed */
    kv_pool_drop(p, &a);
    kv_pool_drop(p, &b);
    kv_pool_drop(p, &c);
    kv_pool_drop(p, &again);
    kv_pool_free(p);
}

/* The token behind a prompt follows from its last row. */
static void the_last_token_of_a_prompt_is_always_computed(void **state)
{
    uint32_t ids[TEXT];
    struct kv_table a = {0}, b = {0};
    struct kv_pool *p = pool_of(BLOCKS);
    (void)state;
    fill(ids, TEXT, 0);
    computed(p, &a, ids, 2 * B);
    assert_int_equal(kv_pool_share(p, &b, ids, 2 * B), B);
    kv_pool_drop(p, &b);
    assert_int_equal(kv_pool_share(p, &b, ids, 2 * B + 1), 2 * B);
    kv_pool_drop(p, &a);
    kv_pool_drop(p, &b);
    kv_pool_free(p);
}

static void what_was_let_go_of_longest_ago_goes_first(void **state)
{
    uint32_t old[TEXT], new[TEXT], more[TEXT];
    struct kv_table t = {0}, held = {0};
    struct kv_pool *p = pool_of(4);
    (void)state;
    fill(old, TEXT, 0);
    fill(new, TEXT, 1000);
    fill(more, TEXT, 2000);
    computed(p, &t, old, 2 * B);
    kv_pool_drop(p, &t);
    computed(p, &t, new, 2 * B);
    kv_pool_drop(p, &t);
    assert_int_equal(kv_pool_left(p), 4);
    computed(p, &held, more, B); /* takes the end of the oldest text */
    assert_int_equal(kv_pool_share(p, &t, old, 2 * B + 1), B);
    kv_pool_drop(p, &t);
    assert_int_equal(kv_pool_share(p, &t, new, 2 * B + 1), 2 * B);
    kv_pool_drop(p, &t);
    kv_pool_drop(p, &held);
    kv_pool_free(p);
}

static void a_full_pool_changes_nothing(void **state)
{
    uint32_t ids[TEXT];
    struct kv_table a = {0}, b = {0};
    struct kv_pool *p = pool_of(3);
    (void)state;
    fill(ids, TEXT, 0);
    computed(p, &a, ids, 2 * B);
    assert_int_equal(kv_pool_grow(p, &b, B), 0);
    assert_int_equal(kv_pool_grow(p, &b, B + 1), -ENOSPC);
    assert_int_equal(b.n, 1);
    kv_pool_drop(p, &a);
    assert_int_equal(kv_pool_grow(p, &b, 3 * B), 0);
    assert_int_equal(kv_pool_left(p), 0);
    kv_pool_drop(p, &b);
    kv_pool_free(p);
}

/* Knuth's MMIX: the same in every run. */
static size_t draw_below(uint64_t *seed, size_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(*seed >> 33) % n;
}

/* Draws: texts of few beginnings. A block that is shared must have been computed from the same
 * tokens; the model of it is a list of what each block was last noted for. */
enum { SEQS = 6, POOL = 24, DRAWS = 20000 };

struct drawn {
    struct kv_table table;
    uint32_t ids[TEXT];
    size_t n;
};

static void assert_holds(const uint32_t (*is)[TEXT], const struct drawn *d)
{
    for (size_t i = 0; i < d->table.known; i++)
        assert_memory_equal(is[d->table.blocks[i]], d->ids, (i + 1) * B * sizeof *d->ids);
}

static void blocks_hold_what_their_tables_say(void **state)
{
    static struct drawn drawn[SEQS];
    static uint32_t is[POOL][TEXT]; /* the tokens up to the end of each block, as it was last noted */
    struct kv_pool *p = pool_of(POOL);
    uint64_t seed = 3, shared = 0;
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        struct drawn *d = &drawn[draw_below(&seed, SEQS)];
        if (d->n)
            kv_pool_drop(p, &d->table);
        d->n = 1 + draw_below(&seed, TEXT - 1);
        for (size_t k = 0; k < d->n; k++)
            d->ids[k] = (uint32_t)draw_below(&seed, k % B ? 1 : 3);
        const int64_t had = kv_pool_share(p, &d->table, d->ids, d->n);
        assert_holds((const uint32_t(*)[TEXT])is, d);
        shared += (uint64_t)had;
        if (kv_pool_grow(p, &d->table, d->n)) {
            kv_pool_drop(p, &d->table);
            d->n = 0;
            continue;
        }
        for (size_t b = d->table.known; b < d->table.n; b++)
            memcpy(is[d->table.blocks[b]], d->ids, sizeof d->ids);
        kv_pool_note(p, &d->table, d->ids, d->n);
        for (size_t k = 0; k < SEQS; k++)
            assert_holds((const uint32_t(*)[TEXT])is, &drawn[k]);
    }
    assert_true(shared > DRAWS); /* or nothing was tested */
    for (size_t k = 0; k < SEQS; k++)
        kv_pool_drop(p, &drawn[k].table);
    assert_int_equal(kv_pool_left(p), POOL);
    kv_pool_free(p);
}

static void the_state_that_nobody_needs_gives_way(void **state)
{
    struct kept_states *k = kept_states_new(2), *none = kept_states_new(0);
    (void)state;
    assert_int_equal(kept_states_take(none, 5, 0), 0);
    const uint32_t a = kept_states_take(k, 10, 0), b = kept_states_take(k, 11, 0);
    assert_true(a && b && a != b);
    assert_int_equal(kept_states_take(k, 10, 0), 0); /* it is there, and was needed now */
    assert_int_equal(kept_states_take(k, 12, 0), b);
    kept_states_hold(k, a);
    assert_int_equal(kept_states_take(k, 13, 0), b);
    assert_int_equal(kept_states_take(k, 14, 13), b);
    kept_states_hold(k, b);
    assert_int_equal(kept_states_take(k, 15, 14), 0);
    kept_states_release(k, a);
    assert_int_equal(kept_states_find(k, 10), a);
    assert_int_equal(kept_states_take(k, 15, 14), a);
    assert_int_equal(kept_states_find(k, 10), 0);
    kept_states_free(k);
    kept_states_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_begin_alike_share_full_blocks),
        cmocka_unit_test(only_tables_of_one_root_share),
        cmocka_unit_test(the_last_token_of_a_prompt_is_always_computed),
        cmocka_unit_test(what_was_let_go_of_longest_ago_goes_first),
        cmocka_unit_test(a_full_pool_changes_nothing),
        cmocka_unit_test(the_state_that_nobody_needs_gives_way),
        cmocka_unit_test(blocks_hold_what_their_tables_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
