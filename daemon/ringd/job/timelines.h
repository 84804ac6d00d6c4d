/* SPDX-License-Identifier: MIT
 *
 * The timelines of every step of one job, for one reader who takes them while the job runs. The
 * text that waits for the reader is capped: a step that does not fit is left out and counted. Owned
 * by the job; loop thread. */
#ifndef DAEMON_TIMELINES_H
#define DAEMON_TIMELINES_H

#include <jansson.h>
#include <stdint.h>

struct http_call;
struct timelines;

struct timelines *timelines_new(void);
/* Ends the stream as it is. Before http_stop. */
void timelines_free(struct timelines *t);

/* One step. Takes the reference. It waits for the reader, also for the first one to come. */
void timelines_add(struct timelines *t, json_t *timeline);
/* The job has ended: the last event says how many steps were written, and how many are missing:
 * `dropped` and those that did not fit. */
void timelines_end(struct timelines *t, uint64_t dropped);

/* Answers the call with the stream, and frees it. −EBUSY, and the call is still the caller's: there
 * is a reader already. */
int timelines_read(struct timelines *t, struct http_call *call);

#endif
