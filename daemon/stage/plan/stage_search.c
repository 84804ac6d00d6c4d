/* SPDX-License-Identifier: MIT
 *
 * Costs come from the nodes (cost_table.c): each times every kind of unit at the sizes of
 * microbatch that are considered. */
#include "daemon/stage/plan/stage_search.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/handling_cost.h"
#include "daemon/stage/plan/stage_alike.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan/stage_search_impl.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/share/stage_travel.h"
#include "daemon/stage/stage_nodes.h"

enum { TIMED_TOKENS = 512 /* beyond, time is in proportion */ };

static const size_t NOT_TIMED = SIZE_MAX;

/* --- ways to cut a step ----------------------------------------------------------------------- */

static void add_cut(struct search *s, size_t rows, double row_tokens, size_t microbatches)
{
    const size_t batch = s->h->spec.batch;
    s->micro[s->cuts] = rows;
    s->tokens[s->cuts] = row_tokens * (double)(rows < batch ? rows : batch);
    s->cut[s->cuts++] =
        (struct parallel_cut){.microbatches = microbatches, .groups = replicas_groups(s->h, microbatches)};
}

/* Microbatches of 1, 2, 4, … rows that cut the step into equal parts; the one that was asked for,
 * if one was. */
static void list_cuts(struct search *s, bool all)
{
    const struct job_spec *spec = &s->h->spec;
    const struct data_packs *packs = s->h->train.packs;
    double sum = 0;
    for (size_t i = 0; i < data_packs_count(packs); i++)
        sum += (double)data_packs_length(packs, i);
    const double each = fmax(1, sum / (double)data_packs_count(packs));
    const bool given = !all || spec->microbatches || spec->has_micro_batch;
    for (size_t n = given ? spec->micro_batch : 1; n <= spec->batch && s->cuts < PARALLEL_MOST_CUTS; n *= 2) {
        if (!given && spec->batch % n)
            break;
        add_cut(s, n, each, (spec->batch + n - 1) / n);
        if (given)
            break;
    }
    if (!s->cuts) /* more rows in a microbatch than in a step */
        add_cut(s, spec->micro_batch, each, 1);
}

/* --- a unit ----------------------------------------------------------------------------------- */

static bool is_trained(const struct head *h, size_t unit)
{
    return h->plan.tune.kind == TUNE_FULL || tune_param_count(&h->plan.tune, h->family, &h->config, unit) > 0;
}

/* As it is weighed: at the largest a microbatch can be. */
static struct stage_spec heavy_spec(const struct search *s, size_t unit, size_t micro)
{
    const struct job_plan *p = &s->h->plan;
    struct stage_spec spec = unit_spec(p, &s->h->config, unit, p->tokens / s->h->spec.micro_batch * micro,
                                       p->seqs / s->h->spec.micro_batch * micro);
    spec.more = p->more;
    spec.nmore = p->nmore;
    return spec;
}

static struct sched_cost times(const struct sched_cost *c, double x)
{
    return (struct sched_cost){c->f * x, c->i * x, c->w * x, c->r * x, c->u * x};
}

/* What the search counts with: slots, activations and the rest, of a unit. */
static int weigh_unit(struct search *s, size_t unit, size_t cut, struct err *err)
{
    struct stage_bytes one, two, again;
    struct stage_spec spec = heavy_spec(s, unit, s->micro[cut]);
    int e = stage_measure(&one, &spec, err);
    spec.slots = 2;
    if (!e)
        e = stage_measure(&two, &spec, err);
    spec.activations = spec.bwd_x_only = spec.bwd_w_only = 1;
    if (!e)
        e = stage_measure(&again, &spec, err);
    if (e)
        return e;
    const size_t each = two.slots - one.slots,
                 activations = two.slots > again.slots ? two.slots - again.slots : 0;
    size_t *bytes = s->bytes[cut];
    bytes[unit] = each - (activations < each ? activations : each);
    bytes[s->units + unit] = activations < each ? activations : each;
    bytes[2 * s->units + unit] = one.total - one.work - one.slots;
    return 0;
}

/* --- what is timed ---------------------------------------------------------------------------- */

/* Of a cut whose predecessor was too large to time, nothing. */
static int list_units(struct search *s, struct err *err)
{
    const double length = fmin((double)s->h->plan.positions, s->tokens[0]);
    s->timed = cost_table_new(s->h);
    s->place = calloc(s->cuts * s->units, sizeof *s->place);
    if (!s->place || !s->timed)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t c = 0; c < s->cuts; c++)
        for (size_t u = 0; u < s->units; u++) {
            const double tokens = fmin(round(s->tokens[c]), TIMED_TOKENS);
            const bool is_timed =
                cost_table_like(s->h, u, s->lowest) == u && !(c && s->tokens[c - 1] >= TIMED_TOKENS);
            s->place[c * s->units + u] =
                is_timed && s->timed->list.n < UNITS_MOST ? s->timed->list.n : NOT_TIMED;
            if (s->place[c * s->units + u] == NOT_TIMED)
                continue;
            s->timed->list.at[s->timed->list.n++] =
                (struct unit_want){.unit = u,
                                   .tokens = (size_t)tokens,
                                   .seqs = (size_t)fmax(1, ceil(tokens / fmax(length, 1))),
                                   .trained = u >= s->lowest,
                                   .needed = !c};
        }
    return 0;
}

/* --- all units on all nodes ------------------------------------------------------------------- */

/* What was timed is of a node that had nothing else to do. */
static struct sched_cost cost_of(const struct search *s, size_t rank, size_t cut, size_t unit)
{
    const size_t at = s->place[cut * s->units + unit];
    const struct cost_table_node *node = &s->timed->node[rank];
    const double slow = stage_nodes_slowness(s->timed->nodes, rank);
    if (at != NOT_TIMED && node->have[at])
        return times(&node->cost[at], slow * round(s->tokens[cut]) / (double)s->timed->list.at[at].tokens);
    if (rank)
        return times(&s->cost[cut][unit],
                     cost_table_slowness(s->timed, rank) * slow / stage_nodes_slowness(s->timed->nodes, 0));
    return cut ? times(&s->cost[cut - 1][unit], s->tokens[cut] / s->tokens[cut - 1]) : (struct sched_cost){0};
}

static int search_units(struct search *s, struct err *err)
{
    int e = 0;
    for (size_t u = 0; u < s->units && !e; u++) {
        const size_t same = cost_table_like(s->h, u, s->lowest);
        for (size_t c = 0; c < s->cuts && !e; c++) {
            size_t *bytes = s->bytes[c];
            for (size_t r = 0; r < s->nodes; r++)
                s->cost[c][r * s->units + u] =
                    same == u ? cost_of(s, r, c, u) : s->cost[c][r * s->units + same];
            if (same == u)
                e = weigh_unit(s, u, c, err);
            for (size_t i = 0; i < 3 && same != u; i++)
                bytes[i * s->units + u] = bytes[i * s->units + same];
            for (size_t r = 0; r < s->nodes; r++)
                bytes[(3 + r) * s->units + u] =
                    bytes[2 * s->units + u] - stage_shared_unit(s->h, s->timed->nodes, r, u);
        }
    }
    return e;
}

static void search_ways(struct search *s)
{
    static const double MANY = 1e6; /* bytes */
    for (size_t from = 0; from < s->nodes; from++)
        for (size_t to = 0; to < s->nodes; to++) {
            const struct sched_link none = cost_table_link(s->timed, from, to, 0),
                                    many = cost_table_link(s->timed, from, to, MANY);
            s->way[from * s->nodes + to] =
                (struct parallel_way){(many.transfer - none.transfer) / MANY, none.transfer, none.latency};
        }
    const bool may_share = job_plan_pipelines(&s->h->plan) > 1 || s->h->spec.any_parallel;
    const double own = may_share ? handling_cost(!s->h->planning.must_not_time) : 0;
    for (size_t n = 0; n < s->nodes; n++) /* in proportion, as nodes are not asked */
        s->handling[n] = own * (n ? cost_table_slowness(s->timed, n) : 1);
    const double step = s->tokens[0] * (double)s->cut[0].microbatches;
    for (size_t c = 0; c < s->cuts; c++)
        s->cut[c].message = s->tokens[c] * (double)s->h->plan.dim * sizeof(float);
    for (size_t u = 0; u < s->units; u++)
        s->grads[u] = (size_t)replicas_unit_bytes_sent(&s->h->plan, &s->h->config, u, step);
}

/* What is left for the units of each node. */
static int search_memory(struct search *s, struct err *err)
{
    for (uint32_t r = 0; r < s->nodes; r++) {
        const double has = cost_table_number(s->timed, r, "memory");
        struct job_plan p = s->h->plan;
        size_t room, work = 0;
        p.replicas = p.nothers ? 0 : p.replicas;
        job_plan_place_single(&p);
        for (size_t i = 0; i < p.stages; i++)
            p.slots[i] = 1;
        size_t other_way = 0;
        const int threads = (int)cost_table_threads(s->timed, r);
        int e = stage_room(&room, &p, &s->h->config, r, threads, err);
        if (!e && !p.replicas)
            e = stage_room(&other_way, &p, &s->h->config, (uint32_t)((s->nodes - r) % s->nodes), threads,
                           err);
        room = !e && other_way > room ? other_way : room;
        for (size_t u = 0; u < s->units && !e; u++) {
            struct stage_spec spec = heavy_spec(s, u, s->micro[s->cuts - 1]);
            struct stage_bytes bytes;
            e = stage_measure(&bytes, &spec, err);
            work = !e && bytes.work > work ? bytes.work : work;
        }
        if (e)
            return e;
        s->taken[r] = room + work;
        s->memory[r] = has <= 0 ? SIZE_MAX : (size_t)has > s->taken[r] ? (size_t)has - s->taken[r] : 0;
    }
    return 0;
}

static void search_done(struct search *s)
{
    for (size_t c = 0; c < s->cuts; c++) {
        free(s->cost[c]);
        free(s->bytes[c]);
    }
    free(s->place);
    free(s->grads);
    parallel_question_done(&s->question);
    cost_table_free(s->timed);
}

static int search_init(struct search *s, struct head *h, bool all, struct err *err)
{
    *s = (struct search){.h = h, .units = h->config.layers + 2, .nodes = h->plan.ranks};
    while (s->lowest + 1 < s->units && !is_trained(h, s->lowest))
        s->lowest++;
    list_cuts(s, all);
    s->grads = calloc(s->units, sizeof *s->grads);
    for (size_t c = 0; c < s->cuts; c++) {
        s->cost[c] = calloc(s->nodes * s->units, sizeof *s->cost[c]);
        s->bytes[c] = calloc((3 + s->nodes) * s->units, sizeof *s->bytes[c]);
        if (!s->cost[c] || !s->bytes[c] || !s->grads)
            return err_set(err, -ENOMEM, "out of memory");
        s->cut[c].cost = s->cost[c];
        s->cut[c].slot = s->bytes[c];
        s->cut[c].activations = s->bytes[c] + s->units;
        s->cut[c].held = s->bytes[c] + 3 * s->units;
    }
    int e = list_units(s, err);
    e = e ? e : cost_table_take(s->timed, err);
    e = e ? e : search_units(s, err);
    if (e)
        return e;
    search_ways(s);
    return search_memory(s, err);
}

/* About all nodes; how many replicas there are to be, the caller says. */
static struct parallel_request request_of(const struct search *s)
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
                                     .handling = s->handling,
                                     .memory = s->memory,
                                     .adapters = s->h->nadapters,
                                     .chunks = spec->chunks,
                                     .schedule = strcmp(spec->schedule, "auto") ? spec->schedule : NULL,
                                     .objective = spec->save_memory ? PLANNER_MEMORY : PLANNER_TIME,
                                     .again = again[spec->recompute]};
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

/* With the layout's shares. */
static void take(struct head *h, const struct search *s, const struct planner_found *f)
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
    if (!p->slices) /* all of a stage's nodes would move */
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

/* Whose order in the ring nobody has set by hand. */
static bool may_mirror(const struct head *h)
{
    return !json_is_true(json_object_get(json_array_get(h->planning.nodes, 0), "by_hand"));
}

static int head_search_unlike(struct head *h, struct err *err)
{
    struct search s;
    int e = search_init(&s, h, true, err);
    const struct parallel_request all = request_of(&s);
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
    const struct parallel_request all = request_of(&s);
    e = e ? e : search_ask(&s, &all, false, err);
    struct planner_request *req = &s.question.req;
    req->mirror = job_plan_pipelines(&h->plan) == 1 && may_mirror(h);
    if (!e)
        e = planner_search(&best, &second, req, err);
    if (!e)
        e = prefer(&s, &best, req, err);
    if (!e) {
        cost_table_say(s.timed);
        take(h, &s, &best);
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
    int e = search_ask(s, all, true, err);
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
    const struct parallel_request all = request_of(&s);
    if (!e)
        e = h->plan.nothers ? search_foresee_unlike(&s, &all, &err) : foresee(&s, &all, &err);
    if (!e)
        cost_table_say(s.timed);
    else
        stage_say(h->events, "no forecast of a step: %s", err.text);
    search_done(&s);
}

/* --- --parallel auto -------------------------------------------------------------------------- */

struct layouts {
    struct search s;
    struct parallel_found found[PARALLEL_MOST_FOUND];
    size_t n;
};

int layouts_find(struct layouts **ret, struct head *h, struct err *err)
{
    struct layouts *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    int e = search_init(&l->s, h, !strcmp(h->spec.schedule, "auto"), err);
    struct parallel_request req = request_of(&l->s);
    req.mirror = may_mirror(h);
    req.apart = alike_left_out(h, PLAN_MAX_REPLICAS);
    e = e ? e : parallel_search(l->found, &l->n, &req, err);
    if (e) {
        layouts_free(l);
        return err_prefix(err, e, "--parallel auto");
    }
    cost_table_say(l->s.timed);
    *ret = l;
    return 0;
}

void layouts_free(struct layouts *l)
{
    if (l)
        search_done(&l->s);
    free(l);
}

size_t layouts_count(const struct layouts *l)
{
    return l->n;
}

const struct parallel_found *layouts_at(const struct layouts *l, size_t i)
{
    return &l->found[i];
}

/* Replicas of as many nodes each. */
static int take_layout(struct layouts *l, const struct parallel_found *f, struct head *h, struct err *err)
{
    const struct parallel_request req = request_of(&l->s);
    struct search *s = &l->s;
    struct planner_found plan = f->plan;
    parallel_question_done(&s->question);
    s->question = (struct parallel_question){0};
    if (!parallel_layout_make(&s->layout, &req, f->mask, f->replicas, f->mirrored))
        return err_set(err, -EINVAL, "too few groups of microbatches");
    for (plan.cut = 0; s->layout.cut[plan.cut] != f->plan.cut;)
        plan.cut++;
    memcpy(s->layout.share[plan.cut], f->share, sizeof f->share);
    int e = parallel_ask(&s->question, &s->layout, &req, err);
    if (e)
        return e;
    take(h, s, &plan);
    return 0;
}

int layouts_take(struct layouts *l, size_t i, struct head *h, struct err *err)
{
    const struct parallel_found *f = &l->found[i];
    struct search *s = &l->s;
    if (f->is_unlike) {
        search_take_unlike(h, s, &f->unlike);
    } else {
        const int e = take_layout(l, f, h, err);
        if (e)
            return e;
    }
    json_object_set_new(h->planning.forecast, "choices", forecast_choices(s, f, l->found, l->n));
    if (f->mirrored)
        head_mirror(h);
    h->planning.has_layout = true;
    return 0;
}
