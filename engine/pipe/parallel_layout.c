/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a question. Pure. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/sum_tree.h"
#include "pipe/parallel_layout.h"

/* --- shares ----------------------------------------------------------------------------------- */

void parallel_deal_out(size_t *ret, const double *speed, size_t replicas, size_t groups)
{
    for (size_t d = 0; d < replicas; d++)
        ret[d] = 1;
    for (size_t left = groups > replicas ? groups - replicas : 0; left; left--) {
        size_t first = 0;
        for (size_t d = 1; d < replicas; d++)
            if ((double)(ret[d] + 1) / speed[d] < (double)(ret[first] + 1) / speed[first])
                first = d;
        ret[first]++;
    }
}

size_t parallel_most_sums(const size_t *share, size_t replicas, size_t groups)
{
    struct sum_node nodes[SUM_TREE_NODES];
    size_t most = 0, first = 0;
    for (size_t d = 0; d < replicas; first += share[d++]) {
        const size_t n = sum_tree_roots(nodes, groups, first, first + share[d]);
        most = n > most ? n : most;
    }
    return most;
}

/* --- places ----------------------------------------------------------------------------------- */

static size_t node_at(const struct parallel_layout *l, size_t pipeline, size_t place)
{
    return l->node[plan_rank_at(l->places, pipeline, place)];
}

static const struct parallel_cut *cut_of(const struct parallel_request *req, const struct parallel_layout *l,
                                         size_t at)
{
    return (l->slices > 1 ? req->sharing->cut[l->slices] : req->cut) + l->cut[at];
}

/* A slice sends of its gradients only its own rows. */
static const size_t *grads_of(const struct parallel_request *req, const struct parallel_layout *l)
{
    const size_t *own = l->slices > 1 ? req->sharing->grads[l->slices] : NULL;
    return own ? own : req->grads;
}

/* Seconds of all layers on the slowest of the nodes that share them. */
static double work_of(const struct parallel_request *req, const struct parallel_layout *l, size_t at,
                      size_t replica, size_t place)
{
    double most = 0;
    for (size_t t = 0; t < l->slices; t++) {
        const size_t node = node_at(l, replica * l->slices + t, place);
        double sum = 0;
        for (size_t u = 1; u <= req->layers; u++) {
            const struct sched_cost *c = &cut_of(req, l, at)->cost[node * (req->layers + 2) + u];
            sum += c->f + c->i + c->w;
        }
        most = fmax(most, sum);
    }
    return most > 0 ? most : 1;
}

/* All replicas have one split, which suits the slowest node of each place: a replica is as fast as
 * its slowest place with that. */
static void deal_out(struct parallel_layout *l, const struct parallel_request *req, size_t at)
{
    double layers[PLANNER_MAX_RANKS] = {0}, speed[PLAN_MAX_REPLICAS];
    for (size_t p = 0; p < l->places; p++)
        for (size_t d = 0; d < l->replicas; d++) {
            const double could = 1 / work_of(req, l, at, d, p);
            layers[p] = !d || could < layers[p] ? could : layers[p];
        }
    for (size_t d = 0; d < l->replicas; d++) {
        double slowest = 0;
        for (size_t p = 0; p < l->places; p++)
            slowest = fmax(slowest, layers[p] * work_of(req, l, at, d, p));
        speed[d] = 1 / slowest;
    }
    parallel_deal_out(l->share[at], speed, l->replicas, req->cut[l->cut[at]].groups);
}

bool parallel_layout_make(struct parallel_layout *l, const struct parallel_request *req, uint32_t mask,
                          size_t replicas, size_t slices, bool mirrored)
{
    size_t ranks = 0;
    *l = (struct parallel_layout){.replicas = replicas, .slices = slices, .mirrored = mirrored, .mask = mask};
    for (size_t i = 0; i < req->nodes; i++) {
        const size_t node = mirrored ? (req->nodes - i) % req->nodes : i;
        if (mask >> node & 1)
            l->node[ranks++] = node;
    }
    l->places = ranks / (replicas * slices);
    for (size_t c = 0; c < req->cuts; c++) {
        if (req->cut[c].groups < replicas)
            continue;
        l->cut[l->cuts] = c;
        deal_out(l, req, l->cuts++);
    }
    return l->cuts > 0;
}

/* --- the question ----------------------------------------------------------------------------- */

/* From a place to another, of the slice that takes longest. */
static struct sched_link message(const struct parallel_request *req, const struct parallel_layout *l,
                                 size_t replica, size_t from, size_t to, double bytes)
{
    struct sched_link most = {0};
    for (size_t t = 0; t < l->slices; t++) {
        const size_t pipeline = replica * l->slices + t;
        const struct parallel_way *way =
            &req->way[node_at(l, pipeline, from) * req->nodes + node_at(l, pipeline, to)];
        most.transfer = fmax(most.transfer, way->message + bytes * way->byte);
        most.latency = fmax(most.latency, way->latency);
    }
    return most;
}

/* Each part of a stage's gradients is added up by one replica: a rank sends it what it has of
 * that, and gives all others the sum of its own. */
static struct sched_link sum_at(const struct parallel_request *req, const struct parallel_layout *l,
                                size_t place, size_t sums)
{
    struct sched_link most = {0};
    for (size_t i = 0; i < l->replicas * l->slices; i++) {
        double byte = 0;
        for (size_t e = 0; e < l->replicas; e++) {
            const size_t other = e * l->slices + i % l->slices;
            const struct parallel_way *way =
                &req->way[node_at(l, i, place) * req->nodes + node_at(l, other, place)];
            byte += other == i ? 0 : way->byte * (double)(sums + 1) / (double)l->replicas;
            most.latency = fmax(most.latency, other == i ? 0 : 2 * (way->latency + way->message));
        }
        most.transfer = fmax(most.transfer, byte);
    }
    return most;
}

double parallel_sent(size_t sums, size_t replicas)
{
    return (double)(sums + 1) * (double)(replicas - 1) / (double)replicas;
}

/* Of the nodes in a place the one that takes longest. */
static double handling_at(const struct parallel_request *req, const struct parallel_layout *l, size_t place,
                          size_t sums)
{
    double most = 0;
    for (size_t i = 0; i < l->replicas * l->slices && req->handling; i++)
        most = fmax(most, req->handling[node_at(l, i, place)] * parallel_sent(sums, l->replicas));
    return most;
}

static struct sched_cost slower(const struct sched_cost *a, const struct sched_cost *b)
{
    return (struct sched_cost){fmax(a->f, b->f), fmax(a->i, b->i), fmax(a->w, b->w), fmax(a->r, b->r),
                               fmax(a->u, b->u)};
}

/* Nodes that share a stage are as fast as the slowest of them, and gather besides. */
static struct sched_cost shared_cost(const struct parallel_request *req, const struct parallel_layout *l,
                                     size_t at, size_t unit, const size_t *node)
{
    const struct parallel_sharing *sharing = req->sharing;
    struct sched_cost cost = {0};
    for (size_t t = 0; t < l->slices; t++)
        cost = slower(&cost, &cut_of(req, l, at)->cost[node[t] * (req->layers + 2) + unit]);
    if (l->slices < 2 || !sharing->gathering)
        return cost;
    const struct sched_cost more = sharing->gathering(sharing->owner, l->slices, l->cut[at], unit, node);
    return (struct sched_cost){cost.f + more.f, cost.i + more.i, cost.w + more.w, cost.r + more.r,
                               cost.u + more.u};
}

/* A place of a replica: what its units cost and take there. */
static void ask_place(struct parallel_question *q, const struct parallel_layout *l,
                      const struct parallel_request *req, size_t at, size_t i)
{
    const size_t units = req->layers + 2, replica = i / l->places, place = i % l->places,
                 row = (at * l->replicas * l->places + i) * units;
    size_t node[PARALLEL_MOST_SLICES] = {0};
    for (size_t t = 0; t < l->slices; t++)
        node[t] = node_at(l, replica * l->slices + t, place);
    for (size_t u = 0; u < units; u++) {
        q->cost[row + u] = shared_cost(req, l, at, u, node);
        for (size_t t = 0; t < l->slices; t++) {
            const size_t held = cut_of(req, l, at)->held[node[t] * units + u];
            q->held[row + u] = held > q->held[row + u] ? held : q->held[row + u];
        }
    }
}

static void ask_cut(struct parallel_question *q, const struct parallel_layout *l,
                    const struct parallel_request *req, size_t at)
{
    const struct parallel_cut *from = cut_of(req, l, at);
    const size_t units = req->layers + 2, ranks = l->places * l->replicas,
                 sums = parallel_most_sums(l->share[at], l->replicas, from->groups);
    size_t most = 0, group = 0;
    for (size_t d = 0; d < l->replicas; d++) {
        const size_t end = group + l->share[at][d], m = from->microbatches;
        q->own[at][d] = (end < from->groups ? plan_group_first(end, m, from->groups) : m) -
                        plan_group_first(group, m, from->groups);
        most = q->own[at][d] > most ? q->own[at][d] : most;
        group = end;
    }
    for (size_t i = 0; i < ranks; i++) {
        const size_t replica = i / l->places, place = i % l->places, next = (place + 1) % l->places,
                     before = (place + l->places - 1) % l->places;
        ask_place(q, l, req, at, i);
        q->link[at][2 * i] = message(req, l, replica, place, next, from->message);
        q->link[at][2 * i + 1] = message(req, l, replica, place, before, from->message);
    }
    for (size_t p = 0; p < l->places; p++) {
        q->sum[at][p] = sum_at(req, l, p, sums);
        q->handling[at][p] = handling_at(req, l, p, sums);
    }
    q->cut[at] = (struct planner_cut){.microbatches = most,
                                      .own = q->own[at],
                                      .cost = q->cost + at * ranks * units,
                                      .link = q->link[at],
                                      .held = q->held + at * ranks * units,
                                      .slot = from->slot,
                                      .activations = from->activations,
                                      .sum = l->replicas > 1 ? q->sum[at] : NULL,
                                      .handling = l->replicas > 1 ? q->handling[at] : NULL};
}

struct planner_copy parallel_copy(const struct parallel_request *req, const size_t *node, size_t ranks,
                                  size_t rank)
{
    const struct parallel_way *way = req->way + node[rank] * req->nodes;
    if (ranks < 2)
        return (struct planner_copy){0, 0};
    return (struct planner_copy){
        req->handling ? req->handling[node[rank]] : 0,
        fmax(way[node[(rank + 1) % ranks]].byte, way[node[(rank + ranks - 1) % ranks]].byte)};
}

/* Of slices that share a place, the slowest. */
static void ask_copies(struct parallel_question *q, const struct parallel_layout *l,
                       const struct parallel_request *req)
{
    const size_t all = l->places * l->replicas * l->slices;
    for (size_t i = 0; i < l->places * l->replicas; i++)
        for (size_t t = 0; t < l->slices; t++) {
            const size_t rank = plan_rank_at(l->places, i / l->places * l->slices + t, i % l->places);
            const struct planner_copy one = parallel_copy(req, l->node, all, rank);
            q->copy[i].cable = fmax(q->copy[i].cable, one.cable);
            q->copy[i].cpu = fmax(q->copy[i].cpu, one.cpu);
        }
    for (size_t at = 0; at < l->cuts; at++)
        q->cut[at].copy = q->copy;
}

static size_t least_memory(const struct parallel_request *req, const struct parallel_layout *l, size_t i)
{
    size_t least = SIZE_MAX;
    for (size_t t = 0; t < l->slices; t++) {
        const size_t has = req->memory[node_at(l, i / l->places * l->slices + t, i % l->places)];
        least = has < least ? has : least;
    }
    return least;
}

int parallel_ask(struct parallel_question *q, const struct parallel_layout *l,
                 const struct parallel_request *req, struct err *err)
{
    const size_t ranks = l->places * l->replicas, all = l->cuts * ranks * (req->layers + 2);
    *q = (struct parallel_question){.cost = calloc(all, sizeof *q->cost),
                                    .held = calloc(all, sizeof *q->held)};
    if (!q->cost || !q->held)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t at = 0; at < l->cuts; at++)
        ask_cut(q, l, req, at);
    if (req->copied)
        ask_copies(q, l, req);
    for (size_t i = 0; i < ranks && req->memory; i++)
        q->memory[i] = least_memory(req, l, i);
    q->req = (struct planner_request){.ranks = l->places,
                                      .layers = req->layers,
                                      .replicas = l->replicas,
                                      .grads = grads_of(req, l),
                                      .copied = req->copied,
                                      .cut = q->cut,
                                      .cuts = l->cuts,
                                      .adapters = req->adapters,
                                      .memory = req->memory ? q->memory : NULL,
                                      .schedule = req->schedule,
                                      .chunks = req->chunks,
                                      .objective = req->objective,
                                      .again = req->again};
    return 0;
}

void parallel_question_done(struct parallel_question *q)
{
    free(q->cost);
    free(q->held);
}
