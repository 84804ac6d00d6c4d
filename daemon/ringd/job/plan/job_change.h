/* SPDX-License-Identifier: MIT
 *
 * Other adapters for a job that serves: what it is planned again with, while it goes on with what
 * it has. The change is the job's once a plan with it stands, and is dropped if none can be made.
 * Owned by the job; loop thread. */
#ifndef DAEMON_JOB_CHANGE_H
#define DAEMON_JOB_CHANGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "engine/err.h"

struct job;
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

/* The job with this adapter, or with another one of that name; path NULL: without it. loan: what a
 * client opened of it (NULL: nothing), borrowed. A change that is not planned yet has both. −EBUSY:
 * one that is planned is under way; −ENOENT: it has no such adapter; −EINVAL: it may not have it;
 * −ENOBUFS: there is no room for the spec or the loan; each with a sentence. */
int job_change_adapter(struct job *job, struct ledger_queue *room, const char *name, const char *path,
                       struct loan *loan, struct err *err);
/* The job has it from now on. */
void job_change_take(struct job *job);
/* It never will; NULL is accepted. */
void job_change_drop(struct job *job);

#endif
