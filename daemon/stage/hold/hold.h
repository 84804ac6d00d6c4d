/* SPDX-License-Identifier: MIT
 *
 * Copies of what a job trains, no more than one step behind: after a step each rank copies what it
 * trains into its memory file (held_memory.h) and sends it to the next rank, which takes it at the
 * end of the next step, while all compute. A rank takes before it sends its norm, and no rank
 * updates before all norms are in: so when one writes the copy of a step, every rank has that of
 * the step before, its own and its neighbour's, and whichever node is lost, one such step is whole.
 * When a job is saved, each rank also puts its newest copies onto its own disk (hold_keep.h). Main
 * thread of ringd-stage. */
#ifndef DAEMON_STAGE_HOLD_H
#define DAEMON_STAGE_HOLD_H

#include <jansson.h>

#include "daemon/common/progress.h"
#include "daemon/stage/exchange/exchange.h"
#include "daemon/stage/hold/held_memory.h"
#include "engine/model/stage.h"

enum { HOLD_FILES_MAX = 6 };

struct hold;

struct hold_setup { /* all borrowed; the descriptors stay the caller's */
    const struct job_plan *plan;
    const struct config *config;
    uint32_t rank;
    struct stage *const *stages; /* [plan->stages] those that lie here; NULL elsewhere */
    struct exchange *exchange;
    struct progress *progress;
    /* Files of the job: those that stage processes before this one left, in memory or on the disk,
     * and last the one in memory to be written. */
    const int *files;
    size_t nfiles;
    int disk; /* the file on the disk to be written; −1: there is none */
    /* The first copies are here, this rank's own and those of the rank before it. Called once. */
    void (*whole)(void *owner);
    /* Copies of a step are whole on all ranks: files of earlier processes, in memory or on the
     * disk, are not needed any more. Called once for each. */
    void (*settled)(void *owner, bool on_disk);
    /* An answer to hold_put_away: the step is on this node's disk, or is not, and `why` says why
     * not. Any thread. */
    void (*kept)(void *owner, uint64_t step, const char *why);
    void *owner;
};
int hold_new(struct hold **ret, const struct hold_setup *setup, struct err *err);
void hold_free(struct hold *h);

/* What earlier processes left here: [{"step", "units": [[first, end], …]}, …]. */
json_t *hold_report(const struct hold *h);
/* A piece of a step that is in the report. −ENODATA: it is not here; number: of the adapter's
 * pieces, with moments. */
int hold_read(const struct hold *h, uint64_t step, size_t adapter, size_t number, float *values,
              struct err *err);

/* After a round, in which the optimizer's step was `step`; the stages select another adapter. */
int hold_give(struct hold *h, uint32_t round, uint64_t step, struct err *err);
/* Before the norm of a later round is sent: nothing to do if nothing was given. */
int hold_take(struct hold *h, struct err *err);
/* On all ranks after the same round: the newest copies are put onto the disk, once they are whole.
 * Nothing is given into that turn before all have answered, unless copies are small. */
void hold_put_away(struct hold *h);
/* All ranks have answered that they have. */
void hold_settle(struct hold *h);
/* Seconds that the latest copy took this rank. */
double hold_seconds(const struct hold *h);

#endif
