/* SPDX-License-Identifier: MIT
 *
 * A training job's stage asks, before it saves, whether what it has said is on this node's disk.
 * So a head that is started again finds the curve up to the step that was saved, whatever ended
 * it. One question waits for the store at a time; a later one is answered after it. Loop thread. */
#ifndef DAEMON_JOB_COMMIT_H
#define DAEMON_JOB_COMMIT_H

#include <stdint.h>

#include "daemon/ringd/job/job_send.h"

struct job;
struct job_commit;
struct store;

struct job_commit *job_commit_new(struct store *store, const struct job_post *post); /* both borrowed */
void job_commit_free(struct job_commit *c); /* the store may still have a question: it is not answered */

/* Rank 0 of that job, which is running, gets {"committed": number} once the store has written all
 * that it was given before. */
void job_commit_ask(struct job_commit *c, const struct job *job, int64_t number);
/* No attempt runs any more: what was asked is not answered. */
void job_commit_forget(struct job_commit *c);

#endif
