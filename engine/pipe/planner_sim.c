/* SPDX-License-Identifier: MIT
 *
 * Owns the schedules of one candidate. Pure; called by plan_request.c. */
#include "pipe/planner_impl.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 4 /* turns of a round that stands for a longer one */ };

/* --- making ----------------------------------------------------------------------------------- */

/* Where the stages lie; of several replicas, of the one with most microbatches. */
static const struct sched *shape_of(const struct planner_sim *sim)
{
    return sim->order[0].run[0].plain;
}

/* A slot from F to the end of the backward; a buffer for activations, where it is filled again,
 * from I or B on. */
static int count_slots(struct planner_sim *sim)
{
    const struct sched *s = shape_of(sim);
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
    const size_t nodes = sim->req->ranks * sim->replicas;
    sim->sum = calloc(nodes * (units + 1), sizeof *sim->sum);
    if (!sim->sum)
        return -ENOMEM;
    for (size_t r = 0; r < nodes; r++)
        for (size_t u = 0; u < units; u++) {
            const struct sched_cost *before = &sim->sum[r * (units + 1) + u],
                                    *c = &sim->cut->cost[r * units + u];
            sim->sum[r * (units + 1) + u + 1] = (struct sched_cost){
                before->f + c->f, before->i + c->i, before->w + c->w, before->r + c->r, before->u + c->u};
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
 * ones are. Replicas wait for each other at the end of each step. */
static int make_runs(struct planner_sim *sim, struct planner_order *order,
                     const struct sched_request *of_step, bool closely, struct err *err)
{
    const size_t most =
        sim->replicas > 1 ? 1 : steps_per_adapter(of_step->ranks, sim->adapters, of_step->microbatches);
    int e = steps_per_adapter_go(&sim->turns, of_step, sim->adapters, closely || most < 2 ? most : 2, err);
    if (!closely && sim->turns > 1)
        sim->turns = most;
    const bool whole = closely || sim->turns <= SHORT;
    e = e ? e : make_run(&order->run[0], sim, of_step, whole ? sim->turns : SHORT, err);
    return e || whole ? e : make_run(&order->run[1], sim, of_step, SHORT / 2, err);
}

/* One order for all replicas with as many microbatches. */
static int make_orders(struct planner_sim *sim, const struct sched_request *of_step, bool closely,
                       struct err *err)
{
    struct sched_request want = *of_step;
    int e = 0;
    for (size_t d = 0; d <= sim->replicas && !e; d++) {
        const size_t own = d && sim->cut->own ? sim->cut->own[d - 1] : sim->cut->microbatches;
        size_t at = 0;
        while (at < sim->orders && sim->order[at].own != own)
            at++;
        if (d)
            sim->order_of[d - 1] = at;
        if (at < sim->orders)
            continue;
        sim->order[at].own = want.microbatches = own;
        sim->orders++;
        e = make_runs(sim, &sim->order[at], &want, closely, err);
    }
    return e;
}

static bool is_like(const struct planner_sim *sim, size_t a, size_t b)
{
    const size_t ranks = sim->req->ranks, costs = ranks * (sim->req->layers + 2);
    const struct planner_cut *cut = sim->cut;
    return sim->order_of[a] == sim->order_of[b] &&
           !memcmp(cut->cost + a * costs, cut->cost + b * costs, costs * sizeof *cut->cost) &&
           !memcmp(sim->link + 2 * a * ranks, sim->link + 2 * b * ranks, 2 * ranks * sizeof *sim->link) &&
           (!cut->copy || !memcmp(cut->copy + a * ranks, cut->copy + b * ranks, ranks * sizeof *cut->copy));
}

static void find_like(struct planner_sim *sim)
{
    for (size_t d = 0; d < sim->replicas; d++) {
        size_t at = 0;
        while (at < d && !is_like(sim, at, d))
            at++;
        sim->like[d] = at;
    }
}

int planner_sim_init(struct planner_sim *sim, const struct planner_request *req, const char *schedule,
                     size_t chunks, size_t cut, bool closely, struct err *err)
{
    *sim = (struct planner_sim){.req = req,
                                .cut = &req->cut[cut],
                                .adapters = req->adapters ? req->adapters : 1,
                                .replicas = planner_replicas(req)};
    planner_sim_turn(sim, 0, false);
    const struct sched_request want = {.name = schedule, .ranks = req->ranks, .chunks = chunks};
    int e = make_orders(sim, &want, closely, err);
    if (e)
        return e;
    const size_t stages = shape_of(sim)->stages;
    sim->in_flight = calloc(stages, sizeof *sim->in_flight);
    sim->at_once = calloc(stages, sizeof *sim->at_once);
    e = sim->in_flight && sim->at_once ? count_slots(sim) : -ENOMEM;
    if (!e)
        e = sum_costs(sim);
    find_like(sim);
    return e ? err_set(err, e, "out of memory") : 0;
}

void planner_sim_turn(struct planner_sim *sim, size_t start, bool mirrored)
{
    const struct planner_found as = {.start = start, .mirrored = mirrored};
    const size_t ranks = sim->req->ranks;
    for (size_t r = 0; r < ranks * sim->replicas; r++) {
        const size_t node = sim->node[r] = r / ranks * ranks + planner_node(&as, ranks, r % ranks);
        for (size_t way = 0; way < 2 && sim->cut->link; way++)
            sim->link[2 * r + way] = sim->cut->link[2 * node + (way != mirrored)];
    }
}

void planner_sim_done(struct planner_sim *sim)
{
    for (size_t i = 0; i < 2 * sim->orders; i++) {
        sched_free(sim->order[i / 2].run[i % 2].plain);
        sched_free(sim->order[i / 2].run[i % 2].again);
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

/* Of a rank, counted over all replicas. */
static struct sched_cost cost_between(const struct planner_sim *sim, size_t rank, size_t from, size_t to)
{
    const struct sched_cost *sum = &sim->sum[sim->node[rank] * (sim->req->layers + 3)], *a = &sum[from],
                            *b = &sum[to];
    return (struct sched_cost){fmax(b->f - a->f, 0), fmax(b->i - a->i, 0), fmax(b->w - a->w, 0),
                               fmax(b->r - a->r, 0), fmax(b->u - a->u, 0)};
}

static size_t bytes_of(const struct planner_sim *sim, const struct planner_found *f, size_t stage,
                       size_t rank)
{
    size_t from, to, sum = 0;
    const size_t *held = sim->cut->held + sim->node[rank] * (sim->req->layers + 2);
    units_of(sim, f, stage, &from, &to);
    const struct sched_cost cost = cost_between(sim, rank, from, to);
    const bool back = cost.i > 0 || cost.w > 0;
    const size_t slots = back ? sim->in_flight[stage] : 1, activations = !back ? 1
                                                                         : f->again[stage]
                                                                             ? sim->at_once[stage]
                                                                             : slots;
    for (size_t u = from; u < to; u++)
        sum += held[u] + slots * sim->cut->slot[u] + activations * sim->cut->activations[u];
    return sum;
}

/* The rank of a stage in a replica. */
static size_t rank_in(const struct planner_sim *sim, size_t replica, size_t stage)
{
    return replica * sim->req->ranks + shape_of(sim)->rank_of_stage[stage];
}

static void weigh(struct planner_found *f, const struct planner_sim *sim)
{
    memset(f->bytes, 0, sizeof f->bytes);
    for (size_t d = 0; d < sim->replicas; d++)
        for (size_t s = 0; s < f->stages; s++)
            f->bytes[rank_in(sim, d, s)] += bytes_of(sim, f, s, rank_in(sim, d, s));
}

/* Ranks that are short of memory keep less, unless it was said who does; a stage does so in all
 * replicas. True: some do so. */
static bool choose_again(struct planner_found *f, const struct planner_sim *sim)
{
    const struct planner_request *req = sim->req;
    bool any = req->again == PLANNER_AGAIN_ALL;
    for (size_t s = 0; s < f->stages; s++)
        f->again[s] = any;
    weigh(f, sim);
    if (req->again != PLANNER_AGAIN_AUTO || !req->memory)
        return any;
    for (size_t d = 0; d < sim->replicas; d++)
        for (size_t s = 0; s < f->stages; s++) {
            const size_t rank = rank_in(sim, d, s);
            f->again[s] = f->again[s] || f->bytes[rank] > req->memory[sim->node[rank]];
            any = any || f->again[s];
        }
    if (any)
        weigh(f, sim);
    return any;
}

void planner_judge(struct planner_score *ret, const struct planner_found *f,
                   const struct planner_request *req)
{
    double fullest = 0, missing = 0;
    for (size_t r = 0; r < req->ranks * planner_replicas(req); r++) {
        const size_t node = r / req->ranks * req->ranks + planner_node(f, req->ranks, r % req->ranks);
        const double bytes = (double)f->bytes[r], has = req->memory ? (double)req->memory[node] : INFINITY;
        fullest = fmax(fullest, isfinite(has) && has > 0 ? bytes / has : bytes);
        missing += fmax(bytes - has, 0);
    }
    *ret = req->objective == PLANNER_TIME ? (struct planner_score){missing, f->seconds, fullest}
                                          : (struct planner_score){missing, fullest, f->seconds};
}

/* --- a round on paper ------------------------------------------------------------------------- */

struct paper_round {
    double seconds; /* until it is over, but for the last optimizer step */
    double tasks;   /* until the last task is */
    double work;    /* in which all ranks together do something, in the mean of the replicas */
    double busiest; /* in which the rank with most work does */
    size_t slowest; /* replica */
    double copies;  /* of `seconds` those that copies add */
    double copying; /* the most that copies keep a rank from its tasks */
    double cable;   /* of the rank whose cable to the next is used longest */
    double from[PLANNER_MAX_STAGES], until[PLANNER_MAX_STAGES]; /* as in sched_last_backwards */
};

static void costs_of(struct sched_cost *ret, const struct planner_found *f, const struct planner_sim *sim,
                     size_t replica)
{
    for (size_t s = 0; s < f->stages; s++) {
        size_t from, to;
        units_of(sim, f, s, &from, &to);
        ret[s] = cost_between(sim, rank_in(sim, replica, s), from, to);
        ret[s].r = f->again[s] && (ret[s].i > 0 || ret[s].w > 0) ? ret[s].r : 0;
    }
}

static double copied_of(const struct planner_found *f, const struct planner_sim *sim, size_t rank)
{
    double sum = 0;
    for (size_t s = 0; s < f->stages; s++) {
        size_t from, to;
        units_of(sim, f, s, &from, &to);
        for (size_t u = from; u < to && shape_of(sim)->rank_of_stage[s] == rank; u++)
            sum += (double)sim->req->copied[u];
    }
    return sum;
}

/* All that replicas exchange of a stage's gradients, alone on its way. */
static struct sched_sum sum_of(const struct planner_found *f, const struct planner_sim *sim, size_t stage)
{
    struct sched_sum sum = {0};
    size_t from, to;
    if (!sim->req->grads || !sim->cut->sum)
        return sum;
    units_of(sim, f, stage, &from, &to);
    for (size_t u = from; u < to; u++) {
        sum.seconds +=
            (double)sim->req->grads[u] * sim->cut->sum[shape_of(sim)->rank_of_stage[stage]].transfer;
        sum.parts += sim->req->grads[u] > 0;
    }
    return sum;
}

static double summed_of(const struct planner_found *f, const struct planner_sim *sim, size_t rank)
{
    double sum = 0;
    for (size_t s = 0; s < f->stages; s++)
        sum += shape_of(sim)->rank_of_stage[s] == rank ? sum_of(f, sim, s).seconds : 0;
    return sum;
}

/* Copies of the round before go when this one begins: a rank that still waits for its first task
 * loses nothing to them. The cable carries what goes to the next stages as well, and the gradients
 * of replicas, which are neighbours or have each other's cables between them. */
static void add_copies(struct paper_round *ret, const struct planner_found *f, const struct planner_sim *sim,
                       size_t replica, const struct sched *sched, const struct sched_sim *made)
{
    if (!sim->req->copied || !sim->cut->copy)
        return;
    for (size_t r = 0, at = 0; r < sched->ranks; at += sched->rank[r++].n) {
        const size_t rank = replica * sched->ranks + r;
        const struct planner_copy *copy = &sim->cut->copy[sim->node[rank]];
        const double bytes = copied_of(f, sim, r), free = sched->rank[r].n ? made->start[at] : 0;
        double carried = bytes * copy->cable + (bytes > 0 ? summed_of(f, sim, r) : 0);
        for (size_t k = 0; k < sched->rank[r].n && sched->ranks > 1 && sim->cut->link; k++)
            carried += sched->rank[r].tasks[k].op == OP_F ? sim->link[2 * rank].transfer : 0;
        ret->copying = fmax(ret->copying, bytes * copy->cpu - free);
        ret->cable = fmax(ret->cable, carried);
    }
}

static int run_replica(struct paper_round *ret, const struct planner_found *f, struct planner_sim *sim,
                       size_t replica, size_t run, bool again, struct err *err)
{
    const struct planner_run *its = &sim->order[sim->order_of[replica]].run[run];
    const struct sched *sched = again ? its->again : its->plain;
    struct sched_cost costs[PLANNER_MAX_STAGES];
    struct sched_sim made;
    const bool has_cables = sim->cut->link && !sim->has_free_cables;
    const struct sched_costs paper = {.stage = costs,
                                      .link = has_cables ? sim->link + 2 * replica * sim->req->ranks : NULL};
    costs_of(costs, f, sim, replica);
    int e = sched_simulate(&made, sched, &paper, err);
    if (e)
        return e;
    ret->slowest = made.makespan > ret->tasks ? replica : ret->slowest;
    ret->tasks = fmax(ret->tasks, made.makespan);
    for (size_t d = replica; d < sim->replicas; d++)
        ret->work += sim->like[d] == replica ? (1 - made.bubble) * made.makespan / (double)sim->replicas : 0;
    for (size_t r = 0; r < sched->ranks; r++) {
        ret->busiest = fmax(ret->busiest, made.makespan - made.idle[r]);
        sim->stepped += sched->rank[r].n;
    }
    add_copies(ret, f, sim, replica, sched, &made);
    sched_last_backwards(ret->from, ret->until, sched, &made);
    sched_sim_done(&made);
    return 0;
}

/* Each stage's gradients leave its units as their last backwards end. */
static double sums_end(const struct paper_round *round, const struct planner_found *f,
                       const struct planner_sim *sim)
{
    struct sched_sum sum[PLANNER_MAX_STAGES] = {{0}};
    double latency = 0;
    if (!sim->req->grads || !sim->cut->sum)
        return 0;
    for (size_t s = 0; s < f->stages; s++) {
        sum[s] = sum_of(f, sim, s);
        latency = fmax(latency, sum[s].parts ? sim->cut->sum[shape_of(sim)->rank_of_stage[s]].latency : 0);
    }
    return sched_sums_end(shape_of(sim), sum, round->from, round->until) + latency;
}

/* What gradients on their way take of the CPUs, of the rank that has most of them. */
static double handled(const struct planner_found *f, const struct planner_sim *sim)
{
    double of_rank[PLANNER_MAX_RANKS] = {0}, most = 0;
    for (size_t s = 0; s < f->stages && sim->req->grads && sim->cut->handling; s++) {
        const size_t rank = shape_of(sim)->rank_of_stage[s];
        size_t from, to;
        units_of(sim, f, s, &from, &to);
        for (size_t u = from; u < to; u++)
            of_rank[rank] += (double)sim->req->grads[u] * sim->cut->handling[rank];
        most = fmax(most, of_rank[rank]);
    }
    return most;
}

static int run_round(struct paper_round *ret, const struct planner_found *f, struct planner_sim *sim,
                     size_t run, bool again, struct err *err)
{
    int e = 0;
    *ret = (struct paper_round){0};
    for (size_t d = 0; d < sim->replicas && !e; d++)
        if (sim->like[d] == d)
            e = run_replica(ret, f, sim, d, run, again, err);
    ret->seconds = fmax(ret->tasks, e ? 0 : sums_end(ret, f, sim)) + handled(f, sim);
    ret->copies = fmax(fmax(ret->copying, ret->cable - ret->seconds), 0);
    ret->seconds += ret->copies;
    return e;
}

/* The optimizer steps of all ranks at once, each behind the last message of the norm. */
static double update_seconds(const struct planner_found *f, const struct planner_sim *sim)
{
    double most = 0;
    for (size_t r = 0; r < sim->replicas * sim->req->ranks; r++) {
        double sum = 0;
        for (size_t s = 0; s < f->stages; s++) {
            size_t from, to;
            units_of(sim, f, s, &from, &to);
            sum += rank_in(sim, r / sim->req->ranks, s) == r ? cost_between(sim, r, from, to).u : 0;
        }
        most = fmax(most, sum);
    }
    return most;
}

/* The round as it is, from what was run of it: [0], and [1] of fewer turns. */
static struct paper_round whole_round(const struct planner_sim *sim, const struct paper_round run[2])
{
    const struct planner_run *of = sim->order[0].run;
    const double further =
        of[1].turns ? (double)(sim->turns - of[0].turns) / (double)(of[0].turns - of[1].turns) : 0;
    struct paper_round whole = run[0];
    whole.seconds += further * (run[0].seconds - run[1].seconds);
    whole.tasks += further * (run[0].tasks - run[1].tasks);
    whole.work += further * (run[0].work - run[1].work);
    whole.busiest += further * (run[0].busiest - run[1].busiest);
    return whole;
}

static int run_whole(struct paper_round *ret, const struct planner_found *f, struct planner_sim *sim,
                     bool again, struct err *err)
{
    struct paper_round run[2] = {{0}};
    int e = run_round(&run[0], f, sim, 0, again, err);
    if (!e && sim->order[0].run[1].turns)
        e = run_round(&run[1], f, sim, 1, again, err);
    *ret = whole_round(sim, run);
    return e;
}

int planner_sim_score(struct planner_score *ret, struct planner_found *f, struct planner_sim *sim,
                      struct err *err)
{
    struct paper_round round;
    const bool again = choose_again(f, sim);
    int e = run_whole(&round, f, sim, again, err);
    if (e)
        return e;
    const double steps = (double)(sim->turns * sim->adapters), update = update_seconds(f, sim);
    for (size_t s = 0; s < f->stages; s++) {
        size_t from, to;
        units_of(sim, f, s, &from, &to);
        f->cost[s] = cost_between(sim, rank_in(sim, round.slowest, s), from, to);
    }
    f->turns = sim->turns;
    f->seconds = round.seconds / steps + update;
    f->sums = (round.seconds - round.tasks - round.copies) / steps;
    f->bubble = round.seconds > 0 ? 1 - round.work / (f->seconds * steps) : 0;
    planner_judge(ret, f, sim->req);
    f->fits = !(ret->missing > 0);
    return 0;
}

/* --- what it is made of ----------------------------------------------------------------------- */

int planner_explain(struct planner_parts *ret, const struct planner_found *f,
                    const struct planner_request *req, struct err *err)
{
    struct planner_sim sim;
    struct planner_found it = *f;
    struct paper_round with = {0}, without = {0};
    int e = planner_sim_init(&sim, req, f->schedule, f->chunks, f->cut, req->adapters > 1, err);
    bool again = false;
    if (!e) {
        planner_sim_turn(&sim, f->start, f->mirrored);
        again = choose_again(&it, &sim);
        e = run_whole(&with, &it, &sim, again, err);
    }
    sim.has_free_cables = true;
    if (!e)
        e = run_whole(&without, &it, &sim, again, err);
    if (!e) {
        const double steps = (double)(sim.turns * sim.adapters);
        *ret = (struct planner_parts){.work = with.busiest / steps,
                                      .bubble = (without.tasks - without.busiest) / steps,
                                      .cables = (with.tasks - without.tasks) / steps,
                                      .sums = (with.seconds - with.tasks - with.copies) / steps,
                                      .update = update_seconds(&it, &sim) + with.copies / steps};
    }
    planner_sim_done(&sim);
    return e;
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
