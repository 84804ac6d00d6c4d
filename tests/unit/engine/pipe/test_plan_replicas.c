/* SPDX-License-Identifier: MIT
 *
 * Plans of several replicas: what passes between them, who talks to whom, and what is refused. */
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
#include "tests/unit/engine/pipe/plan_text.h"

enum { MOST = 4, STAGES = 8 };

struct world {
    struct plan_pipeline pipelines[MOST];
    size_t parts[STAGES];
    struct plan_request req;
};

/* Replicas on so many places each, with shares[d] groups; m microbatches a step. */
static void world_init(struct world *w, const char *schedule, size_t places, size_t m, const size_t *shares,
                       size_t n)
{
    size_t groups = 0, group = 0;
    *w = (struct world){.parts = {2, 2, 2, 2, 2, 2, 2, 2}};
    for (size_t d = 0; d < n; d++)
        groups += shares[d];
    for (size_t d = 0; d < n; group += shares[d++]) {
        const size_t first = plan_group_first(group, m, groups),
                     end = plan_group_first(group + shares[d], m, groups);
        struct sched *sched = NULL;
        const struct sched_request want = {.name = schedule, .ranks = places, .microbatches = end - first};
        assert_int_equal(sched_make(&sched, &want, NULL), 0);
        w->pipelines[d] = (struct plan_pipeline){sched, shares[d]};
    }
    w->req = (struct plan_request){.program = PROGRAM_TRAIN,
                                   .npipelines = n,
                                   .pipelines = w->pipelines,
                                   .groups = groups,
                                   .parts = w->parts};
}

static void world_done(struct world *w)
{
    for (size_t d = 0; d < MOST; d++)
        sched_free((struct sched *)w->pipelines[d].sched);
}

static void refuse(const struct world *w, const char *why)
{
    struct err err;
    struct plan *plan = NULL;
    assert_int_equal(plan_compile(&plan, &w->req, &err), -EINVAL);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" has nothing of \"%s\"", err.text, why);
}

/* Two nodes that each have all of the model. Each adds up one part of two. */
static void test_two_alone(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, "1f1b", 1, 3, (size_t[]){1, 1}, 2);
    struct plan *plan = compile(&w.req);
    assert_rank(plan, 0,
                "0 rows 1 >rows@1.1; 0F0[0|; 0 loss 0; 0B0|0]; 0F1[0|; 0 loss 1; 0B1|0]; "
                "0 give 1 >gradients of groups@1.1; 0 take 0 <gradients of groups@1.0; "
                "0 give 0 >sum of gradients@1.0; 0 take 1 <sum of gradients@1.1; 0 losses 0 <losses@1.0; "
                "0 norm; 0 scale 0 >scale@1.0; 0 update");
    assert_rank(plan, 1,
                "0 rows 1 <rows@0.1; 0F2[0|; 0 loss 2; 0B2|0]; 0 give 0 >gradients of groups@0.0; "
                "0 take 1 <gradients of groups@0.1; 0 give 1 >sum of gradients@0.1; "
                "0 take 0 <sum of gradients@0.0; 0 norm >losses@0.0; 0 update <scale@0.0");
    assert_int_equal(plan->microbatches, 3);
    assert_int_equal(plan_in_from(&plan->rank[0], 1), 3);
    plan_free(plan);
    world_done(&w);
}

/* Where the update is divided each keeps the sum, the first one adds up the norm, and values go
 * round. */
static void test_divided(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, "1f1b", 1, 2, (size_t[]){1, 1}, 2);
    w.req.divided = true;
    struct plan *plan = compile(&w.req);
    assert_rank(
        plan, 0,
        "0 rows 1 >rows@1.1; 0F0[0|; 0 loss 0; 0B0|0]; 0 give 1 >gradients of groups@1.1; "
        "0 take 0 <gradients of groups@1.0; 0 squares 0 <sums of squares@1.0; 0 losses 0 <losses@1.0; "
        "0 norm; 0 scale 0 >scale@1.0; 0 update; 0 give 0 >values@1.0; 0 take 1 <values@1.1");
    assert_rank(plan, 1,
                "0 rows 1 <rows@0.1; 0F1[0|; 0 loss 1; 0B1|0]; 0 give 0 >gradients of groups@0.0; "
                "0 take 1 <gradients of groups@0.1; 0 norm >sums of squares@0.0 >losses@0.0; "
                "0 update <scale@0.0; 0 give 1 >values@0.1; 0 take 0 <values@0.0");
    plan_free(plan);
    world_done(&w);
}

/* Slices have all microbatches and the same order, and each makes the norm itself: what they gather
 * is no message of a plan. */
static void test_slices(void **state)
{
    (void)state;
    struct world w = {0};
    const struct sched_request want = {.name = "1f1b", .ranks = 1, .microbatches = 2},
                               other = {.name = "1f1b", .ranks = 1, .microbatches = 3};
    struct sched *sched[3];
    for (size_t d = 0; d < 3; d++)
        assert_int_equal(sched_make(&sched[d], d == 2 ? &other : &want, NULL), 0);
    w.pipelines[0].sched = sched[0];
    w.pipelines[1].sched = sched[1];
    w.req = (struct plan_request){
        .program = PROGRAM_TRAIN, .npipelines = 2, .pipelines = w.pipelines, .groups = 1, .slices = 2};
    struct plan *plan = compile(&w.req);
    assert_int_equal(plan->microbatches, 2);
    assert_rank(plan, 0,
                "0 rows 1 >rows@1.1; 0F0[0|; 0 loss 0; 0B0|0]; 0F1[0|; 0 loss 1; 0B1|0]; 0 norm; "
                "0 scale 0 >scale@1.0; 0 update");
    assert_rank(plan, 1,
                "0 rows 1 <rows@0.1; 0F0[0|; 0 loss 0; 0B0|0]; 0F1[0|; 0 loss 1; 0B1|0]; 0 norm; "
                "0 update <scale@0.0");
    plan_free(plan);
    w.req.program = PROGRAM_FORWARD;
    w.req.pipelines = NULL;
    w.req.ranks = w.req.microbatches = 2;
    plan = compile(&w.req);
    assert_rank(plan, 1, "0 rows 1 <rows@0.1; 0F0[0]; 0F1[0]; 0 loss 0; 0 loss 1");
    plan_free(plan);
    w.req.program = PROGRAM_TRAIN;
    w.req.ranks = w.req.microbatches = 0;
    w.req.pipelines = w.pipelines;
    w.pipelines[1].sched = sched[2];
    refuse(&w, "slice 1 has another order");
    for (size_t d = 0; d < 3; d++)
        sched_free(sched[d]);
}

/* Slices of replicas: gradients go to the same slice of another replica, and one of each replica
 * says the losses. */
static void test_slices_of_replicas(void **state)
{
    (void)state;
    struct world w = {.parts = {2}};
    const struct sched_request want = {.name = "1f1b", .ranks = 1, .microbatches = 1};
    struct sched *sched = NULL;
    assert_int_equal(sched_make(&sched, &want, NULL), 0);
    for (size_t k = 0; k < 4; k++)
        w.pipelines[k] = (struct plan_pipeline){sched, 1};
    w.req = (struct plan_request){.program = PROGRAM_TRAIN,
                                  .npipelines = 4,
                                  .slices = 2,
                                  .pipelines = w.pipelines,
                                  .groups = 2,
                                  .parts = w.parts};
    struct plan *plan = compile(&w.req);
    assert_int_equal(plan->microbatches, 2);
    assert_rank(plan, 0,
                "0 rows 1 >rows@1.1; 0 rows 2 >rows@2.2; 0 rows 3 >rows@3.3; 0F0[0|; 0 loss "
                "0; 0B0|0]; 0 give 1 >gradients of groups@2.1; 0 take 0 <gradients of "
                "groups@2.0; 0 give 0 >sum of gradients@2.0; 0 take 1 <sum of gradients@2.1; "
                "0 losses 0 <losses@2.0; 0 norm; 0 scale 0 >scale@1.0; 0 scale 0 >scale@2.0; "
                "0 scale 0 >scale@3.0; 0 update");
    assert_rank(plan, 1,
                "0 rows 1 <rows@0.1; 0F0[0|; 0 loss 0; 0B0|0]; 0 give 1 >gradients of "
                "groups@3.1; 0 take 0 <gradients of groups@3.0; 0 give 0 >sum of "
                "gradients@3.0; 0 take 1 <sum of gradients@3.1; 0 norm; 0 update <scale@0.0");
    assert_rank(plan, 2,
                "0 rows 2 <rows@0.2; 0F1[0|; 0 loss 1; 0B1|0]; 0 give 0 >gradients of "
                "groups@0.0; 0 take 1 <gradients of groups@0.1; 0 give 1 >sum of "
                "gradients@0.1; 0 take 0 <sum of gradients@0.0; 0 norm >losses@0.0; 0 update "
                "<scale@0.0");
    assert_rank(plan, 3,
                "0 rows 3 <rows@0.3; 0F1[0|; 0 loss 1; 0B1|0]; 0 give 0 >gradients of "
                "groups@1.0; 0 take 1 <gradients of groups@1.1; 0 give 1 >sum of "
                "gradients@1.1; 0 take 0 <sum of gradients@1.0; 0 norm; 0 update <scale@0.0");
    plan_free(plan);
    w.req.divided = true;
    plan = compile(&w.req);
    assert_rank(plan, 1,
                "0 rows 1 <rows@0.1; 0F0[0|; 0 loss 0; 0B0|0]; 0 give 1 >gradients of "
                "groups@3.1; 0 take 0 <gradients of groups@3.0; 0 squares 0 <sums of "
                "squares@3.0; 0 norm; 0 update <scale@0.0; 0 give 0 >values@3.0; 0 take 1 "
                "<values@3.1");
    assert_rank(plan, 3,
                "0 rows 3 <rows@0.3; 0F1[0|; 0 loss 1; 0B1|0]; 0 give 0 >gradients of "
                "groups@1.0; 0 take 1 <gradients of groups@1.1; 0 norm >sums of squares@1.0; "
                "0 update <scale@0.0; 0 give 1 >values@1.1; 0 take 0 <values@1.0");
    plan_free(plan);
    w.req.npipelines = 3;
    refuse(&w, "a job has at most 4 replicas of 2 slices");
    w.req = (struct plan_request){.program = PROGRAM_FORWARD,
                                  .ranks = 4,
                                  .npipelines = 4,
                                  .slices = 2,
                                  .pipelines = w.pipelines,
                                  .groups = 2,
                                  .microbatches = 2};
    plan = compile(&w.req);
    assert_rank(plan, 0,
                "0 rows 1 >rows@1.1; 0 rows 2 >rows@2.2; 0 rows 3 >rows@3.3; 0F0[0]; 0 loss "
                "0; 0 losses 0 <losses@2.0");
    assert_rank(plan, 2, "0 rows 2 <rows@0.2; 0F1[0]; 0 loss 1; 0 losses 0 >losses@0.0");
    assert_rank(plan, 3, "0 rows 3 <rows@0.3; 0F1[0]; 0 loss 1");
    plan_free(plan);
    w.req.program = PROGRAM_DECODE;
    plan = compile(&w.req);
    assert_rank(plan, 1, "0 rows 1 <rows@0.1; 0F0[0]; 0F1[0]");
    assert_rank(plan, 2, "");
    plan_free(plan);
    sched_free(sched);
}

/* An embedding that is updated in slices goes to the head's copy once all of them are here. */
static void test_divided_and_tied(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, "1f1b", 2, 2, (size_t[]){1, 1}, 2);
    w.req.divided = w.req.tied = true;
    struct plan *plan = compile(&w.req);
    for (uint32_t rank = 0; rank < 4; rank++) {
        const struct plan_rank *r = &plan->rank[rank];
        const struct task *last = &r->tasks[r->n - 1];
        assert_int_equal(last->kind, TASK_TIED);
        assert_int_equal(last->stage ? last->nneeds : last->nemits, 1);
        assert_int_equal(r->tasks[r->n - 2].kind, TASK_TAKE);
    }
    plan_free(plan);
    world_done(&w);
}

/* Moments of a stage lie on all of its ranks: what is saved passes them. */
static void test_divided_save(void **state)
{
    (void)state;
    const size_t first[] = {0, 1, 2}, pieces[] = {0, 1, 2, 3, 4};
    struct plan_request req = {
        .program = PROGRAM_SAVE, .ranks = 4, .npipelines = 2, .first = first, .pieces = pieces};
    for (int divided = 0; divided < 2; divided++) {
        req.divided = divided;
        struct plan *plan = compile(&req);
        /* Stage 0 is on ranks 0 and 3, stage 1 on 1 and 2, and each has two pieces. */
        const size_t tasks[2][4] = {{4, 2, 0, 0}, {4, 4, 4, 2}};
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_int_equal(plan->rank[rank].n, tasks[divided][rank]);
        plan_free(plan);
    }
}

/* Losses alone: each replica makes those of its share, of fewer microbatches than groups too. */
static void test_losses(void **state)
{
    (void)state;
    struct plan_pipeline shares[] = {{NULL, 2}, {NULL, 1}, {NULL, 1}};
    struct plan_request req = {.program = PROGRAM_FORWARD,
                               .ranks = 3,
                               .npipelines = 3,
                               .pipelines = shares,
                               .groups = 4,
                               .microbatches = 3};
    struct plan *plan = compile(&req);
    assert_rank(plan, 0, "0 rows 1 >rows@1.1; 0F0[0]; 0F1[0]; 0 loss 0; 0 loss 1; 0 losses 0 <losses@1.0");
    assert_rank(plan, 1, "0 rows 1 <rows@0.1; 0F2[0]; 0 loss 2; 0 losses 0 >losses@0.0");
    assert_rank(plan, 2, "");
    plan_free(plan);
    req.groups = 5;
    refuse(&(struct world){.req = req}, "3 replicas have 4 groups together, but there are 5");
    req.groups = 0; /* which is one */
    refuse(&(struct world){.req = req}, "3 replicas have 4 groups together, but there are 1");
    shares[0].groups = 1;
    shares[1].groups = shares[2].groups = 0;
    plan = compile(&req);
    assert_int_equal(plan->rank[0].n, 6); /* a forward and a loss of each microbatch */
    assert_rank(plan, 1, "");
    plan_free(plan);
}

/* Every other one is turned round, and each keeps its own slots. */
static void test_where_they_lie(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, "gpipe", 2, 6, (size_t[]){4, 2}, 2);
    struct plan *plan = compile(&w.req);
    const uint32_t stage_of_rank[] = {0, 1, 1, 0};
    const size_t own[] = {4, 4, 2, 2};
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(plan->rank[r].slots, own[r]);
        for (size_t k = 0; k < plan->rank[r].n; k++)
            assert_int_equal(plan->rank[r].tasks[k].stage, stage_of_rank[r]);
    }
    assert_int_equal(plan->slots[0], 4);
    plan_free(plan);
    world_done(&w);
}

/* The daemons connect whom the plan lets talk, before there is one. */
static void test_who_talks(void **state)
{
    (void)state;
    for (size_t n = 1; n <= MOST; n++)
        for (size_t places = 1; places <= 4; places++) {
            struct world w;
            world_init(&w, places % 2 ? "1f1b" : "interleaved-1f1b", places, 4 * MOST, (size_t[]){2, 1, 1, 3},
                       n);
            struct plan *plan = compile(&w.req);
            const struct plan_shape shape =
                plan_shape_equal(plan->ranks, n, w.pipelines[0].sched->rank_of_stage);
            for (uint32_t r = 0; r < plan->ranks; r++) {
                assert_int_equal(plan_shape_pipeline(&shape, r), r / places);
                assert_int_equal(plan_shape_place(&shape, r), plan_place_of(places, r));
                assert_false(plan_ranks_talk(&shape, plan->stages, r, r));
                assert_int_equal(plan_place_of(places, plan_rank_at(places, r / places, r % places)),
                                 r % places);
                for (size_t i = 0; i < plan->rank[r].nin; i++) {
                    assert_true(plan_ranks_talk(&shape, plan->stages, r, plan->rank[r].in[i].from));
                    assert_true(plan_ranks_talk(&shape, plan->stages, plan->rank[r].in[i].from, r));
                }
            }
            plan_free(plan);
            world_done(&w);
        }
    const struct plan_shape two = plan_shape_equal(8, 2, NULL), one = plan_shape_equal(5, 1, NULL);
    assert_false(plan_ranks_talk(&two, 4, 1, 4));
    assert_false(plan_ranks_talk(&one, 5, 0, 2));
}

/* One node that has all of the model beside two that have a stage each. */
static void unlike_init(struct world *w, size_t m)
{
    struct sched *fine = NULL;
    world_init(w, "1f1b", 1, m, (size_t[]){1, 1}, 2);
    assert_int_equal(sched_refine(&fine, w->pipelines[0].sched, 2, (uint32_t[]){0, 0}, NULL), 0);
    sched_free((struct sched *)w->pipelines[0].sched);
    w->pipelines[0].sched = fine;
    const struct sched_request want = {
        .name = "1f1b", .ranks = 2, .microbatches = w->pipelines[1].sched->microbatches};
    sched_free((struct sched *)w->pipelines[1].sched);
    assert_int_equal(sched_make(&fine, &want, NULL), 0);
    w->pipelines[1].sched = fine;
}

static void test_unlike(void **state)
{
    (void)state;
    struct world w;
    unlike_init(&w, 2);
    struct plan *plan = compile(&w.req);
    assert_int_equal(plan->ranks, 3);
    /* Ranks 1 and 2 are the second replica, turned round: stage 0 is on rank 2. */
    assert_rank(plan, 0,
                "0 rows 1 >rows@2.1; 0F0[0|; 1F0[0|; 1B0|0]; 0 loss 0; 0B0|0]; "
                "1 give 1 >gradients of groups@1.1; 1 take 0 <gradients of groups@1.0; "
                "1 give 0 >sum of gradients@1.0; 1 take 1 <sum of gradients@1.1; 1 norm; "
                "0 give 1 >gradients of groups@2.1; 0 take 0 <gradients of groups@2.0; "
                "0 give 0 >sum of gradients@2.0; 0 take 1 <sum of gradients@2.1; 0 losses 0 <losses@2.0; "
                "0 norm; 0 scale 0 >scale@2.0; 0 update; 1 update");
    const struct plan_shape shape = {
        .pipelines = 2, .first = {0, 1, 3}, .place = {w.pipelines[0].sched->rank_of_stage, NULL}};
    for (uint32_t a = 0; a < 3; a++)
        for (uint32_t b = 0; b < 3; b++)
            assert_int_equal(plan_ranks_talk(&shape, 2, a, b), a != b);
    plan_free(plan);
    world_done(&w);
}

/* Losses and parameters of such replicas know where stages lie by their shape alone. */
static void test_unlike_without_schedules(void **state)
{
    (void)state;
    const uint32_t alone[] = {0, 0};
    const struct plan_shape shape = {.pipelines = 2, .first = {0, 1, 3}, .place = {alone, NULL}};
    struct plan_pipeline shares[] = {{NULL, 1}, {NULL, 1}};
    const size_t first[] = {0, 1, 2}, pieces[] = {0, 1, 2, 3, 4};
    struct plan_request req = {.program = PROGRAM_FORWARD,
                               .ranks = 3,
                               .npipelines = 2,
                               .shape = shape,
                               .stages = 2,
                               .pipelines = shares,
                               .groups = 2,
                               .microbatches = 2};
    struct plan *plan = compile(&req);
    assert_rank(plan, 0, "0 rows 1 >rows@2.1; 0F0[0]; 1F0[0]; 0 loss 0; 0 losses 0 <losses@2.0");
    assert_int_equal(plan_in_from(&plan->rank[1], 2), 2); /* activations and labels */
    assert_int_equal(plan_in_from(&plan->rank[2], 1), 1); /* the loss */
    plan_free(plan);
    req = (struct plan_request){.program = PROGRAM_LOAD,
                                .ranks = 3,
                                .npipelines = 2,
                                .shape = shape,
                                .stages = 2,
                                .tied = true,
                                .first = first,
                                .pieces = pieces};
    plan = compile(&req);
    /* The units of stage 1 end on rank 1, those of stage 0 pass it; the head's copy goes on from
     * there. */
    const size_t tasks[] = {4, 4, 2};
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(plan->rank[r].n, tasks[r]);
    plan_free(plan);
    req.shape.first[2] = 4;
    refuse(&(struct world){.req = req}, "cannot be those of 2 replicas");
}

static void test_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, "1f1b", 2, 4, (size_t[]){1, 1}, 2);
    w.req.groups = 3;
    refuse(&w, "2 replicas have 2 groups of 4 microbatches together, but a step has 3 groups");
    w.req.groups = 2;
    w.pipelines[0].groups = 0;
    w.pipelines[1].groups = 2;
    refuse(&w, "replica 0 has 0 groups, which are 0 microbatches, but its schedule is for 2");
    w.pipelines[0].groups = w.pipelines[1].groups = 1;
    w.req.divided = true;
    w.parts[1] = 3;
    refuse(&w, "the gradients of stage 1 go in 3 parts, and 2 replicas update as many each");
    w.req.divided = false;
    w.req.parts = NULL;
    refuse(&w, "say in how many parts");
    w.req.parts = w.parts;
    w.req.pipelines = NULL;
    refuse(&w, "2 replicas need a schedule each");
    w.req.npipelines = PLAN_MAX_REPLICAS + 1;
    w.req.program = PROGRAM_FORWARD;
    w.req.ranks = w.req.npipelines;
    w.req.microbatches = 1;
    refuse(&w, "cannot be those of 9 replicas");
    world_done(&w);
}

/* Sums of groups are made one after the other: an order that comes back to one is refused. */
static void test_groups_left(void **state)
{
    (void)state;
    struct err err;
    struct plan *plan = NULL;
    struct sched_list list[] = {LIST(F(0, 0), F(0, 1), F(0, 2), F(0, 3), B(0, 1), B(0, 2), B(0, 0), B(0, 3))};
    struct sched sched = {1, 1, 4, (uint32_t[]){0}, list};
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = &sched, .groups = 2};
    assert_int_equal(plan_compile(&plan, &req, &err), -EINVAL);
    assert_non_null(strstr(err.text, "does not go through 2 groups of 4 microbatches one after the other"));
    req.groups = 1;
    plan_free(compile(&req));
    req.groups = 5;
    assert_int_equal(plan_compile(&plan, &req, &err), -EINVAL);
    struct sched_list turned[] = {
        LIST(F(0, 0), F(0, 1), F(0, 2), F(0, 3), B(0, 3), B(0, 2), B(0, 1), B(0, 0))};
    sched.rank = turned;
    req.groups = 4;
    plan_free(compile(&req));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_alone),
        cmocka_unit_test(test_divided),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_slices_of_replicas),
        cmocka_unit_test(test_divided_and_tied),
        cmocka_unit_test(test_divided_save),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_where_they_lie),
        cmocka_unit_test(test_who_talks),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_groups_left),
        cmocka_unit_test(test_unlike),
        cmocka_unit_test(test_unlike_without_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
