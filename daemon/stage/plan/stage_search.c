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

#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/plan/cost_table.h"
#include "daemon/stage/stage_nodes.h"
#include "engine/pipe/planner.h"

enum {
    MOST_CUTS = 8,
    TIMED_TOKENS = 512, /* beyond, time is in proportion */
};
static const double WORTH_MOVING = 0.97; /* of a step's time: less is not worth a word */

struct search {
    struct head *h;
    size_t units, lowest; /* lowest: unit the backward ends at */
    size_t cuts, micro[MOST_CUTS];
    double tokens[MOST_CUTS]; /* of a usual microbatch */
    struct planner_cut cut[MOST_CUTS];
    struct sched_cost *cost[MOST_CUTS]; /* owned */
    struct sched_link link[MOST_CUTS][2 * JOB_MAX_RANKS];
    size_t *bytes[MOST_CUTS]; /* owned: [(3 + ranks) · units] slot, activations, held; then by node what of
                                 the last it does not have yet */
    size_t memory[JOB_MAX_RANKS];
    struct cost_table *timed; /* owned */
    size_t *place;            /* owned: [cuts · units] of a unit at a cut in what is timed, or NOT_TIMED */
};
static const size_t NOT_TIMED = SIZE_MAX;

/* --- ways to cut a step ----------------------------------------------------------------------- */

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
    for (size_t n = given ? spec->micro_batch : 1; n <= spec->batch && s->cuts < MOST_CUTS; n *= 2) {
        if (!given && spec->batch % n)
            break;
        s->micro[s->cuts] = n;
        s->tokens[s->cuts] = each * (double)(n < spec->batch ? n : spec->batch);
        s->cut[s->cuts++].microbatches = (spec->batch + n - 1) / n;
        if (given)
            break;
    }
    if (!s->cuts) { /* more rows in a microbatch than in a step */
        s->micro[0] = spec->micro_batch;
        s->tokens[0] = each * (double)spec->batch;
        s->cut[s->cuts++].microbatches = 1;
    }
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
    return (struct sched_cost){c->f * x, c->i * x, c->w * x, c->r * x};
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
            for (size_t r = 0; r < s->h->plan.ranks; r++)
                s->cost[c][r * s->units + u] =
                    same == u ? cost_of(s, r, c, u) : s->cost[c][r * s->units + same];
            if (same == u)
                e = weigh_unit(s, u, c, err);
            for (size_t i = 0; i < 3 && same != u; i++)
                bytes[i * s->units + u] = bytes[i * s->units + same];
            for (size_t r = 0; r < s->h->plan.ranks; r++)
                bytes[(3 + r) * s->units + u] =
                    bytes[2 * s->units + u] - stage_shared_unit(s->h, s->timed->nodes, r, u);
        }
    }
    return e;
}

static void search_links(struct search *s)
{
    const size_t ranks = s->h->plan.ranks;
    for (size_t c = 0; c < s->cuts; c++)
        for (size_t r = 0; r < ranks; r++) {
            const double bytes = s->tokens[c] * (double)s->h->plan.dim * 4;
            s->link[c][2 * r] = cost_table_link(s->timed, r, (r + 1) % ranks, bytes);
            s->link[c][2 * r + 1] = cost_table_link(s->timed, r, (r + ranks - 1) % ranks, bytes);
        }
}

/* What is left for the units of each node. */
static int search_memory(struct search *s, struct err *err)
{
    for (uint32_t r = 0; r < s->h->plan.ranks; r++) {
        const double has = cost_table_number(s->timed, r, "memory");
        struct job_plan p = s->h->plan;
        size_t room, work = 0;
        job_plan_place_single(&p);
        for (size_t i = 0; i < p.stages; i++)
            p.slots[i] = 1;
        size_t other_way = 0;
        int e = stage_room(&room, &p, &s->h->config, r, (size_t)cost_table_threads(s->timed, r), err);
        if (!e)
            e = stage_room(&other_way, &p, &s->h->config, (p.ranks - r) % p.ranks,
                           (size_t)cost_table_threads(s->timed, r), err);
        room = !e && other_way > room ? other_way : room;
        for (size_t u = 0; u < s->units && !e; u++) {
            struct stage_spec spec = heavy_spec(s, u, s->micro[s->cuts - 1]);
            struct stage_bytes bytes;
            e = stage_measure(&bytes, &spec, err);
            work = !e && bytes.work > work ? bytes.work : work;
        }
        if (e)
            return e;
        const size_t taken = room + work;
        s->memory[r] = has <= 0 ? SIZE_MAX : (size_t)has > taken ? (size_t)has - taken : 0;
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
    cost_table_free(s->timed);
}

static int search_init(struct search *s, struct head *h, bool all, struct err *err)
{
    *s = (struct search){.h = h, .units = h->config.layers + 2};
    while (s->lowest + 1 < s->units && !is_trained(h, s->lowest))
        s->lowest++;
    list_cuts(s, all);
    for (size_t c = 0; c < s->cuts; c++) {
        s->cost[c] = calloc(h->plan.ranks * s->units, sizeof *s->cost[c]);
        s->bytes[c] = calloc((3 + h->plan.ranks) * s->units, sizeof *s->bytes[c]);
        if (!s->cost[c] || !s->bytes[c])
            return err_set(err, -ENOMEM, "out of memory");
        s->cut[c].cost = s->cost[c];
        s->cut[c].link = s->link[c];
        s->cut[c].slot = s->bytes[c];
        s->cut[c].activations = s->bytes[c] + s->units;
        s->cut[c].held = s->bytes[c] + 3 * s->units;
    }
    int e = list_units(s, err);
    e = e ? e : cost_table_take(s->timed, err);
    e = e ? e : search_units(s, err);
    if (e)
        return e;
    search_links(s);
    return search_memory(s, err);
}

static struct planner_request request_of(const struct search *s)
{
    static const enum planner_again again[] = {[RECOMPUTE_NONE] = PLANNER_AGAIN_NONE,
                                               [RECOMPUTE_LAYER] =
                                                   PLANNER_AGAIN_NONE, /* timed as part of I and W */
                                               [RECOMPUTE_STAGE] = PLANNER_AGAIN_ALL,
                                               [RECOMPUTE_AUTO] = PLANNER_AGAIN_AUTO};
    return (struct planner_request){.ranks = s->h->plan.ranks,
                                    .layers = s->h->config.layers,
                                    .cut = s->cut,
                                    .cuts = s->cuts,
                                    .adapters = s->h->nadapters,
                                    .memory = s->memory,
                                    .objective = s->h->spec.save_memory ? PLANNER_MEMORY : PLANNER_TIME,
                                    .again = again[s->h->spec.recompute]};
}

/* --- what is told ----------------------------------------------------------------------------- */

static size_t node_at(const struct search *s, const struct planner_found *f, size_t rank)
{
    return planner_node(f, s->h->plan.ranks, rank);
}

static json_t *forecast_of(const struct search *s, const struct planner_found *f)
{
    json_t *costs = json_array(), *timed = json_array();
    const size_t steps = s->h->nadapters * f->turns;
    for (size_t r = 0; r < s->h->plan.ranks; r++)
        json_array_append_new(timed, json_boolean(!r || s->timed->node[node_at(s, f, r)].any));
    for (size_t i = 0; i < f->stages; i++)
        json_array_append_new(costs, json_pack("[f,f,f,f]", f->cost[i].f, f->cost[i].i, f->cost[i].w,
                                               f->again[i] ? f->cost[i].r : 0.0));
    return json_pack("{s:s s:I s:I s:I s:I s:f s:f s:o s:o}", "schedule", f->schedule, "chunks",
                     (json_int_t)f->chunks, "steps", (json_int_t)steps, "microbatches",
                     (json_int_t)(steps * s->cut[f->cut].microbatches), "micro_batch_size",
                     (json_int_t)s->micro[f->cut], "seconds", f->seconds * (double)steps, "bubble", f->bubble,
                     "costs", costs, "timed", timed);
}

/* That split, but a layer of its neighbours on stage `s`. */
static void give_layer(size_t *first, size_t stages, size_t s)
{
    const size_t layers = first[stages];
    if (first[s] < layers)
        for (size_t i = s + 1; i < stages && first[i] <= first[s]; i++)
            first[i] = first[s] + 1;
    else
        for (size_t i = s; i && first[i] == layers; i--)
            first[i] = layers - 1;
}

static json_t *left_out(const struct search *s, const struct planner_found *f)
{
    json_t *list = json_array();
    const struct sched_info *info = sched_info(f->schedule);
    for (size_t r = 0; r < s->h->plan.ranks; r++) {
        size_t first[PLANNER_MAX_STAGES + 1], mine = SIZE_MAX;
        bool any = false;
        char text[200];
        for (uint32_t i = 0; i < f->stages; i++)
            if (sched_place(info->placement, s->h->plan.ranks, i) == r) {
                mine = mine < i ? mine : i;
                any = any || f->first[i] < f->first[i + 1];
            }
        if (any || mine == SIZE_MAX)
            continue;
        memcpy(first, f->first, sizeof first);
        give_layer(first, f->stages, mine);
        struct planner_request req = request_of(s);
        struct planner_found with, none;
        struct err quiet;
        req.schedule = f->schedule;
        req.chunks = f->chunks;
        req.first = first;
        req.mirror = f->mirrored;
        req.cut = &s->cut[f->cut];
        req.cuts = 1;
        if (planner_search(&with, &none, &req, &quiet))
            continue;
        snprintf(text, sizeof text,
                 with.fits ? "%s holds no layer: with one, a step would take %.3g s, not %.3g s"
                           : "%s holds no layer: there is not the memory for one",
                 cost_table_name(s->timed, node_at(s, f, r)), with.seconds, f->seconds);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* Rank 0 has the user's files and is where the job was submitted; another beginning can only be
 * recommended. */
static void tell_elsewhere(const struct search *s, const struct planner_found *f)
{
    struct planner_request req = request_of(s);
    struct planner_found turned;
    struct err quiet;
    if (planner_turn(&turned, f, &req, &quiet) || !turned.schedule || !turned.fits ||
        turned.seconds > f->seconds * WORTH_MOVING)
        return;
    json_object_set_new(s->h->planning.forecast, "elsewhere",
                        json_pack("{s:s s:f}", "node", cost_table_name(s->timed, turned.start), "seconds",
                                  turned.seconds * (double)(f->turns * s->h->nadapters)));
}

/* --- the two ways in -------------------------------------------------------------------------- */

/* Units as they cost on this node; a rank is as fast as it does all of them. */
static json_t *pace_of(const struct search *s, const struct planner_found *f)
{
    json_t *units = json_array(), *speeds = json_array();
    for (size_t r = 0; r < s->h->plan.ranks; r++) {
        const struct sched_cost *own = s->cost[f->cut], *its = own + node_at(s, f, r) * s->units;
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

static void take(struct head *h, const struct search *s, const struct planner_found *f)
{
    struct job_plan *p = &h->plan;
    const size_t was = h->spec.micro_batch, is = s->micro[f->cut];
    p->tokens = p->tokens / was * is;
    p->seqs = p->seqs / was * is;
    p->microbatches = s->cut[f->cut].microbatches;
    h->spec.micro_batch = is;
    h->spec.chunks = f->chunks;
    snprintf(p->schedule, sizeof p->schedule, "%s", f->schedule);
    memcpy(p->first, f->first, (f->stages + 1) * sizeof *p->first);
    h->planning.has_split = true;
    h->planning.pace = pace_of(s, f);
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

int head_search(struct head *h, struct err *err)
{
    struct search s;
    struct planner_found best, second;
    int e = search_init(&s, h, true, err);
    struct planner_request req = request_of(&s);
    req.chunks = h->spec.chunks;
    req.mirror = !json_is_true(json_object_get(json_array_get(h->planning.nodes, 0), "by_hand"));
    if (!e)
        e = planner_search(&best, &second, &req, err);
    if (!e) {
        cost_table_say(s.timed);
        h->planning.forecast = forecast_of(&s, &best);
        json_object_set_new(h->planning.forecast, "left_out", left_out(&s, &best));
        if (second.schedule)
            json_object_set_new(h->planning.forecast, "second", forecast_of(&s, &second));
        tell_elsewhere(&s, &best);
        take(h, &s, &best);
    }
    search_done(&s);
    return e ? err_prefix(err, e, "--schedule auto") : 0;
}

void head_forecast(struct head *h)
{
    struct search s;
    struct planner_found found, none;
    struct err err = {""};
    if (h->plan.order)
        return;
    int e = search_init(&s, h, false, &err);
    struct planner_request req = request_of(&s);
    req.schedule = h->plan.schedule;
    req.chunks = h->plan.stages / h->plan.ranks;
    req.first = h->plan.first;
    if (!e)
        e = planner_search(&found, &none, &req, &err);
    if (!e) {
        cost_table_say(s.timed);
        h->planning.forecast = forecast_of(&s, &found);
    } else {
        stage_say(h->events, "no forecast of a step: %s", err.text);
    }
    search_done(&s);
}
