/* SPDX-License-Identifier: MIT
 *
 * From where each node of a ring gets a model: every ring of five nodes and fewer, with every set
 * of nodes that have it, that the hub has refused, and of cables that are there. And from where
 * nodes get one that is pushed to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/hub/model_route.h"
#include "daemon/ringd/hub/push_route.h"

enum { MOST = 5 };

static struct route_node nodes[MOST];
static struct route_step steps[MOST];
static size_t n;

/* Every ring of so many nodes, one after the other; false: there are no more. */
static bool next_ring(unsigned *number)
{
    if (*number >> (3 * n))
        return false;
    for (size_t i = 0; i < n; i++) {
        const unsigned bits = *number >> (3 * i);
        nodes[i] = (struct route_node){.has = bits & 1, .cannot = bits & 2, .joined = bits & 4};
    }
    ++*number;
    model_route(nodes, n, steps);
    return true;
}

static bool are_joined(size_t a, size_t b)
{
    return ((a + 1) % n == b && nodes[a].joined) || ((b + 1) % n == a && nodes[b].joined);
}

/* Nodes that cables lead to from i on. */
static unsigned reach(size_t i)
{
    unsigned set = 1U << i, before = 0;
    while (set != before) {
        before = set;
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++)
                if (set >> a & 1 && a != b && are_joined(a, b))
                    set |= 1U << b;
    }
    return set;
}

static bool has_one(unsigned set)
{
    for (size_t i = 0; i < n; i++)
        if (set >> i & 1 && nodes[i].has)
            return true;
    return false;
}

/* Every way from source to source ends at a node that has it. */
static bool ends(size_t i, size_t steps_left)
{
    if (nodes[i].has)
        return true;
    bool all = steps[i].way == ROUTE_TAKES && steps[i].nfrom && steps_left;
    for (size_t k = 0; all && k < steps[i].nfrom; k++)
        all = are_joined(i, steps[i].from[k]) && ends(steps[i].from[k], steps_left - 1);
    return all;
}

static void who_is_joined_to_one_that_has_it_takes_it(void **state)
{
    (void)state;
    for (n = 1; n <= MOST; n++)
        for (unsigned number = 0; next_ring(&number);)
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(steps[i].way == ROUTE_HAS, nodes[i].has);
                if (!nodes[i].has && has_one(reach(i)))
                    assert_true(ends(i, n));
            }
}

static bool takes_from(size_t i, size_t from)
{
    for (size_t k = 0; k < steps[i].nfrom; k++)
        if (steps[i].way == ROUTE_TAKES && steps[i].from[k] == from)
            return true;
    return false;
}

static void nothing_crosses_a_cable_in_both_directions(void **state)
{
    (void)state;
    for (n = 2; n <= MOST; n++)
        for (unsigned number = 0; next_ring(&number);)
            for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < steps[i].nfrom; k++) {
                    assert_false(takes_from(i, steps[i].from[k]) && takes_from(steps[i].from[k], i));
                    assert_false(k && steps[i].from[0] == steps[i].from[1]);
                }
}

static void one_node_pulls_for_all_that_are_joined(void **state)
{
    (void)state;
    for (n = 1; n <= MOST; n++)
        for (unsigned number = 0; next_ring(&number);)
            for (size_t i = 0; i < n; i++) {
                const unsigned set = reach(i);
                size_t pullers = 0, able = 0, size = 0;
                if (has_one(set))
                    continue;
                for (size_t k = 0; k < n; k++)
                    if (set >> k & 1) {
                        size++;
                        able += !nodes[k].cannot;
                        pullers += steps[k].way == ROUTE_PULLS;
                    }
                assert_int_equal(pullers, able ? 1 : size);
                if (steps[i].way == ROUTE_PULLS)
                    assert_int_equal(nodes[i].cannot, !able);
                else
                    assert_int_equal(steps[steps[i].from[0]].way, ROUTE_PULLS);
            }
}

/* Opposite the only one that has it, half comes over each side. */
static void a_ring_is_used_in_both_directions(void **state)
{
    (void)state;
    n = 4;
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct route_node){.has = !i, .joined = true};
    model_route(nodes, n, steps);
    assert_int_equal(steps[1].nfrom, 1);
    assert_int_equal(steps[1].from[0], 0);
    assert_int_equal(steps[3].nfrom, 1);
    assert_int_equal(steps[3].from[0], 0);
    assert_int_equal(steps[2].nfrom, 2);
    assert_true(takes_from(2, 1) && takes_from(2, 3));
}

/* --- pushes ----------------------------------------------------------------------------------- */

/* Of four nodes, each a digit of `parts`: h has it, t takes it, - passes it on. The ring's last
 * cable is there, or not. */
static void push(const char *parts, bool is_ring, struct push_step ret[4])
{
    bool joined[16] = {false};
    enum push_part part[4];
    for (size_t i = 0; i < 4; i++) {
        const size_t next = (i + 1) % 4;
        if (is_ring || i < 3)
            joined[i * 4 + next] = joined[next * 4 + i] = true;
        part[i] = parts[i] == 'h' ? PUSH_HAS : parts[i] == 't' ? PUSH_TAKES : PUSH_PASSES;
    }
    push_route(joined, 4, part, ret);
}

static void assert_from(const struct push_step *step, size_t count, size_t first, size_t second)
{
    assert_int_equal(step->n, count);
    if (count)
        assert_int_equal(step->from[0], first);
    if (count > 1)
        assert_int_equal(step->from[1], second);
}

static void a_chain_passes_on_what_is_pushed(void **state)
{
    struct push_step to[4];
    (void)state;
    push("httt", false, to);
    assert_from(&to[0], 0, 0, 0);
    assert_from(&to[1], 1, 0, 0);
    assert_from(&to[2], 1, 1, 0);
    assert_from(&to[3], 1, 2, 0);
    push("ht-t", false, to); /* through one that keeps nothing */
    assert_from(&to[2], 0, 0, 0);
    assert_from(&to[3], 1, 1, 0);
    push("thth", false, to); /* from the nearest of two */
    assert_from(&to[0], 1, 1, 0);
    assert_from(&to[2], 2, 1, 3);
}

static void a_ring_pushes_in_both_directions(void **state)
{
    struct push_step to[4];
    (void)state;
    push("httt", true, to);
    assert_from(&to[1], 1, 0, 0);
    assert_from(&to[3], 1, 0, 0);
    assert_from(&to[2], 2, 1, 3);
    push("h-t-", true, to);
    assert_from(&to[2], 1, 0, 0);
}

/* One that lies in the other direction is nearer, and not on the way. */
static void it_comes_by_the_shortest_way(void **state)
{
    struct push_step to[7];
    bool joined[49] = {false};
    const enum push_part part[7] = {[0] = PUSH_HAS, [3] = PUSH_TAKES, [5] = PUSH_TAKES};
    (void)state;
    for (size_t i = 0; i < 7; i++)
        joined[i * 7 + (i + 1) % 7] = joined[(i + 1) % 7 * 7 + i] = true;
    push_route(joined, 7, part, to);
    assert_from(&to[3], 1, 0, 0);
    assert_from(&to[5], 1, 0, 0);
}

static void without_a_cable_it_comes_from_one_that_has_it(void **state)
{
    struct push_step to[4];
    static const bool none[16];
    const enum push_part part[4] = {PUSH_PASSES, PUSH_HAS, PUSH_TAKES, PUSH_TAKES};
    (void)state;
    push_route(none, 4, part, to);
    assert_from(&to[2], 1, 1, 0);
    assert_from(&to[3], 1, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_joined_to_one_that_has_it_takes_it),
        cmocka_unit_test(nothing_crosses_a_cable_in_both_directions),
        cmocka_unit_test(one_node_pulls_for_all_that_are_joined),
        cmocka_unit_test(a_ring_is_used_in_both_directions),
        cmocka_unit_test(a_chain_passes_on_what_is_pushed),
        cmocka_unit_test(a_ring_pushes_in_both_directions),
        cmocka_unit_test(it_comes_by_the_shortest_way),
        cmocka_unit_test(without_a_cable_it_comes_from_one_that_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
