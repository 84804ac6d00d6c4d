/* SPDX-License-Identifier: MIT
 *
 * The runner's inside, shared by stage_runner.c (rounds and transport) and stage_task.c (what each
 * task computes). */
#ifndef DAEMON_STAGE_TASK_H
#define DAEMON_STAGE_TASK_H

#include "daemon/stage/stage_runner.h"
#include "daemon/stage/stage_trace.h"

enum { RUNNER_PLANS = 8 };

/* Tensors, doubles and integers of data messages travel as they lie in memory, so a big-endian
 * build must not exist. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors travel as they lie in memory: little-endian only");
struct norm_message {
    double partial; /* Σ g² of the stages above */
    double busy;    /* seconds they computed */
};
struct scale_message {
    double gscale;
    float lr, beta1, beta2, eps, weight_decay, pad;
};

struct runner_plan {
    struct plan *plan; /* owned */
    uint32_t program;
    size_t microbatches;
    bool want_token;
    size_t steps;
    uint32_t *adapter_of_step; /* [steps] owned */
};
struct cursor { /* how far the receives of a link are posted */
    size_t task, need, posted;
};

/* Activations or a gradient between two stages of this rank: no message carries them. */
struct handed {
    uint32_t kind, stage, mb; /* enum msg_kind; destination */
    void *buffer;             /* owned: of the exchange */
};

struct runner {
    const struct job_plan *plan; /* borrowed, as the next four */
    struct stage *const *stages; /* [plan->stages], NULL where a stage lies elsewhere */
    struct stage *any;           /* one of them */
    struct exchange *exchange;
    struct progress *progress;
    struct config config;
    uint32_t rank, prev, next;
    uint32_t round;
    const struct go *go;     /* of the present round */
    struct head_round *head; /* rank 0 */
    struct exec exec;
    struct cursor cursor[2]; /* from the previous and the next rank */
    struct runner_plan plans[RUNNER_PLANS];
    size_t next_plan;
    struct sample_scratch *scratch; /* owned, last rank of a generating job */
    struct param_pieces pieces;     /* owned: of the round that saves or loads */
    struct trace trace;             /* owned: the present round, task by task */
    void (*traced)(void *owner, json_t *event);
    void (*rounded)(void *owner);
    void (*begun)(void *owner); /* NULL once it was called */
    void *owner;                /* borrowed */
    double busy;                /* seconds computed since the last NORM */
    uint32_t token;
    struct handed *handed; /* owned */
    size_t nhanded, handed_room;
    struct norm_message
        *norms; /* [plan->round_steps] owned: of the last NORM and UPDATE of each step done here, */
    struct scale_message *scales; /* for the next stage, if that lies here too; likewise */
};

size_t runner_message_size(const struct runner *r, const struct msg_key *key);
/* The message of a need, now the caller's; posts the next of that link. NULL when memory is out. */
void *runner_take(struct runner *r, const struct task_need *need);
int runner_task(struct runner *r, const struct task *task, struct err *err);

#endif
