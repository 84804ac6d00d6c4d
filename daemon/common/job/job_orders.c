/* SPDX-License-Identifier: MIT
 *
 * The half of job_plan.h about where stages lie, and in which order pipelines work. Pure: any
 * thread. */
#include <errno.h>

#include "daemon/common/job_plan.h"
#include "engine/pipe/sched.h"

/* --- where stages lie ------------------------------------------------------------------------- */

static const uint32_t *places_in(const struct job_plan *p, size_t pipeline)
{
    return pipeline && p->nothers ? p->others + (pipeline - 1) * p->stages : p->place;
}

size_t job_plan_places_of(const struct job_plan *p, size_t pipeline)
{
    const uint32_t *place = places_in(p, pipeline);
    size_t most = 0;
    if (!p->nothers)
        return p->ranks / job_plan_pipelines(p);
    for (size_t s = 0; s < p->stages; s++)
        most = place[s] > most ? place[s] : most;
    return most + 1;
}

struct plan_shape job_plan_shape(const struct job_plan *p)
{
    struct plan_shape shape = {.pipelines = job_plan_pipelines(p)};
    for (size_t d = 0; d < shape.pipelines; d++) {
        shape.first[d + 1] = shape.first[d] + job_plan_places_of(p, d);
        shape.place[d] = places_in(p, d);
    }
    return shape;
}

size_t job_plan_pipeline_of(const struct job_plan *p, size_t rank)
{
    const struct plan_shape shape = job_plan_shape(p);
    return plan_shape_pipeline(&shape, rank);
}

uint32_t job_plan_rank_at(const struct job_plan *p, size_t pipeline, size_t stage)
{
    const struct plan_shape shape = job_plan_shape(p);
    return plan_shape_stage(&shape, pipeline, stage);
}

uint32_t job_plan_place_of(const struct job_plan *p, size_t rank)
{
    const struct plan_shape shape = job_plan_shape(p);
    return plan_shape_place(&shape, rank);
}

uint32_t job_plan_talks(const struct job_plan *p, size_t rank)
{
    const struct plan_shape shape = job_plan_shape(p);
    uint32_t talks = 0;
    for (size_t other = 0; other < p->ranks; other++)
        talks |= (uint32_t)plan_ranks_talk(&shape, p->stages, rank, other) << other;
    return talks;
}

/* --- schedules -------------------------------------------------------------------------------- */

static size_t replica_of(const struct job_plan *p, size_t pipeline)
{
    return pipeline / job_plan_slices(p);
}

struct sched_groups job_plan_own_groups(const struct job_plan *p, size_t pipeline, size_t m)
{
    const size_t replica = replica_of(p, pipeline);
    const bool is_all = !p->replicas;
    return (struct sched_groups){.m = m,
                                 .groups = job_plan_groups(p),
                                 .first = is_all ? 0 : job_plan_first_group(p, replica),
                                 .end = is_all ? job_plan_groups(p) : job_plan_first_group(p, replica + 1)};
}

struct sched_request job_plan_schedule(const struct job_plan *p, size_t pipeline, size_t m, size_t steps)
{
    const size_t places = job_plan_places_of(p, pipeline);
    const struct sched_groups own = job_plan_own_groups(p, pipeline, m);
    return (struct sched_request){.name = p->schedule,
                                  .text = p->order,
                                  .ranks = places,
                                  .chunks = p->order     ? 0
                                            : p->nothers ? 1
                                                         : p->stages / places,
                                  .microbatches = steps * (plan_group_first(own.end, m, own.groups) -
                                                           plan_group_first(own.first, m, own.groups)),
                                  .groups = own};
}

/* What is known of stages and ranks is of the plan: an order with more of them would be read too
 * far. */
static int check_order(const struct job_plan *p, size_t pipeline, const struct sched *sched, struct err *err)
{
    const size_t places = job_plan_places_of(p, pipeline), stages = p->nothers ? places : p->stages;
    if (sched->ranks == places && sched->stages == stages)
        return 0;
    return err_set(err, -EBADMSG,
                   "the head's plan does not fit its own schedule: it has %zu stages on %zu ranks, its "
                   "schedule %zu on %zu; same ringd on all nodes?",
                   stages, places, sched->stages, sched->ranks);
}

/* With the plan's stages; where ranks of unlike replicas have several, as parts of one. */
static int make_order(struct sched **ret, const struct job_plan *p, size_t pipeline, size_t m, size_t steps,
                      struct err *err)
{
    const struct sched_request want = job_plan_schedule(p, pipeline, m, steps);
    struct sched *coarse = NULL;
    int e = sched_make(&coarse, &want, err);
    e = e ? e : check_order(p, pipeline, coarse, err);
    if (!e && p->nothers)
        e = sched_refine(ret, coarse, p->stages, places_in(p, pipeline), err);
    else if (!e)
        *ret = coarse;
    if (e || p->nothers)
        sched_free(coarse);
    return e;
}

int job_orders_make(struct job_orders *ret, const struct job_plan *p, size_t microbatches, size_t steps,
                    struct err *err)
{
    int e = 0;
    *ret = (struct job_orders){.sched = {NULL}};
    for (size_t k = 0; k < job_plan_pipelines(p) && !e; k++) {
        e = make_order(&ret->sched[k], p, k, microbatches / steps, steps, err);
        ret->pipeline[k] = (struct plan_pipeline){ret->sched[k], p->share[replica_of(p, k)]};
    }
    if (e)
        job_orders_done(ret);
    return e;
}

void job_orders_share(struct job_orders *ret, const struct job_plan *p)
{
    *ret = (struct job_orders){.sched = {NULL}};
    for (size_t k = 0; k < job_plan_pipelines(p); k++)
        ret->pipeline[k].groups = p->share[replica_of(p, k)];
}

void job_orders_request(struct plan_request *ret, const struct job_orders *orders, const struct job_plan *p)
{
    ret->ranks = p->ranks;
    ret->sched = orders->sched[0];
    ret->npipelines = job_plan_pipelines(p);
    ret->pipelines = ret->npipelines > 1 ? orders->pipeline : NULL;
    ret->slices = p->slices;
    ret->groups = job_plan_groups(p);
    ret->parts = p->parts;
}

void job_orders_done(struct job_orders *orders)
{
    for (size_t d = 0; d < PLAN_MAX_REPLICAS; d++)
        sched_free(orders->sched[d]);
    *orders = (struct job_orders){.sched = {NULL}};
}

void job_plan_recompute(const struct job_plan *p, bool *ret)
{
    for (size_t s = 0; s < p->stages; s++)
        ret[s] = p->activations[s] > 0;
}
