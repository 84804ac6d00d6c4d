/* SPDX-License-Identifier: MIT
 *
 * Plans: what each program's tasks need and emit, slots, counts, credits;
 * and the stepping of one rank. */
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

#include "pipe/exec.h"
#include "tests/unit/engine/pipe/plan_lists.h"
#include "tests/unit/engine/pipe/plan_text.h"

/* --- programs --------------------------------------------------------------------------------- */

static struct plan *compile_train(const char *name, size_t ranks, size_t m, uint32_t lowest, bool tied)
{
    struct sched *sched = NULL;
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = name, .ranks = ranks, .microbatches = m}, NULL),
        0);
    struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = sched, .lowest_trained = lowest, .tied = tied};
    struct plan *plan = compile(&req);
    sched_free(sched);
    return plan;
}

static void test_train_three(void **state)
{
    (void)state;
    struct plan *plan = compile_train("1f1b", 3, 2, 0, true);
    assert_rank(
        plan, 0,
        "0F0[0| >activations@1.0 >targets@2.0; 0F1[1| >activations@1.1 >targets@2.1; 0 loss 0 <loss@2.0; "
        "0B0|0] <gradient@1.0; 0 loss 1 <loss@2.1; 0B1|1] <gradient@1.1; "
        "0 norm <norm@1.0 <tied gradient@2.0; 0 update >scale@1.0 >tied weight@2.0");
    assert_rank(plan, 1,
                "1F0[0| <activations@0.0 >activations@2.0; 1F1[1| <activations@0.1 >activations@2.1; "
                "1B0|0] <gradient@2.0 >gradient@0.0; 1B1|1] <gradient@2.1 >gradient@0.1; "
                "1 norm <norm@2.0 >norm@0.0; 1 update <scale@0.0 >scale@2.0");
    assert_rank(plan, 2,
                "2F0[0| <activations@1.0 <targets@0.0 >loss@0.0; 2B0|0] >gradient@1.0; "
                "2F1[0| <activations@1.1 <targets@0.1 >loss@0.1; 2B1|0] >gradient@1.1; "
                "2 norm >norm@1.0 >tied gradient@0.0; 2 update <scale@1.0 <tied weight@0.0");
    assert_int_equal(plan->rank[0].slots, 2);
    assert_int_equal(plan->rank[2].slots, 1);
    assert_int_equal(plan_in_from(&plan->rank[0], plan_prev(plan->ranks, 0)),
                     3); /* two losses, the tied gradient */
    assert_int_equal(plan_in_from(&plan->rank[0], plan_next(plan->ranks, 0)),
                     3); /* two gradients, the norm */
    assert_int_equal(plan_in_from(&plan->rank[2], plan_prev(plan->ranks, 2)), 3);
    assert_int_equal(plan_in_from(&plan->rank[2], plan_next(plan->ranks, 2)), 3);
    plan_free(plan);
}

static void test_train_frozen_below(void **state)
{
    (void)state;
    struct plan *plan = compile_train("1f1b", 3, 2, 1, false);
    assert_rank(
        plan, 0,
        "0F0[0] >activations@1.0 >targets@2.0; 0F1[0] >activations@1.1 >targets@2.1; 0 loss 0 <loss@2.0; "
        "0 loss 1 <loss@2.1; 0 norm <norm@1.0; 0 update >scale@1.0");
    assert_rank(plan, 1,
                "1F0[0| <activations@0.0 >activations@2.0; 1F1[1| <activations@0.1 >activations@2.1; "
                "1B0|0] <gradient@2.0; 1B1|1] <gradient@2.1; 1 norm <norm@2.0 >norm@0.0; 1 update <scale@0.0 "
                ">scale@2.0");
    plan_free(plan);
}

static void test_train_alone(void **state)
{
    (void)state;
    struct plan *plan = compile_train("gpipe", 1, 2, 0, true);
    assert_rank(plan, 0, "0F0[0|; 0F1[1|; 0 loss 0; 0 loss 1; 0B0|0]; 0B1|1]; 0 norm; 0 update");
    assert_int_equal(plan->rank[0].credits, 1);
    plan_free(plan);
}

static void test_train_two(void **state)
{
    (void)state;
    struct plan *plan = compile_train("naive", 2, 1, 0, true);
    assert_rank(plan, 0,
                "0F0[0| >activations@1.0 >targets@1.0; 0 loss 0 <loss@1.0; 0B0|0] <gradient@1.0; "
                "0 norm <norm@1.0 <tied gradient@1.0; 0 update >scale@1.0 >tied weight@1.0");
    /* One link: what comes round the ring comes over it too. */
    assert_int_equal(plan_in_from(&plan->rank[0], plan_prev(plan->ranks, 0)), 4);
    assert_int_equal(plan->rank[0].nin, 1);
    plan_free(plan);
}

/* I hands the gradient on and keeps the slot, W gives it back. */
static void test_train_halves(void **state)
{
    (void)state;
    struct sched_list lists[] = {LIST(F(0, 0), F(0, 1), B(0, 0), B(0, 1)),
                                 LIST(F(1, 0), I(1, 0), F(1, 1), I(1, 1), W(1, 0), W(1, 1))};
    struct sched sched = {2, 2, 2, (uint32_t[]){0, 1}, lists};
    struct plan *plan = compile(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = &sched});
    assert_rank(plan, 1,
                "1F0[0| <activations@0.0 <targets@0.0 >loss@0.0; 1I0|0| >gradient@0.0; "
                "1F1[1| <activations@0.1 <targets@0.1 >loss@0.1; 1I1|1| >gradient@0.1; 1W0|0]; 1W1|1]; "
                "1 norm >norm@0.0; 1 update <scale@0.0");
    assert_int_equal(plan->rank[1].slots, 2);
    plan_free(plan);
}

/* Two stages on one rank, head and embedding together: what passes inside the rank is no
 * message. */
static void test_train_v(void **state)
{
    (void)state;
    struct sched_list lists[] = {LIST(F(0, 0), F(3, 0), B(3, 0), B(0, 0)),
                                 LIST(F(1, 0), F(2, 0), B(2, 0), B(1, 0))};
    struct sched sched = {2, 4, 1, (uint32_t[]){0, 1, 1, 0}, lists};
    struct plan *plan =
        compile(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = &sched, .tied = true});
    assert_rank(plan, 0,
                "0F0[0| >activations@1.0; 3F0[0| <activations@1.0; 3B0|0] >gradient@1.0; 0 loss 0; 0B0|0] "
                "<gradient@1.0; "
                "3 norm >norm@1.0; 0 norm <norm@1.0; 0 update >scale@1.0; 3 update <scale@1.0");
    assert_rank(plan, 1,
                "1F0[0| <activations@0.0; 2F0[0| >activations@0.0; 2B0|0] <gradient@0.0; 1B0|0] "
                ">gradient@0.0; 2 norm <norm@0.0; 1 norm >norm@0.0; "
                "1 update <scale@0.0; 2 update >scale@0.0");
    plan_free(plan);
}

/* The last stage takes the microbatches in the opposite order: losses are taken as they come, not
 * as they left. */
static void test_train_reversed(void **state)
{
    (void)state;
    enum { M = 5 };
    struct sched_task first[2 * M], second[2 * M];
    for (uint32_t i = 0; i < M; i++) {
        first[i] = (struct sched_task)F(0, i);
        second[i] = (struct sched_task)F(1, M - 1 - i);
        first[M + i] = (struct sched_task)B(0, i);
        second[M + i] = (struct sched_task)B(1, i);
    }
    struct sched sched = {2, 2, M, (uint32_t[]){0, 1},
                          (struct sched_list[]){{first, 2 * M, NULL}, {second, 2 * M, NULL}}};
    struct plan *plan = compile(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = &sched});
    const struct task *tasks = plan->rank[0].tasks;
    for (uint32_t i = 0; i < M; i++) {
        assert_int_equal(tasks[M + i].kind, TASK_LOSS);
        assert_int_equal(tasks[M + i].mb, M - 1 - i);
    }
    assert_true(plan->rank[0].credits > 1);
    plan_free(plan);
}

/* The order of what is computed on a rank, and where. */
static void assert_computed(const struct plan *plan, uint32_t rank, const char *wanted)
{
    char text[400] = "";
    for (size_t k = 0; k < plan->rank[rank].n; k++) {
        const struct task *task = &plan->rank[rank].tasks[k];
        size_t used = strlen(text);
        char name[24];
        if (task_is_compute(task->kind))
            snprintf(text + used, sizeof text - used, "%s%s@%u", used ? " " : "",
                     task_name(name, sizeof name, task), task->activations);
    }
    assert_string_equal(text, wanted);
}

/* A stage that keeps inputs alone does its forwards again right before the backward, the last one
 * never: there the backward follows at once. One buffer does for all; with W put off, as many as
 * there are I without their W. */
static void test_recompute(void **state)
{
    (void)state;
    const bool all[] = {true, true, true};
    struct sched *sched = NULL;
    struct sched_request want = {.name = "1f1b", .ranks = 3, .microbatches = 3};
    assert_int_equal(sched_make(&sched, &want, NULL), 0);
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = sched, .recompute = all};
    struct plan *plan = compile(&req);
    assert_computed(plan, 0, "0F0@0 0F1@0 0F2@0 0R0@0 0B0@0 0R1@0 0B1@0 0R2@0 0B2@0");
    assert_computed(plan, 2, "2F0@0 2B0@0 2F1@0 2B1@0 2F2@0 2B2@0");
    assert_int_equal(plan->slots[0], 3);
    assert_int_equal(plan->activations[0], 1);
    plan_free(plan);
    req.recompute = (const bool[]){false, true, false};
    req.lowest_trained = 1;
    plan = compile(&req);
    assert_computed(plan, 0, "0F0@0 0F1@0 0F2@0");
    assert_computed(plan, 1, "1F0@0 1F1@0 1R0@0 1B0@0 1F2@0 1R1@0 1B1@0 1R2@0 1B2@0");
    plan_free(plan);
    sched_free(sched);
    want = (struct sched_request){.text = "0F0,0F1,0I0,0R1,0I1,0W0,0W1"};
    assert_int_equal(sched_make(&sched, &want, NULL), 0);
    req = (struct plan_request){.program = PROGRAM_TRAIN, .sched = sched};
    plan = compile(&req); /* an R in the schedule makes the stage one that keeps inputs alone */
    assert_computed(plan, 0, "0F0@0 0F1@0 0R0@0 0I0@0 0R1@1 0I1@1 0W0@0 0W1@1");
    assert_int_equal(plan->activations[0], 2);
    plan_free(plan);
    sched_free(sched);
}

/* What only I reads is given back there, and what W reads of I is taken there: with W put off both
 * are fewer than slots. */
static void test_halves(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    struct sched_request want = {.text = "0F0,0F1,0I0,0F2,0I1,0W0,0I2,0W1,0W2"};
    assert_int_equal(sched_make(&sched, &want, NULL), 0);
    struct plan *plan = compile(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = sched});
    static const uint32_t none = SLOT_NONE, bwd_x_only[] = {0, 1, 0, 0, 1, none, 0, none, none},
                          bwd_w_only[] = {none, none, 0, none, 1, 0, 0, 1, 0};
    size_t n = 0;
    for (size_t k = 0; k < plan->rank[0].n; k++) {
        const struct task *task = &plan->rank[0].tasks[k];
        if (!task_is_compute(task->kind))
            continue;
        assert_int_equal(task->bwd_x_only, bwd_x_only[n]);
        assert_int_equal(task->bwd_w_only, bwd_w_only[n++]);
    }
    assert_true(plan->slots[0] == 3 && plan->activations[0] == 3 && plan->bwd_x_only[0] == 2 &&
                plan->bwd_w_only[0] == 2);
    plan_free(plan);
    sched_free(sched);
    want = (struct sched_request){.name = "1f1b", .ranks = 2, .microbatches = 4};
    assert_int_equal(sched_make(&sched, &want, NULL), 0);
    plan = compile(&(struct plan_request){.program = PROGRAM_TRAIN, .sched = sched});
    assert_true(plan->bwd_x_only[0] == plan->slots[0] && plan->bwd_w_only[0] == 0); /* whole backwards */
    plan_free(plan);
    sched_free(sched);
}

static void test_forward(void **state)
{
    (void)state;
    struct plan *plan =
        compile(&(struct plan_request){.program = PROGRAM_FORWARD, .ranks = 2, .microbatches = 4});
    assert_rank(
        plan, 0,
        "0F0[0] >activations@1.0 >targets@1.0; 0F1[0] >activations@1.1 >targets@1.1; "
        "0F2[0] >activations@1.2 >targets@1.2; 0 loss 0 <loss@1.0; 0F3[0] >activations@1.3 >targets@1.3; "
        "0 loss 1 <loss@1.1; 0 loss 2 <loss@1.2; 0 loss 3 <loss@1.3");
    assert_rank(
        plan, 1,
        "1F0[0] <activations@0.0 <targets@0.0 >loss@0.0; 1F1[0] <activations@0.1 <targets@0.1 >loss@0.1; "
        "1F2[0] <activations@0.2 <targets@0.2 >loss@0.2; 1F3[0] <activations@0.3 <targets@0.3 >loss@0.3");
    assert_int_equal(plan->rank[0].slots, 1);
    plan_free(plan);
}

static void test_decode(void **state)
{
    (void)state;
    struct plan_request req = {.program = PROGRAM_DECODE, .ranks = 3, .microbatches = 2, .want_token = true};
    struct plan *plan = compile(&req);
    assert_rank(plan, 0, "0F0[0] >activations@1.0; 0F1[0] >activations@1.1; 0 token 1 <token@2.1");
    assert_rank(plan, 2, "2F0[0] <activations@1.0; 2F1[0] <activations@1.1 >token@0.1");
    plan_free(plan);
    req.want_token = false;
    plan = compile(&req);
    assert_rank(plan, 0, "0F0[0] >activations@1.0; 0F1[0] >activations@1.1");
    plan_free(plan);
    req = (struct plan_request){.program = PROGRAM_DECODE, .ranks = 1, .microbatches = 1, .want_token = true};
    plan = compile(&req);
    assert_rank(plan, 0, "0F0[0]; 0 token 0");
    plan_free(plan);
    const uint32_t vee[] = {0, 1, 1, 0};
    req = (struct plan_request){.program = PROGRAM_DECODE,
                                .ranks = 2,
                                .stages = 4,
                                .rank_of_stage = vee,
                                .microbatches = 1,
                                .want_token = true};
    plan = compile(&req);
    assert_rank(plan, 0, "0F0[0] >activations@1.0; 3F0[0] <activations@1.0; 0 token 0");
    assert_rank(plan, 1, "1F0[0] <activations@0.0; 2F0[0] >activations@0.0");
    plan_free(plan);
    /* Slices all compute; the first one's last stage alone answers. */
    req = (struct plan_request){.program = PROGRAM_DECODE,
                                .ranks = 4,
                                .npipelines = 2,
                                .slices = 2,
                                .microbatches = 1,
                                .want_token = true};
    plan = compile(&req);
    assert_rank(plan, 0, "0 rows 1 >rows@3.1; 0F0[0] >activations@1.0; 0 token 0 <token@1.0");
    assert_rank(plan, 1, "1F0[0] <activations@0.0 >token@0.0");
    assert_rank(plan, 2, "1F0[0] <activations@3.0");
    assert_rank(plan, 3, "0 rows 1 <rows@0.1; 0F0[0] >activations@2.0");
    plan_free(plan);
}

/* Messages of a step on every link, in closed form; slots as the simulation's peaks. */
static void test_counts(void **state)
{
    (void)state;
    for (size_t k = 0; sched_names()[k]; k++)
        for (size_t p = 3; p <= 6; p++) {
            size_t m = 7;
            struct plan *plan = compile_train(sched_names()[k], p, m, 0, false);
            struct sched *sched = NULL;
            struct sched_sim sim;
            assert_int_equal(
                sched_make(&sched,
                           &(struct sched_request){.name = sched_names()[k], .ranks = p, .microbatches = m},
                           NULL),
                0);
            assert_int_equal(
                sched_simulate(&sim, sched, &(struct sched_costs){.each = {1, 1, 1, 1, 0}}, NULL), 0);
            enum sched_placement placement = sched_info(sched_names()[k])->placement;
            size_t chunks = placement == PLACE_SINGLE ? 1 : 2, all = chunks * (m + 1);
            /* Of a microbatch activations and gradient, of a step scale and norm; losses and
             * targets, unless first and last stage lie on one rank. */
            for (size_t r = 0; r < p; r++) {
                size_t end = placement == PLACE_V ? 0 : all - (m + 1) + m;
                assert_int_equal(plan_in_from(&plan->rank[r], plan_prev(plan->ranks, r)), r == 0 ? end : all);
                assert_int_equal(plan_in_from(&plan->rank[r], plan_next(plan->ranks, r)),
                                 r + 1 == p ? end : all);
                assert_int_equal(plan->rank[r].slots, sim.peak[r]);
            }
            sched_sim_done(&sim);
            sched_free(sched);
            plan_free(plan);
        }
}

static void test_credits(void **state)
{
    (void)state;
    for (size_t k = 0; sched_names()[k]; k++)
        for (size_t p = 1; p <= 8; p++) {
            const char *name = sched_names()[k];
            size_t m = 16;
            struct plan *plan = compile_train(name, p, m, 0, true);
            size_t credits = plan->rank[0].credits, fast = plan->rank[0].credits_fast;
            for (size_t r = 1; r < p; r++)
                assert_int_equal(plan->rank[r].credits, credits);
            bool naive = strcmp(name, "naive") == 0, loop = sched_info(name)->placement == PLACE_LOOP;
            /* Between two ranks a forward puts activations and targets on one link at once. Where
             * stage 0 runs ahead of the last one, targets and losses wait in buffers, both over the
             * closing cable; in a loop so do the activations that come round it, breadth first half
             * of them all. */
            if (loop)
                assert_in_range(credits, 1,
                                strcmp(name, "looped-bfs") || p == 1 ? p + 1
                                : p == 2                             ? m + 1
                                                                     : m / 2);
            else if (p == 2)
                assert_int_equal(credits, 2);
            else
                assert_in_range(credits, 1, naive ? 1 : 1 + (p + 1) / 3);
            assert_in_range(fast, credits + 1, credits + 3);
            plan_free(plan);
        }
}

/* --- exec ------------------------------------------------------------------------------------- */

struct fake {
    int ready, room, run;
    bool is_full[3]; /* towards that rank */
    uint32_t round_asked;
    struct task last;
};

static int fake_ready(void *owner, const struct msg_key *key, uint32_t from)
{
    struct fake *fake = owner;
    (void)from;
    fake->round_asked = key->round;
    return fake->ready;
}

static int fake_room(void *owner, const struct msg_key *key, uint32_t to)
{
    struct fake *fake = owner;
    fake->round_asked = key->round;
    return fake->is_full[to] ? 0 : fake->room;
}

static int fake_run(void *owner, const struct task *task, struct err *err)
{
    struct fake *fake = owner;
    fake->last = *task;
    return fake->run < 0 ? err_set(err, fake->run, "no") : 0;
}

static const struct exec_ops fake_ops = {.ready = fake_ready, .room = fake_room, .run = fake_run};

static void test_exec(void **state)
{
    (void)state;
    struct plan *plan =
        compile(&(struct plan_request){.program = PROGRAM_DECODE, .ranks = 3, .microbatches = 1});
    struct fake fake = {.ready = 0, .room = 0, .run = -ENOMEM};
    struct exec e;
    struct err err = {0};
    exec_start(&e, plan, 1, 42);
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -EAGAIN);
    assert_int_equal(e.wait, EXEC_NEEDS);
    assert_int_equal(e.wait_key.kind, MSG_ACT);
    assert_int_equal(e.wait_key.round, 42);
    assert_int_equal(e.wait_rank, 0);
    fake.ready = 1;
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -EAGAIN);
    assert_int_equal(e.wait, EXEC_NO_ROOM);
    assert_int_equal(e.wait_key.stage, 2);
    assert_int_equal(e.wait_rank, 2);
    assert_int_equal(fake.round_asked, 42);
    fake.room = -EPIPE;
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -EPIPE);
    assert_string_equal(
        err.text, "rank 1, round 42, task 1 (1F0): activations for stage 2, microbatch 0 to rank 2 is lost: "
                  "Broken pipe");
    fake.ready = -ECONNRESET;
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -ECONNRESET);
    assert_non_null(strstr(err.text, "microbatch 0 from rank 0 is lost"));
    fake.ready = fake.room = 1;
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -ENOMEM);
    assert_int_equal(exec_task(&e)->stage, 1); /* a failed task is not passed over */
    fake.run = 0;
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), 1);
    assert_int_equal(fake.last.needs[0].key.round, 42);
    assert_int_equal(fake.last.emits[0].key.round, 42);
    assert_int_equal(plan->rank[1].tasks[0].needs[0].key.round, 0);
    assert_int_equal(e.wait, EXEC_DONE);
    assert_null(exec_task(&e));
    assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), 0);
    plan->rank[0].n = 0; /* nothing to do at all */
    exec_start(&e, plan, 0, 1);
    assert_int_equal(e.wait, EXEC_DONE);
    plan_free(plan);
}

/* A task that sends to two neighbours waits for either. */
static void test_room_for_all(void **state)
{
    (void)state;
    struct plan *plan = compile_train("1f1b", 3, 2, 0, false);
    struct exec e;
    struct err err = {0};
    assert_int_equal(plan->rank[0].tasks[0].nemits, 2);
    for (size_t i = 0; i < 2; i++) {
        const uint32_t to = plan->rank[0].tasks[0].emits[i].to;
        struct fake fake = {.ready = 1, .room = 1};
        fake.is_full[to] = true;
        exec_start(&e, plan, 0, 1);
        assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), -EAGAIN);
        assert_int_equal(e.wait, EXEC_NO_ROOM);
        assert_int_equal(e.wait_rank, to);
        fake.is_full[to] = false;
        assert_int_equal(exec_step(&e, &fake_ops, &fake, &err), 1);
    }
    plan_free(plan);
}

static void test_names(void **state)
{
    (void)state;
    for (int k = 0; k < TASK_COUNT; k++)
        assert_string_not_equal(task_kind_name((enum task_kind)k), "?");
    for (int k = 0; k < MSG_COUNT; k++)
        assert_string_not_equal(msg_kind_name((enum msg_kind)k), "?");
    assert_string_equal(task_kind_name(TASK_COUNT), "?");
    assert_string_equal(msg_kind_name((enum msg_kind) - 1), "?");
    assert_string_equal(sched_op_name(OP_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_three),    cmocka_unit_test(test_train_frozen_below),
        cmocka_unit_test(test_train_alone),    cmocka_unit_test(test_train_two),
        cmocka_unit_test(test_train_halves),   cmocka_unit_test(test_train_v),
        cmocka_unit_test(test_train_reversed), cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_halves),         cmocka_unit_test(test_forward),
        cmocka_unit_test(test_decode),         cmocka_unit_test(test_counts),
        cmocka_unit_test(test_credits),        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_room_for_all),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
