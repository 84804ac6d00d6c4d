/* SPDX-License-Identifier: MIT
 *
 * What the store keeps of an unfinished job beside its record, so that another life of the daemon
 * goes on with it: how often it was begun, on which nodes, what interrupted it. How far it has come
 * follows from its history, so neither can be ahead of the other. Any thread. */
#ifndef DAEMON_JOB_KEEP_H
#define DAEMON_JOB_KEEP_H

#include <jansson.h>

#include "engine/err.h"

struct job;

/* {"state", "machine", "attempt", "spared", "lent", "nodes": [[id, name], …], "outcome",
 * "interruption"}: a new object, NULL for a job that has ended. lent: loan_about. */
json_t *job_keep_encode(const struct job *job);

/* The job of an entry of store_unfinished, in the state it was in; its nodes are `offered`. No
 * attempt of that life has the number of one from now on. −EBADMSG with a sentence. The caller
 * frees. */
int job_keep_read(struct job **ret, const json_t *entry, struct err *err);

#endif
