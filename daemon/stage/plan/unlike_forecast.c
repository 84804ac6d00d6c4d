/* SPDX-License-Identifier: MIT
 *
 * The search where replicas have unlike numbers of nodes: what it found becomes the plan, and what
 * that says of itself. Owns nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_search_impl.h"
#include "daemon/stage/plan/stage_unlike.h"

/* --- what is said ----------------------------------------------------------------------------- */

static json_t *cost_of(const struct unlike_replica *r, size_t place)
{
    const struct sched_cost *c = &r->cost[place];
    return json_pack("[f,f,f,f,I]", c->f, c->i, c->w, r->again[place] ? c->r : 0.0, (json_int_t)r->own);
}

/* Of each rank the sum of what `of` says of its stages. */
static json_t *by_rank(const struct head *h,
                       double (*of)(const struct head *, const size_t *, size_t, size_t))
{
    const struct job_plan *p = &h->plan;
    json_t *list = json_array();
    for (size_t r = 0; r < p->ranks; r++) {
        double bytes = 0;
        for (size_t stage = 0; stage < p->stages; stage++)
            bytes += job_plan_is_at(p, stage, r) ? of(h, p->first, p->stages, stage) : 0;
        json_array_append_new(list, json_real(bytes));
    }
    return list;
}

/* A step waits for the replica that takes longest. */
static double reference_seconds(const struct unlike_found *f)
{
    double most = 0;
    for (size_t d = 0; d < f->replicas; d++) {
        const double own =
            forecast_reference(f->replica[d].cost, f->size[d], f->schedule, f->size[d], f->replica[d].own);
        most = own > most ? own : most;
    }
    return most;
}

/* The plan has the stages already. */
static json_t *forecast(const struct search *s, const struct unlike_found *f)
{
    const struct job_plan *p = &s->h->plan;
    const struct plan_shape shape = job_plan_shape(p);
    json_t *costs = json_array(), *of_rank = json_array(), *timed = json_array();
    for (size_t place = 0; place < f->size[f->slowest]; place++)
        json_array_append_new(costs, cost_of(&f->replica[f->slowest], place));
    for (size_t r = 0; r < p->ranks; r++) {
        json_array_append_new(timed, json_boolean(!r || s->timed->node[f->node[r]].any));
        json_array_append_new(
            of_rank, cost_of(&f->replica[plan_shape_pipeline(&shape, r)], plan_shape_place(&shape, r)));
    }
    json_t *o = json_pack(
        "{s:s s:I s:I s:I s:I s:I s:f s:f s:f s:o s:o s:o s:o s:[]}", "schedule", f->schedule, "chunks",
        (json_int_t)1, "steps", (json_int_t)1, "microbatches", (json_int_t)f->replica[f->slowest].own,
        "micro_batch_size", (json_int_t)s->micro[f->cut], "slowest", (json_int_t)f->slowest, "seconds",
        f->seconds, "bubble", f->bubble, "exchange_seconds", f->sums, "costs", costs, "rank_costs", of_rank,
        "timed", timed, "sent_bytes", by_rank(s->h, replicas_sent_bytes), "left_out");
    if (p->loss == LOSS_DPO)
        json_object_set_new(o, "reference_seconds", json_real(reference_seconds(f)));
    if (p->divided)
        json_object_set_new(o, "spared_bytes", by_rank(s->h, replicas_spared_bytes));
    return o;
}

/* --- the plan --------------------------------------------------------------------------------- */

void search_take_unlike(struct head *h, const struct search *s, const struct unlike_found *f)
{
    const size_t *first[PLAN_MAX_REPLICAS];
    for (size_t d = 0; d < f->replicas; d++)
        first[d] = f->replica[d].first;
    search_take_cut(h, s, f->cut, f->schedule, 1);
    memcpy(h->plan.share, f->share, sizeof h->plan.share);
    unlike_begin(&h->plan, f->size, f->replicas);
    unlike_place(&h->plan, first);
    h->planning.has_split = h->planning.has_shares = true;
    json_decref(h->planning.pace);
    h->planning.pace = NULL;
    json_decref(h->planning.forecast);
    h->planning.forecast = forecast(s, f);
}

static void as_it_lies(struct unlike_found *f, const struct search *s, const struct parallel_request *req)
{
    const struct job_plan *p = &s->h->plan;
    size_t size[PLAN_MAX_REPLICAS];
    for (size_t d = 0; d < p->replicas; d++)
        size[d] = job_plan_places_of(p, d);
    unlike_layout(f, req, (1u << s->nodes) - 1, size, p->replicas, false);
}

static int check_adapters(const struct parallel_request *req, const char *way_out, struct err *err)
{
    return req->adapters < 2
               ? 0
               : err_set(err, -EINVAL, "replicas of unlike numbers of nodes are not foreseen with --sweep%s",
                         way_out);
}

int search_unlike(struct search *s, const struct parallel_request *req, struct err *err)
{
    struct unlike_found *f = malloc(sizeof *f);
    int e = f ? check_adapters(req, ": give a --schedule", err) : err_set(err, -ENOMEM, "out of memory");
    if (!e) {
        as_it_lies(f, s, req);
        e = unlike_judge(f, req, false, NULL, 0, err);
    }
    if (!e)
        search_take_unlike(s->h, s, f);
    free(f);
    return e;
}

/* Bounds of each replica's own pipeline, of those of the stages. */
static void bounds_of(size_t *ret, const struct job_plan *p, size_t replica)
{
    const struct plan_shape shape = job_plan_shape(p);
    for (size_t s = 0; s < p->stages; s++)
        ret[shape.place[replica][s] + 1] = p->first[s + 1];
    ret[0] = 0;
}

int search_foresee_unlike(struct search *s, const struct parallel_request *req, struct err *err)
{
    const struct job_plan *p = &s->h->plan;
    size_t bounds[PLAN_MAX_REPLICAS][JOB_MAX_RANKS + 1];
    const size_t *first[PLAN_MAX_REPLICAS];
    struct parallel_request as_it_is = *req;
    struct unlike_found *f = malloc(sizeof *f);
    int e = f ? check_adapters(req, "", err) : err_set(err, -ENOMEM, "out of memory");
    if (!e) {
        as_it_lies(f, s, req);
        memcpy(f->share, p->share, sizeof f->share);
        for (size_t d = 0; d < p->replicas; d++) {
            bounds_of(bounds[d], p, d);
            first[d] = bounds[d];
        }
        as_it_is.schedule = p->schedule;
        e = unlike_judge(f, &as_it_is, true, first, 1, err);
    }
    if (!e)
        s->h->planning.forecast = forecast(s, f);
    free(f);
    return e;
}
