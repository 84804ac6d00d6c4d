/* SPDX-License-Identifier: MIT
 *
 * The coord's inside, shared by coord.c (what users and nodes ask of it), coord_queue.c (the
 * queue), coord_again.c (jobs of an earlier life of the daemon, and their files), coord_deputy.c
 * (who may have a dossier), coord_moved.c (jobs that change hands) and coord_serve.c (those that
 * serve). */
#ifndef DAEMON_COORD_IMPL_H
#define DAEMON_COORD_IMPL_H

#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_life.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/ringd/job/job_send.h"
#include "daemon/ringd/ledger.h"

struct arrivals;
struct coming;
struct dossier_send;
struct lent_look;
struct offers;
struct recall;

/* This node has a stage of each. */
enum { COORD_LIVES = MEMBER_STAGES };

struct coord {
    struct coord_setup setup;
    struct job_log log;
    struct job_post post;
    struct job *jobs;                    /* owned, newest first */
    struct job_life *lives[COORD_LIVES]; /* owned, each: of those that have left the queue, or of none */
    struct timer *retry;                 /* owned: a job that was refused because two heads collided waits */
    struct job_ring *ring;               /* owned: what order a job would get */
    struct ledger_queue specs;           /* bytes of all jobs' specs, */
    struct ledger_queue tokens;          /* and of what is kept of their tokens */
    struct dossier_send *dossiers;       /* owned */
    struct recall *recall;               /* owned */
    struct offers *offers;               /* owned: adapters that go to deployments, */
    struct arrivals *arrivals;           /* owned: and those that come */
    struct timer *land_again;            /* owned: results that did not come are asked for again */
    struct coming *coming;  /* owned: the result of a job that was taken over; NULL: none is under way */
    struct timer *settle;   /* owned: the first queued job has waited long enough for a ring */
    struct lent_look *look; /* owned: files of jobs of an earlier life; NULL: there are none */
};

/* coord_queue.c: NULL: it is in the queue, aside, or over. */
struct job_life *coord_life_of(const struct coord *c, const struct job *job);
/* For a job of that type; NULL: it has to wait in the queue, and `why` is a sentence. */
struct job_life *coord_life_for(const struct coord *c, enum job_type type, char *why, size_t size);
bool coord_any_lives(const struct coord *c);           /* a job has left the queue */
struct job *coord_first_queued(const struct coord *c); /* NULL: there is none */
/* Those of the queue begin for which there are nodes; the others say what they wait for. */
void coord_try_start(struct coord *c);
/* Something that jobs wait for may have come. */
void coord_look(struct coord *c);
/* It has let go of its nodes, for another try; not saved yet. */
void coord_requeue(struct coord *c, struct job *job);
/* Models that are only kept loaded, where others lack their memory. */
void coord_give_way(struct coord *c);
void coord_on_retry(void *owner); /* of `retry`, */
void coord_on_ring(void *owner);  /* of job_ring_setup, and of job_life_setup: */
bool coord_ring_for(void *owner, struct job *job, struct members_ring *ret, char *why, size_t size);

/* coord.c: as coord_find, to change it. */
struct job *coord_find_job(const struct coord *c, uint64_t id);
void coord_finish(struct coord *c, struct job *job, enum job_state state);
/* Its user, or another node, says when it goes on; others may begin meanwhile. state: JOB_PAUSED or
 * JOB_MOVED. */
void coord_put_aside(struct coord *c, struct job *job, enum job_state state);
/* What it takes to go on after a loss. */
void coord_keep_tokens(struct coord *c, struct job *job);
/* Room for a spec; an error as coord_submit has it. */
int coord_take_room(struct coord *c, size_t bytes, struct err *err);

/* coord_serve.c: of job_life_setup. */
void coord_takes_change(void *owner, struct job *job);
void coord_drops_change(void *owner, struct job *job);
/* The deployment that a job's adapter is for (--serve-as), on whichever node. −EINVAL: there is
 * none, or there are several, and a sentence says so. ret_name: of the adapter. */
int coord_find_deployment(const struct coord *c, const struct job_spec *asked, struct coord_deployment *ret,
                          char ret_name[JOB_ADAPTER_NAME + 1], struct err *err);
/* Of a job that has trained one, up to that step: it goes there. */
void coord_offer(struct coord *c, struct job *job, uint64_t step);
/* That job has an event of this type: an adapter was saved, or a deployment may take one again. */
void coord_hear_of_adapters(struct coord *c, uint64_t job, const char *type);
void coord_hear_of_best(struct coord *c, uint64_t job, const char *type); /* coord_deputy.c */
/* A deployment ends, and reads no adapter any more. */
void coord_served_ends(struct coord *c, const struct job *job);
void coord_open_offers(struct coord *c);
void coord_close_offers(struct coord *c);

void coord_land_later(struct coord *c); /* if there are jobs whose results have to come home */
void coord_moved_free(struct coord *c);

/* coord_deputy.c: of job_life_setup. Its deputy follows it from now on, and those before are not
 * needed any more. */
void coord_runs(void *owner, struct job *job);
void coord_open_deputies(struct coord *c);
void coord_close_deputies(struct coord *c);

/* coord_again.c: what has not ended goes on by itself. No ring is looked at yet. */
void coord_restore_all(struct coord *c);
/* Takes over a job that was read from what is kept of it, here or at another head, and goes on with
 * it, or closes its record. cause: of its interruption; texts: what was kept of a generation. */
void coord_restore(struct coord *c, struct job *job, const char *cause, json_t *record, const json_t *texts);
/* The job's error: it waits for its files. why: the first that is closed, or "". */
void coord_say_wanted(struct job *job, const char *why);

#endif
