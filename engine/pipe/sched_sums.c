/* SPDX-License-Identifier: MIT
 *
 * When gradients of several replicas are added up: behind the backwards of a schedule that was run
 * on paper. Owns nothing. Pure: any thread. */
#include <math.h>
#include <stdbool.h>

#include "pipe/sched.h"

void sched_last_backwards(double *from, double *until, const struct sched *sched, const struct sched_sim *sim)
{
    size_t at = 0;
    for (size_t r = 0; r < sched->ranks; r++)
        for (size_t k = 0; k < sched->rank[r].n; k++, at++) {
            const struct sched_task *task = &sched->rank[r].tasks[k];
            if ((task->op != OP_W && task->op != OP_B) || sim->end[at] < until[task->stage])
                continue;
            from[task->stage] = fmax(from[task->stage], sim->start[at]);
            until[task->stage] = sim->end[at];
        }
}

/* The cable is free at `free`. */
static double send_parts(double free, const struct sched_sum *sum, double from, double until)
{
    const size_t parts = sum->parts;
    for (size_t k = 1; k <= parts; k++) {
        const double ready = from + (until - from) * (double)k / (double)parts;
        free = fmax(free, ready) + sum->seconds / (double)parts;
    }
    return free;
}

/* Of the rank's stages the one whose last backward ends first behind that of `before` (SIZE_MAX: of
 * all); of two that end together the higher one comes first. SIZE_MAX: there is none. */
static size_t next_stage(const struct sched *sched, uint32_t rank, const double *until, size_t before)
{
    size_t next = SIZE_MAX;
    for (size_t s = sched->stages; s-- > 0;) {
        if (sched->rank_of_stage[s] != rank)
            continue;
        const bool is_behind =
            before == SIZE_MAX || until[s] > until[before] || (!(until[s] < until[before]) && s < before);
        if (is_behind && s != before && (next == SIZE_MAX || until[s] < until[next]))
            next = s;
    }
    return next;
}

double sched_sums_end(const struct sched *sched, const struct sched_sum *sum, const double *from,
                      const double *until)
{
    double last = 0;
    for (uint32_t r = 0; r < sched->ranks; r++) {
        double free = 0;
        for (size_t s = next_stage(sched, r, until, SIZE_MAX); s != SIZE_MAX;
             s = next_stage(sched, r, until, s))
            free = sum[s].parts ? send_parts(free, &sum[s], from[s], until[s]) : free;
        last = fmax(last, free);
    }
    return last;
}
