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
    /* Of a stage with this unit alone and one slot. Its tokens and seqs are the microbatch that is
     * timed. */
    struct stage_spec spec;
    size_t at;    /* generation, serving: how many positions the cache holds before it, of each sequence */
    bool trained; /* the backward reaches this unit; otherwise ret->i and ret->w are 0 */
};

/* Measures the unit's tasks in seconds. For a generation, ret->r is the first forward after the
 * weights were mapped. With a pool of blocks (kv_blocks), it is timed as serving runs it: seqs
 * sequences with equal parts of the tokens, and the head's scores of the last token of each. If the
 * control group limits the CPUs, ret is what the task takes on average when it runs again and
 * again.
 * fingerprint: the model's; with "" no result is written to the cache or read from it.
 * may_time: if false, only the cache is read; without a result there it returns −EBUSY. */
int unit_cost(struct sched_cost *ret, struct num *num, const struct unit_trial *want, const char *fingerprint,
              bool may_time, struct err *err);

#endif
