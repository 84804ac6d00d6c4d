/* SPDX-License-Identifier: MIT
 *
 * From which of several nodes a stage takes its weights: the nearest ones. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

#include "daemon/ringd/hub/nearest.h"

static void expect_of(const struct members *m, const char *const *ids, size_t n, bool parts, size_t most,
                      const char *order)
{
    uint8_t found[16][16];
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(ids[i]));
    json_array_append_new(list, json_integer(3)); /* nonsense of another node */
    json_array_append_new(list, json_string("no id"));
    assert_int_equal(nearest(m, list, parts, found, most), strlen(order));
    for (size_t i = 0; order[i]; i++)
        assert_int_equal(found[i][0], order[i] - '0');
    json_decref(list);
}

static void expect(const struct members *m, const char *const *ids, size_t n, size_t most, const char *order)
{
    expect_of(m, ids, n, true, most, order);
}

#define ID(n) "0" #n "000000000000000000000000000000"
static const char *const ids[] = {ID(1), ID(4), ID(3), ID(6), ID(2), ID(9)};

static void in_a_row_it_is_the_next_one(void **state)
{
    (void)state;
    struct members *m = row_of(6, false);
    expect(m, ids, 6, 2, "23");
    expect(m, ids, 6, 8, "2346"); /* not this node, and none that is unknown */
    expect(m, ids, 2, 8, "4");
    expect(m, ids, 1, 8, "");
    members_free(m);
}

static void in_a_ring_both_neighbours_are_near(void **state)
{
    (void)state;
    struct members *m = row_of(6, true);
    expect(m, ids, 6, 2, "26");
    expect(m, ids, 3, 8, "34");
    members_free(m);
}

static void one_that_no_cable_leads_to_comes_last(void **state)
{
    (void)state;
    struct members *m = row_of(4, false);
    const struct member far = make(5, 1, 1); /* linked with nobody */
    assert_int_equal(learn(m, &far, 9), 1);
    expect(m, ids, 6, 8, "2346");
    members_free(m);
}

/* A block may be on any of them, and leave a hub but once. */
static void all_neighbours_may_have_parts(void **state)
{
    enum { MANY = 9 };
    static const char *const many[MANY] = {ID(2), ID(3), ID(4), ID(5), ID(6), ID(7), ID(8), ID(9), ID(a)};
    (void)state;
    struct members *m = alone(0);
    for (unsigned i = 1; i <= MANY; i++) {
        struct member a = make(i, 1, 1);
        link_to(members_self(m), i);
        link_to(&a, 0);
        assert_int_equal(learn(m, &a, i), 1);
    }
    expect(m, many, MANY, 16, "23456789:");
    expect(m, many, MANY, 8, "23456789");
    expect_of(m, many, MANY, false, 16, "23");
    members_free(m);
    m = row_of(10, false); /* what lies behind other nodes needs relays */
    expect(m, many, MANY, 16, "2345678");
    members_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_row_it_is_the_next_one),
        cmocka_unit_test(in_a_ring_both_neighbours_are_near),
        cmocka_unit_test(one_that_no_cable_leads_to_comes_last),
        cmocka_unit_test(all_neighbours_may_have_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
