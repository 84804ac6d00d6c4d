/* SPDX-License-Identifier: MIT
 *
 * The program of a training step, or of several: the schedule's tasks, and losses where they hold
 * nobody up. Owns its scratch. Pure; called by plan_compile. */
#include <errno.h>
#include <stdlib.h>

#include "pipe/plan_impl.h"

static void add_backward(struct build *b, enum sched_op op, uint32_t stage, uint32_t mb)
{
    uint32_t lowest = b->req->lowest_trained;
    if (stage < lowest)
        return;
    struct task *task = build_add(b, op == OP_I ? TASK_I : op == OP_W ? TASK_W : TASK_B, stage, mb);
    task->last_use = op != OP_I;
    if (op == OP_W)
        return;
    if (stage < b->last)
        build_need(b, task, MSG_GRAD, mb, stage + 1);
    if (stage > lowest)
        build_emit(b, task, MSG_GRAD, mb, stage - 1);
}

/* --- TRAIN: where stage 0 takes each loss ----------------------------------------------------- */

/* A loss that waits in a buffer holds that buffer, and a rank that waits for a loss does nothing
 * else. So stage 0 takes losses (1) before its backward of microbatch j: those of all microbatches
 * which the last stage forwards before it goes back through j; they are on their way before the
 * gradient it waits for anyway. (2) After a forward that leaves more than `ranks` losses open: the
 * oldest one, if in a unit-cost run it would be there by then, which keeps the lists free of cyclic
 * waits: sorted by their times in that run, the tasks of all ranks still stand after everything
 * they need. */
struct losses {
    uint32_t *order; /* [microbatches] as the last stage forwards them */
    double *end;     /* [microbatches] when the k-th of them is there in a unit-cost run */
    size_t *before; /* [microbatches] how many the last stage forwards before it goes back through this one */
    size_t *taken_of;        /* [steps] of each step's microbatches */
    size_t forwarded, taken; /* by stage 0 */
};

static void losses_done(struct losses *losses)
{
    free(losses->order);
    free(losses->end);
    free(losses->before);
    free(losses->taken_of);
}

static int losses_init(struct losses *ret, const struct build *b, const double *start)
{
    const struct sched *sched = b->sched;
    struct losses losses = {0};
    losses.order = calloc(sched->microbatches, sizeof *losses.order);
    losses.end = calloc(sched->microbatches, sizeof *losses.end);
    losses.before = calloc(sched->microbatches, sizeof *losses.before);
    losses.taken_of = calloc(b->plan->steps, sizeof *losses.taken_of);
    if (!losses.order || !losses.end || !losses.before || !losses.taken_of) {
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

static void take_loss(struct build *b, struct losses *losses)
{
    const uint32_t mb = losses->order[losses->taken++];
    losses->taken_of[build_step(b, mb)]++;
    build_loss(b, mb);
}

/* Rule (1): `task` comes next in its rank's list. */
static void take_losses_before(struct build *b, struct losses *losses, const struct sched_task *task)
{
    if (task->stage != 0 || (task->op != OP_I && task->op != OP_B))
        return;
    while (losses->taken < losses->before[task->mb])
        take_loss(b, losses);
}

/* Rule (2): `task` was just appended; the one after it begins at `next` in the unit-cost run. */
static void take_losses_after(struct build *b, struct losses *losses, const struct sched_task *task,
                              double next)
{
    if (task->stage != 0 || task->op != OP_F)
        return;
    losses->forwarded++;
    if (losses->forwarded > losses->taken + build_places(b) && losses->end[losses->taken] <= next)
        take_loss(b, losses);
}

/* A step of several is known by its losses once it has gone back through stage 0. */
static void take_losses_of_step(struct build *b, struct losses *losses, const struct ends *ends,
                                const struct sched_task *task)
{
    const uint32_t step = build_step(b, task->mb);
    if (task->stage != 0 || b->plan->steps == 1 || !ends_is_back(ends, step))
        return;
    while (losses->taken_of[step] < build_step_microbatches(b))
        take_loss(b, losses);
}

/* --- forwards done again ---------------------------------------------------------------------- */

/* A stage that keeps its input alone does its forward again right before the backward, while the
 * gradient is on its way; or where its schedule says. Not where the backward follows the forward at
 * once: then all is still there. */
struct again {
    bool *stage;    /* [stages] does so */
    bool *done;     /* [stages · microbatches] */
    uint32_t *last; /* [stages] microbatch of its latest forward, UINT32_MAX once anything came after that */
};

static void again_done(struct again *again)
{
    free(again->stage);
    free(again->done);
    free(again->last);
}

static int again_init(struct again *again, const struct plan_request *req, const struct sched *sched)
{
    again->stage = calloc(sched->stages, sizeof *again->stage);
    again->done = calloc(sched->stages * sched->microbatches, sizeof *again->done);
    again->last = calloc(sched->stages, sizeof *again->last);
    if (!again->stage || !again->done || !again->last)
        return -ENOMEM;
    for (size_t s = 0; s < sched->stages; s++) {
        again->stage[s] = req->recompute && req->recompute[s];
        again->last[s] = UINT32_MAX;
    }
    for (size_t r = 0; r < sched->ranks; r++)
        for (size_t k = 0; k < sched->rank[r].n; k++)
            if (sched->rank[r].tasks[k].op == OP_R)
                again->stage[sched->rank[r].tasks[k].stage] = true;
    return 0;
}

static void forward_again(struct build *b, struct again *again, const struct sched_task *task)
{
    bool *done = &again->done[(size_t)task->stage * b->sched->microbatches + task->mb];
    bool backward = task->op == OP_I || task->op == OP_B;
    if (task->op != OP_R && !(backward && again->stage[task->stage] && again->last[task->stage] != task->mb))
        return;
    if (!*done && task->stage >= b->req->lowest_trained)
        build_add(b, TASK_R, task->stage, task->mb);
    *done = true;
}

static void add_task(struct build *b, struct again *again, const struct sched_task *task)
{
    bool trained = task->stage >= b->req->lowest_trained;
    if (task->op == OP_F) {
        struct task *forward = build_forward_loss(b, task->stage, task->mb, trained);
        forward->recomputes = trained && again->stage[task->stage];
    } else if (task->op != OP_R) {
        add_backward(b, task->op, task->stage, task->mb);
    }
    again->last[task->stage] = task->op == OP_F ? task->mb : UINT32_MAX;
}

static void add_list(struct build *b, uint32_t place, const double *start, struct losses *losses,
                     struct again *again, struct ends *ends)
{
    const struct sched_list *list = &b->sched->rank[place];
    for (size_t k = 0; k < list->n; k++) {
        const struct sched_task *task = &list->tasks[k];
        ends_before(ends, task, start[k]);
        forward_again(b, again, task);
        take_losses_before(b, losses, task);
        add_task(b, again, task);
        ends_after(ends, task);
        if (k + 1 < list->n)
            take_losses_after(b, losses, task, start[k + 1]);
        take_losses_of_step(b, losses, ends, task);
    }
    while (place == b->sched->rank_of_stage[0] && losses->taken < b->sched->microbatches)
        take_loss(b, losses);
}

int build_train(struct build *b, struct err *err)
{
    const struct sched *sched = b->sched;
    struct sched_sim sim;
    const struct sched_costs units = {.each = {1.0, 1.0, 1.0, 1.0, 0}};
    int rc = sched_simulate(&sim, sched, &units, err);
    if (rc < 0)
        return rc;
    struct losses losses = {0};
    struct again again = {0};
    struct ends *ends = ends_new(b, &sim);
    if (ends && again_init(&again, b->req, sched) == 0 && losses_init(&losses, b, sim.start) == 0) {
        const double *start = sim.start;
        build_rows(b);
        for (uint32_t r = 0; r < sched->ranks; start += sched->rank[r++].n)
            add_list(b, r, start, &losses, &again, ends);
        rc = ends_finish(ends, err);
    } else {
        b->no_memory = true;
    }
    ends_free(ends);
    losses_done(&losses);
    again_done(&again);
    sched_sim_done(&sim);
    return rc;
}
