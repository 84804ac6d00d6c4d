/* SPDX-License-Identifier: MIT
 *
 * What has to come to the nodes of a plan before it can begin, of a model with a name: this process
 * knows which blocks each rank's tensors touch, the daemon asks the nodes which of them are there.
 * {"ev":"travel","model","nodes","shares","sizes"}: ids by rank, by rank lists as of share_blocks,
 * and {file: bytes}; {"do":"travel","travel"} is the answer. In the stage process of rank 0, behind
 * planning; main thread. */
#ifndef DAEMON_STAGE_TRAVEL_H
#define DAEMON_STAGE_TRAVEL_H

#include <jansson.h>

#include "daemon/stage/plan/stage_head.h"

/* ret: as the plan shows it (docs/API.md); NULL: nothing has to come, or nobody knows. The caller
 * owns it. */
int stage_travel_ask(json_t **ret, const struct head *h, struct err *err);

/* What is asked. The caller owns it. */
int stage_travel_question(json_t **ret, const struct job_plan *plan, const struct config *config,
                          const json_t *nodes, struct err *err);

#endif
