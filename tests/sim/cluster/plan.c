/* SPDX-License-Identifier: MIT
 *
 * Plans as stages of the simulation make them: what each rank takes, what of it the node's other
 * stages map already, and whether there is memory for the rest. */
#include <string.h>

#include "daemon/common/model/mapped.h"
#include "tests/lib/small_plan.h"
#include "tests/sim/cluster/stage.h"

enum { VOCAB = 16 }; /* of a plan, and the job's number more */

struct job_plan stage_plan(const struct spawn *s, size_t *mapped)
{
    const struct sim_job *job = &sim->job[s->job];
    struct job_plan plan = small_plan(job->generates ? JOB_GENERATE : JOB_TRAIN, s->ranks);
    plan.model[strlen("/m")] = '/';
    plan.model[strlen("/m/")] = (char)('0' + job->model);
    plan.vocab = VOCAB + s->job;
    plan.submitted = s->submitted;
    plan.copies = job->copies && !job->generates;
    for (size_t r = 1; r <= s->ranks; r++)
        plan.first[r] = stage_first_layer(r, s->ranks);
    plan.tune.end_layer = job->generates ? plan.tune.end_layer : STAGE_LAYERS;
    plan.nmapped = job->model ? STAGE_UNITS : 0;
    plan.mapped = mapped;
    for (size_t u = 0; u < plan.nmapped; u++)
        mapped[u] = STAGE_MAPPED / STAGE_UNITS;
    for (size_t r = 0; r < s->ranks; r++) {
        plan.bytes[r] = job->bytes / s->ranks;
        for (size_t u = 0; u < plan.nmapped; u++)
            plan.bytes[r] += job_plan_maps(&plan, r, u) ? mapped[u] : 0;
    }
    return plan;
}

/* One of its stages has that unit of that model. */
static bool node_maps(const json_t *node, uint64_t key, size_t unit)
{
    char text[MAPPED_KEY_TEXT];
    bool found = false;
    size_t i;
    json_t *stage;
    mapped_key_text(text, key);
    json_array_foreach (json_object_get(node, "mapped"), i, stage) {
        const json_t *runs = json_object_get(stage, "units");
        for (size_t k = 0; k < json_array_size(runs); k += 2)
            found = found || (!strcmp(json_string_value(json_object_get(stage, "weights")), text) &&
                              (json_int_t)unit >= json_integer_value(json_array_get(runs, k)) &&
                              (json_int_t)unit < json_integer_value(json_array_get(runs, k + 1)));
    }
    return found;
}

json_t *stage_lack(const struct spawn *s, const struct job_plan *plan)
{
    const uint64_t key = mapped_key(plan);
    for (size_t i = 0; i < s->ranks; i++) {
        const json_t *node = json_array_get(s->nodes, i), *has = json_object_get(node, "memory");
        json_int_t lacks = (json_int_t)plan->bytes[i] - json_integer_value(has);
        for (size_t u = 0; u < plan->nmapped; u++)
            lacks -= job_plan_maps(plan, i, u) && node_maps(node, key, u) ? (json_int_t)plan->mapped[u] : 0;
        if (lacks > 0)
            return json_pack("{s:s s:I s:O}", "error", "there is too little memory", "lacks", lacks, "at",
                             json_object_get(node, "id"));
    }
    return s->ranks < sim->job[s->job].least_nodes ? json_pack("{s:s}", "error", "the model does not fit")
                                                   : NULL;
}

size_t stage_planned_job(const json_t *plan)
{
    return (size_t)json_integer_value(json_object_get(plan, "vocab")) - VOCAB;
}
