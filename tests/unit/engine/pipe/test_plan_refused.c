/* SPDX-License-Identifier: MIT
 *
 * What plan_compile, the simulation and plan_check refuse, and the sentences they do it with. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/plan.h"
#include "tests/unit/engine/pipe/plan_lists.h"

/* Two ranks, two microbatches. */
static void refuse_at(uint32_t *placement, const struct sched_list *lists, int code, const char *sentence)
{
    struct sched sched = {2, 2, 2, placement, (struct sched_list[]){lists[0], lists[1]}};
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = &sched};
    struct plan *plan = NULL;
    struct err err = {0};
    assert_int_equal(plan_compile(&plan, &req, &err), code);
    assert_string_equal(err.text, sentence);
    assert_null(plan);
    struct sched_sim sim = {0};
    assert_int_equal(sched_simulate(&sim, &sched, &(struct sched_costs){.each = {1, 1, 1, 1, 0}}, &err),
                     code);
    assert_string_equal(err.text, sentence);
    assert_int_equal(plan_check(&sched, &err), code == -EDEADLK ? 0 : code);
}

static void refuse(const struct sched_list *lists, const char *sentence)
{
    refuse_at((uint32_t[]){0, 1}, lists, -EINVAL, sentence);
}

static const struct sched_list good = LIST(F(0, 0), F(0, 1), B(0, 0), B(0, 1));

static void test_missing(void **state)
{
    (void)state;
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 0))},
           "rank 1, position 2: the list ends there, but 1F1 is missing; add it");
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 0), B(1, 1))},
           "rank 1, position 3: 1B1 needs 1F1, which is missing; add it before");
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 0), F(1, 1))},
           "rank 1, position 3: the backward of 1F1 is missing; add 1B1, or 1I1 and 1W1");
    refuse((struct sched_list[]){good, LIST(F(1, 0), I(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2: 1I0 has no 1W0; add it, or use 1B0");
    refuse((struct sched_list[]){good, LIST(F(1, 0), W(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2: 1W0 needs 1I0, which is missing; add it before");
}

static void test_order(void **state)
{
    (void)state;
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 1), F(1, 1), B(1, 0))},
           "rank 1, position 2: 1B1 stands before 1F1 (position 3); exchange them");
    refuse((struct sched_list[]){good, LIST(F(1, 0), W(1, 0), I(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2: 1W0 stands before 1I0 (position 3); exchange them");
}

static void test_duplicates(void **state)
{
    (void)state;
    refuse((struct sched_list[]){good, LIST(F(1, 0), F(1, 1), F(1, 0), B(1, 0), B(1, 1))},
           "rank 1, position 3: 1F0 is a duplicate of position 1; remove one");
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 0), I(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 3: 1I0 stands beside the other form of its backward; B is I and W in one task: "
           "use either B, or I and W");
    refuse((struct sched_list[]){good, LIST(F(1, 0), I(1, 0), W(1, 0), B(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 4: 1B0 stands beside the other form of its backward; B is I and W in one task: "
           "use either B, or I and W");
}

static void test_ranges(void **state)
{
    (void)state;
    refuse((struct sched_list[]){good, LIST(F(1, 0), F(2, 0), B(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2 (2F0): stage 2 is out of range 0 to 1");
    refuse((struct sched_list[]){good, LIST(F(1, 0), F(1, 2), B(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2 (1F2): microbatch 2 is out of range 0 to 1");
    refuse((struct sched_list[]){good, LIST(F(1, 0), {(enum sched_op)9, 1, 0}, B(1, 0), F(1, 1), B(1, 1))},
           "rank 1, position 2 (1?0): unknown kind of task; use F, I, W, B or R");
    refuse((struct sched_list[]){good, LIST(F(1, 0), B(1, 0), F(0, 1), F(1, 1), B(1, 1))},
           "rank 1, position 3 (0F1): stage 0 belongs to rank 0 and cannot lie on two ranks; move the task "
           "there");
    refuse_at((uint32_t[]){0, 2}, (struct sched_list[]){good, good}, -EINVAL,
              "stage 1 is placed on rank 2, but the ranks are 0 to 1");
}

static void test_cyclic_wait(void **state)
{
    (void)state;
    refuse_at((uint32_t[]){0, 1},
              (struct sched_list[]){LIST(F(0, 0), B(0, 0), F(0, 1), B(0, 1)),
                                    LIST(F(1, 0), F(1, 1), B(1, 0), B(1, 1))},
              -EDEADLK,
              "the schedule waits in a circle: rank 0, position 2 (0B0) waits for 1B0, rank 1, position "
              "2 (1F1) waits "
              "for 0F1; reorder one of these lists");
    refuse_at((uint32_t[]){0, 1},
              (struct sched_list[]){LIST(F(0, 0), B(0, 0), F(0, 1), B(0, 1)),
                                    LIST(F(1, 0), F(1, 1), I(1, 0), W(1, 0), B(1, 1))},
              -EDEADLK,
              "the schedule waits in a circle: rank 0, position 2 (0B0) waits for 1I0, rank 1, position "
              "2 (1F1) waits "
              "for 0F1; reorder one of these lists");
}

/* Sixty ranks that all wait do not fit into one sentence: it says how many are left out. */
static void test_long_circle(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    struct err err = {0};
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 60, .microbatches = 2}, &err),
        0);
    struct sched_list *last = &sched->rank[59];
    last->tasks[1] = (struct sched_task){OP_F, 59, 1};
    last->tasks[2] = (struct sched_task){OP_B, 59, 0};
    struct sched_sim sim;
    assert_int_equal(sched_simulate(&sim, sched, &(struct sched_costs){.each = {1, 1, 1, 1, 0}}, &err),
                     -EDEADLK);
    assert_non_null(strstr(err.text, "rank 0, position 2 (0B0) waits for 1B0, rank 1"));
    assert_non_null(strstr(err.text, " more; reorder one of these lists"));
    sched_free(sched);
}

static void refuse_request(const struct plan_request *req, const char *words)
{
    struct plan *plan = NULL;
    struct err err = {0};
    assert_int_equal(plan_compile(&plan, req, &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_null(plan);
}

static void test_bad_requests(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "1f1b", .ranks = 4, .microbatches = 4}, NULL), 0);
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = sched};
    req.ranks = 3;
    refuse_request(&req, "the plan is for 3 ranks, but its schedule is for 4");
    req.ranks = 4;
    req.lowest_trained = 4;
    refuse_request(&req, "the lowest trained stage is 4 of 4");
    req.lowest_trained = 1;
    req.tied = true;
    refuse_request(&req, "a tied embedding is trained on stage 0");
    struct sched *long_one = NULL;
    assert_int_equal(sched_make(&long_one,
                                &(struct sched_request){
                                    .name = "naive", .ranks = 2, .microbatches = PLAN_MAX_CELLS / 2 + 1},
                                NULL),
                     0);
    refuse_request(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = long_one},
                   "1 to 131072 microbatches, not 131073");
    sched_free(long_one);
    refuse_request(&(struct plan_request){.program = PROGRAM_TRAIN}, "needs a schedule");
    refuse_request(&(struct plan_request){.program = (enum program)77}, "no program number 77");
    refuse_request(&(struct plan_request){.program = PROGRAM_FORWARD, .microbatches = 1},
                   "1 to 1024 ranks, not 0");
    refuse_request(&(struct plan_request){.program = PROGRAM_DECODE, .ranks = 2}, "microbatches, not 0");
    refuse_request(&(struct plan_request){.program = PROGRAM_SAVE, .ranks = 2}, "need the split");
    refuse_request(&(struct plan_request){.program = PROGRAM_LOAD,
                                          .ranks = 2,
                                          .first = (size_t[]){0, 3, 2},
                                          .pieces = (size_t[]){0, 1, 2, 3, 4}},
                   "stage 0");
    refuse_request(&(struct plan_request){.program = PROGRAM_LOAD,
                                          .ranks = 1,
                                          .first = (size_t[]){0, SIZE_MAX / 2},
                                          .pieces = (size_t[]){0}},
                   "too many");
    plan_free(NULL);
    sched_free(sched);
}

static void test_neighbours(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 4, .microbatches = 1}, NULL), 0);
    /* Exchange ranks 2 and 3: stages 1 and 2 are now across the ring from each other. */
    for (uint32_t s = 2; s < 4; s++)
        sched->rank_of_stage[s] = 5 - s;
    struct sched_list kept = sched->rank[2];
    sched->rank[2] = sched->rank[3];
    sched->rank[3] = kept;
    refuse_request(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = sched},
                   "stages 1 and 2 speak with each other, but lie on ranks 1 and 3, which are no neighbours "
                   "in a ring of 4");
    sched_free(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_duplicates),   cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_cyclic_wait),  cmocka_unit_test(test_long_circle),
        cmocka_unit_test(test_bad_requests), cmocka_unit_test(test_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
