/* SPDX-License-Identifier: MIT
 *
 * Appends tasks to a plan that is being built, with what they need and emit. Called by the files
 * that write programs: plan_train.c, plan_ends.c, plan_other.c. Pure; any thread. */
#include <assert.h>
#include <stdlib.h>

#include "pipe/plan_impl.h"

size_t request_pipelines(const struct plan_request *req)
{
    return req->npipelines ? req->npipelines : 1;
}

size_t request_slices(const struct plan_request *req)
{
    return req->slices ? req->slices : 1;
}

size_t request_replicas(const struct plan_request *req)
{
    return request_pipelines(req) / request_slices(req);
}

/* TRAIN: as its schedules have it. */
struct plan_shape request_shape(const struct plan_request *req)
{
    struct plan_shape shape = {.pipelines = request_pipelines(req)};
    if (req->program != PROGRAM_TRAIN)
        return req->shape.pipelines ? req->shape
                                    : plan_shape_equal(req->ranks, shape.pipelines, req->rank_of_stage);
    for (size_t d = 0; d < shape.pipelines; d++) {
        const struct sched *sched = req->pipelines ? req->pipelines[d].sched : req->sched;
        shape.first[d + 1] = shape.first[d] + sched->ranks;
        shape.place[d] = sched->rank_of_stage;
    }
    return shape;
}

size_t request_stages(const struct plan_request *req)
{
    return req->stages ? req->stages : req->ranks / request_pipelines(req);
}

uint32_t build_rank(const struct build *b, uint32_t stage)
{
    return program_moves(b->req->program) ? stage : plan_shape_stage(&b->shape, b->pipeline, stage);
}

size_t build_replica(const struct build *b)
{
    return b->pipeline / request_slices(b->req);
}

size_t build_slice(const struct build *b)
{
    return b->pipeline % request_slices(b->req);
}

size_t build_places(const struct build *b)
{
    return plan_shape_places(&b->shape, b->pipeline);
}

size_t build_step_microbatches(const struct build *b)
{
    return b->own;
}

uint32_t build_step(const struct build *b, uint32_t mb)
{
    return (uint32_t)(mb / build_step_microbatches(b));
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
                          .bwd_w_only = SLOT_NONE,
                          .after = SLOT_NONE};
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
    build_need_from(task, kind, mb, from);
}

void build_need_from(struct task *task, enum msg_kind kind, uint32_t mb, uint32_t rank)
{
    assert(task->nneeds < TASK_MAX_NEEDS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)task->stage, .mb = mb};
    task->needs[task->nneeds++] = (struct task_need){key, rank};
}

void build_emit_to(struct task *task, enum msg_kind kind, uint32_t mb, uint32_t rank)
{
    assert(task->nemits < TASK_MAX_EMITS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)task->stage, .mb = mb};
    task->emits[task->nemits++] = (struct task_emit){key, rank};
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
