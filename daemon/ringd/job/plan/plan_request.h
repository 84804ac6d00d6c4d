/* SPDX-License-Identifier: MIT
 *
 * POST /v1/plan: what a job would be, without one. A stage process of its own reads model and data
 * and answers with the plan, also while a job runs here; nothing is opened, written or remembered.
 * Loop thread. */
#ifndef DAEMON_PLAN_REQUEST_H
#define DAEMON_PLAN_REQUEST_H

#include <jansson.h>

#include "daemon/common/job_type.h"

struct http_call;
struct coord;
struct cost_query;
struct loan;
struct plan_requests;
struct spawn;
struct spawner;
struct workers;

enum plan_refusal { PLAN_REFUSED, PLAN_BUSY, PLAN_STOPPING };

struct plan_request_setup { /* the pointers are borrowed */
    struct spawner *spawner;
    struct coord *coord;
    struct cost_query *cost_query;
    const struct workers *workers;
    void *owner;
    /* As those of worker.h; NULL: there are no models with names. */
    void (*travel)(void *owner, struct spawn *stage, const json_t *event);
    void (*forget_travel)(void *owner, const struct spawn *stage);
    void (*begins)(void *owner); /* a plan is about to be made, of what this node's record says */
    /* Exactly one of these ends a question, and takes the call. */
    void (*planned)(void *owner, struct http_call *call, json_t *answer); /* takes the reference */
    void (*refused)(void *owner, struct http_call *call, enum plan_refusal kind, const char *why);
};

struct plan_requests *plan_request_new(const struct plan_request_setup *setup);
void plan_request_free(struct plan_requests *p); /* callers that wait hear that the daemon ends */

/* A job begins here: plans under way go on with what is kept of earlier timings. */
void plan_request_yield(struct plan_requests *p);

/* Answers call with the plan, or with the sentence that a job of this type and spec would end
 * with. The loan (NULL: none) is held until then. */
void plan_request_ask(struct plan_requests *p, enum job_type type, const json_t *spec, struct loan *loan,
                      struct http_call *call);

#endif
