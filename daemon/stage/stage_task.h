/* SPDX-License-Identifier: MIT
 *
 * What each task of a plan computes on this rank. A task takes its messages (message.h), calls its
 * stage and sends what it made. Called by stage_runner.c, which decides when; main thread of
 * ringd-stage. */
#ifndef DAEMON_STAGE_TASK_H
#define DAEMON_STAGE_TASK_H

#include "daemon/stage/hold/hold.h"
#include "daemon/stage/message.h"
#include "daemon/stage/stage_round.h"
#include "engine/pipe/exec.h"
#include "engine/text/sample.h"

/* What the tasks of a rank work on. The runner fills it in: once for the job, then for each
 * round. */
struct rank_state {
    const struct job_plan *plan; /* borrowed, as the next two */
    struct stage *const *stages; /* [plan->stages], NULL where a stage lies elsewhere */
    struct stage *any;           /* one of them */
    struct config config;
    uint32_t rank;
    struct sample_scratch *scratch; /* owned, last rank of a generating job */
    struct hold *hold;              /* borrowed; NULL: no copies are kept */
    /* The present round. */
    const struct go *go;        /* borrowed, as the next two */
    const struct plan *tasks;   /* of all ranks */
    struct head_round *head;    /* rank 0 */
    struct param_pieces pieces; /* owned: of a round that moves them */
    struct messages messages;
    double busy; /* seconds computed since the last NORM */
    /* [plan->round_steps] owned: NORM and UPDATE of each step as the stage above and below left
     * them here, for the next stage if that lies here too. */
    struct norm_message *norms;
    struct scale_message *scales;
    struct bad_value *bad; /* likewise: the first value of this rank in a step that is not finite */
};

int task_run(struct rank_state *r, const struct task *task, struct err *err);

#endif
