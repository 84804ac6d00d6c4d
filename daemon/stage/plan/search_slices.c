/* SPDX-License-Identifier: MIT
 *
 * The planner's question about the job's own replicas. Ranks that share a stage are to the planner
 * one node, as fast as the slowest of them. Owns nothing. */
#include <errno.h>
#include <math.h>
#include <stdint.h>

#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_search_impl.h"

/* On nodes as they lie. */
static int ask_nodes(struct search *s, const struct parallel_request *req, bool has_shares, struct err *err)
{
    const struct job_plan *p = &s->h->plan;
    const size_t replicas = job_plan_replicas(p);
    if (!parallel_layout_make(&s->layout, req, (1u << req->nodes) - 1, replicas, false))
        return err_set(err, -EINVAL, "%zu replicas need as many groups of microbatches", replicas);
    for (size_t d = 0; d < p->replicas && has_shares; d++)
        s->layout.share[0][d] = p->share[d];
    return parallel_ask(&s->question, &s->layout, req, err);
}

/* Ranks that share the stages of a place in a replica. */
struct sharers {
    uint32_t rank[SLICE_MOST];
    size_t n;
};

static struct sharers sharers_of(const struct job_plan *p, size_t replica, size_t place)
{
    const struct plan_shape shape = job_plan_shape(p);
    struct sharers ret = {.n = job_plan_slices(p)};
    for (size_t i = 0; i < ret.n; i++)
        ret.rank[i] = plan_shape_rank(&shape, replica * ret.n + i, place);
    return ret;
}

/* Over the slowest cable between two of them, whose CPUs do nothing else meanwhile. */
static double gathering(const struct search *s, const struct sharers *of, const struct slice_traffic *all)
{
    double cable = 0, handled = 0;
    for (size_t i = 0; i < of->n && all->times > 0; i++) {
        handled = fmax(handled, s->handling[of->rank[i]] * all->bytes);
        for (size_t other = 0; other < of->n; other++)
            if (other != i)
                cable = fmax(cable, cost_table_gather(s->timed, of->rank[i], of->rank[other],
                                                      all->bytes / all->times));
    }
    return all->times * cable + handled;
}

/* They are as fast as the slowest of them, and gather while they compute. */
static struct sched_cost shared_cost(const struct search *s, const struct sharers *of, size_t cut,
                                     size_t unit)
{
    const struct job_plan *p = &s->h->plan;
    const struct slice_trains all = slices_trains(p, &s->h->config, unit, s->tokens[cut]);
    const double forward = gathering(s, of, &all.forward),
                 again = p->by_layer && unit && unit <= s->h->config.layers ? forward : 0;
    struct sched_cost most = {0};
    for (size_t i = 0; i < of->n; i++) {
        const struct sched_cost *own = &s->cost[cut][of->rank[i] * s->units + unit];
        most = (struct sched_cost){fmax(most.f, own->f), fmax(most.i, own->i), fmax(most.w, own->w),
                                   fmax(most.r, own->r), fmax(most.u, own->u)};
    }
    most.f += forward;
    most.r += forward;
    most.u += gathering(s, of, &all.update);
    if (unit >= s->lowest) {
        most.i += gathering(s, of, &all.input) + again;
        most.w += gathering(s, of, &all.weights);
    }
    return most;
}

/* The ranks that share a place as one node, which the first of them stands for. Such a node lies
 * before all ranks that are looked at later. */
static void join_sharers(struct search *s, const struct sharers *of, size_t node, const uint32_t *first,
                         size_t nodes)
{
    for (size_t c = 0; c < s->cuts; c++)
        for (size_t u = 0; u < s->units; u++)
            s->cost[c][node * s->units + u] = shared_cost(s, of, c, u);
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < of->n; i++)
        least = s->memory[of->rank[i]] < least ? s->memory[of->rank[i]] : least;
    s->shared.memory[node] = least;
    s->shared.handling[node] = s->handling[of->rank[0]];
    for (size_t other = 0; other < nodes; other++)
        s->shared.way[node * nodes + other] = s->way[of->rank[0] * s->nodes + first[other]];
}

static int ask_slices(struct search *s, const struct parallel_request *all, bool has_shares, struct err *err)
{
    const struct job_plan *p = &s->h->plan;
    const size_t places = job_plan_places(p), nodes = places * job_plan_replicas(p);
    uint32_t first[JOB_MAX_RANKS];
    for (size_t node = 0; node < nodes; node++)
        first[node] = sharers_of(p, node / places, plan_place_of(places, node)).rank[0];
    for (size_t node = 0; node < nodes; node++) {
        const struct sharers of = sharers_of(p, node / places, plan_place_of(places, node));
        join_sharers(s, &of, node, first, nodes);
    }
    struct parallel_request req = *all;
    req.nodes = nodes;
    req.way = s->shared.way;
    req.memory = s->shared.memory;
    req.handling = s->shared.handling;
    return ask_nodes(s, &req, has_shares, err);
}

int search_ask(struct search *s, const struct parallel_request *req, bool has_shares, struct err *err)
{
    return s->h->plan.slices ? ask_slices(s, req, has_shares, err) : ask_nodes(s, req, has_shares, err);
}
