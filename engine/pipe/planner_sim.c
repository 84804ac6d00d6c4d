/* SPDX-License-Identifier: MIT
 *
 * Owns the schedules of one candidate. Pure; called by plan_request.c. */
#include "pipe/planner_impl.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/plan.h"

enum { SHORT = 4 /* turns of a round that stands for a longer one */ };

/* --- making ----------------------------------------------------------------------------------- */

/* A slot from F to the end of the backward; a buffer for activations, where it is filled again,
 * from I or B on. */
static int count_slots(struct planner_sim *sim)
{
    const struct sched *s = sim->run[0].plain;
    size_t *slots = calloc(2 * s->stages, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    size_t *activations = slots + s->stages;
    for (size_t r = 0; r < s->ranks; r++)
        for (size_t k = 0; k < s->rank[r].n; k++) {
            const struct sched_task *t = &s->rank[r].tasks[k];
            const uint32_t at = t->stage;
            slots[at] += t->op == OP_F;
            activations[at] += t->op == OP_I || t->op == OP_B;
            if (slots[at] > sim->in_flight[at])
                sim->in_flight[at] = slots[at];
            if (activations[at] > sim->at_once[at])
                sim->at_once[at] = activations[at];
            slots[at] -= t->op == OP_W || t->op == OP_B;
            activations[at] -= t->op == OP_W || t->op == OP_B;
        }
    free(slots);
    return 0;
}

static int sum_costs(struct planner_sim *sim)
{
    const size_t units = sim->req->layers + 2;
    sim->sum = calloc(sim->req->ranks * (units + 1), sizeof *sim->sum);
    if (!sim->sum)
        return -ENOMEM;
    for (size_t r = 0; r < sim->req->ranks; r++)
        for (size_t u = 0; u < units; u++) {
            const struct sched_cost *before = &sim->sum[r * (units + 1) + u],
                                    *c = &sim->cut->cost[r * units + u];
            sim->sum[r * (units + 1) + u + 1] =
                (struct sched_cost){before->f + c->f, before->i + c->i, before->w + c->w, before->r + c->r};
        }
    return 0;
}

static int make_run(struct planner_run *run, const struct planner_sim *sim,
                    const struct sched_request *of_step, size_t turns, struct err *err)
{
    struct sched_request want = *of_step;
    want.microbatches *= sim->adapters * turns;
    int e = sched_make(&run->plain, &want, err);
    run->turns = turns;
    if (!e && sim->req->again != PLANNER_AGAIN_NONE)
        e = sched_again(&run->again, run->plain, err);
    return e;
}

/* Whether steps can follow each other at all, two turns show; how many do then, a job finds out by
 * compiling rounds of all lengths, which is too long for a candidate: looked at closely, the best
 * ones are. */
static int make_runs(struct planner_sim *sim, const struct sched_request *of_step, bool closely,
                     struct err *err)
{
    const size_t most = steps_per_adapter(of_step->ranks, sim->adapters, of_step->microbatches);
    int e = steps_per_adapter_go(&sim->turns, of_step, sim->adapters, closely || most < 2 ? most : 2, err);
    if (!closely && sim->turns > 1)
        sim->turns = most;
    const bool whole = closely || sim->turns <= SHORT;
    e = e ? e : make_run(&sim->run[0], sim, of_step, whole ? sim->turns : SHORT, err);
    return e || whole ? e : make_run(&sim->run[1], sim, of_step, SHORT / 2, err);
}

int planner_sim_init(struct planner_sim *sim, const struct planner_request *req, const char *schedule,
                     size_t chunks, size_t cut, bool closely, struct err *err)
{
    *sim = (struct planner_sim){
        .req = req, .cut = &req->cut[cut], .adapters = req->adapters ? req->adapters : 1};
    planner_sim_turn(sim, 0, false);
    const struct sched_request want = {
        .name = schedule, .ranks = req->ranks, .chunks = chunks, .microbatches = sim->cut->microbatches};
    int e = make_runs(sim, &want, closely, err);
    if (e)
        return e;
    const size_t stages = sim->run[0].plain->stages;
    sim->in_flight = calloc(stages, sizeof *sim->in_flight);
    sim->at_once = calloc(stages, sizeof *sim->at_once);
    e = sim->in_flight && sim->at_once ? count_slots(sim) : -ENOMEM;
    if (!e)
        e = sum_costs(sim);
    return e ? err_set(err, e, "out of memory") : 0;
}

void planner_sim_turn(struct planner_sim *sim, size_t start, bool mirrored)
{
    const struct planner_found as = {.start = start, .mirrored = mirrored};
    for (size_t r = 0; r < sim->req->ranks; r++) {
        const size_t node = sim->node[r] = planner_node(&as, sim->req->ranks, r);
        for (size_t way = 0; way < 2 && sim->cut->link; way++)
            sim->link[2 * r + way] = sim->cut->link[2 * node + (way != mirrored)];
    }
}

void planner_sim_done(struct planner_sim *sim)
{
    for (size_t i = 0; i < 2; i++) {
        sched_free(sim->run[i].plain);
        sched_free(sim->run[i].again);
    }
    free(sim->in_flight);
    free(sim->at_once);
    free(sim->sum);
}

/* --- judging ---------------------------------------------------------------------------------- */

/* Units a stage has: [from, to). */
static void units_of(const struct planner_sim *sim, const struct planner_found *f, size_t stage,
                     size_t *ret_from, size_t *ret_to)
{
    *ret_from = stage ? f->first[stage] + 1 : 0;
    *ret_to = stage + 1 < f->stages ? f->first[stage + 1] + 1 : sim->req->layers + 2;
}

static struct sched_cost cost_between(const struct planner_sim *sim, uint32_t rank, size_t from, size_t to)
{
    const struct sched_cost *sum = &sim->sum[sim->node[rank] * (sim->req->layers + 3)], *a = &sum[from],
                            *b = &sum[to];
    return (struct sched_cost){fmax(b->f - a->f, 0), fmax(b->i - a->i, 0), fmax(b->w - a->w, 0),
                               fmax(b->r - a->r, 0)};
}

static size_t bytes_of(const struct planner_sim *sim, const struct planner_found *f, size_t stage)
{
    size_t from, to, sum = 0;
    const uint32_t rank = sim->run[0].plain->rank_of_stage[stage];
    const size_t *held = sim->cut->held + sim->node[rank] * (sim->req->layers + 2);
    units_of(sim, f, stage, &from, &to);
    const bool back = f->cost[stage].i > 0 || f->cost[stage].w > 0;
    const size_t slots = back ? sim->in_flight[stage] : 1, activations = !back ? 1
                                                                         : f->again[stage]
                                                                             ? sim->at_once[stage]
                                                                             : slots;
    for (size_t u = from; u < to; u++)
        sum += held[u] + slots * sim->cut->slot[u] + activations * sim->cut->activations[u];
    return sum;
}

static void weigh(struct planner_found *f, const struct planner_sim *sim)
{
    memset(f->bytes, 0, sizeof f->bytes);
    for (size_t s = 0; s < f->stages; s++)
        f->bytes[sim->run[0].plain->rank_of_stage[s]] += bytes_of(sim, f, s);
}

/* Ranks that are short of memory keep less, unless it was said who does. True: some do so. */
static bool choose_again(struct planner_found *f, const struct planner_sim *sim)
{
    const struct planner_request *req = sim->req;
    bool any = req->again == PLANNER_AGAIN_ALL;
    for (size_t s = 0; s < f->stages; s++)
        f->again[s] = any;
    weigh(f, sim);
    if (req->again != PLANNER_AGAIN_AUTO || !req->memory)
        return any;
    for (size_t s = 0; s < f->stages; s++) {
        const uint32_t rank = sim->run[0].plain->rank_of_stage[s];
        f->again[s] = f->bytes[rank] > req->memory[sim->node[rank]];
        any = any || f->again[s];
    }
    if (any)
        weigh(f, sim);
    return any;
}

static void judge(struct planner_score *ret, struct planner_found *f, const struct planner_sim *sim)
{
    double fullest = 0, missing = 0;
    for (size_t r = 0; r < sim->req->ranks; r++) {
        const double bytes = (double)f->bytes[r],
                     has = sim->req->memory ? (double)sim->req->memory[sim->node[r]] : INFINITY;
        fullest = fmax(fullest, isfinite(has) && has > 0 ? bytes / has : bytes);
        missing += fmax(bytes - has, 0);
    }
    f->fits = missing == 0;
    *ret = sim->req->objective == PLANNER_TIME ? (struct planner_score){missing, f->seconds, fullest}
                                               : (struct planner_score){missing, fullest, f->seconds};
}

/* Seconds until a round of so many turns is over, and of them those in which all ranks together do
 * something. */
static int run_round(double *ret_seconds, double *ret_work, struct planner_sim *sim,
                     const struct planner_run *run, bool again, const struct sched_cost *costs,
                     struct err *err)
{
    const struct sched *sched = again ? run->again : run->plain;
    const struct sched_costs paper = {.stage = costs, .link = sim->cut->link ? sim->link : NULL};
    struct sched_sim made;
    int e = sched_simulate(&made, sched, &paper, err);
    if (e)
        return e;
    *ret_seconds = made.makespan;
    *ret_work = (1 - made.bubble) * made.makespan;
    sched_sim_done(&made);
    for (size_t r = 0; r < sched->ranks; r++)
        sim->stepped += sched->rank[r].n;
    return 0;
}

int planner_sim_score(struct planner_score *ret, struct planner_found *f, struct planner_sim *sim,
                      struct err *err)
{
    struct sched_cost costs[PLANNER_MAX_STAGES];
    double seconds = 0, work = 0, fewer = 0, worked = 0;
    for (size_t s = 0; s < f->stages; s++) {
        size_t from, to;
        units_of(sim, f, s, &from, &to);
        f->cost[s] = cost_between(sim, sim->run[0].plain->rank_of_stage[s], from, to);
    }
    const bool any = choose_again(f, sim);
    for (size_t s = 0; s < f->stages; s++) {
        costs[s] = f->cost[s];
        costs[s].r = f->again[s] && (costs[s].i > 0 || costs[s].w > 0) ? costs[s].r : 0;
    }
    int e = run_round(&seconds, &work, sim, &sim->run[0], any, costs, err);
    if (!e && sim->run[1].turns)
        e = run_round(&fewer, &worked, sim, &sim->run[1], any, costs, err);
    if (e)
        return e;
    const double further = sim->run[1].turns ? (double)(sim->turns - sim->run[0].turns) /
                                                   (double)(sim->run[0].turns - sim->run[1].turns)
                                             : 0,
                 steps = (double)(sim->turns * sim->adapters);
    seconds += further * (seconds - fewer);
    work += further * (work - worked);
    f->turns = sim->turns;
    f->seconds = seconds / steps;
    f->bubble = seconds > 0 ? 1 - work / seconds : 0;
    judge(ret, f, sim);
    return 0;
}

bool planner_score_is_less(const struct planner_score *a, const struct planner_score *b, double worth)
{
    if (a->missing > 0 || b->missing > 0)
        return a->missing < b->missing;
    if (a->main < b->main * worth)
        return true;
    return a->main <= b->main * (2 - worth) && a->main * worth <= b->main && a->other < b->other * worth;
}

size_t planner_node(const struct planner_found *f, size_t ranks, size_t rank)
{
    return (f->start + (f->mirrored ? ranks - rank : rank)) % ranks;
}
