/* SPDX-License-Identifier: MIT
 *
 * What a unit of a model costs on this node: a stage of that unit alone is opened and timed. What was measured is kept in the cache,
 * under the CPU, its kernels and threads, the model and what is trained. Called by stage_search.c; the stage process's main thread. */
#ifndef DAEMON_STAGE_COST_H
#define DAEMON_STAGE_COST_H

#include "engine/model/stage.h"
#include "engine/num/num.h"
#include "engine/pipe/sched.h"

/* spec: of a stage of one unit, training, one slot; its tokens and seqs are the microbatch that is timed. fingerprint: of the model; ""
 * = nothing is kept. trained: the backward reaches this unit; else i and w are 0. Seconds. */
int unit_cost(struct sched_cost *ret, struct num *num, const struct stage_spec *spec, const char *fingerprint,
              bool trained, struct err *err);

#endif
