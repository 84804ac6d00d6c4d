/* SPDX-License-Identifier: MIT
 *
 * What a job has learned of the speed of its nodes, for its next plan: a value of the job that
 * outlives an attempt. Loop thread. */
#ifndef DAEMON_SLOW_NODES_H
#define DAEMON_SLOW_NODES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/job/plan/placed_plan.h"

struct slow_nodes {
    unsigned moves; /* how often layers were moved for the sake of it */
    size_t n;
    uint8_t id[JOB_MAX_RANKS][16];
    double slowness[JOB_MAX_RANKS]; /* so many times longer than the node is otherwise planned with */
};

/* 1 of a node of which nothing is known. */
double slow_nodes_of(const struct slow_nodes *s, const uint8_t id[16]);
/* Layers are about to be moved. slowness: by rank of these nodes; of others nothing is known any
 * more. */
void slow_nodes_learn(struct slow_nodes *s, const struct job_nodes *nodes, const double *slowness);
/* Adds "slowness" to what a stage that plans is told of these nodes. */
void slow_nodes_tell(const struct slow_nodes *s, const struct job_nodes *nodes, json_t *told);

#endif
