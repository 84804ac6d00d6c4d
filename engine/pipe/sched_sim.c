/* SPDX-License-Identifier: MIT
 *
 * Runs a schedule on paper: every task as early as its rank and its inputs allow, messages free. Owns nothing
 * beyond the result it fills in. Pure: called by the planner, by tests and by whoever shows a forecast, from
 * any thread. */
#include "pipe/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Microbatch i of stage s has its forward done at forward[s·microbatches + i], the gradient of its input at
 * backward[…]; NAN = not yet. A full backward hands its gradient on when it is over: published figures assume
 * so. */
struct run {
    const struct sched *sched;
    struct sched_costs costs;
    double *forward, *backward;
    double *now;  /* [ranks] when the rank is free */
    size_t *next; /* [ranks] position of its next task */
    size_t *base; /* [ranks] index of its first task in start */
    double *start;
};

static size_t cell(const struct sched *sched, uint32_t stage, uint32_t mb)
{
    return (size_t)stage * sched->microbatches + mb;
}

static double cost_of(const struct sched_costs *costs, enum sched_op op)
{
    switch (op) {
    case OP_F: return costs->f;
    case OP_I: return costs->i;
    case OP_W: return costs->w;
    default: return costs->i + costs->w;
    }
}

/* The task of another stage whose result this one takes; false where it takes none. What it needs of its own
 * stage stands earlier in the same list: plan_check has seen to that. */
static bool upstream(const struct sched *sched, const struct sched_task *task, struct sched_task *ret_task)
{
    if (task->op == OP_F && task->stage > 0) {
        *ret_task = (struct sched_task){OP_F, task->stage - 1, task->mb};
        return true;
    }
    if ((task->op == OP_I || task->op == OP_B) && task->stage + 1 < sched->stages) {
        *ret_task = (struct sched_task){task->op, task->stage + 1, task->mb};
        return true;
    }
    return false;
}

static bool step(struct run *run, size_t rank)
{
    const struct sched *sched = run->sched;
    const struct sched_list *list = &sched->rank[rank];
    if (run->next[rank] == list->n)
        return false;
    const struct sched_task *task = &list->tasks[run->next[rank]];
    struct sched_task from;
    double begin = run->now[rank];
    if (upstream(sched, task, &from)) {
        const double *done = from.op == OP_F ? run->forward : run->backward;
        double input = done[cell(sched, from.stage, from.mb)];
        if (isnan(input))
            return false;
        begin = fmax(begin, input);
    }
    double end = begin + cost_of(&run->costs, task->op);
    if (task->op == OP_F)
        run->forward[cell(sched, task->stage, task->mb)] = end;
    else if (task->op != OP_W)
        run->backward[cell(sched, task->stage, task->mb)] = end;
    run->start[run->base[rank] + run->next[rank]] = begin;
    run->now[rank] = end;
    run->next[rank]++;
    return true;
}

/* Which of I and B the schedule uses for a microbatch decides how the missing task is called. */
static void name_backward(const struct sched *sched, struct sched_task *task)
{
    const struct sched_list *list = &sched->rank[sched->rank_of_stage[task->stage]];
    for (size_t k = 0; k < list->n; k++) {
        const struct sched_task *t = &list->tasks[k];
        if (t->stage == task->stage && t->mb == task->mb && (t->op == OP_I || t->op == OP_B))
            task->op = t->op;
    }
}

static int refuse_cycle(const struct run *run, struct err *err)
{
    char text[400];
    size_t used = 0, left = 0;
    for (size_t r = 0; r < run->sched->ranks; r++) {
        const struct sched_list *list = &run->sched->rank[r];
        struct sched_task from;
        if (run->next[r] == list->n || !upstream(run->sched, &list->tasks[run->next[r]], &from))
            continue;
        if (used > sizeof text - 80) {
            left++;
            continue;
        }
        char mine[24], other[24];
        if (from.op != OP_F)
            name_backward(run->sched, &from);
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%srank %zu at position %zu (%s) waits for %s", used ? ", " : "",
            r, run->next[r] + 1, sched_task_name(mine, sizeof mine, &list->tasks[run->next[r]]),
            sched_task_name(other, sizeof other, &from));
    }
    if (left)
        snprintf(text + used, sizeof text - used, ", and %zu more", left);
    return err_set(err, -EDEADLK, "the schedule waits in a circle: %s; reorder one of these lists", text);
}

static int run_all(struct run *run, struct err *err)
{
    size_t todo = 0;
    for (size_t r = 0; r < run->sched->ranks; r++)
        todo += run->sched->rank[r].n;
    while (todo) {
        size_t before = todo;
        for (size_t r = 0; r < run->sched->ranks; r++)
            while (step(run, r))
                todo--;
        if (todo == before)
            return refuse_cycle(run, err);
    }
    return 0;
}

/* Times, idle shares and the most microbatches alive: a rank does one task at a time, so its order alone
 * decides that. */
static void sum_up(struct sched_sim *sim, const struct run *run)
{
    double work = 0.0;
    for (size_t r = 0; r < run->sched->ranks; r++)
        sim->makespan = fmax(sim->makespan, run->now[r]);
    for (size_t r = 0; r < run->sched->ranks; r++) {
        const struct sched_list *list = &run->sched->rank[r];
        double busy = 0.0;
        size_t alive = 0;
        for (size_t k = 0; k < list->n; k++) {
            enum sched_op op = list->tasks[k].op;
            busy += cost_of(&run->costs, op);
            if (op == OP_F && ++alive > sim->peak[r])
                sim->peak[r] = alive;
            if (op == OP_W || op == OP_B)
                alive--;
        }
        sim->span[r] = list->n ? run->now[r] - sim->start[run->base[r]] : 0.0;
        sim->idle[r] = sim->makespan - busy;
        work += busy;
    }
    if (sim->makespan > 0.0)
        sim->bubble = 1.0 - work / ((double)run->sched->ranks * sim->makespan);
}

static int allocate(struct run *run, struct sched_sim *sim)
{
    const struct sched *sched = run->sched;
    size_t cells = sched->stages * sched->microbatches, tasks = 0;
    run->base = calloc(sched->ranks, sizeof *run->base);
    run->next = calloc(sched->ranks, sizeof *run->next);
    run->now = calloc(sched->ranks, sizeof *run->now);
    run->forward = calloc(cells, sizeof *run->forward);
    run->backward = calloc(cells, sizeof *run->backward);
    if (!run->base || !run->next || !run->now || !run->forward || !run->backward)
        return -ENOMEM;
    for (size_t c = 0; c < cells; c++)
        run->forward[c] = run->backward[c] = NAN;
    for (size_t r = 0; r < sched->ranks; r++) {
        run->base[r] = tasks;
        tasks += sched->rank[r].n;
    }
    sim->span = calloc(sched->ranks, sizeof *sim->span);
    sim->idle = calloc(sched->ranks, sizeof *sim->idle);
    sim->peak = calloc(sched->ranks, sizeof *sim->peak);
    sim->start = run->start = calloc(tasks, sizeof *sim->start);
    return sim->span && sim->idle && sim->peak && sim->start ? 0 : -ENOMEM;
}

int sched_simulate(struct sched_sim *ret, const struct sched *sched, struct sched_costs costs,
                   struct err *err)
{
    if (!isfinite(costs.f) || !isfinite(costs.i) || !isfinite(costs.w) || costs.f < 0 || costs.i < 0 ||
        costs.w < 0)
        return err_set(err, -EINVAL, "costs of F, I and W must be finite and not negative, not %g, %g and %g",
                       costs.f, costs.i, costs.w);
    int rc = plan_check(sched, err);
    if (rc < 0)
        return rc;
    struct run run = {.sched = sched, .costs = costs};
    struct sched_sim sim = {0};
    rc = allocate(&run, &sim);
    if (rc < 0) {
        rc = err_set(err, rc, "no memory to simulate %zu stages and %zu microbatches", sched->stages,
                     sched->microbatches);
        goto out;
    }
    rc = run_all(&run, err);
    if (rc < 0)
        goto out;
    sum_up(&sim, &run);
    *ret = sim;
    sim = (struct sched_sim){0};
out:
    sched_sim_done(&sim);
    free(run.backward);
    free(run.forward);
    free(run.now);
    free(run.next);
    free(run.base);
    return rc;
}

void sched_sim_done(struct sched_sim *sim)
{
    if (!sim)
        return;
    free(sim->span);
    free(sim->idle);
    free(sim->peak);
    free(sim->start);
    *sim = (struct sched_sim){0};
}
