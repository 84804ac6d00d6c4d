/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_shared.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/model/mapped.h"
#include "daemon/stage/plan/stage_units.h"

int stage_shared_note(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const size_t units = h->config.layers + 2;
    free(p->mapped);
    p->mapped = NULL;
    p->nmapped = 0;
    /* Every process has values of its own, or other parts of a unit. */
    if ((p->training && p->tune.kind == TUNE_FULL) || p->slices)
        return 0;
    p->mapped = calloc(units, sizeof *p->mapped);
    if (!p->mapped)
        return err_set(err, -ENOMEM, "out of memory");
    p->nmapped = units;
    p->tied = h->config.tied;
    struct stage_spec all = unit_spec(p, &h->config, 0, p->tokens, p->seqs);
    all.end_layer = h->config.layers;
    all.head = true;
    const int e = stage_measure_units(p->mapped, &all, err);
    h->planning.weights_key = e ? 0 : mapped_key(p);
    return e;
}

/* Has a stage, of which this entry is, that unit of the same weights? */
static bool has_unit(const struct head *h, const json_t *stage, size_t unit)
{
    const json_t *runs = json_object_get(stage, "units");
    uint64_t key;
    bool found = false;
    if (!h->planning.weights_key ||
        mapped_key_parse(&key, json_string_value(json_object_get(stage, "weights"))) ||
        key != h->planning.weights_key)
        return false;
    for (size_t i = 0; i + 1 < json_array_size(runs) && !found; i += 2)
        found = json_integer_value(json_array_get(runs, i)) <= (json_int_t)unit &&
                json_integer_value(json_array_get(runs, i + 1)) > (json_int_t)unit;
    return found;
}

static const json_t *stages_at(const json_t *nodes, size_t place)
{
    return json_object_get(json_array_get(nodes, place), "mapped");
}

static size_t bytes_there(const struct head *h, const json_t *nodes, size_t place, size_t unit)
{
    const json_t *stages = stages_at(nodes, place);
    for (size_t i = 0; unit < h->plan.nmapped && i < json_array_size(stages); i++)
        if (has_unit(h, json_array_get(stages, i), unit))
            return h->plan.mapped[unit];
    return 0;
}

size_t stage_shared_unit(const struct head *h, const json_t *nodes, size_t place, size_t unit)
{
    const bool has_both = h->plan.tied && unit == h->config.layers + 1;
    return bytes_there(h, nodes, place, unit) + (has_both ? bytes_there(h, nodes, place, 0) : 0);
}

size_t stage_shared_rank(const struct head *h, uint32_t rank)
{
    size_t sum = 0;
    for (size_t u = 0; u < h->plan.nmapped; u++)
        sum += job_plan_maps(&h->plan, rank, u) ? bytes_there(h, h->planning.nodes, rank, u) : 0;
    return sum;
}

static bool shares_any(const struct head *h, uint32_t rank, const json_t *stage)
{
    bool any = false;
    for (size_t u = 0; u < h->plan.nmapped && !any; u++)
        any = job_plan_maps(&h->plan, rank, u) && h->plan.mapped[u] && has_unit(h, stage, u);
    return any;
}

/* The numbers of the jobs that the rank shares memory with. */
static json_t *jobs_of(const struct head *h, uint32_t rank)
{
    const json_t *stages = stages_at(h->planning.nodes, rank);
    json_t *jobs = json_array();
    for (size_t i = 0; i < json_array_size(stages); i++)
        if (shares_any(h, rank, json_array_get(stages, i)))
            json_array_append(jobs, json_object_get(json_array_get(stages, i), "job"));
    return jobs;
}

void stage_shared_say(char *text, size_t size, const struct head *h, uint32_t rank)
{
    const size_t bytes = stage_shared_rank(h, rank);
    const struct err_amounts shared = err_amounts(bytes, 0);
    char numbers[100] = "";
    size_t used = 0, i;
    json_t *jobs = jobs_of(h, rank), *job;
    json_array_foreach (jobs, i, job)
        if (used < sizeof numbers)
            used += (size_t)snprintf(numbers + used, sizeof numbers - used, "%s%lld", i ? ", " : "",
                                     (long long)json_integer_value(job));
    *text = '\0';
    if (bytes)
        snprintf(text, size, ", beside %s that it shares with job%s %s,", shared.need,
                 json_array_size(jobs) == 1 ? "" : "s", numbers);
    json_decref(jobs);
}

json_t *stage_shared_show(const struct head *h)
{
    json_t *list = json_array();
    size_t sum = 0;
    for (uint32_t r = 0; r < h->plan.ranks; r++) {
        const size_t bytes = stage_shared_rank(h, r);
        sum += bytes;
        json_array_append_new(list,
                              json_pack("{s:I s:o}", "bytes", (json_int_t)bytes, "jobs", jobs_of(h, r)));
    }
    if (sum)
        return list;
    json_decref(list);
    return NULL;
}
