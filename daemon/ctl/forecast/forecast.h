/* SPDX-License-Identifier: MIT
 *
 * What a training step would take on a ring that need not exist: the schedules, the split of the
 * layers and the run on paper that jobs are planned with, given costs instead of a model. PURE;
 * called by ringctl simulate. */
#ifndef DAEMON_FORECAST_H
#define DAEMON_FORECAST_H

#include <stddef.h>

#include "engine/err.h"

/* When gradients leave for the other replicas: those of a unit when its last backward is over, as
 * jobs do it; those of a stage when its is; all behind the last backward of the step. */
enum forecast_overlap { FORECAST_BY_UNIT, FORECAST_BY_STAGE, FORECAST_BEHIND };

/* Who does forwards again, as docs/SCHEDULES.md has it; AUTO: stages of nodes that are short of
 * memory. */
enum forecast_recompute { FORECAST_NONE, FORECAST_LAYER, FORECAST_STAGE, FORECAST_AUTO };

struct forecast_request {
    const char *schedule; /* built in */
    size_t nodes, layers, microbatches;
    size_t chunks;   /* 0 = as many as the schedule usually has */
    size_t replicas; /* rings of that many nodes, which add up their gradients in each step */
    /* So many nodes stand in the place of each, alike: each computes its part of a layer, and gets
     * the others' outputs from them. 0, 1: one does. */
    size_t slices;
    double gathered, gathered_back; /* bytes of a layer and microbatch that are cut so, going forward and
                                       going back to its input: those of all of these nodes together */
    double gathered_weights;        /* and for W; 0 = it wants none */
    enum forecast_overlap overlap;
    double forward, input, weights; /* seconds of a layer and microbatch: F, I, W */
    double rate, latency;           /* of a link: bytes a second each way, seconds */
    double message;                 /* bytes of the activations of a microbatch between two layers */
    double kept;                    /* bytes that a layer keeps of a microbatch for its backward */
    enum forecast_recompute recompute;
    double node_memory; /* bytes that AUTO may fill on a node; 0 = as many as it takes */
    double params;      /* of all layers together */
    double param_bytes; /* held for each of them: weight, gradient, moments of the optimizer */
    double grad_bytes;  /* of each parameter that is trained, which replicas add up */
    /* 0 = all of the model is trained; else so many adapters at once on weights that stay as they
     * are, whose steps take turns. */
    size_t adapters, turns;               /* turns: steps of each in a round, or 0 = as many as a job has */
    double adapter_params, adapter_bytes; /* of each, all layers together; held for each parameter */
};
struct forecast_node {
    size_t layers, in_flight;          /* in_flight: microbatches, of all its stages */
    enum forecast_recompute recompute; /* never AUTO */
    double busy, memory;               /* seconds, bytes */
    double to_next, to_prev;           /* bytes sent in a step */
    double gathering, gathered;        /* seconds, within `busy`; bytes that come from those it shares with */
};
/* Seconds and bytes sent are those of a step; of several adapters, of a step in the mean of the
 * round. */
struct forecast {
    size_t nodes, stages, turns; /* turns: steps of each adapter in a round */
    double seconds, bubble; /* of the step with all below; bubble = share of all nodes' time without work */
    double reducing;        /* seconds after the last backward in which replicas still add up gradients */
    double updating;        /* seconds behind that in which nodes gather the gradients of all of a model */
    struct forecast_node *node; /* [nodes], owned */
};
/* −EINVAL: no such schedule, or not for these sizes; −ENOMEM. */
int forecast_make(struct forecast *ret, const struct forecast_request *req, struct err *err);
void forecast_done(struct forecast *f);

struct forecast_node forecast_most(const struct forecast *f); /* of each figure the largest of any node */

#endif
