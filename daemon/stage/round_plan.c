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
        .stages = go->program == PROGRAM_TRAIN ? 0 : p->stages,
        .rank_of_stage = p->place,
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

/* What is known of stages and ranks is of the plan: an order with more of them would be read too
 * far. */
static int check_schedule(const struct job_plan *p, const struct sched *sched, struct err *err)
{
    if (sched->ranks == p->ranks && sched->stages == p->stages)
        return 0;
    return err_set(err, -EBADMSG,
                   "the head's plan does not fit its own schedule: it has %zu stages on %zu ranks, its "
                   "schedule %zu on %zu; same ringd on all nodes?",
                   p->stages, p->ranks, sched->stages, sched->ranks);
}

int round_compile(struct plan **ret, const struct job_plan *plan, const struct config *config,
                  const struct go *go, const size_t *pieces, struct err *err)
{
    struct sched *sched = NULL;
    bool recompute[JOB_MAX_STAGES];
    uint32_t *adapter_of_step = calloc(go->nsteps + 1, sizeof *adapter_of_step);
    if (!adapter_of_step)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < go->nsteps; i++)
        adapter_of_step[i] = go->steps[i].adapter;
    struct sched_request want = job_plan_schedule(plan, go->microbatches);
    int e = go->program == PROGRAM_TRAIN ? sched_make(&sched, &want, err) : 0;
    if (!e && sched)
        e = check_schedule(plan, sched, err);
    if (!e) {
        struct plan_request req = round_request(plan, config, go, pieces);
        job_plan_recompute(plan, recompute);
        req.sched = sched;
        req.recompute = recompute;
        req.adapter_of_step = adapter_of_step;
        e = plan_compile(ret, &req, err);
    }
    sched_free(sched);
    free(adapter_of_step);
    return e;
}
