/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a call. */
#include "daemon/stage/plan/stage_unlike.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_alike.h"
#include "daemon/stage/plan/stage_given.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/stage_nodes.h"
#include "engine/pipe/split.h"

/* --- places ----------------------------------------------------------------------------------- */

void unlike_begin(struct job_plan *p, const size_t *nodes, size_t replicas)
{
    p->replicas = replicas;
    p->stages = 0;
    for (size_t d = 0; d < replicas; d++)
        p->stages = nodes[d] > p->stages ? nodes[d] : p->stages;
    p->nothers = (replicas - 1) * p->stages;
    for (size_t d = 0; d < replicas; d++)
        for (size_t s = 0; s < p->stages; s++)
            (d ? p->others + (d - 1) * p->stages : p->place)[s] = (uint32_t)(s * nodes[d] / p->stages);
}

void unlike_place(struct job_plan *p, const size_t *const *first)
{
    uint32_t places[PLAN_MAX_REPLICAS][JOB_MAX_RANKS + 1], *at[PLAN_MAX_REPLICAS];
    size_t stages[PLAN_MAX_REPLICAS];
    for (size_t d = 0; d < p->replicas; d++) {
        stages[d] = job_plan_places_of(p, d);
        at[d] = places[d];
    }
    p->stages = split_refine(p->first, at, first, stages, p->replicas);
    p->nothers = (p->replicas - 1) * p->stages;
    memcpy(p->place, places[0], p->stages * sizeof *p->place);
    for (size_t d = 1; d < p->replicas; d++)
        memcpy(p->others + (d - 1) * p->stages, places[d], p->stages * sizeof *p->others);
}

/* --- layers ----------------------------------------------------------------------------------- */

/* What the nodes of a replica are like; a list of bytes for each. */
struct pipeline {
    double speed[JOB_MAX_RANKS];
    size_t memory[JOB_MAX_RANKS], *bytes; /* owned: [places · units] */
    const size_t *of_place[JOB_MAX_RANKS];
};

static int weigh(struct pipeline *ret, const struct head *h, const struct plan_shape *shape, size_t replica,
                 const size_t *limits, struct err *err)
{
    const size_t units = h->config.layers + 2, places = plan_shape_places(shape, replica);
    ret->bytes = calloc(places * units, sizeof *ret->bytes);
    int e = ret->bytes ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t place = 0; place < places && !e; place++) {
        const uint32_t rank = plan_shape_rank(shape, replica, place);
        ret->speed[place] = stage_nodes_speed(h->planning.nodes, rank);
        ret->memory[place] = limits ? limits[rank] : SIZE_MAX;
        ret->of_place[place] = ret->bytes + place * units;
        for (size_t u = 0; u < units && limits && !e; u++) {
            size_t bytes = 0;
            e = replicas_unit_bytes(&bytes, h, u, err);
            ret->bytes[place * units + u] = bytes - stage_shared_unit(h, h->planning.nodes, rank, u);
        }
    }
    return e;
}

static int split_one(size_t *ret_first, const struct head *h, const struct plan_shape *shape, size_t replica,
                     const size_t *limits, struct err *err)
{
    struct pipeline nodes = {.bytes = NULL};
    double *cost = calloc(h->config.layers + 2, sizeof *cost);
    int e = cost ? weigh(&nodes, h, shape, replica, limits, err) : err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < h->config.layers + 2 && !e; u++)
        cost[u] = family_cost(h->family, &h->config, u, h->plan.positions);
    const struct split_request req = {.stages = plan_shape_places(shape, replica),
                                      .layers = h->config.layers,
                                      .unit_cost = cost,
                                      .unit_bytes = limits ? nodes.of_place : NULL,
                                      .speed = nodes.speed,
                                      .memory = limits ? nodes.memory : NULL};
    e = e ? e : split_layers(ret_first, &req, err);
    free(nodes.bytes);
    free(cost);
    return e;
}

static int check_given(const struct head *h, struct err *err)
{
    const size_t given = json_array_size(h->spec.split);
    if (given != h->plan.ranks)
        return err_set(err, -EINVAL, "the split is for %zu nodes, but %zu take part", given, h->plan.ranks);
    return given_check_nodes(h, err);
}

int unlike_split(struct head *h, const size_t *limits, struct err *err)
{
    struct job_plan *p = &h->plan;
    const struct plan_shape shape = job_plan_shape(p);
    size_t bounds[PLAN_MAX_REPLICAS][JOB_MAX_RANKS + 1];
    const size_t *first[PLAN_MAX_REPLICAS];
    int e = h->spec.split ? check_given(h, err) : 0;
    for (size_t d = 0; d < p->replicas && !e; d++) {
        first[d] = bounds[d];
        e = h->spec.split ? given_layers(bounds[d], h, shape.first[d], plan_shape_places(&shape, d), err)
                          : split_one(bounds[d], h, &shape, d, limits, err);
    }
    if (!e)
        unlike_place(p, first);
    return e;
}

/* --- how many --------------------------------------------------------------------------------- */

static int check(const struct head *h, struct err *err)
{
    const struct job_spec *s = &h->spec;
    const struct sched_info *info = sched_info(s->schedule);
    if (s->chunks > 1 || (info && info->min_chunks > 1) || (!info && strcmp(s->schedule, "auto") != 0))
        return err_set(err, -EINVAL,
                       "--parallel %s gives replicas unlike numbers of nodes, whose schedules have one stage "
                       "on each node: take --schedule 1f1b, zb-h1 or another of those, without --chunks",
                       s->parallel);
    return 0;
}

/* A job that has lost a node goes on as one pipeline of those
 * that are left: which of them could hold a whole model is not known here. */
int unlike_of_job(struct head *h, size_t *ret_ranks, struct err *err)
{
    const struct job_spec *s = &h->spec;
    const size_t n = alike_nodes(h, s->replicas);
    size_t sum = 0;
    for (size_t d = 0; d < s->replicas; d++)
        sum += s->unlike[d];
    *ret_ranks = sum < h->plan.ranks ? sum : h->plan.ranks;
    if (sum > n && !s->said)
        return alike_explain(h, s->replicas,
                             err_set(err, -EINVAL,
                                     "--parallel %s takes %zu nodes, and %zu take%s part: add nodes",
                                     s->parallel, sum, n, n == 1 ? "s" : ""),
                             err);
    if (sum > n)
        return 0;
    unlike_begin(&h->plan, s->unlike, s->replicas);
    h->plan.divided = s->zero;
    h->plan.copies = h->plan.copies && !h->plan.divided;
    return check(h, err);
}
