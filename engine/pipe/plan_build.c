/* SPDX-License-Identifier: MIT
 *
 * Appends tasks to a plan that is being built, with what they need and emit. Called by the files
 * that write programs: plan_train.c, plan_ends.c, plan_other.c. Pure; any thread. */
#include <assert.h>
#include <stdlib.h>

#include "pipe/plan_impl.h"

uint32_t build_rank(const struct build *b, uint32_t stage)
{
    return b->rank_of_stage ? b->rank_of_stage[stage] : stage;
}

struct task *build_add(struct build *b, enum task_kind kind, uint32_t stage, uint32_t mb)
{
    struct plan_rank *rank = &b->plan->rank[build_rank(b, stage)];
    struct task *task = &b->spare;
    /* The room doubles whenever the count reaches a power of two. */
    if ((rank->n & (rank->n - 1)) == 0) {
        struct task *grown = reallocarray(rank->tasks, rank->n ? 2 * rank->n : 1, sizeof *grown);
        if (grown)
            rank->tasks = grown;
        else
            b->no_memory = true;
    }
    if (!b->no_memory)
        task = &rank->tasks[rank->n++];
    *task = (struct task){.kind = kind,
                          .stage = stage,
                          .mb = mb,
                          .slot = SLOT_NONE,
                          .activations = SLOT_NONE,
                          .bwd_x_only = SLOT_NONE,
                          .bwd_w_only = SLOT_NONE};
    return task;
}

void build_need(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb,
                uint32_t from_stage)
{
    uint32_t from = build_rank(b, from_stage);
    if (from == build_rank(b, task->stage)) {
        task->from_here = task->from_here || kind == MSG_ACT || kind == MSG_GRAD;
        return;
    }
    assert(task->nneeds < TASK_MAX_NEEDS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)task->stage, .mb = mb};
    task->needs[task->nneeds++] = (struct task_need){key, from};
}

void build_emit(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb, uint32_t to_stage)
{
    uint32_t to = build_rank(b, to_stage);
    if (to == build_rank(b, task->stage)) {
        task->to_here = task->to_here || kind == MSG_ACT || kind == MSG_GRAD;
        return;
    }
    assert(task->nemits < TASK_MAX_EMITS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)to_stage, .mb = mb};
    task->emits[task->nemits++] = (struct task_emit){key, to};
}

struct task *build_forward(struct build *b, uint32_t stage, uint32_t mb, bool keep)
{
    struct task *task = build_add(b, TASK_F, stage, mb);
    task->first_use = true;
    task->last_use = !keep;
    if (stage > 0)
        build_need(b, task, MSG_ACT, mb, stage - 1);
    if (stage < b->last)
        build_emit(b, task, MSG_ACT, mb, stage + 1);
    return task;
}

struct task *build_forward_loss(struct build *b, uint32_t stage, uint32_t mb, bool keep)
{
    struct task *task = build_forward(b, stage, mb, keep);
    if (stage == 0)
        build_emit(b, task, MSG_TARGET, mb, b->last);
    if (stage == b->last) {
        build_need(b, task, MSG_TARGET, mb, 0);
        build_emit(b, task, MSG_LOSS, mb, 0);
    }
    return task;
}

void build_loss(struct build *b, uint32_t mb)
{
    build_need(b, build_add(b, TASK_LOSS, 0, mb), MSG_LOSS, mb, b->last);
}
