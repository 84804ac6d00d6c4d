/* SPDX-License-Identifier: MIT
 *
 * A split as it was asked for, such as that of a plan from a file: the layers of each stage (of
 * unlike replicas, of each node) and the nodes it is meant for. Called by stage_split.c and
 * stage_unlike.c, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_GIVEN_H
#define DAEMON_STAGE_GIVEN_H

#include "daemon/stage/plan/stage_head.h"

/* Is it meant for the ring the other way round? */
bool given_is_mirrored(const struct head *h);
/* Is the ring the one that the split is meant for? −EINVAL: a sentence. */
int given_check_nodes(const struct head *h, struct err *err);
/* n numbers of the list, from `at` on, as bounds: ret_first [n + 1]. They cover the model. −EINVAL:
 * a sentence. */
int given_layers(size_t *ret_first, const struct head *h, size_t at, size_t n, struct err *err);

#endif
