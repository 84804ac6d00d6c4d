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

void worker_add_totals(const struct worker *w, struct worker_totals *to)
{
    to->busy_seconds += w->past.busy_seconds;
    to->wait_seconds += w->past.wait_seconds;
    to->tx_bytes += w->past.tx_bytes;
    to->rx_bytes += w->past.rx_bytes;
    if (!w->stage)
        return;
    to->running++;
    to->memory_bytes += spawn_memory(w->stage);
    worker_add_stage(w->stage, to);
}

void worker_add_lanes(const struct worker *w, struct lane_counts *to)
{
    lane_counts_add(to, w->counts, w->stage ? spawn_progress(w->stage) : NULL);
}

bool worker_is_training(const struct worker *w)
{
    return w->state == WORKER_RUNNING && w->trains;
}

static void describe_mapped(const struct mapped *m, struct member_stage *ret)
{
    ret->weights = m->key;
    for (size_t u = 0; u < m->n; u++) {
        struct member_run *last = ret->nruns ? &ret->runs[ret->nruns - 1] : NULL;
        if (m->bytes[u] && last && last->end == u)
            last->end++;
        else if (m->bytes[u] && ret->nruns < MEMBER_RUNS)
            ret->runs[ret->nruns++] = (struct member_run){(uint32_t)u, (uint32_t)u + 1};
    }
}

void worker_describe(const struct worker *w, struct member_stage *ret)
{
    *ret = (struct member_stage){.job = w->job,
                                 .rank = w->rank,
                                 .class = w->class,
                                 .bytes = w->state == WORKER_PLANNING ? 0 : w->planned_bytes};
    memcpy(ret->head, w->head, 16);
    if (w->state != WORKER_PLANNING)
        describe_mapped(&w->mapped, ret);
    if (w->state == WORKER_RUNNING && w->stage) {
        progress_describe(spawn_progress(w->stage), ret->doing, sizeof ret->doing);
        ret->seconds = progress_seconds(spawn_progress(w->stage));
        return;
    }
    static const char *const doing[] = {"",      "reading model and data", "opening its layers", "ready", "",
                                        "ending"};
    if (w->read_total && (w->state == WORKER_PLANNING || w->state == WORKER_OPENING))
        snprintf(ret->doing, sizeof ret->doing, "reading weights to compare them: %.1f of %.1f GiB",
                 (double)w->read_bytes / (1 << 30), (double)w->read_total / (1 << 30));
    else
        snprintf(ret->doing, sizeof ret->doing, "%s", doing[w->state]);
}
