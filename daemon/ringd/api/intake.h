/* SPDX-License-Identifier: MIT
 *
 * Jobs at the door: are the files there that a job names, and can the daemon read and write what it
 * must? A wrong path is refused before there is a job. Paths are looked at on a thread of their
 * own: a network share that hangs must not hold up the loop. Called by api_jobs.c. Loop thread. */
#ifndef DAEMON_INTAKE_H
#define DAEMON_INTAKE_H

#include <jansson.h>
#include <stdint.h>
#include <stdbool.h>

#include "daemon/common/job_type.h"

struct coord;
struct event_base;
struct http_call;
struct intake;
struct ledger;
struct loan;
struct mailbox;
struct plan_requests;
struct store;

struct intake_setup {
    /* all borrowed */
    struct event_base *base;
    struct mailbox *mailbox;
    const char *state_dir;
    struct coord *coord;
    struct plan_requests *plan_request;
    struct store *store;
    struct ledger *ledger; /* may be NULL */
};
struct intake *intake_new(const struct intake_setup *setup);
void intake_free(struct intake *in); /* nobody waits for an answer any more */

struct intake_request {
    enum job_type type;
    const json_t *spec; /* borrowed */
    /* Borrowed: what the one who asks sees where the result is to go, the folder or the one it
     * would lie in: {"path", "dev", "ino"}. If the daemon sees another folder there, or cannot
     * write it, the result stays with the daemon, to be fetched. NULL or null: the one who asks
     * fetches nothing, so the job is refused then. */
    const json_t *seen;
    struct loan *loan; /* borrowed: what the one who asks opened for the job; NULL: nothing */
    bool is_plan;      /* POST /v1/plan: there is no job afterwards */
    /* NULL; or the spec has only "adapters", of a job that is there. The function answers the call;
     * one that the daemon has kept for its user has its folder there. All borrowed. */
    void (*adapters)(void *owner, struct http_call *call, uint64_t job, const json_t *adapters,
                     struct loan *loan);
    void *owner;
    uint64_t job;
};
/* Looks at the paths, submits the job or has it planned, and answers the call. */
void intake_take(struct intake *in, const struct intake_request *req, struct http_call *call);

#endif
