/* SPDX-License-Identifier: MIT
 *
 * Where the steps of a training program end: the squared norm runs down the ring, the clip factor
 * runs up it, and each stage takes its optimizer step. Owns its scratch. Pure; called by
 * plan_train.c.
 *
 * A step that is alone, or the last of its adapter, ends behind everything else. Where others
 * follow, its NORM stands on each stage where a unit-cost run has the last of its backwards behind
 * it, on this stage and all above, so that nobody waits for it; and its UPDATE right before the
 * first forward of the adapter's next step, for the clip factor comes up the ring ahead of that
 * step's first activations. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "pipe/plan_impl.h"

enum { NORM = 1, UPDATE = 2, NO_STEP = UINT32_MAX };

struct ends {
    struct build *b; /* borrowed */
    size_t steps, stages;
    double *due;        /* [steps · stages] owned, as all below: when NORM could be done */
    size_t *left;       /* [steps · stages] backwards that come first and are not added yet */
    uint32_t *last;     /* [steps · stages] position of the last of them in its rank's list */
    uint8_t *done;      /* [steps · stages] NORM, UPDATE */
    uint32_t *previous; /* [steps] the step of the same adapter before this one */
    size_t *from;       /* [stages] steps before this one have their NORM */
    bool impossible;
};

static size_t cell(const struct ends *ends, uint32_t step, uint32_t stage)
{
    return (size_t)step * ends->stages + stage;
}

/* The last task of a microbatch's way back through a stage. */
static bool is_back(const struct sched_task *task)
{
    return task->op == OP_B || task->op == OP_W;
}

void ends_free(struct ends *ends)
{
    if (!ends)
        return;
    free(ends->due);
    free(ends->left);
    free(ends->last);
    free(ends->done);
    free(ends->previous);
    free(ends->from);
    free(ends);
}

static void find_previous(struct ends *ends, const uint32_t *adapter_of_step)
{
    for (uint32_t step = 0; step < ends->steps; step++) {
        ends->previous[step] = NO_STEP;
        for (uint32_t before = step; adapter_of_step && before-- > 0;)
            if (adapter_of_step[before] == adapter_of_step[step]) {
                ends->previous[step] = before;
                break;
            }
    }
}

static void find_due(struct ends *ends, const struct sched *sched, const double *end)
{
    for (size_t r = 0; r < sched->ranks; r++)
        for (size_t k = 0; k < sched->rank[r].n; k++, end++) {
            const struct sched_task *task = &sched->rank[r].tasks[k];
            const size_t at = cell(ends, build_step(ends->b, task->mb), task->stage);
            if (!is_back(task))
                continue;
            ends->left[at]++;
            ends->due[at] = *end > ends->due[at] ? *end : ends->due[at];
        }
    for (uint32_t step = 0; step < ends->steps; step++)
        for (uint32_t stage = ends->b->last; stage-- > 0;) {
            const double above = ends->due[cell(ends, step, stage + 1)];
            double *due = &ends->due[cell(ends, step, stage)];
            *due = above > *due ? above : *due;
        }
}

struct ends *ends_new(struct build *b, const struct sched_sim *sim)
{
    struct ends *ends = calloc(1, sizeof *ends);
    if (!ends)
        return NULL;
    *ends = (struct ends){.b = b, .steps = b->plan->steps, .stages = b->plan->stages};
    const size_t cells = ends->steps * ends->stages;
    ends->due = calloc(cells, sizeof *ends->due);
    ends->left = calloc(cells, sizeof *ends->left);
    ends->last = calloc(cells, sizeof *ends->last);
    ends->done = calloc(cells, sizeof *ends->done);
    ends->previous = calloc(ends->steps, sizeof *ends->previous);
    ends->from = calloc(ends->stages, sizeof *ends->from);
    if (!ends->due || !ends->left || !ends->last || !ends->done || !ends->previous || !ends->from) {
        ends_free(ends);
        return NULL;
    }
    find_previous(ends, b->req->adapter_of_step);
    find_due(ends, b->sched, sim->end);
    return ends;
}

static void add_norm(struct ends *ends, uint32_t step, uint32_t stage)
{
    struct build *b = ends->b;
    const bool tied = b->req->tied;
    build_shares(b, step, stage, ends->last[cell(ends, step, stage)]);
    if (build_is_divided(b))
        build_squares(b, step, stage);
    if (stage == 0)
        build_losses(b, step);
    struct task *norm = build_add(b, TASK_NORM, stage, step);
    if (stage < b->last)
        build_need(b, norm, MSG_NORM, step, stage + 1);
    if (stage > 0)
        build_emit(b, norm, MSG_NORM, step, stage - 1);
    if (tied && stage == b->last)
        build_emit(b, norm, MSG_TIED_GRAD, 0, 0);
    if (tied && stage == 0)
        build_need(b, norm, MSG_TIED_GRAD, 0, b->last);
    if (build_replica(b) && build_is_divided(b) && b->req->parts[stage])
        build_emit_to(norm, MSG_SQUARES, step, plan_shape_stage(&b->shape, build_slice(b), stage));
    if (stage == 0 && build_gives_losses(b))
        build_emit_to(norm, MSG_LOSSES, step, 0);
    if (stage == 0)
        build_tell(b, step);
    ends->done[cell(ends, step, stage)] |= NORM;
}

/* The head's copy of a tied embedding. */
static void tie(struct build *b, struct task *task)
{
    if (b->req->tied && task->stage == 0)
        build_emit(b, task, MSG_TIED_WEIGHT, 0, b->last);
    if (b->req->tied && task->stage == b->last)
        build_need(b, task, MSG_TIED_WEIGHT, 0, 0);
}

static void add_update(struct ends *ends, uint32_t step, uint32_t stage)
{
    struct build *b = ends->b;
    struct task *update = build_add(b, TASK_UPDATE, stage, step);
    if (stage > 0)
        build_need(b, update, MSG_SCALE, step, stage - 1);
    else if (b->pipeline)
        build_need_from(update, MSG_SCALE, step, 0);
    if (stage < b->last)
        build_emit(b, update, MSG_SCALE, step, stage + 1);
    if (!build_is_divided(b)) {
        tie(b, update);
    } else {
        build_values(b, step, stage);
        if (b->req->tied && (stage == 0 || stage == b->last))
            tie(b, build_add(b, TASK_TIED, stage, step));
    }
    ends->done[cell(ends, step, stage)] |= UPDATE;
}

/* What comes from another rank is awaited; what comes from this one, or is this stage's own, must
 * stand before. */
static bool can_norm(const struct ends *ends, uint32_t step, uint32_t stage)
{
    const struct build *b = ends->b;
    const bool above_here = stage < b->last && build_rank(b, stage + 1) == build_rank(b, stage);
    return !ends->left[cell(ends, step, stage)] &&
           (!above_here || ends->done[cell(ends, step, stage + 1)] & NORM);
}

/* Replicas exchange gradients where NORMs stand: in one order, however different their shares are.
 * */
static bool next_in_turn(const struct ends *ends, uint32_t rank, double now, uint32_t *ret_step,
                         uint32_t *ret_stage)
{
    for (uint32_t step = 0; step < ends->steps; step++)
        for (uint32_t stage = (uint32_t)ends->stages; stage-- > 0;) {
            const size_t at = cell(ends, step, stage);
            if (build_rank(ends->b, stage) != rank || ends->done[at] & NORM)
                continue;
            *ret_step = step;
            *ret_stage = stage;
            return ends->due[at] <= now && can_norm(ends, step, stage);
        }
    return false;
}

/* Of the rank's stages and all steps the NORM that is due first, of two the one higher up: the same
 * order on every rank, so that none waits for one that stands behind what waits for it. */
static bool next_norm(struct ends *ends, uint32_t rank, double now, uint32_t *ret_step, uint32_t *ret_stage)
{
    double first = now;
    bool found = false;
    for (uint32_t stage = (uint32_t)ends->stages; stage-- > 0;) {
        size_t *from = &ends->from[stage];
        if (build_rank(ends->b, stage) != rank)
            continue;
        while (*from < ends->steps && ends->done[cell(ends, (uint32_t)*from, stage)] & NORM)
            ++*from;
        for (uint32_t step = (uint32_t)*from; step < ends->steps; step++) {
            const size_t at = cell(ends, step, stage);
            if (ends->done[at] & NORM || ends->due[at] > first || (found && ends->due[at] == first) ||
                !can_norm(ends, step, stage))
                continue;
            found = true;
            first = ends->due[at];
            *ret_step = step;
            *ret_stage = stage;
        }
    }
    return found;
}

static void norm_what_is_due(struct ends *ends, uint32_t rank, double now)
{
    uint32_t step, stage;
    while (request_replicas(ends->b->req) > 1 ? next_in_turn(ends, rank, now, &step, &stage)
                                              : next_norm(ends, rank, now, &step, &stage))
        add_norm(ends, step, stage);
}

void ends_before(struct ends *ends, const struct sched_task *next, double start)
{
    if (ends->steps == 1)
        return;
    norm_what_is_due(ends, build_rank(ends->b, next->stage), start);
    const uint32_t previous = ends->previous[build_step(ends->b, next->mb)];
    if (next->op != OP_F || previous == NO_STEP)
        return;
    const size_t at = cell(ends, previous, next->stage);
    if (ends->done[at] & UPDATE)
        return;
    if (!(ends->done[at] & NORM) && !can_norm(ends, previous, next->stage)) {
        ends->impossible = true;
        return;
    }
    if (!(ends->done[at] & NORM))
        add_norm(ends, previous, next->stage);
    add_update(ends, previous, next->stage);
}

void ends_after(struct ends *ends, const struct sched_task *task)
{
    const size_t at = cell(ends, build_step(ends->b, task->mb), task->stage);
    if (!is_back(task))
        return;
    ends->left[at]--;
    ends->last[at] = (uint32_t)ends->b->plan->rank[build_rank(ends->b, task->stage)].n - 1;
}

bool ends_is_back(const struct ends *ends, uint32_t step)
{
    return !ends->left[cell(ends, step, 0)];
}

int ends_finish(struct ends *ends, struct err *err)
{
    if (ends->impossible)
        return err_set(err, -EDEADLK,
                       "this order begins a step before its predecessor has ended; put more microbatches of "
                       "other adapters between them, or end all steps before the next begin");
    for (uint32_t place = 0; place < build_places(ends->b); place++)
        norm_what_is_due(ends, plan_shape_rank(&ends->b->shape, ends->b->pipeline, place), INFINITY);
    for (uint32_t step = 0; step < ends->steps; step++)
        for (uint32_t stage = 0; stage <= ends->b->last; stage++)
            if (!(ends->done[cell(ends, step, stage)] & UPDATE))
                add_update(ends, step, stage);
    return 0;
}
