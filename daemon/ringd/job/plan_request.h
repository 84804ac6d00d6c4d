/* SPDX-License-Identifier: MIT
 *
 * POST /v1/plan: what a job would be, without one. A stage process of its own reads model and data
 * and answers with the plan, also while a job runs here; nothing is opened, written or remembered.
 * Loop thread. */
#ifndef DAEMON_PLAN_REQUEST_H
#define DAEMON_PLAN_REQUEST_H

#include <jansson.h>

struct http_call;
struct node;
struct planner;

struct planner *planner_new(struct node *node);
void planner_free(struct planner *p); /* whoever still waits is told that the daemon ends */

/* A job begins here: plans under way go on with what is kept of earlier timings. */
void planner_yield(struct planner *p);

/* Answers call with the plan, or with the sentence that a job of this type and spec would end
 * with. */
void planner_ask(struct planner *p, const char *type, const json_t *spec, struct http_call *call);

#endif
