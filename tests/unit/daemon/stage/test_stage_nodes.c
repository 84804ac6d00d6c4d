/* SPDX-License-Identifier: MIT
 *
 * Which nodes a schedule of fewer ranks takes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/stage/stage_nodes.h"

/* name, threads, memory */
static json_t *ring(void)
{
    return json_pack("[{s:s s:f s:i}, {s:s s:f s:i}, {s:s s:f s:i}, {s:s s:f s:i}]", "name", "a", "speed",
                     1.0, "memory", 9, "name", "b", "speed", 4.0, "memory", 2, "name", "c", "speed", 8.0,
                     "memory", 3, "name", "d", "speed", 4.0, "memory", 5);
}

static void the_best_come_first(void **state)
{
    (void)state;
    json_t *nodes = ring(), *wanted = json_pack("[s,s]", "a", "b"), *taken;
    uint32_t masks[4];
    char text[64];
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 2, NULL, 0), 3);
    assert_int_equal(masks[0], 5); /* a and c: most threads, though both hops are relayed */
    assert_int_equal(masks[1], 9); /* a and d before a and b, with more memory */
    assert_int_equal(masks[2], 3);
    assert_int_equal(stage_nodes_choose(masks, 1, nodes, 2, NULL, 0), 1);
    assert_int_equal(masks[0], 5);
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 3, NULL, 0), 3);
    assert_int_equal(masks[0], 13); /* a, c, d */
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 2, wanted, 0), 1);
    assert_int_equal(masks[0], 3);
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 3, wanted, 0), 0);
    stage_nodes_text(text, sizeof text, nodes, 13);
    assert_string_equal(text, "a, c and d");
    taken = stage_nodes_take(nodes, 10);
    assert_int_equal(json_array_size(taken), 2);
    assert_ptr_equal(json_array_get(taken, 1), json_array_get(nodes, 3));
    json_decref(taken);
    json_decref(wanted);
    json_decref(nodes);
}

/* c is the fastest of all until it is found to be slow. */
static void a_slow_node_is_not_the_best(void **state)
{
    (void)state;
    json_t *nodes = ring();
    uint32_t mask;
    assert_float_equal(stage_nodes_speed(nodes, 2), 8, 1e-9);
    json_object_set_new(json_array_get(nodes, 2), "slowness", json_real(4));
    assert_float_equal(stage_nodes_speed(nodes, 2), 2, 1e-9);
    assert_int_equal(stage_nodes_choose(&mask, 1, nodes, 2, NULL, 0), 1);
    assert_int_equal(mask, 9); /* a and d */
    json_decref(nodes);
}

/* a and c round alike, d updates as they do, b does not; of whom nobody knows, nothing is said. */
static void nodes_that_round_otherwise_are_apart(void **state)
{
    (void)state;
    static const char *const kernels[] = {"avx2", "base", "avx2", "neon"};
    json_t *nodes = ring();
    uint32_t masks[4];
    char text[128];
    assert_int_equal(stage_nodes_apart(nodes, false), 0);
    stage_nodes_kernels_text(text, sizeof text, nodes);
    assert_string_equal(text, "");
    for (size_t i = 0; i < 4; i++)
        json_object_set_new(json_array_get(nodes, i), "kernels", json_string(kernels[i]));
    assert_int_equal(stage_nodes_apart(nodes, false), 10);
    assert_int_equal(stage_nodes_apart(nodes, true), 2);
    stage_nodes_kernels_text(text, sizeof text, nodes);
    assert_string_equal(text, "a and c with avx2, b with base, d with neon");
    stage_nodes_kernels(text, sizeof text, nodes);
    assert_string_equal(text, "avx2+base+neon");
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 2, NULL, 2), 2); /* not a and b */
    assert_int_equal(masks[0], 5);
    assert_int_equal(masks[1], 9);
    assert_int_equal(stage_nodes_choose(masks, 4, nodes, 3, NULL, 10), 0);
    json_object_set_new(json_array_get(nodes, 3), "kernels", json_string(""));
    assert_int_equal(stage_nodes_apart(nodes, false), 2);
    json_decref(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_best_come_first),
                                       cmocka_unit_test(a_slow_node_is_not_the_best),
                                       cmocka_unit_test(nodes_that_round_otherwise_are_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
