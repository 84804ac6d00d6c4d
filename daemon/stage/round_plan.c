/* SPDX-License-Identifier: MIT */
#include "daemon/stage/round_plan.h"

#include <errno.h>
#include <stdlib.h>

struct plan_request round_request(const struct job_plan *p, const struct config *config, const struct go *go,
                                  const size_t *pieces)
{
    size_t lowest = tune_lowest_layer(&p->tune, config), stage = 0;
    while (stage + 1 < p->stages && p->first[stage + 1] <= lowest)
        stage++;
    return (struct plan_request){
        .program = (enum program)go->program,
        .ranks = p->ranks,
        .npipelines = job_plan_pipelines(p),
        .slices = p->slices,
        .divided = p->divided,
        .stages = go->program == PROGRAM_TRAIN ? 0 : p->stages,
        .shape = job_plan_shape(p),
        .microbatches = go->microbatches,
        .steps = go->nsteps,
        .tied = p->tune.kind == TUNE_FULL && config->tied && p->stages > 1,
        .lowest_trained = p->tune.kind == TUNE_FULL ? 0 : (uint32_t)stage,
        .want_token = go->want_token,
        .first = p->first,
        .pieces = pieces,
        .held_by = go->held_by,
    };
}

int round_compile(struct plan **ret, const struct job_plan *plan, const struct config *config,
                  const struct go *go, const size_t *pieces, struct err *err)
{
    struct job_orders orders = {.sched = {NULL}};
    bool recompute[JOB_MAX_STAGES];
    uint32_t *adapter_of_step = calloc(go->nsteps + 1, sizeof *adapter_of_step);
    if (!adapter_of_step)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < go->nsteps; i++)
        adapter_of_step[i] = go->steps[i].adapter;
    struct plan_request req = round_request(plan, config, go, pieces);
    int e =
        go->program == PROGRAM_TRAIN ? job_orders_make(&orders, plan, go->microbatches, go->nsteps, err) : 0;
    if (!e) {
        const bool shares = go->program == PROGRAM_FORWARD && plan->replicas;
        if (shares)
            job_orders_share(&orders, plan);
        if (go->program == PROGRAM_TRAIN || shares)
            job_orders_request(&req, &orders, plan);
        job_plan_recompute(plan, recompute);
        req.recompute = recompute;
        req.adapter_of_step = adapter_of_step;
        e = plan_compile(ret, &req, err);
    }
    job_orders_done(&orders);
    free(adapter_of_step);
    return e;
}
