/* SPDX-License-Identifier: MIT
 *
 * Plans that move parameters from rank to rank: saving, loading, restoring. */
#include "tests/unit/engine/pipe/plan_text.h"

static void test_save_and_load(void **state)
{
    (void)state;
    /* Layers 0 and 1 (units 1 and 2) on stage 0, none on stage 1, layer 2 (unit 3) and the head
     * (unit 4) on stage 2. */
    /* Unit 0 travels in two pieces, unit 2 in none. */
    struct plan_request req = {.program = PROGRAM_SAVE,
                               .ranks = 3,
                               .first = (size_t[]){0, 2, 2, 3},
                               .pieces = (size_t[]){0, 2, 3, 3, 4, 5}};
    struct plan *plan = compile(&req);
    assert_rank(plan, 0, "0 put 0; 0 put 1; 0 put 2; 0 put 3 <parameters@1.3; 0 put 4 <parameters@1.4");
    assert_rank(plan, 1, "1 put 3 <parameters@2.3 >parameters@0.3; 1 put 4 <parameters@2.4 >parameters@0.4");
    assert_rank(plan, 2, "2 put 3 >parameters@1.3; 2 put 4 >parameters@1.4");
    plan_free(plan);
    req.program = PROGRAM_LOAD;
    plan = compile(&req);
    assert_rank(plan, 0, "0 put 0; 0 put 1; 0 put 2; 0 put 3 >parameters@1.3; 0 put 4 >parameters@1.4");
    assert_rank(plan, 2, "2 put 3 <parameters@1.3; 2 put 4 <parameters@1.4");
    assert_int_equal(plan->rank[2].slots, 0);
    assert_int_equal(plan->rank[0].credits, 1);
    plan_free(plan);
    req.tied = true;
    plan = compile(&req);
    assert_rank(
        plan, 0,
        "0 put 0; 0 put 1 >tied weight@2.0; 0 put 2; 0 put 3 >parameters@1.3; 0 put 4 >parameters@1.4");
    assert_rank(plan, 2, "2 put 3 <tied weight@0.0 <parameters@1.3; 2 put 4 <parameters@1.4");
    plan_free(plan);
}

static void test_restore(void **state)
{
    (void)state;
    /* Units 0 and 1 belong to stage 0, 2 to stage 1, 3 and 4 to stage 2, 5 and 6 to stage 3. */
    struct plan_request req = {.program = PROGRAM_RESTORE,
                               .ranks = 4,
                               .first = (size_t[]){0, 1, 2, 4, 5},
                               .pieces = (size_t[]){0, 1, 2, 3, 4, 5, 6, 7},
                               .held_by = (uint32_t[]){1, 0, 0, 2, 0, 3, 0}};
    struct plan *plan = compile(&req);
    /* One hop down, none, one up; two hops either way go up; from rank 0 to 3 one hop goes down. */
    assert_rank(plan, 0,
                "0 put 0 <parameters@1.0; 0 put 1; 0 put 2 >parameters@1.2; 0 put 4 >parameters@1.4; "
                "0 put 6 >parameters@3.6");
    assert_rank(plan, 1,
                "1 put 0 >parameters@0.0; 1 put 2 <parameters@0.2; 1 put 4 <parameters@0.4 >parameters@2.4");
    assert_rank(plan, 2, "2 put 3; 2 put 4 <parameters@1.4");
    assert_rank(plan, 3, "3 put 5; 3 put 6 <parameters@0.6");
    plan_free(plan);
    /* A tied embedding that the head's own rank held goes back to it once it is whole. */
    req.tied = true;
    req.held_by = (uint32_t[]){3, 0, 1, 2, 2, 3, 3};
    plan = compile(&req);
    assert_rank(plan, 0, "0 put 0 <parameters@3.0 >tied weight@3.0; 0 put 1");
    assert_rank(plan, 3, "3 put 0 >parameters@0.0; 3 put 5 <tied weight@0.0; 3 put 6");
    plan_free(plan);
}

/* From wherever units come, no rank waits for ever. */
static void test_restore_from_anywhere(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 5; ranks++)
        for (uint32_t turn = 0; turn < 64; turn++) {
            size_t first[6], pieces[11];
            uint32_t held_by[10];
            for (size_t r = 0; r <= ranks; r++)
                first[r] = r * 8 / ranks;
            for (size_t u = 0; u <= 10; u++)
                pieces[u] = u * (1 + turn % 3);
            for (uint32_t u = 0; u < 10; u++)
                held_by[u] = (turn * 2654435761u + u * 40503u + turn * u) % ranks;
            plan_free(compile(&(struct plan_request){.program = PROGRAM_RESTORE,
                                                     .ranks = ranks,
                                                     .first = first,
                                                     .pieces = pieces,
                                                     .held_by = held_by,
                                                     .tied = turn % 2}));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_restore_from_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
