/* SPDX-License-Identifier: MIT
 *
 * What the tasks of a rank work on: filled in by stage_runner.c, read and written by stage_task.c
 * and replica_task.c. Main thread of ringd-stage. */
#ifndef DAEMON_STAGE_RANK_STATE_H
#define DAEMON_STAGE_RANK_STATE_H

#include "daemon/stage/hold/hold.h"
#include "daemon/stage/message.h"
#include "daemon/stage/stage_round.h"
#include "engine/text/sample.h"

/* What passes between replicas. */
struct replica_state {
    /* On the first rank of a replica but the first: what rank 0 has of a round. */
    struct head_round round;
    double *logp; /* owned: what its microbatches' logp point into */
    void *rows;   /* owned, of the exchange: what mb points into */
    /* The part of gradients that is being joined here: owned, of the exchange. */
    float *shares[PLAN_MAX_REPLICAS]; /* by replica, its own among them once all are here */
    size_t nshares, ngiven;
    const float *sum; /* in one of them */
    /* Of the first replica's stage whose norm is due: sums of squares by replica, owned as
     * above. */
    double *squares[PLAN_MAX_REPLICAS];
};

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
    struct head_round *head;    /* rank 0, and the first rank of each other replica that trains */
    struct param_pieces pieces; /* owned: of a round that moves them */
    struct messages messages;
    double busy;                  /* seconds computed since the last NORM */
    struct replica_state replica; /* what passes between replicas */
    /* [plan->round_steps] owned: NORM and UPDATE of each step as the stage above and below left
     * them here, for the next stage if that lies here too. */
    struct norm_message *norms;
    struct scale_message *scales;
    struct bad_value *bad; /* likewise: the first value of this rank in a step that is not finite */
};

#endif
