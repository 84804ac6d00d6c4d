/* SPDX-License-Identifier: MIT
 *
 * The tasks of a plan with several replicas: rows go to the first rank of each, gradients from
 * replica to replica, losses to rank 0, the clip factor from there. The first rank of a replica is
 * to its pipeline what rank 0 is to the first one. Called by stage_task.c; main thread of
 * ringd-stage. */
#ifndef DAEMON_REPLICA_TASK_H
#define DAEMON_REPLICA_TASK_H

#include "daemon/stage/task/rank_state.h"

int replica_state_init(struct rank_state *r, struct err *err);
void replica_state_done(struct rank_state *r);
/* A round with losses begins: who has no head is its own. */
void replica_state_begin(struct rank_state *r);

/* Is this rank the first of its replica, and is that the first one? */
bool replica_is_first_rank(const struct rank_state *r);

int task_rows(struct rank_state *r, const struct task *t, struct err *err);
int task_give(struct rank_state *r, const struct task *t, struct err *err);
int task_take(struct rank_state *r, const struct task *t, struct err *err);
int task_squares(struct rank_state *r, const struct task *t, struct err *err);
/* For NORM: *partial + the stage's squares, as stage_sumsq. Of all replicas where the update is
 * divided, which the first one adds up; another one sends its own and leaves *partial. */
int replica_norm(struct rank_state *r, const struct task *t, double *partial, size_t *ret_unit,
                 struct err *err);
int task_done(struct rank_state *r, const struct task *t, struct err *err);
/* Behind NORM, where it is to be said, and where there are losses alone: those of a step. */
int replica_say_losses(struct rank_state *r, const struct task *t, const struct norm_message *sum,
                       struct err *err);

#endif
