/* SPDX-License-Identifier: MIT
 *
 * The answer to who submits a job. It waits until the record of the job is on the disk: what was
 * answered outlives the daemon. Loop thread. */
#ifndef DAEMON_JOB_TAKEN_H
#define DAEMON_JOB_TAKEN_H

#include <jansson.h>

struct event_base;
struct http_call;
struct store;

/* Answers the call with 201 once the store has written all that was put before. A disk that does
 * not answer within JOB_TAKEN_MS is not waited for: the job runs without it. Takes over call and
 * answer; base and store are borrowed. */
enum { JOB_TAKEN_MS = 2000 };
void job_taken_answer(struct event_base *base, struct store *store, struct http_call *call, json_t *answer);

#endif
