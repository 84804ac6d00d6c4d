/* SPDX-License-Identifier: MIT
 *
 * What others see of all workers: the node's record, what their stages have used, and what of the
 * node's memory is spoken for. Loop thread. */
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/workers_impl.h"

void workers_describe(const struct workers *ws, struct member *self)
{
    self->nstages = 0;
    for (size_t i = 0; i < ws->n; i++)
        if (ws->at[i]->state != WORKER_IDLE)
            worker_describe(ws->at[i], &self->stages[self->nstages++]);
}

uint64_t workers_promised(const struct workers *ws, uint64_t *ret_untaken)
{
    uint64_t promised = 0;
    *ret_untaken = 0;
    for (size_t i = 0; i < ws->n; i++) {
        const struct worker *w = ws->at[i];
        if (w->state == WORKER_IDLE || w->state == WORKER_PLANNING)
            continue;
        promised += w->planned_bytes;
        *ret_untaken += w->planned_bytes > w->own_bytes ? w->planned_bytes - w->own_bytes : 0;
    }
    return promised;
}

bool workers_are_training(const struct workers *ws)
{
    for (size_t i = 0; i < ws->n; i++)
        if (worker_is_training(ws->at[i]))
            return true;
    return false;
}

bool workers_are_idle(const struct workers *ws)
{
    for (size_t i = 0; i < ws->n; i++)
        if (!worker_is_idle(ws->at[i]))
            return false;
    return true;
}

bool workers_work_on(const struct workers *ws, const struct origin *of)
{
    for (size_t i = 0; i < ws->n; i++)
        if (worker_works_on(ws->at[i], of))
            return true;
    return false;
}

void workers_totals(const struct workers *ws, struct worker_totals *ret)
{
    *ret = (struct worker_totals){.memory_bytes = spawner_lingering(ws->setup.each.spawner)};
    for (size_t i = 0; i < ws->n; i++)
        worker_add_totals(ws->at[i], ret);
}

json_t *workers_lanes(const struct workers *ws)
{
    struct lane_counts *all = lane_counts_new();
    for (size_t i = 0; i < ws->n; i++)
        worker_add_lanes(ws->at[i], all);
    json_t *list = lane_counts_encode(all);
    lane_counts_free(all);
    return list;
}
