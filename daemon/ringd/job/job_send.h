/* SPDX-License-Identifier: MIT
 *
 * What a head sends to the nodes of its job (PROTOCOL.md §6). A node that cannot be reached hears
 * of it when it is back: coord repeats it then. Called by coord; loop thread. */
#ifndef DAEMON_JOB_SEND_H
#define DAEMON_JOB_SEND_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"

struct job;

struct job_post {
    /* Takes the reference. Not 0 as peers_send: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* As supply_holders; NULL: there are no models with a name. */
    json_t *(*holders)(void *owner, const char *model, bool *ret_parts);
    void *owner;
};

/* A message that names the job and nothing else, to one rank or to all of them. */
void job_send(const struct job_post *post, const struct job *job, size_t rank, const char *kind);
void job_send_all(const struct job_post *post, const struct job *job, const char *kind);
/* What the rank needs to open its layers. */
/* To rank 0: all ranks have answered for that step (kept.h). */
void job_send_kept(const struct job_post *post, const struct job *job);
/* To rank 0 with the copies it goes on from, if there are any. */
void job_send_run(const struct job_post *post, const struct job *job, size_t rank);
void job_send_open(const struct job_post *post, const struct job *job, size_t rank);
/* What is said next in a conversation, NULL: its end. Takes the reference. Not 0:
 * it was not sent (unsent.h). */
int job_send_turn(const struct job_post *post, const struct job *job, json_t *turn);
/* To all ranks that have not stopped, with the error of the job as the cause. */
void job_send_leave(const struct job_post *post, const struct job *job); /* to rank 0 */
void job_send_stop(const struct job_post *post, const struct job *job);
/* To the nodes that it had when it was interrupted; it is cancelled, and what they keep for it
 * goes. */
void job_send_over(const struct job_post *post, const struct job *job);
/* Ends the stage of an attempt that ended while its node was out of reach: `body` is what that
 * stage said. goes_on: the job has not ended, and the node keeps its copies. */
void job_send_away(const struct job_post *post, const uint8_t from[16], const json_t *body, bool goes_on);
/* A job waits for these nodes: one of them may be the head of a model that is only kept loaded. */
void job_send_wanted(const struct job_post *post, const struct members_ring *ring);

#endif
