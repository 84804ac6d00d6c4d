/* SPDX-License-Identifier: MIT
 *
 * The inside of the head's queue, shared by coord.c (what users and nodes ask of it) and
 * coord_again.c (jobs of an earlier life of the daemon, and their files). */
#ifndef DAEMON_COORD_IMPL_H
#define DAEMON_COORD_IMPL_H

#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_life.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/ringd/job/job_send.h"
#include "daemon/ringd/ledger.h"

struct lent_look;

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
    struct timer *settle;       /* owned: the first queued job has waited long enough for a ring */
    struct lent_look *look;     /* owned: files of jobs of an earlier life; NULL: there are none */
};

/* The one that has left the queue; NULL: none. */
static inline struct job *coord_active(const struct coord *c)
{
    return job_life_job(c->life);
}

/* coord.c: as coord_find, to change it. */
struct job *coord_find_job(const struct coord *c, uint64_t id);
void coord_try_start(struct coord *c); /* the first that is queued, if there is a ring for it */
/* For a spec of so many bytes, as coord_submit. */
int coord_take_room(struct coord *c, size_t bytes, struct err *err);
void coord_keep_tokens(struct coord *c, struct job *job); /* of a generation, from now on */

/* coord_again.c: what has not ended goes on by itself. No ring is looked at yet. */
void coord_restore_all(struct coord *c);
/* The job's error: it waits for its files. why: the first that is closed, or "". */
void coord_say_wanted(struct job *job, const char *why);

#endif
