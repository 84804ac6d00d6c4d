/* SPDX-License-Identifier: MIT
 *
 * Compiles a program into every rank's tasks, messages and slots. Owns the plan it returns until plan_free.
 * Pure: the same request gives the same plan on every node. Called when a job is planned and started, from
 * any thread. */
#include "pipe/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipe/split.h"

/* A plan being built. Tasks are appended to the rank of their stage; running out of memory is remembered and
 * told once, at the end, so that the programs below read as what they do. */
struct build {
    const struct plan_request *req;
    struct plan *plan;
    const uint32_t *rank_of_stage; /* borrowed: schedule; NULL = stage s on rank s */
    uint32_t last;                 /* stage */
    bool no_memory;
    struct task spare; /* where appends go once there is no memory */
};

const char *task_kind_name(enum task_kind kind)
{
    static const char *const text[TASK_COUNT] = {
        [TASK_F] = "F",     [TASK_I] = "I",       [TASK_W] = "W",
        [TASK_B] = "B",     [TASK_NORM] = "norm", [TASK_UPDATE] = "update",
        [TASK_PUT] = "put", [TASK_LOSS] = "loss", [TASK_TOKEN] = "token",
    };
    return (unsigned)kind < TASK_COUNT ? text[kind] : "?";
}

const char *msg_kind_name(enum msg_kind kind)
{
    static const char *const text[MSG_COUNT] = {
        [MSG_ACT] = "activations",
        [MSG_GRAD] = "gradient",
        [MSG_TARGET] = "targets",
        [MSG_LOSS] = "loss",
        [MSG_TOKEN] = "token",
        [MSG_NORM] = "norm",
        [MSG_SCALE] = "scale",
        [MSG_TIED_GRAD] = "tied gradient",
        [MSG_TIED_WEIGHT] = "tied weight",
        [MSG_PARAM] = "parameters",
        [MSG_GO] = "go",
    };
    return (unsigned)kind < MSG_COUNT ? text[kind] : "?";
}

char *task_name(char *buf, size_t n, const struct task *task)
{
    if (task->kind == TASK_NORM || task->kind == TASK_UPDATE)
        snprintf(buf, n, "%u %s", task->stage, task_kind_name(task->kind));
    else if (task->kind > TASK_B)
        snprintf(buf, n, "%u %s %u", task->stage, task_kind_name(task->kind), task->mb);
    else
        snprintf(buf, n, "%u%s%u", task->stage, task_kind_name(task->kind), task->mb);
    return buf;
}

static uint32_t rank_of(const struct build *b, uint32_t stage)
{
    return b->rank_of_stage ? b->rank_of_stage[stage] : stage;
}

static struct task *add(struct build *b, enum task_kind kind, uint32_t stage, uint32_t mb)
{
    struct plan_rank *rank = &b->plan->rank[rank_of(b, stage)];
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
    *task = (struct task){.kind = kind, .stage = stage, .mb = mb, .slot = SLOT_NONE};
    return task;
}

/* What passes between two stages of one rank is handed over in place and is no message. */
static void need(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb,
                 uint32_t from_stage)
{
    uint32_t from = rank_of(b, from_stage);
    if (from == rank_of(b, task->stage))
        return;
    assert(task->nneeds < TASK_MAX_NEEDS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)task->stage, .mb = mb};
    task->needs[task->nneeds++] = (struct task_need){key, from};
}

static void emit(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb, uint32_t to_stage)
{
    uint32_t to = rank_of(b, to_stage);
    if (to == rank_of(b, task->stage))
        return;
    assert(task->nemits < TASK_MAX_EMITS);
    struct msg_key key = {.kind = (uint16_t)kind, .stage = (uint16_t)to_stage, .mb = mb};
    task->emits[task->nemits++] = (struct task_emit){key, to};
}

/* `keep`: the backward pass will want what this forward leaves in its slot. */
static struct task *add_forward(struct build *b, uint32_t stage, uint32_t mb, bool keep)
{
    struct task *task = add(b, TASK_F, stage, mb);
    task->first_use = true;
    task->last_use = !keep;
    if (stage > 0)
        need(b, task, MSG_ACT, mb, stage - 1);
    if (stage < b->last)
        emit(b, task, MSG_ACT, mb, stage + 1);
    return task;
}

/* The forward of a program that ends in a loss: labels go straight to the last stage, the loss comes back. */
static void add_forward_loss(struct build *b, uint32_t stage, uint32_t mb, bool keep)
{
    struct task *task = add_forward(b, stage, mb, keep);
    if (stage == 0)
        emit(b, task, MSG_TARGET, mb, b->last);
    if (stage == b->last) {
        need(b, task, MSG_TARGET, mb, 0);
        emit(b, task, MSG_LOSS, mb, 0);
    }
}

static void add_loss(struct build *b, uint32_t mb)
{
    need(b, add(b, TASK_LOSS, 0, mb), MSG_LOSS, mb, b->last);
}

static void add_backward(struct build *b, enum sched_op op, uint32_t stage, uint32_t mb)
{
    uint32_t lowest = b->req->lowest_trained;
    if (stage < lowest)
        return;
    struct task *task = add(b, op == OP_I ? TASK_I : op == OP_W ? TASK_W : TASK_B, stage, mb);
    task->last_use = op != OP_I;
    if (op == OP_W)
        return;
    if (stage < b->last)
        need(b, task, MSG_GRAD, mb, stage + 1);
    if (stage > lowest)
        emit(b, task, MSG_GRAD, mb, stage - 1);
}

/* --- TRAIN: where stage 0 takes each loss ----------------------------------------------------- */

/* A loss that waits in a buffer holds that buffer, and a rank that waits for a loss does nothing else. So
 * stage 0 takes losses (1) before its backward of microbatch j: those of all microbatches which the last
 * stage forwards before it goes back through j; they are on their way before the gradient it waits for
 * anyway. (2) After a forward that leaves more than `ranks` losses open: the oldest one, if in a unit-cost
 * run it would be there by then, which keeps the lists free of cyclic waits: sorted by their times in that
 * run, the tasks of all ranks still stand after everything they need. */
struct losses {
    uint32_t *order; /* [microbatches] as the last stage forwards them */
    double *end;     /* [microbatches] when the k-th of them is there in a unit-cost run */
    size_t *before; /* [microbatches] how many the last stage forwards before it goes back through this one */
    size_t forwarded, taken; /* by stage 0 */
};

static void losses_done(struct losses *losses)
{
    free(losses->order);
    free(losses->end);
    free(losses->before);
}

static int losses_init(struct losses *ret, const struct sched *sched, const double *start)
{
    struct losses losses = {0};
    losses.order = calloc(sched->microbatches, sizeof *losses.order);
    losses.end = calloc(sched->microbatches, sizeof *losses.end);
    losses.before = calloc(sched->microbatches, sizeof *losses.before);
    if (!losses.order || !losses.end || !losses.before) {
        losses_done(&losses);
        return -ENOMEM;
    }
    uint32_t last = (uint32_t)sched->stages - 1, rank = sched->rank_of_stage[last];
    for (uint32_t r = 0; r < rank; r++)
        start += sched->rank[r].n;
    size_t n = 0;
    for (size_t k = 0; k < sched->rank[rank].n; k++) {
        const struct sched_task *task = &sched->rank[rank].tasks[k];
        if (task->stage != last)
            continue;
        if (task->op == OP_F) {
            losses.order[n] = task->mb;
            losses.end[n++] = start[k] + 1.0;
        } else if (task->op != OP_W) {
            losses.before[task->mb] = n;
        }
    }
    *ret = losses;
    return 0;
}

/* Rule (1): `task` comes next in its rank's list. */
static void take_losses_before(struct build *b, struct losses *losses, const struct sched_task *task)
{
    if (task->stage != 0 || (task->op != OP_I && task->op != OP_B))
        return;
    while (losses->taken < losses->before[task->mb])
        add_loss(b, losses->order[losses->taken++]);
}

/* Rule (2): `task` was just appended; the one after it begins at `next` in the unit-cost run. */
static void take_losses_after(struct build *b, struct losses *losses, const struct sched_task *task,
                              double next)
{
    if (task->stage != 0 || task->op != OP_F)
        return;
    losses->forwarded++;
    if (losses->forwarded > losses->taken + b->plan->ranks && losses->end[losses->taken] <= next)
        add_loss(b, losses->order[losses->taken++]);
}

static void add_list(struct build *b, uint32_t rank, const double *start, struct losses *losses)
{
    const struct sched_list *list = &b->req->sched->rank[rank];
    for (size_t k = 0; k < list->n; k++) {
        const struct sched_task *task = &list->tasks[k];
        if (task->op == OP_R)
            continue;
        take_losses_before(b, losses, task);
        if (task->op == OP_F)
            add_forward_loss(b, task->stage, task->mb, task->stage >= b->req->lowest_trained);
        else
            add_backward(b, task->op, task->stage, task->mb);
        if (k + 1 < list->n)
            take_losses_after(b, losses, task, start[k + 1]);
    }
    while (rank == rank_of(b, 0) && losses->taken < b->plan->microbatches)
        add_loss(b, losses->order[losses->taken++]);
}

/* The end of a step: the squared norm runs down the ring, the clip factor runs up it. */
static void add_update(struct build *b)
{
    bool tied = b->req->tied;
    for (uint32_t s = b->last + 1; s-- > 0;) {
        struct task *norm = add(b, TASK_NORM, s, 0);
        if (s < b->last)
            need(b, norm, MSG_NORM, 0, s + 1);
        if (s > 0)
            emit(b, norm, MSG_NORM, 0, s - 1);
        if (tied && s == b->last)
            emit(b, norm, MSG_TIED_GRAD, 0, 0);
        if (tied && s == 0)
            need(b, norm, MSG_TIED_GRAD, 0, b->last);
    }
    for (uint32_t s = 0; s <= b->last; s++) {
        struct task *update = add(b, TASK_UPDATE, s, 0);
        if (s > 0)
            need(b, update, MSG_SCALE, 0, s - 1);
        if (s < b->last)
            emit(b, update, MSG_SCALE, 0, s + 1);
        if (tied && s == 0)
            emit(b, update, MSG_TIED_WEIGHT, 0, b->last);
        if (tied && s == b->last)
            need(b, update, MSG_TIED_WEIGHT, 0, 0);
    }
}

static int build_train(struct build *b, struct err *err)
{
    const struct sched *sched = b->req->sched;
    struct sched_sim sim;
    const struct sched_costs units = {.each = {1.0, 1.0, 1.0, 1.0}};
    int rc = sched_simulate(&sim, sched, &units, err);
    if (rc < 0)
        return rc;
    struct losses losses;
    rc = losses_init(&losses, sched, sim.start);
    if (rc == 0) {
        const double *start = sim.start;
        for (uint32_t r = 0; r < sched->ranks; start += sched->rank[r++].n)
            add_list(b, r, start, &losses);
        add_update(b);
        losses_done(&losses);
    } else {
        b->no_memory = true;
    }
    sched_sim_done(&sim);
    return 0;
}

/* --- the other programs ----------------------------------------------------------------------- */

static void build_forward(struct build *b)
{
    size_t open = b->plan->ranks; /* losses stage 0 leaves in buffers before it takes the oldest */
    for (uint32_t s = 0; s <= b->last; s++)
        for (uint32_t i = 0; i < b->plan->microbatches; i++) {
            add_forward_loss(b, s, i, false);
            if (s == 0 && i >= open)
                add_loss(b, i - (uint32_t)open);
        }
    size_t taken = b->plan->microbatches > open ? b->plan->microbatches - open : 0;
    for (uint32_t i = (uint32_t)taken; i < b->plan->microbatches; i++)
        add_loss(b, i);
}

static void build_decode(struct build *b)
{
    uint32_t final = (uint32_t)b->plan->microbatches - 1;
    for (uint32_t s = 0; s <= b->last; s++)
        for (uint32_t i = 0; i <= final; i++) {
            struct task *task = add_forward(b, s, i, false);
            if (b->req->want_token && s == b->last && i == final)
                emit(b, task, MSG_TOKEN, final, 0);
        }
    if (b->req->want_token)
        need(b, add(b, TASK_TOKEN, 0, final), MSG_TOKEN, final, b->last);
}

/* Piece by piece between its owner and stage 0, through every stage that lies between. A tied embedding that is loaded goes on
 * to the head's copy of it with its last piece, and the head's stage takes it before anything else: what is sent first is
 * awaited first. */
static void build_params(struct build *b, bool save)
{
    const size_t *first = b->req->first, *pieces = b->req->pieces;
    const size_t layers = first[b->last + 1];
    const bool tied = b->req->tied && !save && b->last > 0;
    bool taken = false;
    size_t unit = 0;
    uint32_t owner = 0;
    for (uint32_t piece = 0; piece < pieces[layers + 2]; piece++) {
        while (piece >= pieces[unit + 1])
            unit++;
        while (unit > 0 && unit <= layers && first[owner + 1] < unit)
            owner++;
        if (unit > layers)
            owner = b->last;
        for (uint32_t s = 0; s <= owner; s++) {
            struct task *put = add(b, TASK_PUT, s, piece);
            if (tied && piece + 1 == pieces[1])
                emit(b, put, MSG_TIED_WEIGHT, 0, b->last);
            if (tied && s == b->last && !taken) {
                need(b, put, MSG_TIED_WEIGHT, 0, 0);
                taken = true;
            }
            if (save ? s < owner : s > 0)
                need(b, put, MSG_PARAM, piece, save ? s + 1 : s - 1);
            if (save ? s > 0 : s < owner)
                emit(b, put, MSG_PARAM, piece, save ? s - 1 : s + 1);
        }
    }
}

/* --- slots and counts ------------------------------------------------------------------------- */

/* Takes a slot at first_use and gives it back after last_use. The one freed last is taken first: its memory
 * is warm. */
static void assign_slots(struct plan *plan, struct plan_rank *rank, uint32_t *slot_of, uint32_t *idle)
{
    size_t nidle = 0;
    for (size_t k = 0; k < rank->n; k++) {
        struct task *task = &rank->tasks[k];
        if (task->kind > TASK_B)
            continue;
        uint32_t *slot = &slot_of[(size_t)task->stage * plan->microbatches + task->mb];
        if (task->first_use)
            *slot = nidle ? idle[--nidle] : (uint32_t)rank->slots++;
        task->slot = *slot;
        if (task->last_use)
            idle[nidle++] = *slot;
    }
}

static int assign_all_slots(struct plan *plan)
{
    size_t cells = plan->stages * plan->microbatches;
    uint32_t *slot_of = calloc(cells, sizeof *slot_of), *idle = calloc(cells, sizeof *idle);
    int rc = slot_of && idle ? 0 : -ENOMEM;
    for (size_t r = 0; rc == 0 && r < plan->ranks; r++)
        assign_slots(plan, &plan->rank[r], slot_of, idle);
    free(slot_of);
    free(idle);
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
static int check_placement(const struct sched *sched, struct err *err)
{
    for (size_t s = 0; s < sched->stages; s++) {
        size_t other = (s + 1) % sched->stages;
        uint32_t a = sched->rank_of_stage[s], b = sched->rank_of_stage[other];
        if (a != b && b != plan_prev(sched->ranks, a) && b != plan_next(sched->ranks, a))
            return err_set(err, -EINVAL,
                           "stages %zu and %zu speak with each other, but lie on ranks %u and %u, which are "
                           "no neighbours in a ring of %zu; place them on neighbours",
                           s, other, a, b, sched->ranks);
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
    return check_placement(sched, err);
}

static int check_params(const struct plan_request *req, struct err *err)
{
    if (!req->first || !req->pieces)
        return err_set(err, -EINVAL, "saving and loading need the split of the layers and their pieces");
    int r = split_check(req->first, req->ranks, req->first[req->ranks], err);
    if (r)
        return r;
    const size_t layers = req->first[req->ranks];
    if (layers > SCHED_MAX_CELLS || req->pieces[layers + 2] > SCHED_MAX_CELLS / req->ranks)
        return err_set(err, -EINVAL, "the parameters of %zu layers are too many for %zu ranks", layers,
                       req->ranks);
    return 0;
}

static int check_request(const struct plan_request *req, struct err *err)
{
    if ((unsigned)req->program > PROGRAM_LOAD)
        return err_set(err, -EINVAL, "there is no program number %u", (unsigned)req->program);
    if (req->program == PROGRAM_TRAIN)
        return check_train(req, err);
    if (req->ranks < 1 || req->ranks > SCHED_MAX_RANKS)
        return err_set(err, -EINVAL, "a plan needs 1 to %d ranks, not %zu", SCHED_MAX_RANKS, req->ranks);
    bool params = req->program == PROGRAM_SAVE || req->program == PROGRAM_LOAD;
    if (params)
        return check_params(req, err);
    if (req->microbatches < 1 || req->microbatches > SCHED_MAX_CELLS / req->ranks)
        return err_set(
            err, -EINVAL,
            "a round on %zu ranks takes 1 to %zu microbatches, not %zu; cut it into several rounds",
            req->ranks, SCHED_MAX_CELLS / req->ranks, req->microbatches);
    return 0;
}

static int build_program(struct build *b, struct err *err)
{
    switch (b->req->program) {
    case PROGRAM_TRAIN: return build_train(b, err);
    case PROGRAM_FORWARD: build_forward(b); return 0;
    case PROGRAM_DECODE: build_decode(b); return 0;
    case PROGRAM_SAVE: build_params(b, true); return 0;
    case PROGRAM_LOAD: build_params(b, false); return 0;
    }
    return 0;
}

static struct plan *plan_new(const struct plan_request *req)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    const struct sched *sched = req->program == PROGRAM_TRAIN ? req->sched : NULL;
    plan->program = req->program;
    plan->ranks = sched ? sched->ranks : req->ranks;
    plan->stages = sched ? sched->stages : req->ranks;
    plan->microbatches = sched ? sched->microbatches : req->microbatches;
    if (req->program == PROGRAM_SAVE || req->program == PROGRAM_LOAD)
        plan->microbatches = req->pieces[req->first[req->ranks] + 2];
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
    b.rank_of_stage = req->program == PROGRAM_TRAIN ? req->sched->rank_of_stage : NULL;
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
    free(plan);
}
