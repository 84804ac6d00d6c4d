/* SPDX-License-Identifier: MIT
 *
 * The other nodes of the job that coord runs: says in its log who is out of reach and who is back,
 * and when a node will not come back in time (absence.h), or was removed from the cluster. Owned by
 * coord; loop thread. */
#ifndef DAEMON_JOB_WATCH_H
#define DAEMON_JOB_WATCH_H

#include <stddef.h>
#include <stdint.h>

struct cluster;
struct event_base;
struct job;
struct job_log;
struct job_watch;
struct members;
struct opts;

struct job_watch_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts; /* dead-after, which may change */
    const struct cluster *cluster;
    struct members *members;
    /* Why the last connection to that node ended; "" if there was none. */
    const char *(*last_words)(void *owner, const uint8_t id[16]);
    const struct job_log *log;
    void *owner;
    void (*back)(void *owner, size_t rank);       /* it may have missed messages */
    void (*gone)(void *owner, const char *cause); /* a sentence that names it; may call job_watch_end */
};

struct job_watch *job_watch_new(const struct job_watch_setup *setup);
void job_watch_free(struct job_watch *w);

void job_watch_begin(struct job_watch *w, struct job *job); /* borrowed until the end */
void job_watch_end(struct job_watch *w);
/* Its stage has done its part and ended: the node may go. */
void job_watch_release(struct job_watch *w, size_t rank);
void job_watch_look(struct job_watch *w); /* nodes came or went */

#endif
