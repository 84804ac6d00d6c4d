/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_search.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_search_impl.h"
#include "daemon/stage/plan/stage_sharing.h"
#include "daemon/stage/share/stage_travel.h"
#include "daemon/stage/stage_nodes.h"

struct parallel_request search_request(const struct search *s)
{
    static const enum planner_again again[] = {[RECOMPUTE_NONE] = PLANNER_AGAIN_NONE,
                                               [RECOMPUTE_LAYER] =
                                                   PLANNER_AGAIN_NONE, /* timed as part of I and W */
                                               [RECOMPUTE_STAGE] = PLANNER_AGAIN_ALL,
                                               [RECOMPUTE_AUTO] = PLANNER_AGAIN_AUTO};
    const struct job_spec *spec = &s->h->spec;
    return (struct parallel_request){.nodes = s->nodes,
                                     .layers = s->h->config.layers,
                                     .cut = s->cut,
                                     .cuts = s->cuts,
                                     .way = s->way,
                                     .grads = s->grads,
                                     .copied = s->copied,
                                     .handling = s->handling,
                                     .memory = s->memory,
                                     .adapters = s->h->nadapters,
                                     .chunks = spec->chunks,
                                     .schedule = strcmp(spec->schedule, "auto") ? spec->schedule : NULL,
                                     .objective = spec->save_memory ? PLANNER_MEMORY : PLANNER_TIME,
                                     .again = again[spec->recompute]};
}

/* The planner's question about the job's own replicas or slices, on nodes as they lie. */
static int ask(struct search *s, const struct parallel_request *req, bool has_shares, struct err *err)
{
    const struct job_plan *p = &s->h->plan;
    const size_t replicas = p->replicas ? p->replicas : 1, slices = p->slices ? p->slices : 1;
    struct parallel_request with = *req;
    struct sharing_table *sharing = sharing_of_plan(s);
    if (!sharing)
        return err_set(err, -ENOMEM, "out of memory");
    with.sharing = &sharing->ask;
    int e = parallel_layout_make(&s->layout, &with, (1u << s->nodes) - 1, replicas, slices, false)
                ? 0
                : err_set(err, -EINVAL, "%zu replicas need as many groups of microbatches", replicas);
    for (size_t d = 0; d < p->replicas && has_shares; d++)
        s->layout.share[0][d] = p->share[d];
    e = e ? e : parallel_ask(&s->question, &s->layout, &with, err);
    sharing_free(sharing);
    return e;
}

/* --- the two ways in -------------------------------------------------------------------------- */

/* Units as they cost on this node; a rank is as fast as it does all of them. */
static json_t *pace_of(const struct search *s, const struct planner_found *f)
{
    json_t *units = json_array(), *speeds = json_array();
    const struct sched_cost *own = s->cost[s->layout.cut[f->cut]];
    for (size_t r = 0; r < s->layout.places; r++) {
        const struct sched_cost *its = own + s->layout.node[planner_node(f, s->layout.places, r)] * s->units;
        double mine = 0, there = 0;
        for (size_t u = 0; u < s->units; u++) {
            const double cost = own[u].f + own[u].i + own[u].w;
            mine += cost;
            there += its[u].f + its[u].i + its[u].w;
            if (!r)
                json_array_append_new(units, json_real(cost));
        }
        json_array_append_new(speeds, json_real(mine / there));
    }
    return json_pack("{s:o s:o}", "units", units, "speeds", speeds);
}

void search_take(struct head *h, const struct search *s, const struct planner_found *f)
{
    struct job_plan *p = &h->plan;
    search_take_cut(h, s, s->layout.cut[f->cut], f->schedule, f->chunks);
    memcpy(p->share, s->layout.share[f->cut], sizeof p->share);
    memcpy(p->first, f->first, (f->stages + 1) * sizeof *p->first);
    h->planning.has_split = h->planning.has_shares = true;
    json_decref(h->planning.pace);
    h->planning.pace = job_plan_pipelines(p) > 1 ? NULL : pace_of(s, f);
    json_decref(h->planning.forecast);
    h->planning.forecast = forecast_of(s, f);
    json_object_set_new(h->planning.forecast, "left_out", forecast_left_out(s, f));
    if (!p->slices) /* the order of nodes that share stages is not looked at */
        forecast_elsewhere(s, f);
    if (f->mirrored)
        head_mirror(h);
}

void head_mirror(struct head *h)
{
    json_t *nodes = json_array();
    for (size_t r = 0; r < h->plan.ranks; r++)
        json_array_append(nodes, json_array_get(h->planning.nodes, (h->plan.ranks - r) % h->plan.ranks));
    json_decref(h->planning.nodes);
    h->planning.nodes = nodes;
    h->planning.is_mirrored = !h->planning.is_mirrored;
}

/* What is on the nodes already need not come. With replicas, which may lack unlike parts, the split
 * that follows looks at it. */
static int prefer(const struct search *s, struct planner_found *best, const struct planner_request *req,
                  struct err *err)
{
    struct head_planning *p = &s->h->planning;
    const size_t *of_node[JOB_MAX_RANKS];
    for (size_t r = 0; r < req->ranks && p->travel_lacks; r++)
        of_node[r] = p->travel_lacks + r * s->units;
    return p->travel_lacks && job_plan_pipelines(&s->h->plan) == 1 && best->fits
               ? planner_prefer(best, &p->travel_spared, of_node, STAGE_TRAVEL_SLACK, req, err)
               : 0;
}

bool search_may_mirror(const struct head *h)
{
    return !json_is_true(json_object_get(json_array_get(h->planning.nodes, 0), "by_hand"));
}

static int head_search_unlike(struct head *h, struct err *err)
{
    struct search s;
    int e = search_init(&s, h, true, err);
    const struct parallel_request all = search_request(&s);
    e = e ? e : search_unlike(&s, &all, err);
    if (!e)
        cost_table_say(s.timed);
    search_done(&s);
    return e ? err_prefix(err, e, "--schedule auto") : 0;
}

int head_search(struct head *h, struct err *err)
{
    struct search s;
    struct planner_found best, second;
    if (h->plan.nothers)
        return head_search_unlike(h, err);
    int e = search_init(&s, h, true, err);
    const struct parallel_request all = search_request(&s);
    e = e ? e : ask(&s, &all, false, err);
    struct planner_request *req = &s.question.req;
    req->mirror = job_plan_pipelines(&h->plan) == 1 && search_may_mirror(h);
    if (!e)
        e = planner_search(&best, &second, req, err);
    if (!e)
        e = prefer(&s, &best, req, err);
    if (!e) {
        cost_table_say(s.timed);
        search_take(h, &s, &best);
        if (second.schedule)
            json_object_set_new(h->planning.forecast, "second", forecast_of(&s, &second));
    }
    search_done(&s);
    return e ? err_prefix(err, e, "--schedule auto") : 0;
}

static int foresee(struct search *s, const struct parallel_request *all, struct err *err)
{
    struct planner_found found, none;
    const struct job_plan *p = &s->h->plan;
    int e = ask(s, all, true, err);
    struct planner_request *req = &s->question.req;
    req->schedule = p->schedule;
    req->chunks = p->stages / (s->layout.places ? s->layout.places : 1);
    req->first = p->first;
    e = e ? e : planner_search(&found, &none, req, err);
    if (!e)
        s->h->planning.forecast = forecast_of(s, &found);
    return e;
}

void head_forecast(struct head *h)
{
    struct search s;
    struct err err = {""};
    if (h->plan.order)
        return;
    int e = search_init(&s, h, false, &err);
    const struct parallel_request all = search_request(&s);
    if (!e)
        e = h->plan.nothers ? search_foresee_unlike(&s, &all, &err) : foresee(&s, &all, &err);
    if (!e)
        cost_table_say(s.timed);
    else
        stage_say(h->events, "no forecast of a step: %s", err.text);
    search_done(&s);
}
