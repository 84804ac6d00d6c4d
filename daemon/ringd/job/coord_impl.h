/* SPDX-License-Identifier: MIT
 *
 * The coord's inside, shared by coord.c (the queue, and what users ask for), coord_revive.c (jobs of
 * an earlier life of the daemon, or of another head) and coord_moved.c (jobs that another node has
 * taken over). */
#ifndef DAEMON_COORD_IMPL_H
#define DAEMON_COORD_IMPL_H

#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/ringd/job/job_send.h"
#include "daemon/ringd/ledger.h"

struct dossier_send;
struct recall;

struct coord {
    struct coord_setup setup;
    struct job_log log;
    struct job_post post;
    struct job *jobs;           /* owned, newest first */
    struct job_life *life;      /* owned: of the one that has left the queue */
    struct timer *retry;        /* owned: a job that was refused because two heads collided waits */
    struct job_ring *ring;      /* owned: what order a job would get */
    struct ledger_queue specs;  /* bytes of all jobs' specs, */
    struct ledger_queue tokens; /* and of what is kept of their tokens */
    struct dossier_send *dossiers; /* owned */
    struct recall *recall;         /* owned */
    struct coming *coming;         /* owned: the result of a job that was taken over; NULL: none is under way */
    struct timer *settle;       /* owned: the first queued job has waited long enough for a ring */
};

/* The job that has left the queue; NULL: none has. */
struct job *coord_active(const struct coord *c);
struct job *coord_job(const struct coord *c, uint64_t id); /* NULL: it is not in memory */
/* The next one of the queue begins, if there are nodes for it. */
void coord_try_start(struct coord *c);
/* Something that jobs wait for may have come. */
void coord_look(struct coord *c);
void coord_finish(struct coord *c, struct job *job, enum job_state state);
/* Its user, or another node, says when it goes on; others may begin meanwhile. state: JOB_PAUSED or
 * JOB_MOVED. */
void coord_put_aside(struct coord *c, struct job *job, enum job_state state);
/* What it takes to go on after a loss. */
void coord_keep_tokens(struct coord *c, struct job *job);
/* Room for a spec; an error as coord_submit has it. */
int coord_take_room(struct coord *c, size_t bytes, struct err *err);

void coord_moved_free(struct coord *c);
void coord_restore_all(struct coord *c); /* what the store calls unfinished */

#endif
