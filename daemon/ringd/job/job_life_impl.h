/* SPDX-License-Identifier: MIT
 *
 * The inside of a job's life, shared by job_life.c (its states, and what ranks say) and
 * job_life_again.c (interruptions: why it stops without being over, and how it goes on). */
#ifndef DAEMON_JOB_LIFE_IMPL_H
#define DAEMON_JOB_LIFE_IMPL_H

#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_commit.h"
#include "daemon/ringd/job/job_life.h"
#include "daemon/ringd/job/job_watch.h"

struct job_life {
    struct job_life_setup setup;
    struct job *job;           /* borrowed: coord's; NULL: none */
    struct timer *deadline;    /* owned: of its state */
    struct timer *again;       /* owned: the message of its state may be lost */
    struct timer *unasked;     /* owned: nobody has asked what it serves for so long */
    struct timer *settled;     /* owned: it has run for long enough to move to more nodes */
    struct job_watch *watch;   /* owned: its nodes, while they are needed */
    struct job_commit *commit; /* owned: what its stage waits for before it saves */
};

/* job_life.c: to another state; its deadline in so long. */
void life_enter(struct job_life *l, enum job_state state);
void life_limit(struct job_life *l, unsigned ms);
/* The one way out: every node is asked to stop, and the job ends when all have, or at the deadline
 * of STOPPING. */
void life_stop(struct job_life *l, enum job_state outcome, const char *cause);
void life_fail(struct job_life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* job_life_again.c. Nothing is wrong with the job itself. stage_of: the node whose stage process
 * ended, "" if a node was lost. */
void life_interrupt(struct job_life *l, const char *stage_of, const char *cause);
/* The kernel ended the stage process of that node for want of memory. Once in a job it goes on with
 * a plan that takes less. */
void life_starve(struct job_life *l, const char *stage_of, const char *cause);
/* One has ended, and nobody says why. stage_of: NULL: of the node whose stage process it was. */
void life_lose_stage(struct job_life *l, const char *stage_of);
/* Its nodes have let go of it: it waits for them, or goes on at once. */
void life_wait(struct job_life *l);
/* Of a job that is interrupted: can it go on, and if not, what does it wait for? */
void life_look_on(struct job_life *l);
/* Fewer nodes than the job had cannot hold it: it waits for the others. False: it had no more. */
bool life_was_too_few(struct job_life *l, const char *cause);
/* One that came to the job while it ran cannot hold its part: the job goes on without it. False:
 * all that it was to get have run it before. */
bool life_barred_newcomers(struct job_life *l, const char *cause);
/* Of a job that runs: should it stop after its next step, and go on elsewhere? */
void life_look_whether_to_leave(struct job_life *l);
/* The same, of one whose ranks have said how fast they are. */
void life_look_at_pace(struct job_life *l);
/* Nobody has asked what it serves for a while: it stops, and is PAUSED then. */
void life_rest(void *life);
void life_left(struct job_life *l, size_t rank, const json_t *body); /* it has, rank 0 says */
/* The job has its change from now on; why: it never will, a sentence. There is one. */
void life_tell_change(struct job_life *l, const char *why);
/* No plan with its change can be made, or opened: it goes on without, once its nodes have let go of
 * it. False: there is none that is planned. */
bool life_gave_up_change(struct job_life *l, const char *cause);
/* A conversation that has been answered, and was told that nothing more will be said. */
bool life_is_over(const struct job *job);

#endif
