/* SPDX-License-Identifier: MIT
 *
 * Runs one rank's part of a plan, one task at a time, and never blocks: compute and transport reach
 * it through three functions, filled by the stage process or by a test that steps many ranks in one
 * process in random order. */
#ifndef PIPE_EXEC_H
#define PIPE_EXEC_H

#include "pipe/plan.h"

struct exec_ops {
    /* Is the message here? 1 yes, 0 not yet, negative errno = it never will be. */
    int (*ready)(void *owner, const struct msg_key *key, uint32_t from);
    /* Can an output be queued? 1 yes, 0 the send queue is full, negative errno. Asked for each emit
     * before the task runs, so a queue must take up to TASK_MAX_EMITS − 1 messages beyond the point
     * where it says no. */
    int (*room)(void *owner, const struct msg_key *key, uint32_t to);
    /* Does the task: consumes its needs, queues its emits (keys as given in `task`, with the round
     * filled in). Must not wait: 0, or a negative errno other than −EAGAIN. */
    int (*run)(void *owner, const struct task *task, struct err *err);
    /* For exec_ahead alone. As `room`, but the plan's fewest credits stay free for what is not
     * ahead. */
    int (*room_ahead)(void *owner, const struct msg_key *key, uint32_t to);
    /* While a task runs: has it computed already what that one gives, or adds to? */
    bool (*is_computed)(void *owner, const struct task *task);
};

enum exec_wait { EXEC_RUNNABLE, EXEC_NEEDS, EXEC_NO_ROOM, EXEC_DONE };

struct exec {
    const struct plan *plan; /* borrowed */
    uint32_t rank, round;
    size_t next;  /* index of the next task, or of the one that runs */
    size_t ahead; /* of the tasks that may run ahead those before it are done */
    size_t at;    /* index of the task that runs, also of one ahead */
    bool is_running;
    enum exec_wait wait;     /* why the last step did nothing … */
    struct msg_key wait_key; /* … and for which message, */
    uint32_t wait_rank;      /* from or to which rank */
};

void exec_start(struct exec *e, const struct plan *plan, uint32_t rank, uint32_t round);
/* The task the next step will try, or NULL at the end. */
const struct task *exec_task(const struct exec *e);
/* Before a step, or from within `run`: runs what may run ahead of its turn, and can. Returns 0, or
 * what failed. It changes no order among these tasks, and none waits for another one: what the plan
 * promises of its list stays true. */
int exec_ahead(struct exec *e, const struct exec_ops *ops, void *owner, struct err *err);
/* 1 = a task was done, 0 = the program is finished, −EAGAIN = wait (see e->wait…), other negative =
 * failed with err. */
int exec_step(struct exec *e, const struct exec_ops *ops, void *owner, struct err *err);

#endif
