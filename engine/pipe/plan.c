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
#include <string.h>

#include "pipe/plan_impl.h"
#include "pipe/split.h"

/* --- slots and counts ------------------------------------------------------------------------- */

/* Numbers of a stage's slots, or of its buffers of one kind, and which microbatch has which. The
 * one given back last is taken first, as its memory is warm. */
struct pool {
    uint32_t *of, *idle; /* [stages · microbatches] by stage: of each microbatch; free ones */
    size_t *nidle;       /* [stages] */
    size_t *made;        /* [stages] of the rank that is looked at, */
    size_t *most;        /* [stages] and of the one that has most: alive at once */
};

/* A rank begins with none: of pipelines each has as many as the one that has most. */
static void pool_begin(struct pool *pool, const struct plan *plan)
{
    memset(pool->nidle, 0, plan->stages * sizeof *pool->nidle);
    memset(pool->made, 0, plan->stages * sizeof *pool->made);
}

static int pool_init(struct pool *pool, const struct plan *plan, size_t *most)
{
    size_t cells = plan->stages * plan->microbatches;
    *pool = (struct pool){.most = most};
    pool->of = calloc(cells, sizeof *pool->of);
    pool->idle = calloc(cells, sizeof *pool->idle);
    pool->nidle = calloc(plan->stages, sizeof *pool->nidle);
    pool->made = calloc(plan->stages, sizeof *pool->made);
    return pool->of && pool->idle && pool->nidle && pool->made && most ? 0 : -ENOMEM;
}

static void pool_done(struct pool *pool)
{
    free(pool->of);
    free(pool->idle);
    free(pool->nidle);
    free(pool->made);
}

static uint32_t pool_use(struct pool *pool, const struct plan *plan, const struct task *task, bool take,
                         bool give)
{
    size_t stage = task->stage, base = stage * plan->microbatches;
    uint32_t *at = &pool->of[base + task->mb];
    if (take)
        *at = pool->nidle[stage] ? pool->idle[base + --pool->nidle[stage]] : (uint32_t)pool->made[stage]++;
    if (pool->made[stage] > pool->most[stage])
        pool->most[stage] = pool->made[stage];
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
    for (size_t r = 0; rc == 0 && r < plan->ranks; r++) {
        for (size_t i = 0; i < sizeof each / sizeof *each; i++)
            pool_begin(each[i], plan);
        assign_slots(plan, &plan->rank[r], &pools);
    }
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        pool_done(each[i]);
    return rc;
}

static int count_need(struct plan_rank *rank, uint32_t from)
{
    for (size_t i = 0; i < rank->nin; i++)
        if (rank->in[i].from == from) {
            rank->in[i].n++;
            return 0;
        }
    struct plan_link *grown = reallocarray(rank->in, rank->nin + 1, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    rank->in = grown;
    rank->in[rank->nin++] = (struct plan_link){from, 1};
    return 0;
}

static int count_messages(struct plan *plan)
{
    int rc = 0;
    for (uint32_t r = 0; r < plan->ranks; r++)
        for (size_t k = 0; k < plan->rank[r].n; k++)
            for (uint32_t i = 0; i < plan->rank[r].tasks[k].nneeds && !rc; i++)
                rc = count_need(&plan->rank[r], plan->rank[r].tasks[k].needs[i].from);
    return rc;
}

size_t plan_in_from(const struct plan_rank *rank, uint32_t from)
{
    size_t n = 0;
    for (size_t i = 0; i < rank->nin; i++)
        n += rank->in[i].from == from ? rank->in[i].n : 0;
    return n;
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

/* The first pipeline's order, or the only one. */
static const struct sched *request_sched(const struct plan_request *req)
{
    return req->program != PROGRAM_TRAIN ? NULL : req->pipelines ? req->pipelines[0].sched : req->sched;
}

static size_t request_groups(const struct plan_request *req)
{
    return req->groups ? req->groups : 1;
}

/* An order by itself; m microbatches are in a step, `first` of them before this pipeline's. */
static int check_order(const struct plan_request *req, const struct sched *sched, size_t m, size_t first,
                       struct err *err)
{
    const size_t steps = req->steps ? req->steps : 1;
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
    if (steps > 1 && (req->tied || sched->microbatches % steps))
        return err_set(err, -EINVAL,
                       "%zu microbatches cannot be those of %zu steps%s; make the schedule for a multiple",
                       sched->microbatches, steps, req->tied ? " of a tied embedding" : "");
    if (request_groups(req) > m || !plan_keeps_groups(sched, request_groups(req), m, first, steps))
        return err_set(err, -EINVAL,
                       "this order does not go through %zu groups of %zu microbatches one after the other: "
                       "use --grad-groups 1",
                       request_groups(req), m);
    return check_placement(sched->ranks, sched->stages, sched->rank_of_stage, err);
}

/* First the schedules by themselves: the placement is only known to be sound then. */
static int check_train(const struct plan_request *req, struct err *err)
{
    const size_t pipelines = request_pipelines(req), slices = request_slices(req),
                 steps = req->steps ? req->steps : 1;
    size_t m = 0, first = 0;
    int rc = 0;
    if (pipelines > PLAN_MAX_REPLICAS || pipelines % slices)
        return err_set(err, -EINVAL, "a job has at most %d replicas of %zu slice%s, not %zu",
                       (int)(PLAN_MAX_REPLICAS / slices), slices, slices == 1 ? "" : "s", pipelines / slices);
    if (pipelines > 1 && !req->pipelines)
        return err_set(err, -EINVAL, "%zu replicas need a schedule each", pipelines);
    for (size_t d = 0; d < pipelines; d++) {
        const struct sched *sched = req->pipelines ? req->pipelines[d].sched : req->sched;
        if (!sched)
            return err_set(err, -EINVAL, "a training plan needs a schedule; make one with sched_make");
        rc = plan_check(sched, err);
        if (rc < 0)
            return rc;
        m += d % slices ? 0 : sched->microbatches;
    }
    const struct sched *sched = request_sched(req);
    if (sched->stages * m > PLAN_MAX_CELLS)
        return err_set(err, -EINVAL, "a step on %zu stages takes 1 to %zu microbatches, not %zu",
                       sched->stages, PLAN_MAX_CELLS / sched->stages, m);
    const size_t ranks = request_shape(req).first[pipelines];
    if (req->ranks && req->ranks != ranks)
        return err_set(err, -EINVAL,
                       "the plan is for %zu ranks, but its schedule is for %zu; make the schedule again",
                       req->ranks, ranks);
    rc = slices > 1 ? check_slices(req, err) : 0;
    if (!rc && req->pipelines && request_replicas(req) > 1)
        rc = check_replicas(req, err);
    for (size_t d = 0; d < pipelines && !rc; d++) {
        const struct sched *own = req->pipelines ? req->pipelines[d].sched : req->sched;
        rc = check_order(req, own, m / steps, first, err);
        first += (d + 1) % slices ? 0 : own->microbatches / steps;
    }
    return rc;
}

/* One order's, or a pipeline's. */
static int check_stages_on(size_t stages, size_t ranks, const uint32_t *place, struct err *err)
{
    if (stages < ranks || stages > UINT16_MAX || (stages > ranks && !place))
        return err_set(err, -EINVAL, "%zu stages on %zu ranks: this program has no place for them", stages,
                       ranks);
    for (size_t s = 0; place && s < stages; s++)
        if (place[s] >= ranks)
            return err_set(err, -EINVAL, "stage %zu is placed on rank %u, but the ranks are 0 to %zu", s,
                           place[s], ranks - 1);
    return place ? check_placement(ranks, stages, place, err) : 0;
}

static int check_stages(const struct plan_request *req, struct err *err)
{
    const struct plan_shape shape = request_shape(req);
    int rc = 0;
    for (size_t d = 0; d < shape.pipelines && !rc; d++)
        rc = check_stages_on(request_stages(req), plan_shape_places(&shape, d), shape.place[d], err);
    return rc;
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
    if (req->npipelines > PLAN_MAX_REPLICAS || request_pipelines(req) % request_slices(req) ||
        (req->shape.pipelines ? req->shape.pipelines != request_pipelines(req) ||
                                    req->shape.first[req->shape.pipelines] != req->ranks
                              : req->ranks % request_pipelines(req) != 0))
        return err_set(err, -EINVAL, "%zu ranks cannot be those of %zu replicas", req->ranks,
                       request_pipelines(req));
    int rc = check_stages(req, err);
    if (rc < 0 || program_moves(req->program))
        return rc < 0 ? rc : check_params(req, err);
    size_t most = PLAN_MAX_CELLS / request_stages(req), groups = 0;
    for (size_t d = 0; req->pipelines && d < request_pipelines(req); d += request_slices(req))
        groups += req->pipelines[d].groups;
    if (req->pipelines && groups != request_groups(req))
        return err_set(err, -EINVAL, "%zu replicas have %zu groups together, but there are %zu",
                       request_replicas(req), groups, request_groups(req));
    if (req->microbatches < 1 || req->microbatches > most)
        return err_set(
            err, -EINVAL,
            "a round on %zu stages takes 1 to %zu microbatches, not %zu; cut it into several rounds",
            request_stages(req), most, req->microbatches);
    return 0;
}

/* A pipeline's tasks and messages have the numbers of its schedule's microbatches so far. */
static bool counts_microbatches(enum msg_kind kind)
{
    return kind == MSG_ACT || kind == MSG_GRAD || kind == MSG_TARGET || kind == MSG_LOSS;
}

static void number(const struct build *b, uint32_t *mb)
{
    const size_t own = build_step_microbatches(b), all = b->plan->microbatches / b->plan->steps;
    *mb = (uint32_t)(*mb / own * all + b->first + *mb % own);
}

static void number_all(const struct build *b)
{
    for (size_t place = 0; place < build_places(b); place++) {
        struct plan_rank *rank = &b->plan->rank[plan_shape_rank(&b->shape, b->pipeline, place)];
        for (size_t k = 0; k < rank->n; k++) {
            struct task *t = &rank->tasks[k];
            if (task_is_compute(t->kind) || t->kind == TASK_LOSS)
                number(b, &t->mb);
            for (uint32_t i = 0; i < t->nneeds; i++)
                if (counts_microbatches((enum msg_kind)t->needs[i].key.kind))
                    number(b, &t->needs[i].key.mb);
            for (uint32_t i = 0; i < t->nemits; i++)
                if (counts_microbatches((enum msg_kind)t->emits[i].key.kind))
                    number(b, &t->emits[i].key.mb);
        }
    }
}

static int build_pipelines(struct build *b, struct err *err)
{
    int rc = 0;
    for (b->pipeline = 0; b->pipeline < b->plan->pipelines && !rc; b->pipeline++) {
        b->sched = b->req->pipelines ? b->req->pipelines[b->pipeline].sched : b->req->sched;
        b->own = b->sched->microbatches / b->plan->steps;
        rc = build_train(b, err);
        if (!rc && !b->no_memory && b->plan->pipelines > 1)
            number_all(b);
        if ((b->pipeline + 1) % request_slices(b->req) == 0) /* slices of a replica have the same ones */
            b->first += build_step_microbatches(b);
    }
    return rc;
}

/* Who has no microbatch has nothing to do. */
static void build_forwards(struct build *b)
{
    const size_t n = b->plan->microbatches;
    for (b->pipeline = 0; b->pipeline < b->plan->pipelines && !b->no_memory; b->pipeline++) {
        const size_t replica = b->pipeline / request_slices(b->req);
        b->first = forward_first(b->req, replica, n);
        b->own = forward_first(b->req, replica + 1, n) - b->first;
        if (b->pipeline && !b->own)
            continue;
        build_rows(b);
        build_score(b);
        build_score_end(b);
        if (!b->no_memory && b->own && b->plan->pipelines > 1)
            number_all(b);
    }
}

static int build_program(struct build *b, struct err *err)
{
    switch (b->req->program) {
    case PROGRAM_TRAIN: return build_pipelines(b, err);
    case PROGRAM_FORWARD: build_forwards(b); return 0;
    case PROGRAM_DECODE: build_decode(b); return 0;
    case PROGRAM_SAVE:
    case PROGRAM_LOAD:
    case PROGRAM_RESTORE: build_moves(b); return 0;
    }
    return 0;
}

static size_t request_microbatches(const struct plan_request *req)
{
    size_t n = req->program == PROGRAM_TRAIN ? 0 : req->microbatches;
    if (program_moves(req->program))
        return req->pieces[req->first[request_stages(req)] + 2];
    for (size_t d = 0; req->program == PROGRAM_TRAIN && d < request_pipelines(req); d += request_slices(req))
        n += req->pipelines ? req->pipelines[d].sched->microbatches : req->sched->microbatches;
    return n;
}

static struct plan *plan_new(const struct plan_request *req)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    const struct sched *sched = request_sched(req);
    plan->program = req->program;
    plan->pipelines = request_pipelines(req);
    plan->shape = request_shape(req);
    plan->ranks = plan->shape.first[plan->pipelines];
    memset(plan->shape.place, 0, sizeof plan->shape.place);
    plan->stages = sched ? sched->stages : program_moves(req->program) ? req->ranks : request_stages(req);
    plan->microbatches = request_microbatches(req);
    plan->steps = sched && req->steps ? req->steps : 1;
    plan->groups = request_groups(req);
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
    b.shape = request_shape(req);
    b.last = (uint32_t)b.plan->stages - 1;
    rc = build_program(&b, err);
    if (rc == 0 && (b.no_memory || assign_all_slots(b.plan) < 0 || count_messages(b.plan) < 0))
        rc = err_set(err, -ENOMEM, "no memory for a plan of %zu stages and %zu microbatches", b.plan->stages,
                     b.plan->microbatches);
    if (rc < 0)
        goto fail;
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
    for (size_t r = 0; plan->rank && r < plan->ranks; r++) {
        free(plan->rank[r].tasks);
        free(plan->rank[r].in);
    }
    free(plan->rank);
    free(plan->slots);
    free(plan->activations);
    free(plan->bwd_x_only);
    free(plan->bwd_w_only);
    free(plan);
}
