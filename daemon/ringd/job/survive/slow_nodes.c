/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/slow_nodes.h"

#include <string.h>

double slow_nodes_of(const struct slow_nodes *s, const uint8_t id[16])
{
    for (size_t i = 0; i < s->n; i++)
        if (!memcmp(s->id[i], id, 16))
            return s->slowness[i];
    return 1;
}

void slow_nodes_learn(struct slow_nodes *s, const struct job_nodes *nodes, const double *slowness)
{
    s->moves++;
    s->n = nodes->n < JOB_MAX_RANKS ? nodes->n : JOB_MAX_RANKS;
    memcpy(s->id, nodes->id, s->n * sizeof *s->id);
    memcpy(s->slowness, slowness, s->n * sizeof *slowness);
}

void slow_nodes_tell(const struct slow_nodes *s, const struct job_nodes *nodes, json_t *told)
{
    for (size_t r = 0; r < nodes->n; r++)
        json_object_set_new(json_array_get(told, r), "slowness", json_real(slow_nodes_of(s, nodes->id[r])));
}
