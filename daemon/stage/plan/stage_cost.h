/* SPDX-License-Identifier: MIT
 *
 * What a unit of a model costs on this node: a stage of that unit alone is opened and timed. What
 * was measured is kept in the cache, under the CPU, its kernels, threads and quota, the model and
 * what is trained. Called by stage_units.c; the stage process's main thread. */
#ifndef DAEMON_STAGE_COST_H
#define DAEMON_STAGE_COST_H

#include "engine/model/stage.h"
#include "engine/num/num.h"
#include "engine/pipe/sched.h"

struct unit_trial {
    struct stage_spec
        spec;  /* of a stage of one unit and one slot; its tokens and seqs are the microbatch that is timed */
    size_t at; /* of a generation: positions behind it */
    bool trained; /* the backward reaches this unit; else i and w are 0 */
};

/* Seconds, of a generation in r those of the first forward after the weights were mapped; where the
 * control group has a quota of the CPUs, as long as it takes again and again. fingerprint: of the
 * model; "" = nothing is kept. may_time: else only what is kept is told, and −EBUSY if nothing
 * is. */
int unit_cost(struct sched_cost *ret, struct num *num, const struct unit_trial *want, const char *fingerprint,
              bool may_time, struct err *err);

#endif
