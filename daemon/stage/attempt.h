/* SPDX-License-Identifier: MIT
 *
 * One attempt at a job on this rank: its stages, copies, data connections and runner. What it reads
 * and maps is the process's, and stays for the next attempt. */
#ifndef DAEMON_STAGE_ATTEMPT_H
#define DAEMON_STAGE_ATTEMPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "daemon/stage/exchange/exchange.h"
#include "daemon/stage/hold/hold.h"
#include "daemon/stage/plan/stage_memory.h"
#include "daemon/stage/stage_event.h"
#include "daemon/stage/stage_runner.h"
#include "daemon/stage/task/slice_lanes.h"

struct maps;
struct num;

struct attempt {
    struct stage_events *events; /* borrowed: where it says what happens; as the next */
    struct progress *progress;
    bool is_head;
    struct job_plan plan; /* owned, as all that follows; before attempt_admit it has no ranks */
    uint32_t rank;
    int held[HOLD_FILES_MAX]; /* files for copies, the last is this process's to write */
    size_t nheld;
    int disk;                             /* likewise, on the disk; 0: there is none */
    struct stage *stages[JOB_MAX_STAGES]; /* those of this rank, */
    struct slab scratch;                  /* for whichever of them computes */
    struct exchange *exchange;
    struct slice_lanes slices; /* how those stages gather where other ranks share them */
    struct hold *hold;         /* NULL: the plan has none */
    struct runner *runner;
    struct memory_watch memory;
    const char *draft; /* borrowed: the folder or file of the head's draft model; NULL: there is none */
};

/* The daemon's message "open": takes its plan and rank, and checks them against the model and this
 * machine. ret: of the model. */
int attempt_admit(struct attempt *a, struct config *ret, const json_t *msg, struct err *err);
/* Then, once the rank's share of the model is on this node: compares it with the head's. */
int attempt_compare(struct attempt *a, const struct config *config, struct err *err);
/* Then: allocates and maps all that the plan gives this rank, and says {"ev":"ready"}. num, maps:
 * borrowed, until attempt_done. */
int attempt_open(struct attempt *a, const struct config *config, struct num *num, struct maps *maps,
                 struct err *err);
/* Of whatever there is nothing is left; the next attempt may begin. */
void attempt_done(struct attempt *a);

#endif
