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
#include "daemon/stage/plan/cost_table.h"
#include "engine/pipe/planner.h"

enum {
    MOST_CUTS = 8,
    TIMED_TOKENS = 512, /* beyond, time is in proportion */
};
static const double WORTH_MOVING = 0.97; /* of a step's time: less is not worth a word */

struct look {
    struct head *h;
    size_t units, lowest; /* lowest: unit the backward ends at */
    size_t cuts, micro[MOST_CUTS];
    double tokens[MOST_CUTS]; /* of a usual microbatch */
    struct planner_cut cut[MOST_CUTS];
    struct sched_cost *cost[MOST_CUTS]; /* owned */
    struct sched_link link[MOST_CUTS][2 * JOB_MAX_RANKS];
    size_t *bytes[MOST_CUTS]; /* owned: [3 · units] held, slot, area */
    size_t memory[JOB_MAX_RANKS];
    struct timed *timed; /* owned */
    size_t *place;       /* owned: [cuts · units] of a unit at a cut in what is timed, or NOT_TIMED */
};
static const size_t NOT_TIMED = SIZE_MAX;

/* --- ways to cut a step ----------------------------------------------------------------------- */

/* Microbatches of 1, 2, 4, … rows that cut the step into equal parts; the one that was asked for,
 * if one was. */
static void list_cuts(struct look *k, bool all)
{
    const struct job_spec *s = &k->h->spec;
    const struct data_packs *packs = k->h->train.packs;
    double sum = 0;
    for (size_t i = 0; i < data_packs_count(packs); i++)
        sum += (double)data_packs_length(packs, i);
    const double each = fmax(1, sum / (double)data_packs_count(packs));
    const bool given = !all || s->microbatches || json_object_get(s->json, "micro_batch_size");
    for (size_t n = given ? s->micro_batch : 1; n <= s->batch && k->cuts < MOST_CUTS; n *= 2) {
        if (!given && s->batch % n)
            break;
        k->micro[k->cuts] = n;
        k->tokens[k->cuts] = each * (double)(n < s->batch ? n : s->batch);
        k->cut[k->cuts++].microbatches = (s->batch + n - 1) / n;
        if (given)
            break;
    }
    if (!k->cuts) { /* more rows in a microbatch than in a step */
        k->micro[0] = s->micro_batch;
        k->tokens[0] = each * (double)s->batch;
        k->cut[k->cuts++].microbatches = 1;
    }
}

/* --- a unit ----------------------------------------------------------------------------------- */

static bool is_trained(const struct head *h, size_t unit)
{
    return h->plan.tune.kind == TUNE_FULL || tune_param_count(&h->plan.tune, h->family, &h->config, unit) > 0;
}

/* As it is weighed: at the largest a microbatch can be. */
static struct stage_spec heavy_spec(const struct look *k, size_t unit, size_t micro)
{
    const struct job_plan *p = &k->h->plan;
    struct stage_spec spec = unit_spec(p, &k->h->config, unit, p->tokens / k->h->spec.micro_batch * micro,
                                       p->seqs / k->h->spec.micro_batch * micro);
    spec.more = p->more;
    spec.nmore = p->nmore;
    return spec;
}

/* The first unit that costs the same. */
static size_t like(const struct look *k, size_t unit)
{
    const struct head *h = k->h;
    if (unit == 0 || unit + 1 == k->units)
        return unit;
    for (size_t u = 1; u < unit; u++)
        if (config_has_experts(&h->config, u - 1) == config_has_experts(&h->config, unit - 1) &&
            tune_unit_elements(&h->plan.tune, h->family, &h->config, u) ==
                tune_unit_elements(&h->plan.tune, h->family, &h->config, unit) &&
            (u >= k->lowest) == (unit >= k->lowest) &&
            family_cost(h->family, &h->config, u, h->plan.positions) ==
                family_cost(h->family, &h->config, unit, h->plan.positions))
            return u;
    return unit;
}

static struct sched_cost times(const struct sched_cost *c, double x)
{
    return (struct sched_cost){c->f * x, c->i * x, c->w * x, c->r * x};
}

/* What the search counts with: slots, areas and the rest, of a unit. */
static int weigh_unit(struct look *k, size_t unit, size_t cut, struct err *err)
{
    struct stage_bytes one, two, again;
    struct stage_spec spec = heavy_spec(k, unit, k->micro[cut]);
    int e = stage_measure(&one, &spec, err);
    spec.slots = 2;
    if (!e)
        e = stage_measure(&two, &spec, err);
    spec.areas = spec.briefs = spec.lates = 1;
    if (!e)
        e = stage_measure(&again, &spec, err);
    if (e)
        return e;
    const size_t each = two.slots - one.slots, area = two.slots > again.slots ? two.slots - again.slots : 0;
    size_t *bytes = k->bytes[cut];
    bytes[unit] = one.total - one.work - one.slots;
    bytes[k->units + unit] = each - (area < each ? area : each);
    bytes[2 * k->units + unit] = area < each ? area : each;
    return 0;
}

/* --- what is timed ---------------------------------------------------------------------------- */

/* Of a cut whose predecessor was too large to time, nothing. */
static int list_units(struct look *k, struct err *err)
{
    const double length = fmin((double)k->h->plan.positions, k->tokens[0]);
    k->timed = timed_new(k->h);
    k->place = calloc(k->cuts * k->units, sizeof *k->place);
    if (!k->place || !k->timed)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t c = 0; c < k->cuts; c++)
        for (size_t u = 0; u < k->units; u++) {
            const double tokens = fmin(round(k->tokens[c]), TIMED_TOKENS);
            const bool is_timed = like(k, u) == u && !(c && k->tokens[c - 1] >= TIMED_TOKENS);
            k->place[c * k->units + u] =
                is_timed && k->timed->list.n < UNITS_MOST ? k->timed->list.n : NOT_TIMED;
            if (k->place[c * k->units + u] == NOT_TIMED)
                continue;
            k->timed->list.at[k->timed->list.n++] =
                (struct unit_want){.unit = u,
                                   .tokens = (size_t)tokens,
                                   .seqs = (size_t)fmax(1, ceil(tokens / fmax(length, 1))),
                                   .trained = u >= k->lowest,
                                   .needed = !c};
        }
    return 0;
}

/* --- all units on all nodes ------------------------------------------------------------------- */

static struct sched_cost cost_of(const struct look *k, size_t rank, size_t cut, size_t unit)
{
    const size_t at = k->place[cut * k->units + unit];
    const struct timed_node *node = &k->timed->node[rank];
    if (at != NOT_TIMED && node->have[at])
        return times(&node->cost[at], round(k->tokens[cut]) / (double)k->timed->list.at[at].tokens);
    if (rank)
        return times(&k->cost[cut][unit], timed_slowness(k->timed, rank));
    return cut ? times(&k->cost[cut - 1][unit], k->tokens[cut] / k->tokens[cut - 1]) : (struct sched_cost){0};
}

static int look_units(struct look *k, struct err *err)
{
    int e = 0;
    for (size_t u = 0; u < k->units && !e; u++) {
        const size_t same = like(k, u);
        for (size_t c = 0; c < k->cuts && !e; c++) {
            size_t *bytes = k->bytes[c];
            for (size_t r = 0; r < k->h->plan.ranks; r++)
                k->cost[c][r * k->units + u] =
                    same == u ? cost_of(k, r, c, u) : k->cost[c][r * k->units + same];
            if (same == u)
                e = weigh_unit(k, u, c, err);
            for (size_t i = 0; i < 3 && same != u; i++)
                bytes[i * k->units + u] = bytes[i * k->units + same];
        }
    }
    return e;
}

static void look_links(struct look *k)
{
    const size_t ranks = k->h->plan.ranks;
    for (size_t c = 0; c < k->cuts; c++)
        for (size_t r = 0; r < ranks; r++) {
            const double bytes = k->tokens[c] * (double)k->h->plan.dim * 4;
            k->link[c][2 * r] = timed_link(k->timed, r, (r + 1) % ranks, bytes);
            k->link[c][2 * r + 1] = timed_link(k->timed, r, (r + ranks - 1) % ranks, bytes);
        }
}

/* What is left for the units of each node. */
static int look_memory(struct look *k, struct err *err)
{
    for (uint32_t r = 0; r < k->h->plan.ranks; r++) {
        const double has = timed_number(k->timed, r, "memory");
        struct job_plan p = k->h->plan;
        size_t room, work = 0;
        job_plan_place_single(&p);
        for (size_t s = 0; s < p.stages; s++)
            p.slots[s] = 1;
        size_t other_way = 0;
        int e = stage_room(&room, &p, &k->h->config, r, (size_t)timed_threads(k->timed, r), err);
        if (!e)
            e = stage_room(&other_way, &p, &k->h->config, (p.ranks - r) % p.ranks,
                           (size_t)timed_threads(k->timed, r), err);
        room = !e && other_way > room ? other_way : room;
        for (size_t u = 0; u < k->units && !e; u++) {
            struct stage_spec spec = heavy_spec(k, u, k->micro[k->cuts - 1]);
            struct stage_bytes bytes;
            e = stage_measure(&bytes, &spec, err);
            work = !e && bytes.work > work ? bytes.work : work;
        }
        if (e)
            return e;
        const size_t taken = room + work;
        k->memory[r] = has <= 0 ? SIZE_MAX : (size_t)has > taken ? (size_t)has - taken : 0;
    }
    return 0;
}

static void look_done(struct look *k)
{
    for (size_t c = 0; c < k->cuts; c++) {
        free(k->cost[c]);
        free(k->bytes[c]);
    }
    free(k->place);
    timed_free(k->timed);
}

static int look_init(struct look *k, struct head *h, bool all, struct err *err)
{
    *k = (struct look){.h = h, .units = h->config.layers + 2};
    while (k->lowest + 1 < k->units && !is_trained(h, k->lowest))
        k->lowest++;
    list_cuts(k, all);
    for (size_t c = 0; c < k->cuts; c++) {
        k->cost[c] = calloc(h->plan.ranks * k->units, sizeof *k->cost[c]);
        k->bytes[c] = calloc(3 * k->units, sizeof *k->bytes[c]);
        if (!k->cost[c] || !k->bytes[c])
            return err_set(err, -ENOMEM, "out of memory");
        k->cut[c].cost = k->cost[c];
        k->cut[c].link = k->link[c];
        k->cut[c].held = k->bytes[c];
        k->cut[c].slot = k->bytes[c] + k->units;
        k->cut[c].area = k->bytes[c] + 2 * k->units;
    }
    int e = list_units(k, err);
    e = e ? e : timed_take(k->timed, err);
    e = e ? e : look_units(k, err);
    if (e)
        return e;
    look_links(k);
    return look_memory(k, err);
}

static struct planner_request request_of(const struct look *k)
{
    static const enum planner_again again[] = {[RECOMPUTE_NONE] = PLANNER_AGAIN_NONE,
                                               [RECOMPUTE_LAYER] =
                                                   PLANNER_AGAIN_NONE, /* timed as part of I and W */
                                               [RECOMPUTE_STAGE] = PLANNER_AGAIN_ALL,
                                               [RECOMPUTE_AUTO] = PLANNER_AGAIN_AUTO};
    return (struct planner_request){.ranks = k->h->plan.ranks,
                                    .layers = k->h->config.layers,
                                    .cut = k->cut,
                                    .cuts = k->cuts,
                                    .adapters = k->h->nadapters,
                                    .memory = k->memory,
                                    .objective = k->h->spec.save_memory ? PLANNER_MEMORY : PLANNER_TIME,
                                    .again = again[k->h->spec.recompute]};
}

/* --- what is told ----------------------------------------------------------------------------- */

static size_t node_at(const struct look *k, const struct planner_found *f, size_t rank)
{
    return planner_node(f, k->h->plan.ranks, rank);
}

static json_t *forecast_of(const struct look *k, const struct planner_found *f)
{
    json_t *costs = json_array(), *timed = json_array();
    const size_t steps = k->h->nadapters * f->turns;
    for (size_t r = 0; r < k->h->plan.ranks; r++)
        json_array_append_new(timed, json_boolean(!r || k->timed->node[node_at(k, f, r)].any));
    for (size_t s = 0; s < f->stages; s++)
        json_array_append_new(costs, json_pack("[f,f,f,f]", f->cost[s].f, f->cost[s].i, f->cost[s].w,
                                               f->again[s] ? f->cost[s].r : 0.0));
    return json_pack("{s:s s:I s:I s:I s:I s:f s:f s:o s:o}", "schedule", f->schedule, "chunks",
                     (json_int_t)f->chunks, "steps", (json_int_t)steps, "microbatches",
                     (json_int_t)(steps * k->cut[f->cut].microbatches), "micro_batch_size",
                     (json_int_t)k->micro[f->cut], "seconds", f->seconds * (double)steps, "bubble", f->bubble,
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

static json_t *left_out(const struct look *k, const struct planner_found *f)
{
    json_t *list = json_array();
    const struct sched_info *info = sched_info(f->schedule);
    for (size_t r = 0; r < k->h->plan.ranks; r++) {
        size_t first[PLANNER_MAX_STAGES + 1], mine = SIZE_MAX;
        bool any = false;
        char text[200];
        for (uint32_t s = 0; s < f->stages; s++)
            if (sched_place(info->placement, k->h->plan.ranks, s) == r) {
                mine = mine < s ? mine : s;
                any = any || f->first[s] < f->first[s + 1];
            }
        if (any || mine == SIZE_MAX)
            continue;
        memcpy(first, f->first, sizeof first);
        give_layer(first, f->stages, mine);
        struct planner_request req = request_of(k);
        struct planner_found with, none;
        struct err quiet;
        req.schedule = f->schedule;
        req.chunks = f->chunks;
        req.first = first;
        req.mirror = f->mirrored;
        req.cut = &k->cut[f->cut];
        req.cuts = 1;
        if (planner_search(&with, &none, &req, &quiet))
            continue;
        snprintf(text, sizeof text,
                 with.fits ? "%s holds no layer: with one, a step would take %.3g s, not %.3g s"
                           : "%s holds no layer: there is not the memory for one",
                 timed_name(k->timed, node_at(k, f, r)), with.seconds, f->seconds);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* Rank 0 has the user's files and is where the job was submitted; another beginning can only be
 * recommended. */
static void tell_elsewhere(const struct look *k, const struct planner_found *f)
{
    struct planner_request req = request_of(k);
    struct planner_found turned;
    struct err quiet;
    if (planner_turn(&turned, f, &req, &quiet) || !turned.schedule || !turned.fits ||
        turned.seconds > f->seconds * WORTH_MOVING)
        return;
    json_object_set_new(k->h->forecast, "elsewhere",
                        json_pack("{s:s s:f}", "node", timed_name(k->timed, turned.start), "seconds",
                                  turned.seconds * (double)(f->turns * k->h->nadapters)));
}

/* --- the two ways in -------------------------------------------------------------------------- */

static void take(struct head *h, const struct look *k, const struct planner_found *f)
{
    struct job_plan *p = &h->plan;
    const size_t was = h->spec.micro_batch, is = k->micro[f->cut];
    p->tokens = p->tokens / was * is;
    p->seqs = p->seqs / was * is;
    p->microbatches = k->cut[f->cut].microbatches;
    h->spec.micro_batch = is;
    h->spec.chunks = f->chunks;
    snprintf(p->schedule, sizeof p->schedule, "%s", f->schedule);
    memcpy(p->first, f->first, (f->stages + 1) * sizeof *p->first);
    h->has_split = true;
    if (f->mirrored)
        head_mirror(h);
}

void head_mirror(struct head *h)
{
    json_t *nodes = json_array();
    for (size_t r = 0; r < h->plan.ranks; r++)
        json_array_append(nodes, json_array_get(h->nodes, (h->plan.ranks - r) % h->plan.ranks));
    json_decref(h->nodes);
    h->nodes = nodes;
    h->is_mirrored = !h->is_mirrored;
}

int head_search(struct head *h, struct err *err)
{
    struct look k;
    struct planner_found best, second;
    int e = look_init(&k, h, true, err);
    struct planner_request req = request_of(&k);
    req.chunks = h->spec.chunks;
    req.mirror = !json_is_true(json_object_get(json_array_get(h->nodes, 0), "by_hand"));
    if (!e)
        e = planner_search(&best, &second, &req, err);
    if (!e) {
        timed_tell(k.timed);
        h->forecast = forecast_of(&k, &best);
        json_object_set_new(h->forecast, "left_out", left_out(&k, &best));
        if (second.schedule)
            json_object_set_new(h->forecast, "second", forecast_of(&k, &second));
        tell_elsewhere(&k, &best);
        take(h, &k, &best);
    }
    look_done(&k);
    return e ? err_prefix(err, e, "--schedule auto") : 0;
}

void head_forecast(struct head *h)
{
    struct look k;
    struct planner_found found, none;
    struct err err = {""};
    if (h->plan.order)
        return;
    int e = look_init(&k, h, false, &err);
    struct planner_request req = request_of(&k);
    req.schedule = h->plan.schedule;
    req.chunks = h->plan.stages / h->plan.ranks;
    req.first = h->plan.first;
    if (!e)
        e = planner_search(&found, &none, &req, &err);
    if (!e) {
        timed_tell(k.timed);
        h->forecast = forecast_of(&k, &found);
    } else {
        head_say(h, "what a step will take cannot be said: %s", err.text);
    }
    look_done(&k);
}
