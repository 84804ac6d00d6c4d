/* SPDX-License-Identifier: MIT
 *
 * What has to come to the nodes of a plan before it can begin, of models with a name: this process
 * knows which blocks each rank's tensors touch, the daemon asks the nodes which of them are there.
 * {"ev":"travel","model","nodes","shares","sizes"}: ids by rank, by rank lists as of share_blocks,
 * and {file: bytes}; "draft" has "model", "shares" and "sizes" of a draft model, which the head
 * alone reads. {"do":"travel","travel"} is the answer. With "units" instead of "shares", by unit
 * lists as of share_units, it is {"do":"travel","lacks"}: by rank and unit the bytes that are not
 * there. In the stage process of rank 0, behind
 * planning; main thread. */
#ifndef DAEMON_STAGE_TRAVEL_H
#define DAEMON_STAGE_TRAVEL_H

#include <jansson.h>

#include "daemon/stage/plan/stage_head.h"

/* A split may be slower by this part, if less has to come for it. */
static const double STAGE_TRAVEL_SLACK = 0.02;

/* ret: as the plan shows it (docs/API.md); NULL: nothing has to come, or nobody knows. The caller
 * owns it. */
int stage_travel_ask(json_t **ret, struct head *h, struct err *err);

/* Before a split, which may prefer what is there: fills in h->planning.travel_lacks, where a model
 * has a name and somebody lacks something. Nothing is said where nobody knows. */
int stage_travel_look(struct head *h, struct err *err);

/* Is the plan's model one that comes to nodes, and does the job read its weights? */
bool stage_travel_concerns(const struct job_plan *plan);
/* What is asked. heads: of the plan's model; NULL: it concerns nobody. draft: a draft model, or
 * NULL, which counts if it has a name. ret: NULL: there is nothing to ask. The caller owns it. */
int stage_travel_question(json_t **ret, const struct st *heads, const struct job_plan *plan,
                          const struct config *config, const char *draft, const json_t *nodes,
                          struct err *err);

#endif
