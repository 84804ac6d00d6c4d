/* SPDX-License-Identifier: MIT
 *
 * Events of a stage process for its daemon, of every rank: one JSON object each, over the socket
 * that the daemon started it with. Any thread: events also come from those of connections. */
#ifndef DAEMON_STAGE_EVENT_H
#define DAEMON_STAGE_EVENT_H

#include <jansson.h>
#include <pthread.h>

struct stage_events {
    int sock; /* borrowed */
    pthread_mutex_t sending;
};

void stage_events_init(struct stage_events *e, int sock);
void stage_events_done(struct stage_events *e);

/* {"ev": kind, …fields}; takes the reference. A failure is not reported: the daemon is gone then,
 * and its end is this process's. */
void stage_event(struct stage_events *e, const char *kind, json_t *fields);
/* A line of the job's log: the event "log". */
void stage_say(struct stage_events *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
