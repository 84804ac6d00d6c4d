/* SPDX-License-Identifier: MIT
 *
 * What is told and kept of the jobs submitted here: events for whoever listens, records and history
 * in the store, lines in the daemon's log. Loop thread. */
#ifndef DAEMON_JOB_LOG_H
#define DAEMON_JOB_LOG_H

#include <jansson.h>

struct job;
struct node;
struct store;

/* An event for listeners, and for the history if it is one that lasts. Takes the reference. */
void job_log_publish(struct node *node, const struct job *job, const char *type, json_t *json);
void job_log_remember(struct node *node, const struct job *job, const char *kind,
                      json_t *json);                         /* for the history alone */
void job_log_save(struct node *node, const struct job *job); /* its record */
/* A line of the job's log, and of ours. */
void job_log_note(struct node *node, const struct job *job, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The daemon died with jobs unfinished: they are closed with that sentence, so that none seems to
 * run for ever. */
void job_log_close_unfinished(struct store *store);

#endif
