/* SPDX-License-Identifier: MIT
 *
 * What the planner has timed of a job that serves, as a plan has it ("speed", docs/API.md), made
 * into rings for serve_forecast.h: that of the plan, and others of its first node's like. PURE;
 * one thread. */
#ifndef DAEMON_SERVE_PLAN_H
#define DAEMON_SERVE_PLAN_H

#include <jansson.h>

#include "daemon/ctl/forecast/serve_forecast.h"

/* Of one kind of unit (the embedding, a layer, the head), on one node. */
struct timed_unit {
    struct rows_line rows; /* by rows; of the head, by tokens chosen */
    double position;
};

struct serve_plan {
    struct rows_limits limits; /* limits.ranks nodes */
    size_t layers, kinds, dim;
    size_t *kind;            /* owned [layers + 2]: of each unit */
    size_t *first;           /* owned [ranks + 1]: layers of each node */
    struct timed_unit *unit; /* owned [ranks, kinds] */
    double (*hop)[2];        /* owned [ranks]: to the next node, a message and each of its bytes; of one
                                node all 0 */
    double choice, text;
};

/* plan: as the API has it. −EINVAL: it is none of a job that serves, or has no costs; −ENOMEM. */
int serve_plan_read(struct serve_plan *ret, const json_t *plan, struct err *err);
void serve_plan_done(struct serve_plan *p);

/* Its ring where `nodes` are as many as it has. Else as many nodes like its first one, with cables
 * like the first; a plan of one node has none, and `hop` says what messages take. The stages are
 * the caller's, to free. −EINVAL, −ENOMEM. */
int serve_plan_ring(struct serve_ring *ret, const struct serve_plan *p, size_t nodes, const double hop[2],
                    struct err *err);

#endif
