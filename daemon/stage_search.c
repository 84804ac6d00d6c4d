/* SPDX-License-Identifier: MIT
 *
 * Costs come from this node, where each kind of unit is timed at the sizes of microbatch that are considered (stage_cost.c); those of
 * another node are taken to be in proportion to its threads. */
#include "daemon/stage_search.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/stage_cost.h"
#include "daemon/stage_cache.h"
#include "daemon/stage_room.h"
#include "engine/pipe/planner.h"

enum {
    MOST_CUTS = 8,
    TIMED_TOKENS = 512, /* beyond, time is in proportion */
    BUDGET_S = 30,      /* after that, sizes not timed yet are in proportion to those that were */
};
static const double HOP_S = 300e-6;    /* from the end of a message to its being taken */
static const double USABLE = 0.9;      /* of what a cable is said to carry */
static const double MESSAGE_S = 50e-6; /* sealing, chunks, acknowledgements */

struct look {
    struct head *h;
    const json_t *nodes;
    size_t units, lowest; /* lowest: unit the backward ends at */
    size_t cuts, micro[MOST_CUTS];
    double tokens[MOST_CUTS]; /* of a usual microbatch */
    struct planner_cut cut[MOST_CUTS];
    struct sched_cost *cost[MOST_CUTS]; /* owned */
    struct sched_link link[MOST_CUTS][2 * JOB_MAX_RANKS];
    size_t *bytes[MOST_CUTS]; /* owned: [3 · units] held, slot, area */
    size_t memory[JOB_MAX_RANKS];
    double began;
};

static void say(struct head *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct head *h, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    head_event(h, "log", json_pack("{s:s}", "text", text));
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double node_number(const struct look *k, size_t rank, const char *key)
{
    return json_number_value(json_object_get(json_array_get(k->nodes, rank), key));
}

static double threads_of(const struct look *k, size_t rank)
{
    return fmax(node_number(k, rank, "speed"), 1);
}

static const char *name_of(const struct look *k, size_t rank)
{
    const char *name = json_string_value(json_object_get(json_array_get(k->nodes, rank), "name"));
    return name ? name : "?";
}

/* --- ways to cut a step ------------------------------------------------------------------------ */

/* Microbatches of 1, 2, 4, … rows that cut the step into equal parts; the one that was asked for, if one was. */
static void list_cuts(struct look *k, bool all)
{
    const struct job_spec *s = &k->h->spec;
    const size_t steps = k->h->plan.round_steps;
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
        k->cut[k->cuts++].microbatches = steps * ((s->batch + n - 1) / n);
        if (given)
            break;
    }
    if (!k->cuts) { /* more rows in a microbatch than in a step */
        k->micro[0] = s->micro_batch;
        k->tokens[0] = each * (double)s->batch;
        k->cut[k->cuts++].microbatches = steps;
    }
}

/* --- a unit ------------------------------------------------------------------------------------ */

static bool is_trained(const struct head *h, size_t unit)
{
    return h->plan.tune.kind == TUNE_FULL || tune_param_count(&h->plan.tune, h->family, &h->config, unit) > 0;
}

/* As its stage would be, alone. */
static struct stage_spec unit_spec(const struct look *k, size_t unit, size_t micro)
{
    const struct job_plan *p = &k->h->plan;
    const size_t layers = k->h->config.layers, layer = unit ? unit - 1 : 0;
    const bool inner = unit >= 1 && unit <= layers;
    return (struct stage_spec){.model_dir = p->model,
                               .config = k->h->config,
                               .tune = p->tune,
                               .more = p->more,
                               .nmore = p->nmore,
                               .first_layer = inner  ? layer
                                              : unit ? layers
                                                     : 0,
                               .end_layer = inner  ? layer + 1
                                            : unit ? layers
                                                   : 0,
                               .embed = unit == 0,
                               .head = unit > layers,
                               .training = true,
                               .split_backward = true,
                               .by_layer = p->by_layer,
                               .slots = 1,
                               .tokens = p->tokens / k->h->spec.micro_batch * micro,
                               .seqs = p->seqs / k->h->spec.micro_batch * micro,
                               .positions = p->positions,
                               .weight_bits = p->weight_bits};
}

/* The first unit that costs the same. */
static size_t like(const struct look *k, size_t unit)
{
    const struct head *h = k->h;
    if (unit == 0 || unit + 1 == k->units)
        return unit;
    for (size_t u = 1; u < unit; u++)
        if (config_has_experts(&h->config, u - 1) == config_has_experts(&h->config, unit - 1) &&
            tune_param_count(&h->plan.tune, h->family, &h->config, u) ==
                tune_param_count(&h->plan.tune, h->family, &h->config, unit) &&
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

/* On this node. Sizes too large to time, or for which time has run out, follow from the one before. */
static int time_unit(struct look *k, struct num *num, size_t unit, size_t cut, struct err *err)
{
    char dir[4096];
    struct err quiet;
    const double tokens = round(k->tokens[cut]), timed = fmin(tokens, TIMED_TOKENS);
    struct sched_cost *ret = &k->cost[cut][unit];
    if (cut && (k->tokens[cut - 1] >= TIMED_TOKENS || seconds_now() - k->began > BUDGET_S)) {
        *ret = times(&k->cost[cut - 1][unit], k->tokens[cut] / k->tokens[cut - 1]);
        return 0;
    }
    struct stage_spec spec = unit_spec(k, unit, k->micro[cut]);
    const double length = fmin((double)k->h->plan.positions, k->tokens[0]);
    spec.tokens = (size_t)timed;
    spec.seqs = (size_t)fmax(1, ceil(timed / fmax(length, 1)));
    spec.cache_dir = cache_dir(dir, sizeof dir, "weights", &quiet) ? NULL : dir;
    int e = unit_cost(ret, num, &spec, k->h->plan.fingerprint, unit >= k->lowest, err);
    if (!e)
        *ret = times(ret, tokens / timed);
    return e;
}

/* What the search counts with: slots, areas and the rest, of a unit. */
static int weigh_unit(struct look *k, size_t unit, size_t cut, struct err *err)
{
    struct stage_bytes one, two, again;
    struct stage_spec spec = unit_spec(k, unit, k->micro[cut]);
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

/* --- all units on all nodes --------------------------------------------------------------------- */

static int look_units(struct look *k, struct num *num, struct err *err)
{
    int e = 0;
    for (size_t u = 0; u < k->units && !e; u++) {
        const size_t same = like(k, u);
        for (size_t c = 0; c < k->cuts && !e; c++) {
            size_t *bytes = k->bytes[c];
            if (same == u) {
                e = time_unit(k, num, u, c, err);
                e = e ? e : weigh_unit(k, u, c, err);
                continue;
            }
            k->cost[c][u] = k->cost[c][same];
            for (size_t i = 0; i < 3; i++)
                bytes[i * k->units + u] = bytes[i * k->units + same];
        }
    }
    return e;
}

static void spread(struct look *k)
{
    const size_t ranks = k->h->plan.ranks;
    for (size_t c = 0; c < k->cuts; c++)
        for (size_t r = 0; r < ranks; r++) {
            const double mbps = node_number(k, r, "mbps"), bytes = k->tokens[c] * (double)k->h->plan.dim * 4,
                         takes = mbps > 0 ? bytes * 8 / (mbps * 1e6 * USABLE) : 0;
            k->link[c][2 * r] = k->link[c][2 * r + 1] = (struct sched_link){takes + MESSAGE_S, HOP_S};
            for (size_t u = 0; u < k->units && r; u++)
                k->cost[c][r * k->units + u] = times(&k->cost[c][u], threads_of(k, 0) / threads_of(k, r));
        }
}

/* What is left for the units of each node. */
static int look_memory(struct look *k, struct err *err)
{
    for (uint32_t r = 0; r < k->h->plan.ranks; r++) {
        const double has = node_number(k, r, "memory");
        struct job_plan p = k->h->plan;
        size_t room, work = 0;
        job_plan_place_single(&p);
        for (size_t s = 0; s < p.stages; s++)
            p.slots[s] = 1;
        int e = stage_room(&room, &p, &k->h->config, r, (size_t)threads_of(k, r), err);
        for (size_t u = 0; u < k->units && !e; u++) {
            struct stage_spec spec = unit_spec(k, u, k->micro[k->cuts - 1]);
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
}

static int look_init(struct look *k, struct head *h, const json_t *nodes, bool all, struct err *err)
{
    struct num *num = NULL;
    *k = (struct look){.h = h, .nodes = nodes, .units = h->config.layers + 2, .began = seconds_now()};
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
    int e = num_new(&num, (int)threads_of(k, 0), err);
    if (!e)
        e = look_units(k, num, err);
    num_free(num);
    if (e)
        return e;
    spread(k);
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
                                    .memory = k->memory,
                                    .objective = k->h->spec.save_memory ? PLANNER_MEMORY : PLANNER_TIME,
                                    .again = again[k->h->spec.recompute]};
}

/* --- what is told ------------------------------------------------------------------------------- */

static json_t *forecast_of(const struct look *k, const struct planner_found *f)
{
    json_t *costs = json_array();
    for (size_t s = 0; s < f->stages; s++)
        json_array_append_new(costs, json_pack("[f,f,f,f]", f->cost[s].f, f->cost[s].i, f->cost[s].w,
                                               f->again[s] ? f->cost[s].r : 0.0));
    return json_pack("{s:s s:I s:I s:I s:I s:f s:f s:o}", "schedule", f->schedule, "chunks",
                     (json_int_t)f->chunks, "steps", (json_int_t)k->h->plan.round_steps, "microbatches",
                     (json_int_t)k->cut[f->cut].microbatches, "micro_batch_size",
                     (json_int_t)k->micro[f->cut], "seconds", f->seconds, "bubble", f->bubble, "costs",
                     costs);
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
        req.cut = &k->cut[f->cut];
        req.cuts = 1;
        if (planner_search(&with, &none, &req, &quiet))
            continue;
        snprintf(text, sizeof text,
                 with.fits ? "%s holds no layer: with one, a step would take %.3g s, not %.3g s"
                           : "%s holds no layer: there is not the memory for one",
                 name_of(k, r), with.seconds, f->seconds);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

static void tell_costs(const struct look *k)
{
    for (size_t r = 1; r < k->h->plan.ranks; r++)
        if (threads_of(k, r) != threads_of(k, 0))
            say(k->h, "%s was not timed: taken to be %.3g times as fast as %s, by its %.0f threads",
                name_of(k, r), threads_of(k, r) / threads_of(k, 0), name_of(k, 0), threads_of(k, r));
}

/* --- the two ways in ---------------------------------------------------------------------------- */

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
}

int head_search(struct head *h, const json_t *nodes, struct err *err)
{
    struct look k;
    struct planner_found best, second;
    int e = look_init(&k, h, nodes, true, err);
    struct planner_request req = request_of(&k);
    req.chunks = h->spec.chunks;
    if (!e)
        e = planner_search(&best, &second, &req, err);
    if (!e) {
        tell_costs(&k);
        h->forecast = forecast_of(&k, &best);
        json_object_set_new(h->forecast, "left_out", left_out(&k, &best));
        if (second.schedule)
            json_object_set_new(h->forecast, "second", forecast_of(&k, &second));
        take(h, &k, &best);
    }
    look_done(&k);
    return e ? err_prefix(err, e, "--schedule auto") : 0;
}

void head_forecast(struct head *h, const json_t *nodes)
{
    struct look k;
    struct planner_found found, none;
    struct err err = {""};
    if (h->plan.order)
        return;
    int e = look_init(&k, h, nodes, false, &err);
    struct planner_request req = request_of(&k);
    req.schedule = h->plan.schedule;
    req.chunks = h->plan.stages / h->plan.ranks;
    req.first = h->plan.first;
    if (!e)
        e = planner_search(&found, &none, &req, &err);
    if (!e) {
        tell_costs(&k);
        h->forecast = forecast_of(&k, &found);
    } else {
        say(h, "what a step will take cannot be said: %s", err.text);
    }
    look_done(&k);
}
