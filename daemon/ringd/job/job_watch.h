/* SPDX-License-Identifier: MIT
 *
 * The other nodes of the job that coord runs: says in its log who is out of reach and who is back,
 * and when a node will not come back in time (absence.h). Owned by coord; loop thread. */
#ifndef DAEMON_JOB_WATCH_H
#define DAEMON_JOB_WATCH_H

#include <stddef.h>

struct job;
struct job_watch;
struct node;

struct job_watch_ops {
    void (*back)(void *owner, size_t rank);       /* it may have missed messages */
    void (*gone)(void *owner, const char *cause); /* a sentence that names it; may call job_watch_end */
};

struct job_watch *job_watch_new(struct node *node, const struct job_watch_ops *ops, void *owner);
void job_watch_free(struct job_watch *w);

void job_watch_begin(struct job_watch *w, struct job *job); /* borrowed until the end */
void job_watch_end(struct job_watch *w);
void job_watch_look(struct job_watch *w); /* nodes came or went */

#endif
