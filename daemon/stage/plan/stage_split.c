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

#include "daemon/stage/plan/stage_given.h"
#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_schedule.h"
#include "daemon/stage/plan/stage_slots.h"
#include "daemon/stage/stage_nodes.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan/stage_search.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/plan/decode_forecast.h"
#include "daemon/stage/plan/rows_forecast.h"
#include "daemon/stage/plan/stage_memory.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_unlike.h"
#include "daemon/stage/share/stage_travel.h"
#include "engine/pipe/split.h"

/* --- layers ----------------------------------------------------------------------------------- */

struct split_inputs {
    double *cost, speed[JOB_MAX_STAGES];    /* by unit; by stage */
    size_t *bytes;                          /* owned: [stages][units], what each of them takes there */
    const size_t *of_stage[JOB_MAX_STAGES]; /* in `bytes` */
    size_t *missing;                     /* owned: [stages][units], what has to come, where that is known */
    const size_t *lacks[JOB_MAX_STAGES]; /* in `missing` */
    size_t memory[JOB_MAX_STAGES];
    size_t available[JOB_MAX_RANKS], handed[JOB_MAX_RANKS], threads[JOB_MAX_RANKS];
};

static size_t chunks_of(const struct job_plan *p, uint32_t rank)
{
    size_t n = 0;
    for (size_t s = 0; s < p->stages; s++)
        n += job_plan_is_at(p, s, rank);
    return n;
}

/* Of a stage's nodes in all pipelines the one that has least: memory, speed for its share, and what
 * is there of a unit already. */
static void least_of_pipelines(struct split_inputs *in, const struct head *h, const json_t *nodes, size_t s)
{
    const struct job_plan *p = &h->plan;
    for (size_t d = 0; d < job_plan_pipelines(p); d++) {
        const uint32_t rank = job_plan_rank_at(p, d, s);
        const size_t memory = in->available[rank] / chunks_of(p, rank);
        const double speed =
            stage_nodes_speed(nodes, rank) / (p->replicas ? (double)p->share[d / job_plan_slices(p)] : 1);
        in->speed[s] = !d || speed < in->speed[s] ? speed : in->speed[s];
        in->memory[s] = !d || memory < in->memory[s] ? memory : in->memory[s];
    }
}

static size_t shared_in_all(const struct head *h, const json_t *nodes, size_t s, size_t unit)
{
    size_t least = SIZE_MAX;
    for (size_t d = 0; d < job_plan_pipelines(&h->plan); d++) {
        const size_t bytes = stage_shared_unit(h, nodes, job_plan_rank_at(&h->plan, d, s), unit);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static size_t lacked_by_all(const struct head *h, size_t s, size_t unit)
{
    size_t sum = 0;
    for (size_t d = 0; d < job_plan_pipelines(&h->plan); d++)
        sum += h->planning.travel_lacks[job_plan_rank_at(&h->plan, d, s) * (h->config.layers + 2) + unit];
    return sum;
}

static void inputs_done(struct split_inputs *in)
{
    free(in->cost);
    free(in->bytes);
    free(in->missing);
    in->cost = NULL;
    in->bytes = in->missing = NULL;
}

static int split_inputs(struct split_inputs *in, const struct head *h, const json_t *nodes, struct err *err)
{
    size_t units = h->config.layers + 2;
    inputs_done(in);
    in->cost = calloc(units, sizeof *in->cost);
    in->bytes = calloc(h->plan.stages * units, sizeof *in->bytes);
    in->missing = calloc(h->plan.stages * units, sizeof *in->missing);
    if (!in->cost || !in->bytes || !in->missing)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t r = 0; r < h->plan.ranks; r++) {
        json_int_t memory = json_integer_value(json_object_get(json_array_get(nodes, r), "memory"));
        in->available[r] = memory > 0 ? (size_t)memory : SIZE_MAX;
        double threads = json_number_value(json_object_get(json_array_get(nodes, r), "speed"));
        in->threads[r] = threads >= 1 ? (size_t)threads : 1;
    }
    for (size_t s = 0; s < h->plan.stages; s++) {
        least_of_pipelines(in, h, nodes, s);
        in->of_stage[s] = in->bytes + s * units;
        in->lacks[s] = in->missing + s * units;
    }
    int e = 0;
    for (size_t u = 0; u < units && !e; u++) {
        size_t bytes = 0;
        in->cost[u] = family_cost(h->family, &h->config, u, h->plan.positions);
        e = replicas_unit_bytes(&bytes, h, u, err);
        for (size_t s = 0; s < h->plan.stages && !e; s++)
            in->bytes[s * units + u] = bytes - shared_in_all(h, nodes, s, u);
        for (size_t s = 0; s < h->plan.stages && h->planning.travel_lacks; s++)
            in->missing[s * units + u] = lacked_by_all(h, s, u);
    }
    return e;
}

/* As it was asked for. */
static int take_split(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const size_t given = json_array_size(h->spec.split);
    const int e = given_check_nodes(h, err);
    if (!e && given != p->stages)
        return err_set(err, -EINVAL, "the split is for %zu stages, but %s on %zu nodes has %zu", given,
                       p->schedule, p->ranks, p->stages);
    return e ? e : given_layers(p->first, h, 0, p->stages, err);
}

/* Against the split that asks nobody what it has. */
static int note_spared(struct head *h, const struct split_request *req, struct err *err)
{
    size_t first[JOB_MAX_STAGES + 1];
    struct split_request fastest = *req;
    fastest.unit_lacks = NULL;
    const int e = split_layers(first, &fastest, err);
    if (!e)
        h->planning.travel_spared = split_lacks(first, req) - split_lacks(h->plan.first, req);
    return e;
}

static int split_within(struct head *h, const struct split_inputs *in, const size_t *memory, struct err *err)
{
    struct job_plan *p = &h->plan;
    const struct split_request req = {.stages = p->stages,
                                      .layers = h->config.layers,
                                      .unit_cost = in->cost,
                                      .unit_bytes = in->of_stage,
                                      .speed = in->speed,
                                      .memory = memory,
                                      .unit_lacks = h->planning.travel_lacks ? in->lacks : NULL,
                                      .slack = STAGE_TRAVEL_SLACK};
    int e = split_layers(p->first, &req, err);
    if (!e && req.unit_lacks)
        e = note_spared(h, &req, err);
    return e ? e : split_check(p->first, p->stages, h->config.layers, err);
}

/* The bytes of single units add up to more than a stage takes, because layers share their scratch.
 * If they do not fit, the fastest split is measured exactly, and made to fit. */
static int split(struct head *h, const struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    if (h->spec.split && !p->nothers)
        return take_split(h, err);
    if (h->planning.has_split || p->nothers)
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
        if (!job_plan_is_at(p, s, rank) || p->first[s] == p->first[s + 1])
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

static bool is_full_anywhere(const struct head *h, const struct split_inputs *in, size_t stage)
{
    bool is = false;
    for (size_t d = 0; d < job_plan_pipelines(&h->plan); d++)
        is = is || is_full(h, in, job_plan_rank_at(&h->plan, d, stage));
    return is;
}

/* Ranks that are short of memory keep only inputs and do forwards again, unless the user said which
 * ranks do. */
static int save_memory(struct head *h, const struct sched *sched, struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    bool recompute[JOB_MAX_STAGES], any = false;
    job_plan_recompute(p, recompute);
    for (size_t s = 0; s < p->stages; s++)
        if (is_full_anywhere(h, in, s) && !recompute[s])
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
    return !e && h->plan.training ? save_memory(h, sched, in, err) : e;
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

/* The largest stage of each full rank may not be as large again. False: all of them are empty. */
static bool tighten(const struct head *h, const struct split_inputs *in, size_t *limits)
{
    const struct job_plan *p = &h->plan;
    bool is_tighter = false;
    for (uint32_t r = first_full(h, in); r < p->ranks; r++) {
        size_t most = 0, largest = 0;
        for (size_t s = 0; s < p->stages; s++)
            if (job_plan_is_at(p, s, r) && share_bytes(h, in, s) >= most) {
                most = share_bytes(h, in, s);
                largest = s;
            }
        if (is_full(h, in, r) && most) {
            limits[largest] = most - 1;
            is_tighter = true;
        }
    }
    return is_tighter;
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
        e = tighten(h, in, limits) ? split_within(h, in, limits, &quiet) : -ENOSPC;
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

/* Stages, slots, and what all of it takes, once the layers of unlike replicas are shared out. */
static int measure_unlike(struct head *h, struct split_inputs *in, struct err *err)
{
    struct sched *none = NULL; /* each replica has one of its own */
    int e = stage_slots_begin(h, &none, in->handed, err);
    e = e ? e : split_inputs(in, h, h->planning.nodes, err);
    return e ? e : measure_split(h, NULL, in, err);
}

/* What a rank's share takes, without what its node has already: as unlike_split weighs it. */
static size_t rank_bytes(const struct head *h, const struct split_inputs *in, uint32_t rank)
{
    const struct job_plan *p = &h->plan;
    size_t sum = 0;
    for (size_t u = 0; u < h->config.layers + 2; u++) {
        const size_t s = job_plan_stage_of_unit(p, u);
        if (job_plan_is_at(p, s, rank))
            sum += in->of_stage[s][u] + shared_in_all(h, h->planning.nodes, s, u) -
                   stage_shared_unit(h, h->planning.nodes, rank, u);
    }
    return sum;
}

/* Full ranks get fewer bytes. False: none can, for one has nothing, or what units take has
 * changed. */
static bool tighten_ranks(const struct head *h, const struct split_inputs *in, size_t *limits)
{
    bool is_tighter = false;
    for (uint32_t r = first_full(h, in); r < h->plan.ranks; r++) {
        const size_t bytes = rank_bytes(h, in, r);
        if (!is_full(h, in, r) || !bytes || bytes > limits[r])
            continue;
        limits[r] = bytes - 1;
        is_tighter = true;
    }
    return is_tighter;
}

/* As make_fit, for replicas that are each split by themselves. */
static int fit_unlike(struct head *h, struct split_inputs *in, struct err *err)
{
    size_t limits[JOB_MAX_RANKS];
    struct err quiet;
    for (size_t r = 0; r < h->plan.ranks; r++)
        limits[r] = SIZE_MAX;
    int e = 0;
    while (!e && first_full(h, in) < h->plan.ranks) {
        e = tighten_ranks(h, in, limits) ? unlike_split(h, limits, &quiet) : -ENOSPC;
        if (e == -ENOSPC) {
            e = unlike_split(h, NULL, err);
            return e ? e : measure_unlike(h, in, err);
        }
        if (e)
            *err = quiet;
        e = e ? e : measure_unlike(h, in, err);
    }
    return e;
}

static int split_unlike(struct head *h, struct split_inputs *in, struct err *err)
{
    const bool is_given = h->spec.split || h->planning.has_split;
    int e = h->planning.has_split ? 0 : unlike_split(h, NULL, err);
    e = e ? e : measure_unlike(h, in, err);
    return e || is_given ? e : fit_unlike(h, in, err);
}

/* Of all other jobs. */
static int split_alike(struct head *h, struct split_inputs *in, struct err *err)
{
    struct sched *sched = NULL;
    int e = stage_slots_begin(h, &sched, in->handed, err);
    if (!e)
        e = split_inputs(in, h, h->planning.nodes, err); /* which the search may have turned */
    if (!e)
        e = split(h, in, err);
    if (!e)
        e = measure_split(h, sched, in, err);
    if (!e && !h->spec.split && !h->planning.has_split)
        e = make_fit(h, sched, in, err);
    sched_free(sched);
    return e;
}

int head_split_on_nodes(struct head *h, struct err *err)
{
    struct split_inputs in = {0};
    const bool is_auto = h->plan.training && !strcmp(h->spec.schedule, "auto"),
               is_found = is_auto || h->planning.has_layout;
    if (given_is_mirrored(h)) /* made so, a plan has it so again */
        head_mirror(h);
    int e = stage_travel_look(h, err);
    if (!e && h->plan.training)
        e = replicas_share_out(h, err);
    if (!e && is_auto && !h->planning.has_layout)
        e = head_search(h, err);
    if (!e)
        e = h->plan.nothers ? split_unlike(h, &in, err) : split_alike(h, &in, err);
    if (!e)
        e = check_memory(h, h->planning.nodes, &in, err);
    for (size_t s = 0; s < h->plan.stages && !e; s++)
        h->plan.parts[s] = replicas_parts(&h->plan, &h->config, s);
    if (!e && h->plan.training && job_plan_pipelines(&h->plan) == 1 && !h->spec.split &&
        !h->planning.has_split) {
        json_decref(h->planning.pace);
        h->planning.pace = pace_of(h, &in);
    }
    const bool from_file =
        h->spec.split && !h->spec.dry_run; /* what it takes is held against what was planned */
    h->planning.must_not_time = h->planning.must_not_time || from_file; /* but the job is not kept waiting */
    const bool is_asked = h->spec.dry_run && !h->planning.is_bare;
    if (!e && h->plan.training && !is_found && (is_asked || from_file))
        head_forecast(h);
    /* Answers of an evaluation end when they end; rows of a stage that is shared are not timed. */
    const bool is_foreseen = h->plan.type != JOB_EVAL && !(h->plan.type == JOB_SERVE && h->plan.slices);
    const bool is_wanted = h->spec.dry_run || h->spec.forecast || h->planning.wants_speed;
    if (!e && !h->plan.training && is_foreseen && is_wanted && !h->planning.is_bare)
        (h->plan.type == JOB_SERVE ? rows_forecast_make : decode_forecast_make)(h);
    inputs_done(&in);
    return e;
}

bool plan_cannot_be(int code)
{
    return code == -ENOSPC || code == -EINVAL || code == -EDEADLK || code == -EOVERFLOW;
}
