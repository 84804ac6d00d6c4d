/* SPDX-License-Identifier: MIT
 *
 * A stage process of the simulation: stage.c runs it, check.c looks at it. */
#ifndef TESTS_SIM_CLUSTER_STAGE_H
#define TESTS_SIM_CLUSTER_STAGE_H

#include "daemon/common/progress.h"
#include "tests/sim/cluster/sim.h"

/* Tokens that say that the job is through, or that it leaves after its last step. */
#define STAGE_END UINT64_MAX
#define STAGE_LEAVE (UINT64_MAX - 1)

enum stage_doing {
    STAGE_NEW,
    STAGE_PLANNING,
    STAGE_PLANNED,
    STAGE_OPENING,
    STAGE_READY,
    STAGE_LEFT,       /* it has stopped after a step, and */
    STAGE_LETTING_GO, /* rests */
    STAGE_IDLE,       /* it runs, and has no token */
    STAGE_COMPUTING,
    STAGE_COMMITTING, /* it asks whether its words are on the disk */
    STAGE_SAVING,
    STAGE_ENDING,
    STAGE_GONE
};
struct spawn {
    struct sim_event event; /* what it does is over */
    struct sim_event pass;  /* its token reaches the next one */
    struct spawn *next;
    struct sim_node *node;
    const struct spawn_ops *ops;
    void *owner;
    enum stage_doing doing;
    bool is_killed, generates, has_prompt, leaves;
    size_t job, rank, ranks;
    uint64_t job_id; /* as its worker has it */
    int64_t attempt;
    uint8_t head[16];
    uint64_t in, out;           /* the token that it has, that it has done with; 0: none */
    uint64_t step, steps, said; /* rank 0 */
    struct progress progress;
};

#endif
