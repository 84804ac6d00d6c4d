/* SPDX-License-Identifier: MIT
 *
 * Costs come from the nodes (cost_table.c): each times every kind of unit at the sizes of
 * microbatch that are considered. */
#include "daemon/stage/plan/stage_survey.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "daemon/stage/plan/handling_cost.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan/stage_shared.h"
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
                    bytes[2 * s->units + u] -
                    (s->h->plan.slices ? 0 : stage_shared_unit(s->h, s->timed->nodes, r, u));
        }
    }
    return e;
}

/* Of an adapter after each round. Of a whole model so seldom that it is a hundredth of the time. */
static bool has_copies(const struct head *h)
{
    return h->plan.copies && h->plan.tune.kind == TUNE_LORA;
}

/* A value and its two moments, of all adapters. */
static size_t copied_of(const struct head *h, size_t unit)
{
    size_t values = 0;
    for (size_t a = 0; a < h->nadapters && has_copies(h); a++)
        values += tune_unit_elements(job_plan_tune(&h->plan, a), h->family, &h->config, unit);
    return 3 * sizeof(float) * values;
}

/* Of slices as the plan has them now. */
static void count_grads(struct search *s)
{
    const double step = s->tokens[0] * (double)s->cut[0].microbatches;
    for (size_t u = 0; u < s->units; u++)
        s->grads[u] = (size_t)replicas_unit_bytes_sent(&s->h->plan, &s->h->config, u, step);
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
    const bool has_company =
        s->nodes > 1 && (job_plan_pipelines(&s->h->plan) > 1 || s->h->spec.any_parallel || has_copies(s->h));
    const struct handling_cost own =
        has_company ? handling_cost(!s->h->planning.must_not_time) : (struct handling_cost){0, 0};
    for (size_t n = 0; n < s->nodes; n++) { /* in proportion, as nodes are not asked */
        const double slow = n ? cost_table_slowness(s->timed, n) : 1;
        s->handling[n] = own.added * slow;
        s->passing[n] = own.gathered * slow;
    }
    for (size_t c = 0; c < s->cuts; c++)
        s->cut[c].message = s->tokens[c] * (double)s->h->plan.dim * sizeof(float);
    count_grads(s);
    for (size_t u = 0; u < s->units; u++)
        s->copied[u] = copied_of(s->h, u);
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

void search_done(struct search *s)
{
    for (size_t c = 0; c < s->cuts; c++) {
        free(s->cost[c]);
        free(s->bytes[c]);
    }
    free(s->place);
    free(s->grads);
    free(s->copied);
    parallel_question_done(&s->question);
    if (s->timed)
        cost_table_free(s->timed);
}

static int make_room(struct search *s, struct err *err)
{
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
    return 0;
}

int search_init(struct search *s, struct head *h, bool all, struct err *err)
{
    *s = (struct search){.h = h, .units = h->config.layers + 2, .nodes = h->plan.ranks};
    while (s->lowest + 1 < s->units && !is_trained(h, s->lowest))
        s->lowest++;
    list_cuts(s, all);
    int e = make_room(s, err);
    s->copied = calloc(s->units, sizeof *s->copied);
    if (!e && !s->copied)
        e = err_set(err, -ENOMEM, "out of memory");
    e = e ? e : list_units(s, err);
    e = e ? e : cost_table_take(s->timed, err);
    e = e ? e : search_units(s, err);
    if (e)
        return e;
    search_ways(s);
    return search_memory(s, err);
}

/* --- slices ----------------------------------------------------------------------------------- */

/* The embedding is whole on each node. */
int search_part(struct search *s, const struct search *whole, size_t slices, struct err *err)
{
    *s = (struct search){.h = whole->h,
                         .units = whole->units,
                         .lowest = whole->lowest,
                         .nodes = whole->nodes,
                         .slices = slices,
                         .cuts = whole->cuts};
    for (size_t c = 0; c < s->cuts; c++) {
        s->micro[c] = whole->micro[c];
        s->tokens[c] = whole->tokens[c];
        s->cut[c] = whole->cut[c];
    }
    int e = make_room(s, err);
    for (size_t c = 0; c < s->cuts && !e; c++)
        for (size_t i = 0; i < s->nodes * s->units; i++)
            s->cost[c][i] = times(&whole->cost[c][i], i % s->units ? 1 / (double)slices : 1);
    struct job_plan *p = &s->h->plan;
    const size_t was = p->slices;
    p->slices = slices;
    if (!e)
        count_grads(s);
    for (size_t c = 0; c < s->cuts && !e; c++)
        for (size_t u = 0; u < s->units && !e; u++) {
            e = weigh_unit(s, u, c, err);
            for (size_t r = 0; r < s->nodes; r++)
                s->bytes[c][(3 + r) * s->units + u] = s->bytes[c][2 * s->units + u];
        }
    p->slices = was;
    return e;
}

int search_time_slices(struct search *s, struct err *err)
{
    struct job_plan *p = &s->h->plan;
    const size_t was = p->slices;
    p->slices = s->slices;
    int e = list_units(s, err);
    e = e ? e : cost_table_take(s->timed, err);
    e = e ? e : search_units(s, err);
    p->slices = was;
    return e;
}
