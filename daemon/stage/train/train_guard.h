/* SPDX-License-Identifier: MIT
 *
 * What a training run decides from its numbers: a step whose loss or gradient is not finite is not
 * applied (--on-nan), and a run whose evaluations get no better ends (--early-stop). All of it
 * follows from losses and norms, which have the same bits on every ring, and goes into the state.
 * PURE but for log lines. Main thread of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_GUARD_H
#define DAEMON_STAGE_TRAIN_GUARD_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_round.h"

/* Of an adapter. */
struct guard_of {
    uint64_t done;    /* its last step: applied, or left out */
    uint64_t skipped; /* of these, how many were left out */
    uint64_t stopped; /* the step that could not be applied, with --on-nan stop; 0: none */
    /* With --early-stop. */
    bool has_best;
    double best; /* the least loss of an evaluation, */
    uint64_t best_step;
    size_t worse;       /* and how many evaluations came after it */
    uint64_t evaluated; /* the step after which the last one was */
};

struct train_guard {
    const struct head *head; /* borrowed */
    struct guard_of of[JOB_MAX_ADAPTERS];
};

/* What became of a step. */
enum guard_verdict { GUARD_APPLY, GUARD_SKIP, GUARD_STOP };

/* Begins where the states end that the adapters go on from. Of copies in memory, which are values
 * alone, the daemon kept what was said (guard_encode): in the spec, under "said". */
void guard_init(struct train_guard *g, const struct head *h);
/* A step is known by its loss and its norm, and not applied yet. After a stop, all later steps of
 * the adapter are to be stopped as well: they were under way. */
enum guard_verdict guard_step(struct train_guard *g, size_t adapter, uint64_t step, double loss, double norm);
/* Which update of the adapter's moments the step `done` is, from 1. */
uint64_t guard_updates(const struct train_guard *g, size_t adapter);

/* "the loss of step 3 is not finite, first in the output of layer 2, on rank 1, with lines 4, 9 of
 * DATA". lines: numbers, of the microbatch that `bad` names or else of the whole step. */
void guard_tell(char *text, size_t size, const struct train_guard *g, size_t adapter, uint64_t step,
                double loss, const struct bad_value *bad, const json_t *lines);

/* After an evaluation, which counts once; true: the loss is the least so far. */
bool guard_evaluated(struct train_guard *g, size_t adapter, uint64_t step, double loss);
/* The adapter makes no further step: it has made all, or its evaluations got no better. */
bool guard_is_over(const struct train_guard *g, size_t adapter);
bool guard_is_early(const struct train_guard *g, size_t adapter);

/* Whether a run could decide otherwise without what it decided before. */
bool guard_is_needed(const struct train_guard *g);
/* For the record of the state (a new object; NULL without memory). */
json_t *guard_encode(const struct train_guard *g, size_t adapter);

#endif
