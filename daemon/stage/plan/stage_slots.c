/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a call. */
#include "daemon/stage/plan/stage_slots.h"

#include <errno.h>
#include <string.h>

#include "daemon/stage/plan/stage_schedule.h"

static bool has_again(const struct plan *plan, size_t stage, uint32_t rank)
{
    for (size_t k = 0; k < plan->rank[rank].n; k++)
        if (plan->rank[rank].tasks[k].stage == stage && plan->rank[rank].tasks[k].recomputes)
            return true;
    return false;
}

static int place_stages(struct job_plan *p, const struct sched *sched, struct err *err)
{
    if (sched->stages > JOB_MAX_STAGES)
        return err_set(err, -EINVAL, "a job has at most %d stages, not %zu", JOB_MAX_STAGES, sched->stages);
    if (sched->rank_of_stage[0] != 0)
        return err_set(err, -EINVAL,
                       "stage 0 lies on rank %u, but must lie on rank 0, which reads the data: move its line "
                       "to the top",
                       sched->rank_of_stage[0]);
    p->stages = sched->stages;
    memcpy(p->place, sched->rank_of_stage, p->stages * sizeof *p->place);
    return 0;
}

/* What the programs of a job need at most. */
struct need {
    bool again[JOB_MAX_STAGES];
    size_t *handed; /* [ranks] what is between two stages of a rank */
};

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void need_slots(struct job_plan *p, const struct plan *plan, struct need *need)
{
    for (size_t s = 0; s < p->stages; s++) {
        need->again[s] = need->again[s] || has_again(plan, s, p->place[s]);
        p->slots[s] = more(p->slots[s], plan->slots[s]);
        p->activations[s] = more(p->activations[s], plan->activations[s]);
        p->bwd_x_only[s] = more(p->bwd_x_only[s], plan->bwd_x_only[s]);
        p->bwd_w_only[s] = more(p->bwd_w_only[s], plan->bwd_w_only[s]);
    }
    for (size_t r = 0; r < p->ranks; r++)
        need->handed[r] = more(need->handed[r], plan->rank[r].handed);
}

/* Of a round of so many steps, of adapters that take turns. */
static int need_steps(struct job_plan *p, const bool *recompute, size_t steps, struct need *need,
                      struct err *err)
{
    uint32_t adapter_of_step[JOB_MAX_STEPS];
    struct job_orders orders;
    struct plan *plan = NULL;
    for (size_t i = 0; i < steps; i++)
        adapter_of_step[i] = (uint32_t)(i % (p->nmore + 1));
    int e = job_orders_make(&orders, p, steps * p->microbatches, steps, err);
    if (e)
        return e;
    struct plan_request req = {
        .program = PROGRAM_TRAIN, .recompute = recompute, .steps = steps, .adapter_of_step = adapter_of_step};
    job_orders_request(&req, &orders, p);
    e = plan_compile(&plan, &req, err);
    if (!e)
        need_slots(p, plan, need);
    plan_free(plan);
    job_orders_done(&orders);
    return e;
}

/* Rounds of a few adapters, of all, and of several steps of each, as far as the order lets steps
 * follow each other: else they end before the next begin. Replicas wait for each other at the end
 * of each step, so that each adapter makes one in a round. */
static int need_adapters(struct job_plan *p, const bool *recompute, struct need *need, struct err *err)
{
    const size_t adapters = p->nmore + 1, most = steps_per_adapter(p->ranks, adapters, p->microbatches);
    const struct sched_request step = job_plan_schedule(p, 0, p->microbatches, 1);
    size_t turns = 1;
    int e = p->replicas ? 0 : steps_per_adapter_go(&turns, &step, adapters, most, err);
    for (size_t steps = 2; steps <= adapters && !e; steps++)
        e = need_steps(p, recompute, steps, need, err);
    for (size_t turn = 2; turn <= turns && !e; turn++)
        if (steps_per_adapter_below(turn, turns) == turn)
            e = need_steps(p, recompute, turn * adapters, need, err);
    p->round_steps = turns * adapters;
    return e;
}

int stage_slots_count(struct job_plan *p, const struct sched *sched, const bool *recompute,
                      size_t *ret_handed, struct err *err)
{
    struct need need = {.handed = ret_handed};
    int e = sched ? plan_check(sched, err) : 0;
    if (!e && sched)
        e = place_stages(p, sched, err);
    if (!e) {
        memset(p->slots, 0, sizeof p->slots);
        memset(p->activations, 0, sizeof p->activations);
        memset(p->bwd_x_only, 0, sizeof p->bwd_x_only);
        memset(p->bwd_w_only, 0, sizeof p->bwd_w_only);
        memset(ret_handed, 0, p->ranks * sizeof *ret_handed);
        e = need_steps(p, recompute, 1, &need, err);
    }
    if (!e && p->nmore)
        e = need_adapters(p, recompute, &need, err);
    for (size_t s = 0; !e && s < p->stages; s++)
        p->activations[s] = need.again[s] ? p->activations[s] : 0;
    return e;
}

int stage_slots_begin(struct head *h, struct sched **ret_sched, size_t *ret_handed, struct err *err)
{
    struct job_plan *p = &h->plan;
    bool recompute[JOB_MAX_STAGES];
    if (!p->nothers)
        job_plan_place_single(p);
    for (size_t s = 0; s < p->stages; s++)
        p->slots[s] = 1;
    for (size_t s = 0; s < JOB_MAX_STAGES; s++)
        recompute[s] = h->spec.recompute == RECOMPUTE_STAGE;
    if (!p->training)
        return 0;
    int e = p->nothers ? 0 : stage_schedule_make(h, ret_sched, err);
    if (!e && (e = stage_slots_count(p, *ret_sched, recompute, ret_handed, err)) && p->order)
        err_prefix(err, e, "--schedule %s", h->spec.schedule);
    return e;
}
