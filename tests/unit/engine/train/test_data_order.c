/* SPDX-License-Identifier: MIT
 *
 * The packs rows go through the ring in, and the order of those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "num/rng.h"
#include "train/data.h"

enum { LONGEST = 40 };

/* Rows whose lengths, 2 to LONGEST, are drawn. */
static struct data *make_rows(size_t rows, uint64_t seed)
{
    char path[] = "/tmp/test_order.XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct rng rng = rng_for(seed, "lengths");
    struct data *data = NULL;
    struct err err = {""};
    struct data_request req = {.path = path, .split = "train", .seq_len = LONGEST, .vocab = 9, .eos = -1};
    for (size_t i = 0; i < rows; i++) {
        fputs("{\"input_ids\": [1", f);
        for (uint64_t n = 1 + rng_below(&rng, LONGEST - 1); n > 0; n--)
            fputs(",2", f);
        fputs("]}\n", f);
    }
    assert_int_equal(fclose(f), 0);
    if (data_open(&data, &req, &err))
        fail_msg("%s", err.text);
    unlink(path);
    return data;
}

static struct data_packs *make_packs(const struct data *data, size_t capacity)
{
    struct data_packs *packs = NULL;
    struct err err = {""};
    if (data_packs_new(&packs, data, capacity, &err))
        fail_msg("%s", err.text);
    return packs;
}

/* Every row once, no pack too full, and the sums right. */
static size_t check_packs(const struct data *data, const struct data_packs *packs, size_t capacity)
{
    bool *seen = calloc(data_rows(data), sizeof *seen);
    size_t rows = 0, most = 0, longest = 0;
    for (size_t i = 0; i < data_packs_count(packs); i++) {
        size_t n, tokens = 0;
        const uint32_t *at = data_packs_at(packs, i, &n);
        assert_true(n > 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(at[k] < data_rows(data) && !seen[at[k]] && (k == 0 || at[k] > at[k - 1]));
            seen[at[k]] = true;
            tokens += data_row(data, at[k]).n;
        }
        assert_true(!capacity || tokens <= capacity);
        assert_int_equal(tokens, data_packs_length(packs, i));
        most = n > most ? n : most;
        longest = tokens > longest ? tokens : longest;
        rows += n;
    }
    assert_int_equal(rows, data_rows(data));
    assert_int_equal(most, data_packs_most_rows(packs));
    assert_int_equal(longest, data_packs_longest(packs));
    free(seen);
    return most;
}

static void test_packs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct data *data = make_rows(1 + 37 * seed, seed);
        for (size_t capacity = LONGEST; capacity < 300; capacity += 64 + seed) {
            struct data_packs *packs = make_packs(data, capacity);
            check_packs(data, packs, capacity);
            /* Best fit wastes little: never more than a half, and with room for several rows a few
             * in a hundred. */
            const size_t tokens = data_counts(data).tokens, full = tokens / capacity + 1;
            assert_true(data_packs_count(packs) <= 2 * full);
            if (seed > 5 && capacity > 100)
                assert_true(data_packs_count(packs) <= full + full / 10);
            data_packs_free(packs);
        }
        struct data_packs *single = make_packs(data, 0);
        assert_int_equal(check_packs(data, single, 0), 1);
        assert_int_equal(data_packs_count(single), data_rows(data));
        data_packs_free(single);
        data_close(data);
    }
    data_packs_free(NULL);
}

static void test_too_small(void **state)
{
    (void)state;
    struct data *data = make_rows(50, 1);
    struct data_packs *packs = NULL;
    struct err err = {""};
    assert_true(data_packs_new(&packs, data, data_longest(data) - 1, &err) < 0);
    assert_non_null(strstr(err.text, "does not fit into a pack"));
    data_close(data);
}

/* --- order ------------------------------------------------------------------------------------ */

static struct data_order *make_order(const struct data_packs *packs, bool shuffle, uint64_t seed,
                                     size_t group)
{
    struct data_order *order = NULL;
    struct data_order_request req = {packs, shuffle, seed, group};
    assert_int_equal(data_order_new(&order, &req, NULL), 0);
    return order;
}

/* Every epoch has every row once, in an order of its own; what was asked before does not matter. */
static void check_order(size_t rows, size_t group)
{
    enum { EPOCHS = 4 };
    struct data *data = make_rows(rows, 3);
    struct data_packs *packs = make_packs(data, 0);
    struct data_order *order = make_order(packs, true, 5, group), *other = make_order(packs, true, 6, group);
    size_t *taken = calloc(rows * EPOCHS, sizeof *taken), differ = 0, moved = 0;
    for (size_t e = 0; e < EPOCHS; e++) {
        bool *seen = calloc(rows, sizeof *seen);
        for (size_t i = 0; i < rows; i++) {
            size_t k = e * rows + i;
            taken[k] = data_order_at(order, k);
            assert_true(taken[k] < rows && !seen[taken[k]]);
            seen[taken[k]] = true;
            differ += taken[k] != data_order_at(other, k);
            moved += e > 0 && taken[k] != taken[k - rows];
        }
        free(seen);
    }
    assert_true(differ > rows); /* another seed, another order */
    assert_true(moved > rows);  /* another epoch, another order */
    for (size_t k = rows * EPOCHS; k-- > 0;) {
        size_t jump = k * 41 % (rows * EPOCHS);
        assert_int_equal(data_order_at(order, jump), taken[jump]);
    }
    data_order_free(order);
    order = make_order(packs, true, 5, group); /* resumed in the middle */
    assert_int_equal(data_order_at(order, 3 * rows + 11), taken[3 * rows + 11]);
    data_order_free(order);
    data_order_free(other);
    data_order_free(NULL);
    data_packs_free(packs);
    data_close(data);
    free(taken);
}

static void test_order(void **state)
{
    (void)state;
    check_order(37, 0);
    check_order(37, 4);
    check_order(40, 8);
    check_order(37, 64); /* a step that takes more than there is */
}

/* How far apart lengths are within steps, summed over two epochs. */
static size_t spread(const struct data *data, const struct data_packs *packs, size_t group, size_t by)
{
    struct data_order *order = make_order(packs, true, 9, by);
    size_t sum = 0;
    for (size_t k = 0; k + group <= 2 * data_rows(data); k += group) {
        size_t least = SIZE_MAX, most = 0;
        for (size_t i = 0; i < group; i++) {
            size_t n = data_row(data, data_order_at(order, k + i)).n;
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        sum += most - least;
    }
    data_order_free(order);
    return sum;
}

static void test_group(void **state)
{
    (void)state;
    struct data *data = make_rows(1003, 7); /* so that a step lies in two epochs */
    struct data_packs *packs = make_packs(data, 0);
    size_t apart = spread(data, packs, 8, 0), together = spread(data, packs, 8, 8);
    if (10 * together > apart)
        fail_msg("lengths are %zu apart, and %zu without grouping", together, apart);
    data_packs_free(packs);
    data_close(data);
}

static void test_file_order(void **state)
{
    (void)state;
    struct data *data = make_rows(3, 1);
    struct data_packs *packs = make_packs(data, 0);
    struct data_order *order = make_order(packs, false, 5, 0);
    for (size_t k = 0; k < 10; k++)
        assert_int_equal(data_order_at(order, k), k % 3);
    data_order_free(order);
    data_packs_free(packs);
    data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packs), cmocka_unit_test(test_too_small),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_group), cmocka_unit_test(test_file_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
