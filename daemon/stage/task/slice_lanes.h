/* SPDX-License-Identifier: MIT
 *
 * How the ranks that share a stage gather an output of theirs (engine/model/slice.h): each sends
 * its columns to the others, and takes theirs. Messages are numbered from 1 on for the whole job;
 * buffers for the next ones are posted ahead, so that a small one is sent at once, by the computing
 * thread. Main thread of ringd-stage. */
#ifndef DAEMON_SLICE_LANES_H
#define DAEMON_SLICE_LANES_H

#include "daemon/common/job_plan.h"
#include "daemon/common/progress.h"
#include "daemon/stage/exchange/exchange.h"

struct slice_lanes {
    struct gather gather;        /* for the stages of this rank */
    const struct job_plan *plan; /* borrowed, as the next two */
    struct exchange *exchange;
    struct progress *progress;
    uint32_t rank;
    /* By slice: messages that were sent there, and that came from there or have a buffer. */
    uint32_t sent[SLICE_MOST], taken[SLICE_MOST], posted[SLICE_MOST];
};

/* Before the stages are opened, at a place where it stays; the exchange comes later. */
void slice_lanes_init(struct slice_lanes *ret, const struct job_plan *plan, uint32_t rank,
                      struct progress *progress);
/* Most bytes of messages that a rank of the plan holds. */
size_t slice_lanes_bytes(const struct job_plan *plan);

#endif
