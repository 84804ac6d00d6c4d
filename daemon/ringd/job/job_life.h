/* SPDX-License-Identifier: MIT
 *
 * A job of a head that has left the queue, from PLANNING until all its nodes have let go of it.
 * The table of job_state.h says what each state waits for and for how long; here is what happens
 * then. Owned by coord; loop thread. */
#ifndef DAEMON_JOB_LIFE_H
#define DAEMON_JOB_LIFE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/job/job_log.h"
#include "daemon/ringd/job/job_send.h"
#include "daemon/ringd/job/job_state.h"

struct event_base;
struct job;
struct cluster;
struct job_life;
struct members;
struct members_ring;
struct metrics;
struct opts;

struct job_life_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts; /* dead-after, which may change */
    const unsigned
        *limits_ms; /* [JOB_STATES] instead of the table's where not 0; NULL: all are the table's */
    const struct cluster *cluster;
    struct members *members;
    struct metrics *metrics;
    const struct job_log *log;
    const struct job_post *post;
    const char *(*last_words)(void *owner, const uint8_t id[16]); /* as in job_watch_setup */
    /* Ranks from us on, and in `why` the obstacle, as job_ring_now. */
    bool (*ring)(void *owner, struct job *job, struct members_ring *ret, char *why, size_t size);
    /* A stage of this node is to plan it; takes over the references. */
    void (*plan)(void *owner, const struct job *job, json_t *nodes);
    void (*idle)(void *owner); /* a conversation has been answered, and waits for what is said next */
    void (*takes_change)(void *owner, struct job *job); /* it has a plan with its change: job_take_change */
    void (*drops_change)(void *owner, struct job *job); /* it can have none: its change is about to go */
    void (*runs)(void *owner, struct job *job);         /* all its ranks are connected */
    /* No job is here any more: it has ended, or is to be QUEUED for another try. Not saved yet. */
    void (*over)(void *owner, struct job *job, enum job_state how);
    void *owner;
};
struct job_life *job_life_new(const struct job_life_setup *setup);
void job_life_free(struct job_life *l);

struct job *job_life_job(const struct job_life *l); /* NULL: none */

/* There is none. Its ranks are the nodes of that ring. The job is borrowed until `over`. */
void job_life_begin(struct job_life *l, struct job *job, const struct members_ring *ring);
/* There is none. That job was here in an earlier life of the daemon, or another node headed it: it
 * is INTERRUPTED now, for that cause, and goes on after job_life_changed. False: it does not, `why`
 * is the sentence. */
bool job_life_restore(struct job_life *l, struct job *job, const char *cause, char *why, size_t size);
/* There is one, which another node has taken over: it stops, and is MOVED then, with `over`. */
void job_life_move(struct job_life *l, const char *cause);
/* There is one, which is INTERRUPTED: it is the caller's again, without `over`. */
void job_life_put_back(struct job_life *l);
/* There is one. −EBUSY: it is about to end as it will. */
int job_life_cancel(struct job_life *l);
/* There is one, which stops after its next step and is PAUSED then, with `over`. −EINVAL: it does
 * not train; −EBUSY: it is about to end as it will. */
int job_life_pause(struct job_life *l);
/* There is one, whose has_asks has changed. */
void job_life_asked(struct job_life *l);
/* What is said next in the conversation that it is, which has been answered; NULL ends it. Of one
 * that was interrupted it is kept until a stage can read it. Takes the reference. */
void job_life_turn(struct job_life *l, json_t *turn);
void job_life_changed(struct job_life *l); /* nodes came or went, or a ring stands now */

/* Is that node this rank of the job? body: {"job", "attempt", "rank"}. False if there is none, or
 * another. */
bool job_life_has(const struct job_life *l, const uint8_t from[16], const json_t *body);
/* What this rank says; dropped where the state does not hear it. */
void job_life_hear(struct job_life *l, size_t rank, enum job_word word, const json_t *body);

#endif
