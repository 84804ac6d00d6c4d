/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/departure.h"

#include <stdio.h>

/* So much more must be won than the last start of the job took. */
#define WORTH 2.0

bool departure_is_drained(const struct job *job, const struct members *m, char *why, size_t size)
{
    const struct job_nodes *nodes = job_nodes(job);
    for (size_t r = 0; r < nodes->n; r++) {
        const struct member *node = members_find(m, nodes->id[r]);
        if (!node || !*node->drained)
            continue;
        snprintf(why, size, "node %s is drained: %s", nodes->name[r], node->drained);
        return true;
    }
    return false;
}

/* Of what is left, one node more does its part. */
static double seconds_won(const struct job *job, size_t nodes, struct instant now)
{
    const uint64_t made = job->step > job->began_step ? job->step - job->began_step : 0,
                   left = job->steps > job->step ? job->steps - job->step : 0;
    const double took = (double)clock_since_us(now, job->began_running) / 1e6;
    return made ? took / (double)made * (double)left / (double)nodes : 0;
}

bool departure_is_worth(const struct job *job, const struct members_ring *ring, struct instant now, char *why,
                        size_t size)
{
    const struct job_nodes *offered = &job->offered;
    for (size_t i = 0; i < ring->n; i++) {
        if (job_nodes_find(offered, ring->at[i]->id) < offered->n || ring->at[i]->job)
            continue;
        if (seconds_won(job, ring->n, now) < WORTH * job->start.connected)
            return false;
        snprintf(why, size, "node %s can take part", ring->at[i]->name);
        return true;
    }
    return false;
}
