/* SPDX-License-Identifier: MIT
 *
 * Planning, the half that shares the model out: which stages there are and where they lie, which
 * layers each has, how many slots and bytes that takes. Called by head_plan, in the stage process
 * of rank 0. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_schedule.h"
#include "daemon/stage/plan/stage_slots.h"
#include "daemon/stage/stage_nodes.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan/stage_search.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/plan/decode_forecast.h"
#include "daemon/stage/plan/rows_forecast.h"
#include "daemon/stage/plan/stage_memory.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "engine/pipe/sched_text.h"
#include "engine/pipe/split.h"

/* --- layers ----------------------------------------------------------------------------------- */

struct split_inputs {
    double *cost, speed[JOB_MAX_STAGES];    /* by unit; by stage */
    size_t *bytes;                          /* owned: [stages][units], what each of them takes there */
    const size_t *of_stage[JOB_MAX_STAGES]; /* in `bytes` */
    size_t memory[JOB_MAX_STAGES];
    size_t available[JOB_MAX_RANKS], handed[JOB_MAX_RANKS], threads[JOB_MAX_RANKS];
};

static int measure_unit(const struct head *h, size_t unit, size_t *ret, struct err *err)
{
    size_t layer = unit ? unit - 1 : 0;
    bool inner = unit >= 1 && unit <= h->config.layers;
    struct stage_spec spec = job_plan_stage(&h->plan, &h->config, 0);
    for (size_t s = 0; s < h->plan.stages; s++)
        spec.slots = h->plan.slots[s] > spec.slots ? h->plan.slots[s] : spec.slots;
    spec.first_layer = inner ? layer : 0;
    spec.end_layer = inner ? layer + 1 : 0;
    spec.embed = unit == 0;
    spec.head = unit > h->config.layers;
    struct stage_bytes bytes;
    int r = stage_measure(&bytes, &spec, err);
    if (!r)
        *ret = bytes.total;
    return r;
}

static size_t chunks_of(const struct job_plan *p, uint32_t rank)
{
    size_t n = 0;
    for (size_t s = 0; s < p->stages; s++)
        n += p->place[s] == rank;
    return n;
}

static int split_inputs(struct split_inputs *in, const struct head *h, const json_t *nodes, struct err *err)
{
    size_t units = h->config.layers + 2;
    in->cost = calloc(units, sizeof *in->cost);
    in->bytes = calloc(h->plan.stages * units, sizeof *in->bytes);
    if (!in->cost || !in->bytes)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t r = 0; r < h->plan.ranks; r++) {
        json_int_t memory = json_integer_value(json_object_get(json_array_get(nodes, r), "memory"));
        in->available[r] = memory > 0 ? (size_t)memory : SIZE_MAX;
        double threads = json_number_value(json_object_get(json_array_get(nodes, r), "speed"));
        in->threads[r] = threads >= 1 ? (size_t)threads : 1;
    }
    for (size_t s = 0; s < h->plan.stages; s++) {
        uint32_t rank = h->plan.place[s];
        in->speed[s] = stage_nodes_speed(nodes, rank);
        in->memory[s] = in->available[rank] / chunks_of(&h->plan, rank);
        in->of_stage[s] = in->bytes + s * units;
    }
    int e = 0;
    for (size_t u = 0; u < units && !e; u++) {
        size_t bytes = 0;
        in->cost[u] = family_cost(h->family, &h->config, u, h->plan.positions);
        e = measure_unit(h, u, &bytes, err);
        for (size_t s = 0; s < h->plan.stages && !e; s++)
            in->bytes[s * units + u] = bytes - stage_shared_unit(h, nodes, h->plan.place[s], u);
    }
    return e;
}

static bool is_node(const struct head *h, size_t rank, size_t place)
{
    const char *wanted = json_string_value(json_array_get(h->spec.split_nodes, rank)),
               *is = json_string_value(json_object_get(json_array_get(h->planning.nodes, place), "name"));
    return wanted && is && !strcmp(wanted, is);
}

/* A plan that was made for the ring the other way round has it so again. */
static void follow_nodes(struct head *h)
{
    const size_t n = h->plan.ranks;
    bool other_way = h->spec.split_nodes && n > 2 && is_node(h, 0, 0);
    for (size_t r = 1; r < n && other_way; r++)
        other_way = is_node(h, r, n - r);
    if (other_way)
        head_mirror(h);
}

/* As it was asked for. */
static int take_split(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const json_t *split = h->spec.split;
    size_t sum = 0;
    for (size_t r = 0; h->spec.split_nodes && r < p->ranks; r++) {
        const char *wanted = json_string_value(json_array_get(h->spec.split_nodes, r)),
                   *is = json_string_value(json_object_get(json_array_get(h->planning.nodes, r), "name"));
        if (!is_node(h, r, r))
            return err_set(err, -EINVAL,
                           "the split is for a ring whose node %zu is %s, but now it is %s: plan again", r,
                           wanted ? wanted : "missing", is ? is : "?");
    }
    if (json_array_size(split) != p->stages)
        return err_set(err, -EINVAL, "the split is for %zu stages, but %s on %zu nodes has %zu",
                       json_array_size(split), p->schedule, p->ranks, p->stages);
    for (size_t s = 0; s < p->stages; s++) {
        const json_t *v = json_array_get(split, s);
        const json_int_t n = json_integer_value(v);
        p->first[s] = sum;
        if (!json_is_integer(v) || n < 0 || (size_t)n > h->config.layers - sum)
            return err_set(err, -EINVAL,
                           "the split gives stage %zu no number of layers, or more than are left: the model "
                           "has %zu in all",
                           s, h->config.layers);
        sum += (size_t)n;
    }
    p->first[p->stages] = sum;
    return sum == h->config.layers
               ? 0
               : err_set(err, -EINVAL, "the split covers %zu layers, but the model has %zu", sum,
                         h->config.layers);
}

static int split_within(struct head *h, const struct split_inputs *in, const size_t *memory, struct err *err)
{
    struct job_plan *p = &h->plan;
    const struct split_request req = {.stages = p->stages,
                                      .layers = h->config.layers,
                                      .unit_cost = in->cost,
                                      .unit_bytes = in->of_stage,
                                      .speed = in->speed,
                                      .memory = memory};
    int e = split_layers(p->first, &req, err);
    return e ? e : split_check(p->first, p->stages, h->config.layers, err);
}

/* The bytes of single units add up to more than a stage takes, because layers share their scratch.
 * If they do not fit, the fastest split is measured exactly, and made to fit. */
static int split(struct head *h, const struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    if (h->spec.split)
        return take_split(h, err);
    if (h->planning.has_split)
        return split_check(p->first, p->stages, h->config.layers, err);
    int e = split_within(h, in, in->memory, err);
    return e == -ENOSPC ? split_within(h, in, NULL, err) : e;
}

/* What the job is held against while it runs; a split that was given stays as it is. */
static json_t *pace_of(const struct head *h, const struct split_inputs *in)
{
    json_t *units = json_array(), *speeds = json_array();
    for (size_t u = 0; u < h->config.layers + 2; u++)
        json_array_append_new(units, json_real(in->cost[u]));
    for (size_t r = 0; r < h->plan.ranks; r++)
        json_array_append_new(speeds, json_real(stage_nodes_speed(h->planning.nodes, r)));
    return json_pack("{s:o s:o}", "units", units, "speeds", speeds);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* "layers 0 to 3", "layers 0 to 1 and 6 to 7" */
static void layers_text(char *text, size_t n, const struct job_plan *p, uint32_t rank)
{
    size_t used = (size_t)snprintf(text, n, "layers");
    bool more = false;
    for (size_t s = 0; s < p->stages && used < n; s++) {
        if (p->place[s] != rank || p->first[s] == p->first[s + 1])
            continue;
        used += (size_t)snprintf(text + used, n - used, "%s %zu to %zu", more ? " and" : "", p->first[s],
                                 p->first[s + 1] - 1);
        more = true;
    }
    if (!more)
        snprintf(text, n, "no layer");
}

static int measure_rank(struct head *h, uint32_t rank, const struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    size_t room;
    int r = stage_room(&room, p, &h->config, rank, in->threads[rank], err);
    if (r)
        return r;
    struct stage_bytes stages;
    r = stage_chunks(&stages, p, &h->config, rank, err);
    if (!r)
        p->bytes[rank] = room + in->handed[rank] * p->tokens * p->dim * sizeof(float) + stages.total;
    return r;
}

static int measure_ranks(struct head *h, const struct split_inputs *in, struct err *err)
{
    int e = 0;
    for (uint32_t r = 0; r < h->plan.ranks && !e; r++)
        e = measure_rank(h, r, in, err);
    return e;
}

/* What the rank takes of its node's memory that is not taken yet. */
static size_t bytes_more(const struct head *h, uint32_t rank)
{
    return h->plan.bytes[rank] - stage_shared_rank(h, rank);
}

static bool is_full(const struct head *h, const struct split_inputs *in, uint32_t rank)
{
    return bytes_more(h, rank) > in->available[rank];
}

static uint32_t first_full(const struct head *h, const struct split_inputs *in)
{
    uint32_t rank = 0;
    while (rank < h->plan.ranks && !is_full(h, in, rank))
        rank++;
    return rank;
}

/* Ranks that are short of memory keep only inputs and do forwards again, unless the user said which
 * ranks do. */
static int save_memory(struct head *h, const struct sched *sched, struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    bool recompute[JOB_MAX_STAGES], any = false;
    job_plan_recompute(p, recompute);
    for (size_t s = 0; s < p->stages; s++)
        if (is_full(h, in, p->place[s]) && !recompute[s])
            any = recompute[s] = true;
    if (!any || h->spec.recompute != RECOMPUTE_AUTO)
        return 0;
    int e = stage_slots_count(p, sched, recompute, in->handed, err);
    return e ? e : measure_ranks(h, in, err);
}

/* sched: NULL if nothing is trained. */
static int measure_split(struct head *h, const struct sched *sched, struct split_inputs *in, struct err *err)
{
    int e = measure_ranks(h, in, err);
    /* Copies of what is trained only take what nothing else needs: without them a job that loses a
     * node goes on from the disk. */
    if (!e && h->plan.copies && first_full(h, in) < h->plan.ranks) {
        h->plan.copies = false;
        e = measure_ranks(h, in, err);
    }
    return !e && sched ? save_memory(h, sched, in, err) : e;
}

/* After another split, for which no stage does forwards again yet. */
static int measure_again(struct head *h, const struct sched *sched, struct split_inputs *in, struct err *err)
{
    static const bool none[JOB_MAX_STAGES];
    int e = sched && h->spec.recompute == RECOMPUTE_AUTO
                ? stage_slots_count(&h->plan, sched, none, in->handed, err)
                : 0;
    return e ? e : measure_split(h, sched, in, err);
}

static size_t share_bytes(const struct head *h, const struct split_inputs *in, size_t stage)
{
    const struct job_plan *p = &h->plan;
    const size_t *bytes = in->of_stage[stage];
    size_t sum = stage ? 0 : bytes[0];
    for (size_t layer = p->first[stage]; layer < p->first[stage + 1]; layer++)
        sum += bytes[layer + 1];
    return sum + (stage + 1 == p->stages ? bytes[h->config.layers + 1] : 0);
}

/* The largest stage of each full rank may not be as large again. */
static void tighten(const struct head *h, const struct split_inputs *in, size_t *limits)
{
    const struct job_plan *p = &h->plan;
    for (uint32_t r = first_full(h, in); r < p->ranks; r++) {
        size_t most = 0, largest = 0;
        for (size_t s = 0; s < p->stages; s++)
            if (p->place[s] == r && share_bytes(h, in, s) >= most) {
                most = share_bytes(h, in, s);
                largest = s;
            }
        if (is_full(h, in, r))
            limits[largest] = most ? most - 1 : 0;
    }
}

/* Moves layers from full ranks to others until all fit, and takes the fastest of such splits. Where
 * there is none, the first split stays, and check_memory names what it lacks. Each try has a lower
 * limit than the one before, so there is an end. */
static int make_fit(struct head *h, const struct sched *sched, struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    size_t limits[JOB_MAX_STAGES], first[JOB_MAX_STAGES + 1];
    struct err quiet;
    int e = 0;
    memcpy(first, p->first, sizeof first);
    for (size_t s = 0; s < p->stages; s++)
        limits[s] = SIZE_MAX;
    while (!e && first_full(h, in) < p->ranks) {
        tighten(h, in, limits);
        e = split_within(h, in, limits, &quiet);
        if (e == -ENOSPC) {
            memcpy(p->first, first, sizeof first);
            return measure_again(h, sched, in, err);
        }
        if (e)
            *err = quiet;
        else
            e = measure_again(h, sched, in, err);
    }
    return e;
}

/* "; in all the job needs 45.2 GiB, and the 3 nodes have 32.0 GiB": whether another split could do,
 * or only another node. Nothing where a node does not tell what it has. */
static void whole_need(char *text, size_t size, const struct head *h, const struct split_inputs *in)
{
    const struct job_plan *p = &h->plan;
    size_t needs = 0, has = 0;
    *text = 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (in->available[r] == SIZE_MAX)
            return;
        needs += bytes_more(h, r);
        has += in->available[r];
    }
    const struct err_amounts all = err_amounts(needs, has);
    if (p->ranks > 1)
        snprintf(text, size, "; in all the job needs %s, and the %zu nodes have %s", all.need, p->ranks,
                 all.have);
}

/* Of several tries the first counts, as for the sentence. */
static void note_lack(struct head_planning *p, const json_t *node, size_t bytes)
{
    if (!p->lacks)
        snprintf(p->lacks_at, sizeof p->lacks_at, "%s", json_string_value(json_object_get(node, "id")));
    p->lacks = p->lacks ? p->lacks : bytes;
}

static int check_memory(struct head *h, const json_t *nodes, const struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    char layers[200], whole[160], shared[160];
    const uint32_t r = first_full(h, in);
    if (r == p->ranks)
        return 0;
    const json_t *node = json_array_get(nodes, r);
    const struct err_amounts here = err_amounts(bytes_more(h, r), in->available[r]);
    layers_text(layers, sizeof layers, p, r);
    stage_shared_say(shared, sizeof shared, h, r);
    whole_need(whole, sizeof whole, h, in);
    note_lack(&h->planning, node, bytes_more(h, r) - in->available[r]);
    return err_set(err, -ENOSPC, "node %s needs %s for %s%s and has %s%s: use %s%s, or add a node",
                   json_string_value(json_object_get(node, "name")), here.need, layers, shared, here.have,
                   whole, p->training && h->spec.recompute == RECOMPUTE_NONE ? "--recompute auto, " : "",
                   memory_way_out(p->type));
}

static int split_on_nodes(struct head *h, struct err *err)
{
    struct split_inputs in = {0};
    struct sched *sched = NULL;
    const bool searched = h->plan.training && !strcmp(h->spec.schedule, "auto");
    follow_nodes(h);
    int e = searched ? head_search(h, err) : 0;
    const json_t *nodes = h->planning.nodes; /* which the search may have turned */
    if (!e)
        e = stage_slots_begin(h, &sched, in.handed, err);
    if (!e)
        e = split_inputs(&in, h, nodes, err);
    if (!e)
        e = split(h, &in, err);
    if (!e)
        e = measure_split(h, sched, &in, err);
    if (!e && !h->spec.split && !h->planning.has_split)
        e = make_fit(h, sched, &in, err);
    if (!e)
        e = check_memory(h, nodes, &in, err);
    if (!e && h->plan.training && !h->spec.split && !h->planning.has_split) {
        json_decref(h->planning.pace);
        h->planning.pace = pace_of(h, &in);
    }
    const bool from_file =
        h->spec.split && !h->spec.dry_run; /* what it takes is held against what was planned */
    h->planning.must_not_time = h->planning.must_not_time || from_file; /* but the job is not kept waiting */
    if (!e && h->plan.training && !searched && (h->spec.dry_run || from_file))
        head_forecast(h);
    if (!e && !h->plan.training && (h->spec.dry_run || h->spec.forecast))
        (h->plan.type == JOB_SERVE ? rows_forecast_make : decode_forecast_make)(h);
    sched_free(sched);
    free(in.cost);
    free(in.bytes);
    return e;
}
/* --- whose nodes ------------------------------------------------------------------------------ */

/* Ranks of a schedule of the user's; 0 of all others, and where it cannot be read, which is said
 * later. */
static size_t ranks_of_order(struct head *h)
{
    struct job_plan *p = &h->plan;
    struct sched *sched = NULL;
    struct err quiet;
    if (!p->training || p->nmore || sched_info(p->schedule) || !strcmp(p->schedule, "auto") ||
        stage_schedule_read(h, &quiet) || sched_read(&sched, p->order, &quiet))
        return 0;
    const size_t ranks = sched->ranks;
    sched_free(sched);
    return ranks;
}

/* Tells which nodes it is, and gives the job no others. */
static void take_nodes(struct head *h, const json_t *all, uint32_t mask, size_t ranks)
{
    char in[1100], out[1100];
    const uint32_t every = (1u << json_array_size(all)) - 1;
    stage_nodes_text(in, sizeof in, all, mask);
    stage_nodes_text(out, sizeof out, all, every & ~mask);
    stage_say(h->events, "the schedule has %zu line%s: %s take%s part, and %s only relay%s data", ranks,
              ranks == 1 ? "" : "s", in, ranks == 1 ? "s" : "", out,
              json_array_size(all) - ranks == 1 ? "s" : "");
    json_decref(h->planning.nodes);
    h->planning.nodes = stage_nodes_take(all, mask);
    h->plan.ranks = ranks;
    h->planning.chosen = mask;
}

/* On the best nodes that have the memory: those whose memory does not do are left for the next
 * best. */
static int split_on_some(struct head *h, size_t ranks, struct err *err)
{
    enum { TRIES = 32 };
    uint32_t masks[TRIES];
    json_t *all = json_incref(h->planning.nodes);
    const size_t n = stage_nodes_choose(masks, TRIES, all, ranks, h->spec.split_nodes);
    struct err first = {""}, why;
    int e = n ? -ENOSPC
              : err_set(&first, -EINVAL,
                        "the plan is for %zu nodes, but not all of them are in the ring now: plan again",
                        json_array_size(h->spec.split_nodes));
    for (size_t i = 0; i < n && e == -ENOSPC; i++) {
        json_decref(h->planning.nodes);
        h->planning.nodes = json_incref(all);
        h->planning.is_mirrored = false;
        snprintf(h->plan.schedule, sizeof h->plan.schedule, "%s", h->spec.schedule);
        take_nodes(h, all, masks[i], ranks);
        e = split_on_nodes(h, &why);
        if (e && (i == 0 || e != -ENOSPC))
            first = why;
    }
    json_decref(all);
    if (e)
        *err = first;
    return e;
}

int head_split(struct head *h, struct err *err)
{
    const size_t ranks = ranks_of_order(h);
    const int e = stage_shared_note(h, err);
    if (e)
        return e;
    return ranks && ranks < h->plan.ranks ? split_on_some(h, ranks, err) : split_on_nodes(h, err);
}
