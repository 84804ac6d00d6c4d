/* SPDX-License-Identifier: MIT
 *
 * Planning, the part about CPUs that round in unlike ways. A pipeline may have any of them: what
 * each rank computes is its own. Ranks that hold the same values and update them by themselves must
 * come to the same bits, or their copies of the values drift apart. Called by head_split and those
 * below it, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_ALIKE_H
#define DAEMON_STAGE_ALIKE_H

#include "daemon/stage/plan/stage_head.h"

/* Places of nodes that can have no part in so many replicas of the pipeline, or slices of a stage,
 * a bit each. Replicas get the same sums of gradients, and need the same updates alone; with PiSSA
 * each works out the principal part of its weights as well. Slices that train also make the
 * gradients of factors, each for itself. Slices that do not train each hold rows of their own, and
 * with --zero 1 a value is updated in one place: all nodes can. */
uint32_t alike_left_out(const struct head *h, size_t copies);
/* The same of any number of nodes that are to share each stage of a job that trains. */
uint32_t alike_left_out_of_slices(const struct head *h);
/* How many nodes are left. */
size_t alike_nodes(const struct head *h, size_t copies);
/* Appends to a refusal for too few nodes which of them round otherwise and what helps, if any do.
 * Returns `code`. */
int alike_explain(const struct head *h, size_t copies, int code, struct err *err);

/* Once the nodes of the plan are known: says whether their CPUs round in unlike ways, and whether a
 * run that is resumed began on others. Keeps for its record what they compute with. */
void alike_note(struct head *h);

#endif
