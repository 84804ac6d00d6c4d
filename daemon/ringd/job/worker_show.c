/* SPDX-License-Identifier: MIT
 *
 * What others see of a worker: its part of the node's record, and what its stages have used. Called
 * by the root and by metrics; loop thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker_impl.h"

void worker_add_stage(const struct spawn *stage, struct worker_totals *to)
{
    if (!stage)
        return;
    const struct progress *p = spawn_progress(stage);
    to->busy_seconds += (double)atomic_load_explicit(&p->busy_us, memory_order_relaxed) / 1e6;
    to->wait_seconds += (double)atomic_load_explicit(&p->wait_us, memory_order_relaxed) / 1e6;
    to->tx_bytes += atomic_load_explicit(&p->tx_bytes, memory_order_relaxed);
    to->rx_bytes += atomic_load_explicit(&p->rx_bytes, memory_order_relaxed);
}

void worker_totals(const struct worker *w, struct worker_totals *ret)
{
    *ret = w->past;
    ret->running = w->stage != NULL;
    ret->memory_bytes = spawner_lingering(w->setup.spawner) + (w->stage ? spawn_memory(w->stage) : 0);
    ret->planned_bytes = w->stage ? w->planned_bytes : 0;
    worker_add_stage(w->stage, ret);
}

json_t *worker_lanes(const struct worker *w)
{
    return lane_counts_encode(w->counts, w->stage ? spawn_progress(w->stage) : NULL);
}

bool worker_is_training(const struct worker *w)
{
    return w->state == WORKER_RUNNING && w->trains;
}

void worker_describe(const struct worker *w, struct member *self)
{
    self->job = w->state == WORKER_IDLE ? 0 : w->job;
    self->rank = w->rank;
    self->seconds = 0;
    memcpy(self->head, w->head, 16);
    if (w->state == WORKER_RUNNING && w->stage) {
        progress_describe(spawn_progress(w->stage), self->doing, sizeof self->doing);
        self->seconds = progress_seconds(spawn_progress(w->stage));
        return;
    }
    static const char *const doing[] = {"idle",  "reading model and data", "opening its layers", "ready", "",
                                        "ending"};
    if (w->read_total && (w->state == WORKER_PLANNING || w->state == WORKER_OPENING))
        snprintf(self->doing, sizeof self->doing, "reading weights to compare them: %.1f of %.1f GiB",
                 (double)w->read_bytes / (1 << 30), (double)w->read_total / (1 << 30));
    else
        snprintf(self->doing, sizeof self->doing, "%s", doing[w->state]);
}
