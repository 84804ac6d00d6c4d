/* SPDX-License-Identifier: MIT
 *
 * Other adapters for a job that serves: what it is planned again with, while it goes on with what
 * it has. The change is the job's once a plan with it stands, and is dropped if none can be made.
 * Knows no job. Loop thread. */
#ifndef DAEMON_JOB_CHANGE_H
#define DAEMON_JOB_CHANGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "engine/err.h"

struct ledger_queue;
struct loan;

struct job_change {
    uint64_t number;           /* of the job's changes, from 1 */
    json_t *spec;              /* owned: of the job, changed */
    struct job_spec asked;     /* read from spec */
    struct loan *loan;         /* held: what clients opened for all of it; NULL: nothing */
    char why[200];             /* what it is, as the end of a sentence: "with the adapter owl" */
    bool is_planned;           /* a plan is being made with it, or stands */
    struct ledger_queue *room; /* borrowed: has `bytes` of the spec */
    size_t bytes;
};

/* What is wanted; all borrowed. */
struct job_change_request {
    uint64_t number;
    const json_t *spec;      /* of the job as it is, or as it is about to be */
    const struct loan *had;  /* of that, and */
    const struct loan *more; /* what a client opened of the adapter; each NULL: nothing */
    const char *name, *path; /* of the adapter; path NULL: the job is to be without it */
    const char *former;      /* what its folder until now is called then; NULL: it is read no more */
    /* Of a former one: does a request still want it? */
    bool (*is_wanted)(void *owner, const char *name);
    void *owner;
    struct ledger_queue *room;
};
/* −ENOENT: there is no such adapter; −EINVAL: it may not be one; −E2BIG, −ENOBUFS: there is no room
 * for the spec or the loan; each with a sentence. */
int job_change_new(struct job_change **ret, const struct job_change_request *request, struct err *err);
void job_change_free(struct job_change *c); /* NULL is accepted */

#endif
