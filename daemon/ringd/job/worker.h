/* SPDX-License-Identifier: MIT
 *
 * This node's part in a job, whoever its head is: its memory, its stage process and its data
 * connections. Tells the head what happens; obeys its messages. One of workers.h; loop thread.
 *
 *   IDLE → PLANNING (head only) → OPENING → READY → RUNNING → ENDING → IDLE */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_type.h"
#include "net/link.h"

struct ballots;
struct cluster;
struct cost_query;
struct held_disk;
struct event_base;
struct loan;
struct lane_counts;
struct member_stage;
struct members;
struct opts;
struct origin;
struct peers;
struct relay;
struct spawn;
struct spawner;
struct store;
struct worker;

struct worker_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts; /* dead-after, which may change, as may */
    const int *threads;
    struct spawner *spawner;
    const struct cluster *cluster;
    struct members *members;
    struct peers *peers;
    struct relay *relay;
    struct cost_query *cost_query;
    struct ballots *ballots;
    struct store *store;
    struct held_disk *held_disk; /* NULL: no copies on the disk */
    void *owner;
    void (*stage_begins)(void *owner); /* the stage of a job is about to start here */
    void (*changed)(void *owner);      /* the lease is free again */
    /* Which files a model with a name is that is on this node, a hash; NULL: nothing is known. NULL
     * itself, as the next: there are no such models. */
    const char *(*content)(void *owner, const char *model);
    /* A stage here lacks these blocks of a model (hub/supply.h); workers_brought follows. holders:
     * NULL: this node has asked itself who has them. */
    void (*bring)(void *owner, const char *model, const json_t *blocks, const json_t *holders, bool parts);
    /* A stage that has planned asks what has to come to its nodes, and gets {"do":"travel"}; and is
     * about to be freed (hub/travel_query.h). NULL: the answer is that nothing has. */
    void (*travel)(void *owner, struct spawn *stage, const json_t *event);
    void (*forget_travel)(void *owner, const struct spawn *stage);
    /* An event of rank 0's stage here, of a job that serves; false: it is for the job's head. NULL:
     * all are. */
    bool (*served)(void *owner, uint64_t job, const char *kind, const json_t *event);
};

struct worker *worker_new(const struct worker_setup *setup);
void worker_free(struct worker *w); /* lets go of the stage, which is killed */

/* Head: a stage process that reads the inputs, of the loan those that are in it (NULL: none), and
 * answers with a plan. origin: where the job was submitted. Takes references of JSON. Reports
 * through messages, like the rest. */
void worker_plan(struct worker *w, uint64_t job, uint32_t attempt, const struct origin *origin,
                 enum job_type type, json_t *spec, json_t *nodes, struct loan *loan);

/* Messages, whose fields have been checked. Is the sender the head of the job that is named, and
 * does this node work on it, and on that attempt? */
bool worker_is_head(const struct worker *w, const uint8_t from[16], const json_t *body);
void worker_take_open(struct worker *w, const uint8_t head[16], const json_t *body); /* of any head */
/* Of such a head alone. */
void worker_take_connect(struct worker *w);
void worker_take_run(struct worker *w, const json_t *body);
void worker_take_kept(struct worker *w, const json_t *body);
void worker_take_turn(struct worker *w, const json_t *body);
void worker_take_leave(struct worker *w, const json_t *body);
void worker_take_stop(struct worker *w, const json_t *body);
/* "job-stop" of an attempt that is over here. */
void worker_stop_again(struct worker *w, const json_t *body);
/* "head-answer": another node heads a job whose attempt this node has refused. */
void worker_take_head_answer(struct worker *w, const uint8_t from[16], const json_t *body);
void worker_lanes_changed(struct worker *w); /* which end dials over a cable */

/* To the stage of a job that serves, of which this node is the head and rank 0. Takes the
 * reference. −ENOTCONN: it does not run now. */
int worker_ask(struct worker *w, json_t *message);

/* Data connections that reach our listener. */
int worker_data_hello(const struct worker *w, const struct link_hello *peer, char *why, size_t size);
void worker_data_up(struct worker *w, struct link *link, uint32_t from_rank); /* takes the link */

/* What its stage lacks of a model is on its way, of such an event ("coming"); has come, or does not
 * (why, a sentence). Others leave it alone. */
void worker_coming(struct worker *w, const char *model, const json_t *event);
void worker_brought(struct worker *w, const char *model, const char *why);

/* Copies of a step are on this node's disk, or are not: the event "kept" of its stage. */
void worker_kept(struct worker *w, const json_t *event);

/* Nodes came or went: a stage whose head is gone is stopped, and one of a job with a node that was
 * removed from the cluster at once, with all its connections. */
void worker_changed(struct worker *w);
/* What it does, for our record: of one that is not idle. */
void worker_describe(const struct worker *w, struct member_stage *ret);

bool worker_is_training(const struct worker *w); /* its stage makes steps */
bool worker_is_idle(const struct worker *w);     /* it works on no job, nor plans one */
/* It has a stage of the job that was submitted there. */
bool worker_works_on(const struct worker *w, const struct origin *of);

struct worker_totals {
    size_t running;                    /* stages that are here */
    double busy_seconds, wait_seconds; /* of all stages so far, */
    uint64_t tx_bytes, rx_bytes;       /* these too: over data connections */
    uint64_t memory_bytes;             /* of the stages that are here, */
    uint64_t planned_bytes;            /* this too */
};
void worker_add_totals(const struct worker *w, struct worker_totals *to);
void worker_add_lanes(const struct worker *w, struct lane_counts *to); /* what its connections carried */

#endif
