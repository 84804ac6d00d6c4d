/* SPDX-License-Identifier: MIT
 *
 * What is told and kept of the jobs submitted here: events for whoever listens, records and history
 * in the store, lines in the daemon's log. Loop thread. */
#ifndef DAEMON_JOB_LOG_H
#define DAEMON_JOB_LOG_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/ringd/job/job_state.h"

struct dossier_send;
struct event_log;
struct job;
struct store;

struct job_log { /* the pointers are borrowed */
    struct event_log *events;
    struct store *store;
    struct dossier_send *dossiers; /* what the store gets, another node keeps as well; may be NULL */
    /* An event of this type has come to the log of events. */
    void (*published)(void *owner, uint64_t job, const char *type);
    void *owner;
};

/* An event for listeners, and for the history if it is one that lasts. Takes the reference. */
void job_log_publish(const struct job_log *l, const struct job *job, const char *type, json_t *json);
/* For the history alone. Takes the reference. */
void job_log_remember(const struct job_log *l, const struct job *job, const char *kind, json_t *json);
void job_log_save(const struct job_log *l, const struct job *job);    /* its record */
void job_log_changed(const struct job_log *l, const struct job *job); /* saved, and sent as a "job" event */
/* A line of the job's log, and of ours. */
void job_log_note(const struct job_log *l, const struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The record of a job that was unfinished when the daemon ended, and that does not go on: it is
 * closed, so that it does not seem to run for ever. error: why; NULL: the record says it. */
void job_log_close_record(struct store *store, json_t *record, enum job_state state, const char *error);

#endif
