/* SPDX-License-Identifier: MIT
 *
 * Planning, the part about replicas with unlike numbers of nodes: each is a pipeline with a split
 * of its own. Stages are cut wherever one of them is cut, so all replicas have the same stages, and
 * a node may have several. Called by stage_split.c, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_UNLIKE_H
#define DAEMON_STAGE_UNLIKE_H

#include "daemon/stage/plan/stage_head.h"

/* So many ranks each (nodes [replicas]): plan.replicas, and stages in places that let others know
 * which rank is of which replica, before any layer is shared out. */
void unlike_begin(struct job_plan *plan, const size_t *nodes, size_t replicas);
/* Layers to the nodes of each replica, as fast as can be or as the user said: plan.first, stages,
 * place and others. limits: [ranks] bytes, or NULL. −ENOSPC. */
int unlike_split(struct head *h, const size_t *limits, struct err *err);
/* The same from splits that were found: first [replicas] lists of bounds. */
void unlike_place(struct job_plan *plan, const size_t *const *first);
/* As replicas_of_job, of a --parallel that says how many nodes each replica has. */
int unlike_of_job(struct head *h, size_t *ret_ranks, struct err *err);

#endif
