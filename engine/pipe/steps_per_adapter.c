/* SPDX-License-Identifier: MIT
 *
 * How many steps of each of several adapters go through the pipeline in one round. Owns nothing
 * beyond a call. Pure; called by the head that plans a job, by the planner for each order it looks
 * at, and by whoever shows such a round. */
#include "pipe/plan.h"

#include <errno.h>
#include <stdlib.h>

size_t steps_per_adapter(size_t ranks, size_t adapters, size_t microbatches)
{
    enum { PART = 100 };
    const size_t each = adapters * microbatches, turns = (PART * (ranks - 1) + each - 1) / each;
    return adapters < 2 || turns < 1 ? 1 : turns > PLAN_MAX_TURNS ? PLAN_MAX_TURNS : turns;
}

size_t steps_per_adapter_below(size_t turns, size_t most)
{
    size_t power = 1;
    while (2 * power <= turns)
        power *= 2;
    return turns >= most ? most : power;
}

static int try_round(const struct sched_request *step, size_t adapters, size_t turns, struct err *err)
{
    struct sched_request want = *step;
    struct sched *sched = NULL;
    struct plan *plan = NULL;
    const size_t steps = adapters * turns;
    uint32_t *adapter_of_step = calloc(steps, sizeof *adapter_of_step);
    want.microbatches *= steps;
    int e = adapter_of_step ? sched_make(&sched, &want, err) : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; adapter_of_step && i < steps; i++)
        adapter_of_step[i] = (uint32_t)(i % adapters);
    const struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = sched, .steps = steps, .adapter_of_step = adapter_of_step};
    if (!e)
        e = plan_compile(&plan, &req, err);
    plan_free(plan);
    sched_free(sched);
    free(adapter_of_step);
    return e;
}

int steps_per_adapter_go(size_t *ret, const struct sched_request *step, size_t adapters, size_t most,
                         struct err *err)
{
    const struct sched_info *info = sched_info(step->name);
    const size_t chunks = step->chunks || !info ? step->chunks : info->chunks;
    const double cells = (double)step->ranks * (double)chunks * (double)step->microbatches * (double)adapters;
    size_t go = 1;
    for (size_t turns = 2; turns <= most && cells * (double)turns <= PLAN_MAX_CELLS; turns++) {
        if (steps_per_adapter_below(turns, most) != turns)
            continue;
        const int e = try_round(step, adapters, turns, err);
        if (e == -EDEADLK)
            break;
        if (e)
            return e;
        go = turns;
    }
    *ret = go;
    return 0;
}
