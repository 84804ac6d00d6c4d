/* SPDX-License-Identifier: MIT
 *
 * Several pipelines in one training plan: rank 0 gives each the rows of its microbatches, replicas
 * exchange the gradients of each stage, slice by slice, and rank 0 gets all losses and gives all
 * the clip factor. Pure; called by plan.c, plan_train.c and plan_ends.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "num/sum_tree.h"
#include "pipe/plan_impl.h"

/* --- groups ----------------------------------------------------------------------------------- */

/* How an order has gone through the groups of a step, on a stage. */
struct group_walk {
    bool is_begun;
    int direction; /* 1, −1; 0: there was one group so far */
    size_t group;
};

static bool walk_on(struct group_walk *w, size_t group, bool may_descend)
{
    const int direction = !w->is_begun || group == w->group ? 0 : group > w->group ? 1 : -1;
    const bool is_on = !direction || !w->direction || direction == w->direction;
    w->direction = direction ? direction : w->direction;
    w->is_begun = true;
    w->group = group;
    return is_on && (may_descend || direction >= 0);
}

bool plan_keeps_groups(const struct sched *sched, size_t groups, size_t m, size_t first, size_t steps)
{
    const size_t own = sched->microbatches / steps;
    /* Forward through the last stage, and back through each. */
    struct group_walk *walks = calloc((sched->stages + 1) * steps, sizeof *walks);
    bool keeps = walks != NULL;
    for (size_t r = 0; r < sched->ranks && keeps; r++)
        for (size_t k = 0; k < sched->rank[r].n && keeps; k++) {
            const struct sched_task *task = &sched->rank[r].tasks[k];
            const bool back = task->op == OP_B || task->op == OP_W,
                       forward = task->op == OP_F && task->stage + 1 == sched->stages;
            const size_t group = plan_group(first + task->mb % own, m, groups),
                         at = task->mb / own * (sched->stages + 1) + (back ? task->stage : sched->stages);
            keeps = !(back || forward) || walk_on(&walks[at], group, back);
        }
    free(walks);
    return keeps;
}

/* --- requests --------------------------------------------------------------------------------- */

static int check_replica(const struct plan_request *req, size_t at, size_t group, size_t m, struct err *err)
{
    const struct plan_pipeline *first = &req->pipelines[0], *own = &req->pipelines[at * request_slices(req)];
    const size_t steps = req->steps ? req->steps : 1;
    const size_t begin = plan_group_first(group, m, req->groups),
                 end = plan_group_first(group + own->groups, m, req->groups);
    if (!own->groups || own->sched->microbatches != steps * (end - begin))
        return err_set(err, -EINVAL,
                       "replica %zu has %zu groups, which are %zu microbatches, but its schedule is for %zu",
                       at, own->groups, steps * (end - begin), own->sched->microbatches);
    if (own->sched->stages != first->sched->stages)
        return err_set(err, -EINVAL, "replica %zu has %zu stages, and the first has %zu: make them alike", at,
                       own->sched->stages, first->sched->stages);
    return own->sched->rank_of_stage[0]
               ? err_set(err, -EINVAL, "stage 0 of replica %zu does not lie on its first rank", at)
               : 0;
}

int check_replicas(const struct plan_request *req, struct err *err)
{
    size_t m = 0, group = 0;
    const size_t steps = req->steps ? req->steps : 1, slices = request_slices(req),
                 replicas = request_replicas(req);
    for (size_t d = 0; d < replicas; d++) {
        m += req->pipelines[d * slices].sched->microbatches / steps;
        group += req->pipelines[d * slices].groups;
    }
    if (group != req->groups || group > m || group > SUM_TREE_LEAVES)
        return err_set(err, -EINVAL,
                       "%zu replicas have %zu groups of %zu microbatches together, but a step has %zu groups",
                       replicas, group, m, req->groups);
    group = 0;
    int rc = req->parts ? 0 : err_set(err, -EINVAL, "replicas exchange gradients: say in how many parts");
    for (size_t d = 0; d < replicas && !rc; group += req->pipelines[d++ * slices].groups)
        rc = check_replica(req, d, group, m, err);
    for (size_t s = 0; !rc && s < req->pipelines[0].sched->stages; s++)
        if (req->parts[s] > PLAN_MAX_PARTS / steps / req->pipelines[0].sched->stages)
            rc = err_set(err, -EINVAL, "the gradients of stage %zu go in %zu parts: these are too many", s,
                         req->parts[s]);
        else if (req->divided && req->parts[s] % replicas)
            rc = err_set(err, -EINVAL,
                         "the gradients of stage %zu go in %zu parts, and %zu replicas update as many each",
                         s, req->parts[s], replicas);
    return rc;
}

/* Ranks that share a stage gather in each of its tasks: all have the same order. */
int check_slices(const struct plan_request *req, struct err *err)
{
    const size_t slices = request_slices(req);
    for (size_t d = 0; d < req->npipelines; d++) {
        const struct sched *first = req->pipelines[d / slices * slices].sched, *own = req->pipelines[d].sched;
        bool is_alike = own->stages == first->stages && own->ranks == first->ranks;
        for (size_t r = 0; r < first->ranks && is_alike; r++)
            is_alike =
                own->rank[r].n == first->rank[r].n && !memcmp(own->rank[r].tasks, first->rank[r].tasks,
                                                              own->rank[r].n * sizeof *own->rank[r].tasks);
        if (!is_alike)
            return err_set(err, -EINVAL, "slice %zu has another order than the first: make them alike",
                           d % slices);
        if (own->rank_of_stage[0])
            return err_set(err, -EINVAL, "stage 0 of slice %zu does not lie on its first rank", d % slices);
    }
    return 0;
}

/* --- rows, losses, the clip factor ------------------------------------------------------------ */

static uint32_t first_rank(const struct build *b, size_t pipeline)
{
    return plan_shape_rank(&b->shape, pipeline, 0);
}

size_t forward_first(const struct plan_request *req, size_t replica, size_t n)
{
    const size_t groups = req->groups ? req->groups : 1;
    size_t group = 0;
    for (size_t d = 0; d < replica && req->pipelines; d++)
        group += req->pipelines[d * request_slices(req)].groups;
    return req->pipelines ? plan_group_first(group, n, groups) : replica ? n : 0;
}

/* Has a pipeline no microbatch? Where all train, each has some; in DECODE the first replica alone
 * has any. */
static bool is_idle(const struct build *b, size_t pipeline)
{
    const size_t n = b->plan->microbatches, replica = pipeline / request_slices(b->req);
    return b->req->program == PROGRAM_FORWARD
               ? forward_first(b->req, replica, n) == forward_first(b->req, replica + 1, n)
               : b->req->program == PROGRAM_DECODE && replica;
}

void build_rows(struct build *b)
{
    for (uint32_t d = 1; d < b->plan->pipelines && !b->pipeline; d++)
        if (!is_idle(b, d))
            build_emit_to(build_add(b, TASK_ROWS, 0, d), MSG_ROWS, d, first_rank(b, d));
    if (b->pipeline)
        build_need_from(build_add(b, TASK_ROWS, 0, (uint32_t)b->pipeline), MSG_ROWS, (uint32_t)b->pipeline,
                        0);
}

/* Each slice of a replica has all of its losses: the first one gives them to rank 0. */
static uint32_t giver_of_losses(const struct build *b, size_t replica)
{
    return first_rank(b, replica * request_slices(b->req));
}

bool build_gives_losses(const struct build *b)
{
    return build_replica(b) && !build_slice(b);
}

void build_losses(struct build *b, uint32_t step)
{
    for (size_t d = 1; d < request_replicas(b->req) && !b->pipeline; d++)
        build_need_from(build_add(b, TASK_DONE, 0, step), MSG_LOSSES, step, giver_of_losses(b, d));
}

void build_score_end(struct build *b)
{
    for (size_t d = 1; d < request_replicas(b->req) && !b->pipeline; d++)
        if (!is_idle(b, d * request_slices(b->req)))
            build_need_from(build_add(b, TASK_DONE, 0, 0), MSG_LOSSES, 0, giver_of_losses(b, d));
    if (build_gives_losses(b))
        build_emit_to(build_add(b, TASK_DONE, 0, 0), MSG_LOSSES, 0, 0);
}

void build_tell(struct build *b, uint32_t step)
{
    for (size_t d = 1; d < b->plan->pipelines && !b->pipeline; d++)
        build_emit_to(build_add(b, TASK_TELL, 0, step), MSG_SCALE, step, first_rank(b, d));
}

/* --- gradients and values --------------------------------------------------------------------- */

/* The parts of a stage are dealt out: each is added up by one replica, which gets it from all
 * others and gives them the sum, or what it updates with it. So each sends and receives twice the
 * gradients, less one share, however many there are. */
struct sharing {
    struct build *b;
    uint32_t stage, first, parts; /* number of the first part of the step */
    uint32_t replicas, self;
    uint32_t after; /* as in task */
};

static struct sharing sharing_of(struct build *b, uint32_t step, uint32_t stage)
{
    const uint32_t replicas = (uint32_t)request_replicas(b->req),
                   parts = replicas > 1 ? (uint32_t)b->req->parts[stage] : 0;
    return (struct sharing){.b = b,
                            .stage = stage,
                            .first = step * parts,
                            .parts = parts,
                            .replicas = replicas,
                            .self = (uint32_t)build_replica(b),
                            .after = SLOT_NONE};
}

static uint32_t blocks_of(const struct sharing *s)
{
    return (s->parts + s->replicas - 1) / s->replicas;
}

/* Of the same slice. */
static uint32_t rank_in(const struct sharing *s, uint32_t replica)
{
    return plan_shape_stage(&s->b->shape, replica * request_slices(s->b->req) + build_slice(s->b), s->stage);
}

static void give(const struct sharing *s, enum msg_kind kind, uint32_t part, uint32_t to)
{
    const uint32_t mb = s->first + part;
    struct task *task = build_add(s->b, TASK_GIVE, s->stage, mb);
    task->after = s->after;
    build_emit_to(task, kind, mb, rank_in(s, to));
}

static void take(const struct sharing *s, enum msg_kind kind, uint32_t part, uint32_t from)
{
    const uint32_t mb = s->first + part;
    struct task *task = build_add(s->b, TASK_TAKE, s->stage, mb);
    task->after = s->after;
    build_need_from(task, kind, mb, rank_in(s, from));
}

/* One part of each replica: what is mine goes nowhere. */
static void for_others(const struct sharing *s, uint32_t block, enum msg_kind kind,
                       void (*move)(const struct sharing *, enum msg_kind, uint32_t, uint32_t))
{
    for (uint32_t d = 0; d < s->replicas; d++)
        if (d != s->self && block * s->replicas + d < s->parts)
            move(s, kind, block * s->replicas + d, d);
}

/* My part of a block, from or to all others. */
static void for_own(const struct sharing *s, uint32_t block, enum msg_kind kind,
                    void (*move)(const struct sharing *, enum msg_kind, uint32_t, uint32_t))
{
    const uint32_t part = block * s->replicas + s->self;
    for (uint32_t d = 0; d < s->replicas && part < s->parts; d++)
        if (d != s->self)
            move(s, kind, part, d);
}

bool build_is_divided(const struct build *b)
{
    return request_replicas(b->req) > 1 && b->req->divided;
}

/* A block is on its way while the one before it is added up, and the one before that comes back. */
void build_shares(struct build *b, uint32_t step, uint32_t stage, uint32_t after)
{
    struct sharing s = sharing_of(b, step, stage);
    s.after = after;
    const bool comes_back = !b->req->divided;
    const uint32_t blocks = s.parts ? blocks_of(&s) : 0;
    for (uint32_t k = 0; blocks && k < blocks + 2; k++) {
        if (k < blocks)
            for_others(&s, k, MSG_PART, give);
        if (k >= 1 && k - 1 < blocks)
            for_own(&s, k - 1, MSG_PART, take);
        if (k >= 1 && k - 1 < blocks && comes_back)
            for_own(&s, k - 1, MSG_SUM, give);
        if (k >= 2 && comes_back)
            for_others(&s, k - 2, MSG_SUM, take);
    }
}

void build_squares(struct build *b, uint32_t step, uint32_t stage)
{
    const struct sharing s = sharing_of(b, step, stage);
    for (uint32_t d = 1; s.parts && d < s.replicas && !build_replica(b); d++)
        build_need_from(build_add(b, TASK_SQUARES, stage, step), MSG_SQUARES, step, rank_in(&s, d));
}

void build_values(struct build *b, uint32_t step, uint32_t stage)
{
    const struct sharing s = sharing_of(b, step, stage);
    const uint32_t blocks = s.parts ? blocks_of(&s) : 0;
    for (uint32_t k = 0; blocks && k < blocks + 1; k++) {
        if (k < blocks)
            for_own(&s, k, MSG_VALUES, give);
        if (k >= 1)
            for_others(&s, k - 1, MSG_VALUES, take);
    }
}
