/* SPDX-License-Identifier: MIT
 *
 * Runs a schedule on paper: every task as early as its rank and its inputs allow. Owns nothing
 * beyond the result it fills in. Pure: called by the planner, by tests and by whoever shows a
 * forecast, from any thread. */
#include "pipe/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Microbatch i of stage s has the output of its forward at its next stage at forward[s·microbatches
 * + i], the gradient of its input at the stage below at backward[…]; NAN = not yet. A full backward
 * hands its gradient on when it is over: published figures assume so. */
struct sim_run {
    const struct sched *sched;
    const struct sched_costs *costs;
    double *forward, *backward;
    double *now;         /* [ranks] when the rank is free */
    double *link;        /* [2·ranks] when the link is; its sender's order alone decides that */
    size_t *next;        /* [ranks] position of its next task */
    size_t *base;        /* [ranks] index of its first task in start */
    double *start, *end; /* into the result */
};

static size_t cell(const struct sched *sched, uint32_t stage, uint32_t mb)
{
    return (size_t)stage * sched->microbatches + mb;
}

static double cost_of(const struct sched_costs *costs, const struct sched_task *task)
{
    const struct sched_cost *cost = costs->stage ? &costs->stage[task->stage] : &costs->each;
    switch (task->op) {
    case OP_F: return cost->f;
    case OP_I: return cost->i;
    case OP_W: return cost->w;
    case OP_R: return cost->r;
    default: return cost->i + cost->w;
    }
}

/* The task of another stage whose result this one takes; false where it takes none. What it needs
 * of its own stage stands earlier in the same list: plan_check has seen to that. */
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

/* When what a stage gives at time `end` is with its neighbour `to`. */
static double deliver(struct sim_run *run, uint32_t from_stage, uint32_t to_stage, double end)
{
    const struct sched *sched = run->sched;
    uint32_t from = sched->rank_of_stage[from_stage], to = sched->rank_of_stage[to_stage];
    if (!run->costs->link || from == to)
        return end;
    bool next = to == plan_next(sched->ranks, from);
    if (!next && to != plan_prev(sched->ranks, from))
        return end;
    size_t link = 2 * (size_t)from + !next;
    run->link[link] = fmax(run->link[link], end) + run->costs->link[link].transfer;
    return run->link[link] + run->costs->link[link].latency;
}

static void hand_on(struct sim_run *run, const struct sched_task *task, double end)
{
    const struct sched *sched = run->sched;
    size_t at = cell(sched, task->stage, task->mb);
    if (task->op == OP_F)
        run->forward[at] =
            task->stage + 1 < sched->stages ? deliver(run, task->stage, task->stage + 1, end) : end;
    else if (task->op == OP_I || task->op == OP_B)
        run->backward[at] = task->stage ? deliver(run, task->stage, task->stage - 1, end) : end;
}

static bool step(struct sim_run *run, size_t rank)
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
    double end = begin + cost_of(run->costs, task);
    hand_on(run, task, end);
    run->start[run->base[rank] + run->next[rank]] = begin;
    run->end[run->base[rank] + run->next[rank]] = end;
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

static int refuse_cycle(const struct sim_run *run, struct err *err)
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
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%s) waits for %s", used ? ", " : "",
                                 sched_spot(run->sched, r, run->next[r] + 1, false).text,
                                 sched_task_name(mine, sizeof mine, &list->tasks[run->next[r]]),
                                 sched_task_name(other, sizeof other, &from));
    }
    if (left)
        snprintf(text + used, sizeof text - used, ", and %zu more", left);
    return err_set(err, -EDEADLK, "the schedule waits in a circle: %s; reorder one of these lists", text);
}

static int run_all(struct sim_run *run, struct err *err)
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

/* Times, idle shares and the most microbatches alive: a rank does one task at a time, so its order
 * alone decides that. */
static void sum_up(struct sched_sim *sim, const struct sim_run *run)
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
            busy += cost_of(run->costs, &list->tasks[k]);
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

static int allocate(struct sim_run *run, struct sched_sim *sim)
{
    const struct sched *sched = run->sched;
    size_t cells = sched->stages * sched->microbatches, tasks = 0;
    run->base = calloc(sched->ranks, sizeof *run->base);
    run->next = calloc(sched->ranks, sizeof *run->next);
    run->now = calloc(sched->ranks, sizeof *run->now);
    run->link = calloc(2 * sched->ranks, sizeof *run->link);
    run->forward = calloc(cells, sizeof *run->forward);
    run->backward = calloc(cells, sizeof *run->backward);
    if (!run->base || !run->next || !run->now || !run->link || !run->forward || !run->backward)
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
    sim->end = run->end = calloc(tasks, sizeof *sim->end);
    return sim->span && sim->idle && sim->peak && sim->start && sim->end ? 0 : -ENOMEM;
}

static bool is_cost(double x)
{
    return isfinite(x) && x >= 0;
}

static int check_cost(const struct sched_cost *cost, struct err *err)
{
    if (is_cost(cost->f) && is_cost(cost->i) && is_cost(cost->w) && is_cost(cost->r))
        return 0;
    return err_set(err, -EINVAL,
                   "costs of F, I, W and R must be finite and not negative, not %g, %g, %g and %g", cost->f,
                   cost->i, cost->w, cost->r);
}

static int check_costs(const struct sched *sched, const struct sched_costs *costs, struct err *err)
{
    int rc = check_cost(&costs->each, err);
    for (size_t s = 0; rc == 0 && costs->stage && s < sched->stages; s++)
        rc = check_cost(&costs->stage[s], err);
    for (size_t l = 0; rc == 0 && costs->link && l < 2 * sched->ranks; l++)
        if (!is_cost(costs->link[l].transfer) || !is_cost(costs->link[l].latency))
            rc =
                err_set(err, -EINVAL, "the times of a message must be finite and not negative, not %g and %g",
                        costs->link[l].transfer, costs->link[l].latency);
    return rc;
}

int sched_simulate(struct sched_sim *ret, const struct sched *sched, const struct sched_costs *costs,
                   struct err *err)
{
    int rc = plan_check(sched, err);
    if (rc == 0)
        rc = check_costs(sched, costs, err);
    if (rc < 0)
        return rc;
    struct sim_run run = {.sched = sched, .costs = costs};
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
    free(run.link);
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
    free(sim->end);
    *sim = (struct sched_sim){0};
}
