/* SPDX-License-Identifier: MIT
 *
 * A job that waits for memory is planned again when that may help, and not before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/ringd/job/plan/shortage.h"

enum { GIB = 1 << 30, WAITS = 9, HOLDS = 4 };

/* A node of which job 4 of its own holds 2 GiB, and what job 9 lacks there. */
struct world {
    struct member node;
    struct members_ring ring;
    struct job_nodes offered;
    struct shortage *shortage; /* owned */
};

static void begin(struct world *w)
{
    *w = (struct world){
        .node = {.id = {1},
                 .name = "a",
                 .memory_available = GIB,
                 .nstages = 1,
                 .stages = {{.job = HOLDS, .head = {1}, .bytes = 2 * (uint64_t)GIB, .weights = 7}}},
        .ring = {.n = 1},
        .offered = {.n = 1, .id = {{1}}, .name = {"a"}, .available = {GIB}}};
    w->ring.at[0] = &w->node;
    w->shortage = shortage_new(&w->offered, &w->ring, w->node.id, WAITS);
    assert_true(shortage_note(w->shortage, w->node.id, GIB));
    assert_true(shortage_stays(w->shortage, &w->ring));
}

static void it_waits_until_a_holder_is_gone(void **state)
{
    (void)state;
    struct world w;
    char text[200];
    begin(&w);
    shortage_describe(w.shortage, text, sizeof text);
    assert_string_equal(text, "node a lacks 1.0 GiB of memory, which job 4 holds");
    w.node.nstages = 0;
    assert_false(shortage_stays(w.shortage, &w.ring));
    shortage_free(w.shortage);
}

/* It may be the same model: then the job needs less. */
static void another_job_that_maps_weights_may_help(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    w.node.nstages = 2;
    w.node.stages[1] = (struct member_stage){.job = HOLDS + 1, .head = {1}, .bytes = 1}; /* it maps nothing */
    assert_true(shortage_stays(w.shortage, &w.ring));
    w.node.stages[1].weights = 8;
    assert_false(shortage_stays(w.shortage, &w.ring));
    shortage_free(w.shortage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_waits_until_a_holder_is_gone),
        cmocka_unit_test(another_job_that_maps_weights_may_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
