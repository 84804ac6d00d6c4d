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

static bool is_promised(const struct worker *w)
{
    return w->state != WORKER_IDLE && w->state != WORKER_PLANNING;
}

/* Always computed of all that there are: so what a job shared with one that has ended is its own
 * again, and nothing has to be taken back. */
uint64_t workers_promised(const struct workers *ws, uint64_t *ret_untaken)
{
    const struct mapped *mapped[WORKERS_MAX];
    uint64_t own = 0, untaken = 0;
    size_t n = 0;
    for (size_t i = 0; i < ws->n; i++) {
        const struct worker *w = ws->at[i];
        if (!is_promised(w))
            continue;
        const uint64_t bytes = w->planned_bytes - mapped_sum(&w->mapped);
        mapped[n++] = &w->mapped;
        own += bytes;
        untaken += bytes > w->own_bytes ? bytes - w->own_bytes : 0;
    }
    const uint64_t all_mapped = mapped_union(mapped, n);
    *ret_untaken = untaken + all_mapped;
    return own + all_mapped;
}

uint64_t workers_shared(const struct workers *ws, const struct worker *but, const struct mapped *with)
{
    const struct mapped *mapped[WORKERS_MAX + 1];
    size_t n = 0;
    for (size_t i = 0; i < ws->n; i++)
        if (ws->at[i] != but && is_promised(ws->at[i]))
            mapped[n++] = &ws->at[i]->mapped;
    const uint64_t before = mapped_union(mapped, n);
    mapped[n++] = with;
    return before + mapped_sum(with) - mapped_union(mapped, n);
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
    uint64_t untaken;
    *ret = (struct worker_totals){.memory_bytes = spawner_lingering(ws->setup.each.spawner),
                                  .planned_bytes = workers_promised(ws, &untaken)};
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
