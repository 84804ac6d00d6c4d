/* SPDX-License-Identifier: MIT
 *
 * Compiles a program into every rank's tasks, messages and slots. Owns the plan it returns until
 * plan_free. Pure: the same request gives the same plan on every node. Called when a job is planned
 * and started, from any thread. */
#include "pipe/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipe/plan_impl.h"
#include "pipe/split.h"

/* --- slots and counts ------------------------------------------------------------------------- */

/* Numbers of a stage's slots, or of its buffers of one kind, and which microbatch has which. The
 * one given back last is taken first, as its memory is warm. */
struct pool {
    uint32_t *of, *idle; /* [stages · microbatches] by stage: of each microbatch; free ones */
    size_t *nidle;       /* [stages] */
    size_t *most;        /* [stages] alive at once */
};

static int pool_init(struct pool *pool, const struct plan *plan, size_t *most)
{
    size_t cells = plan->stages * plan->microbatches;
    *pool = (struct pool){.most = most};
    pool->of = calloc(cells, sizeof *pool->of);
    pool->idle = calloc(cells, sizeof *pool->idle);
    pool->nidle = calloc(plan->stages, sizeof *pool->nidle);
    return pool->of && pool->idle && pool->nidle && most ? 0 : -ENOMEM;
}

static void pool_done(struct pool *pool)
{
    free(pool->of);
    free(pool->idle);
    free(pool->nidle);
}

static uint32_t pool_use(struct pool *pool, const struct plan *plan, const struct task *task, bool take,
                         bool give)
{
    size_t stage = task->stage, base = stage * plan->microbatches;
    uint32_t *at = &pool->of[base + task->mb];
    if (take)
        *at = pool->nidle[stage] ? pool->idle[base + --pool->nidle[stage]] : (uint32_t)pool->most[stage]++;
    if (give)
        pool->idle[base + pool->nidle[stage]++] = *at;
    return *at;
}

/* A stage that recomputes gives the buffer of a forward back at once, unless its very next task is
 * that microbatch's backward. Then the activations are still there, and plan_train.c has left out
 * the R. */
static bool keeps_activations(const struct plan_rank *rank, size_t at)
{
    const struct task *task = &rank->tasks[at];
    if (task->kind != TASK_F || !task->recomputes)
        return !task->last_use;
    for (size_t k = at + 1; k < rank->n; k++)
        if (rank->tasks[k].stage == task->stage && task_is_compute(rank->tasks[k].kind))
            return rank->tasks[k].mb == task->mb &&
                   (rank->tasks[k].kind == TASK_I || rank->tasks[k].kind == TASK_B);
    return false;
}

struct pools {
    struct pool slots, activations, bwd_x_only, bwd_w_only;
};

static void assign_buffers(const struct plan *plan, const struct plan_rank *rank, size_t at,
                           struct pools *pools)
{
    struct task *task = &rank->tasks[at];
    const bool forward = task->kind == TASK_F || task->kind == TASK_R, gone = !keeps_activations(rank, at);
    task->activations = pool_use(&pools->activations, plan, task, forward, gone);
    task->bwd_x_only = task->kind == TASK_W
                           ? SLOT_NONE
                           : pool_use(&pools->bwd_x_only, plan, task, forward, gone || task->kind == TASK_I);
    task->bwd_w_only =
        task->kind == TASK_I || task->kind == TASK_W
            ? pool_use(&pools->bwd_w_only, plan, task, task->kind == TASK_I, task->kind == TASK_W)
            : SLOT_NONE;
}

/* Slots are those of a stage, as stages differ in what they keep. */
static void assign_slots(const struct plan *plan, struct plan_rank *rank, struct pools *pools)
{
    size_t alive = 0, handed = 0;
    for (size_t k = 0; k < rank->n; k++) {
        struct task *task = &rank->tasks[k];
        if (!task_is_compute(task->kind))
            continue;
        alive += task->first_use;
        task->slot = pool_use(&pools->slots, plan, task, task->first_use, task->last_use);
        assign_buffers(plan, rank, k, pools);
        handed += task->to_here;
        rank->slots = alive > rank->slots ? alive : rank->slots;
        rank->handed = handed > rank->handed ? handed : rank->handed;
        handed -= task->from_here;
        alive -= task->last_use;
    }
}

static int assign_all_slots(struct plan *plan)
{
    struct pools pools;
    struct pool *const each[] = {&pools.slots, &pools.activations, &pools.bwd_x_only, &pools.bwd_w_only};
    size_t **const most[] = {&plan->slots, &plan->activations, &plan->bwd_x_only, &plan->bwd_w_only};
    int rc = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        *most[i] = calloc(plan->stages, sizeof **most[i]);
        int e = pool_init(each[i], plan, *most[i]);
        rc = rc ? rc : e;
    }
    for (size_t r = 0; rc == 0 && r < plan->ranks; r++)
        assign_slots(plan, &plan->rank[r], &pools);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        pool_done(each[i]);
    return rc;
}

static void count_messages(struct plan *plan)
{
    for (uint32_t r = 0; r < plan->ranks; r++) {
        struct plan_rank *rank = &plan->rank[r];
        for (size_t k = 0; k < rank->n; k++)
            for (uint32_t i = 0; i < rank->tasks[k].nneeds; i++) {
                if (rank->tasks[k].needs[i].from == plan_prev(plan->ranks, r))
                    rank->in_from_prev++;
                else
                    rank->in_from_next++;
            }
    }
}

/* --- requests --------------------------------------------------------------------------------- */

/* Messages pass between neighbours of the ring, and the last stage speaks with stage 0. */
static int check_placement(size_t ranks, size_t stages, const uint32_t *rank_of_stage, struct err *err)
{
    for (size_t s = 0; s < stages; s++) {
        size_t other = (s + 1) % stages;
        uint32_t a = rank_of_stage[s], b = rank_of_stage[other];
        if (a != b && b != plan_prev(ranks, a) && b != plan_next(ranks, a))
            return err_set(err, -EINVAL,
                           "stages %zu and %zu speak with each other, but lie on ranks %u and %u, which are "
                           "no neighbours in a ring of %zu; place them on neighbours",
                           s, other, a, b, ranks);
    }
    return 0;
}

static int check_train(const struct plan_request *req, struct err *err)
{
    const struct sched *sched = req->sched;
    if (!sched)
        return err_set(err, -EINVAL, "a training plan needs a schedule; make one with sched_make");
    /* First the schedule by itself: the placement is only known to be sound then. */
    int rc = plan_check(sched, err);
    if (rc < 0)
        return rc;
    if (sched->stages * sched->microbatches > PLAN_MAX_CELLS)
        return err_set(err, -EINVAL, "a step on %zu stages takes 1 to %zu microbatches, not %zu",
                       sched->stages, PLAN_MAX_CELLS / sched->stages, sched->microbatches);
    if (req->ranks && req->ranks != sched->ranks)
        return err_set(err, -EINVAL,
                       "the plan is for %zu ranks, but its schedule is for %zu; make the schedule again",
                       req->ranks, sched->ranks);
    if (req->lowest_trained >= sched->stages)
        return err_set(
            err, -EINVAL,
            "the lowest trained stage is %u of %zu stages (counted from 0), so there is nothing to train; "
            "give a stage below %zu",
            req->lowest_trained, sched->stages, sched->stages);
    if (req->tied && req->lowest_trained > 0)
        return err_set(
            err, -EINVAL,
            "a tied embedding is trained on stage 0, but the lowest trained stage is %u; train from stage 0 "
            "or freeze the embedding",
            req->lowest_trained);
    if (req->steps > 1 && (req->tied || sched->microbatches % req->steps))
        return err_set(err, -EINVAL,
                       "%zu microbatches cannot be those of %zu steps%s; make the schedule for a multiple",
                       sched->microbatches, req->steps, req->tied ? " of a tied embedding" : "");
    return check_placement(sched->ranks, sched->stages, sched->rank_of_stage, err);
}

static size_t request_stages(const struct plan_request *req)
{
    return req->stages ? req->stages : req->ranks;
}

static int check_stages(const struct plan_request *req, struct err *err)
{
    size_t stages = request_stages(req);
    if (stages < req->ranks || stages > UINT16_MAX || (stages > req->ranks && !req->rank_of_stage))
        return err_set(err, -EINVAL, "%zu stages on %zu ranks: this program has no place for them", stages,
                       req->ranks);
    for (size_t s = 0; req->rank_of_stage && s < stages; s++)
        if (req->rank_of_stage[s] >= req->ranks)
            return err_set(err, -EINVAL, "stage %zu is placed on rank %u, but the ranks are 0 to %zu", s,
                           req->rank_of_stage[s], req->ranks - 1);
    return req->rank_of_stage ? check_placement(req->ranks, stages, req->rank_of_stage, err) : 0;
}

static int check_params(const struct plan_request *req, struct err *err)
{
    size_t stages = request_stages(req);
    if (!req->first || !req->pieces)
        return err_set(err, -EINVAL, "saving and loading need the split of the layers and their pieces");
    int r = split_check(req->first, stages, req->first[stages], err);
    if (r)
        return r;
    const size_t layers = req->first[stages];
    if (layers > PLAN_MAX_CELLS / stages - 2 || req->pieces[layers + 2] > PLAN_MAX_CELLS / req->ranks)
        return err_set(err, -EINVAL, "the parameters of %zu layers are too many for %zu stages", layers,
                       stages);
    if (req->tied && (req->pieces[1] == 0 || req->pieces[layers + 1] == req->pieces[layers + 2]))
        return err_set(err, -EINVAL, "a tied embedding is trained, but it or the head has nothing to save");
    if (req->program != PROGRAM_RESTORE)
        return 0;
    if (!req->held_by)
        return err_set(err, -EINVAL, "what is restored needs a rank that holds each unit");
    for (size_t u = 0; u < layers + 2; u++)
        if (req->held_by[u] >= req->ranks)
            return err_set(err, -EINVAL, "unit %zu is held by rank %u, and there are %zu ranks", u,
                           req->held_by[u], req->ranks);
    return 0;
}

static int check_request(const struct plan_request *req, struct err *err)
{
    if ((unsigned)req->program > PROGRAM_RESTORE)
        return err_set(err, -EINVAL, "there is no program number %u", (unsigned)req->program);
    if (req->program == PROGRAM_TRAIN)
        return check_train(req, err);
    if (req->ranks < 1 || req->ranks > SCHED_MAX_RANKS)
        return err_set(err, -EINVAL, "a plan needs 1 to %d ranks, not %zu", SCHED_MAX_RANKS, req->ranks);
    int rc = check_stages(req, err);
    if (rc < 0 || program_moves(req->program))
        return rc < 0 ? rc : check_params(req, err);
    size_t most = PLAN_MAX_CELLS / request_stages(req);
    if (req->microbatches < 1 || req->microbatches > most)
        return err_set(
            err, -EINVAL,
            "a round on %zu stages takes 1 to %zu microbatches, not %zu; cut it into several rounds",
            request_stages(req), most, req->microbatches);
    return 0;
}

static int build_program(struct build *b, struct err *err)
{
    switch (b->req->program) {
    case PROGRAM_TRAIN: return build_train(b, err);
    case PROGRAM_FORWARD: build_score(b); return 0;
    case PROGRAM_DECODE: build_decode(b); return 0;
    case PROGRAM_SAVE:
    case PROGRAM_LOAD:
    case PROGRAM_RESTORE: build_moves(b); return 0;
    }
    return 0;
}

static struct plan *plan_new(const struct plan_request *req)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    const struct sched *sched = req->program == PROGRAM_TRAIN ? req->sched : NULL;
    const bool params = program_moves(req->program);
    plan->program = req->program;
    plan->ranks = sched ? sched->ranks : req->ranks;
    plan->stages = sched ? sched->stages : params ? req->ranks : request_stages(req);
    plan->microbatches = sched ? sched->microbatches : req->microbatches;
    plan->steps = sched && req->steps ? req->steps : 1;
    if (params)
        plan->microbatches = req->pieces[req->first[request_stages(req)] + 2];
    plan->rank = calloc(plan->ranks, sizeof *plan->rank);
    if (!plan->rank) {
        free(plan);
        return NULL;
    }
    return plan;
}

int plan_compile(struct plan **ret, const struct plan_request *req, struct err *err)
{
    int rc = check_request(req, err);
    if (rc < 0)
        return rc;
    struct build b = {.req = req, .plan = plan_new(req)};
    if (!b.plan)
        return err_set(err, -ENOMEM, "no memory for a plan");
    if (!program_moves(req->program)) /* those go from rank to rank */
        b.rank_of_stage = req->program == PROGRAM_TRAIN ? req->sched->rank_of_stage : req->rank_of_stage;
    b.last = (uint32_t)b.plan->stages - 1;
    rc = build_program(&b, err);
    if (rc == 0 && (b.no_memory || assign_all_slots(b.plan) < 0))
        rc = err_set(err, -ENOMEM, "no memory for a plan of %zu stages and %zu microbatches", b.plan->stages,
                     b.plan->microbatches);
    if (rc < 0)
        goto fail;
    count_messages(b.plan);
    rc = plan_find_credits(b.plan, err);
    if (rc < 0)
        goto fail;
    *ret = b.plan;
    return 0;
fail:
    plan_free(b.plan);
    return rc;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (size_t r = 0; plan->rank && r < plan->ranks; r++)
        free(plan->rank[r].tasks);
    free(plan->rank);
    free(plan->slots);
    free(plan->activations);
    free(plan->bwd_x_only);
    free(plan->bwd_w_only);
    free(plan);
}
