/* SPDX-License-Identifier: MIT
 *
 * The jobs submitted to this node: it is their head. Queues them by class, and lets each live
 * (job_life.h) as soon as there is a ring for it and memory; keeps those that have ended. Loop
 * thread. */
#ifndef DAEMON_COORD_H
#define DAEMON_COORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_type.h"
#include "daemon/ringd/job/job_state.h"
#include "engine/err.h"

struct aside;
struct cluster;
struct coord;
struct event_base;
struct event_log;
struct file_set;
struct ledger;
struct job;
struct job_head;
struct loan;
struct loan_store;
struct members;
struct members_ring;
struct metrics;
struct opts;
struct origin;
struct parts;
struct store;

/* A job that serves, and the node that is its head. */
struct coord_deployment {
    uint8_t node[16];
    uint64_t job; /* its number there */
};

struct coord_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts;              /* dead-after, which may change */
    struct {                              /* 0: the usual */
        unsigned of_state_ms[JOB_STATES]; /* job_state.c */
        unsigned settle_ms;               /* how long a job waits for a ring to form: 30 s */
        unsigned look_ms;                 /* how long files may take to open: lent_look.h */
        unsigned retry_ms;                /* between the turns of heads that collided: 0.3 s */
    } limits;
    const char *state_dir;
    const struct cluster *cluster;
    struct members *members;
    struct store *store;
    struct metrics *metrics;
    struct event_log *events;
    struct ledger *ledger; /* may be NULL */
    struct aside *aside;
    struct loan_store *loan_store; /* may be NULL */
    void *owner;
    /* To a member, perhaps this node. Takes the reference. Not 0 as peers_send: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* Why the last connection to that node ended; "" if there was none. */
    const char *(*last_words)(void *owner, const uint8_t id[16]);
    /* A stage of this node is to plan the job; takes the references, but for the loan's. */
    void (*plan)(void *owner, uint64_t job, uint32_t attempt, const struct origin *origin, enum job_type type,
                 json_t *spec, json_t *nodes, struct loan *loan);
    /* As job_ring_setup has it; may be NULL. */
    bool (*has_model)(void *owner, const char *model, const struct members_ring *ring, char *why,
                      size_t size);
    /* As job_post has it; may be NULL. */
    json_t *(*holders)(void *owner, const char *model, bool *ret_parts);
    void (*begins)(void *owner); /* a job is about to get its nodes, by what this node's record says */
    /* Deployments whose heads are other nodes, of that name or, where it is NULL, of that model:
     * how many, and the first of them. May be NULL: none. */
    size_t (*deployments)(void *owner, const char *name, const char *model, struct coord_deployment *ret);
    /* Does a request of that job want this adapter? And those that want `name` want `former` from
     * now on. May be NULL: nobody asks. */
    bool (*is_wanted)(void *owner, uint64_t job, const char *name);
    void (*replaced)(void *owner, uint64_t job, const char *name, const char *former);
    /* A job has an event of this type. */
    void (*published)(void *owner, uint64_t job, const char *type);
};

/* Jobs that the store calls unfinished go on once a ring stands, as after any other interruption:
 * those that train and may, and those that were queued. The others are closed, saying why. One
 * whose files are closed to the daemon waits in the queue for coord_lend, and lets others go
 * first. */
struct coord *coord_new(const struct coord_setup *setup);
void coord_free(struct coord *c);
/* Nobody reads the steps of its jobs any more. Before http_stop. */
void coord_end_streams(struct coord *c);

/* Takes the spec's reference, and holds the loan (NULL: none) until the job ends. −EINVAL with a
 * sentence for a spec that cannot be read, and for what is asked of POST /v1/plan. Specs in memory
 * have a cap in bytes (the queue "job_specs"): to make room, ended jobs go from memory; −EMSGSIZE:
 * this one alone is too much, −ENOBUFS: with those that wait. */
int coord_submit(struct coord *c, enum job_type type, json_t *spec, struct loan *loan, uint64_t *ret_id,
                 struct err *err);
/* The files of a job that lost them with an earlier life of the daemon, which holds the loan until
 * it ends. −ENOENT unknown, −EALREADY it misses none, −EINVAL with a sentence: these are others. */
int coord_lend(struct coord *c, uint64_t id, struct loan *loan, struct err *err);
int coord_cancel(struct coord *c,
                 uint64_t id); /* −ENOENT unknown, −EALREADY ended, −EBUSY is about to end as it will */

/* A job that trains stops after its next step, or does not begin, until coord_continue. −ENOENT
 * unknown, −EALREADY ended or paused, −EINVAL it does not train, −EBUSY is about to end as it
 * will. */
int coord_pause(struct coord *c, uint64_t id);
/* A job that was paused waits in the queue again; one that waits to ask other nodes whether they
 * have taken it over goes on without. −ENOENT unknown, −EALREADY it does neither. */
int coord_continue(struct coord *c, uint64_t id);

/* Somebody waits for an answer of this job that serves, or nobody does any more. One that has let
 * its memory go begins again. */
void coord_asked(struct coord *c, uint64_t id, bool has_asks);
/* It begins again if it has let its memory go: somebody is about to ask. */
void coord_wake(struct coord *c, uint64_t id);

/* What is said next in a conversation that has been answered; NULL ends it. Takes the reference.
 * −ENOENT unknown, −EALREADY ended, −EBUSY it is answering, or no conversation. */
int coord_turn(struct coord *c, uint64_t id, json_t *turn);

/* A job that serves is planned again at once, with an adapter more, or another one of that name;
 * path NULL: without it. What comes of it is its event "adapters", which has this number. loan:
 * what a client opened of the adapter, NULL: nothing; held. −ENOENT unknown; −EALREADY it serves
 * nothing, −EBUSY it waits, or is being planned again, −EINVAL it may not have that adapter or does
 * not have it, −E2BIG and −ENOBUFS as job_change_new: each with a sentence. */
int coord_change_adapter(struct coord *c, uint64_t id, const char *name, const char *path, struct loan *loan,
                         uint64_t *ret_number, struct err *err);

/* Adapters of trainings, on their way to deployments here and elsewhere (offers/). */
struct file_set *coord_offered_files(const struct coord *c, const uint8_t to[16], uint64_t number);
void coord_take_offered(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body);
void coord_take_offer_answer(struct coord *c, const uint8_t from[16], const json_t *body);

/* Messages, whose fields have been checked. Is the sender the rank of the job that it names? */
bool coord_is_rank(const struct coord *c, const uint8_t from[16], const json_t *body);
void coord_take_word(struct coord *c, enum job_word word, const json_t *body); /* of such a rank */
/* "job-ready" and "job-connected" of a job that is over: asks that stage to end. */
void coord_send_away(struct coord *c, const uint8_t from[16], const json_t *body);
void coord_take_wanted(struct coord *c); /* another head needs nodes: "job-wanted" */
void coord_changed(struct coord *c);     /* nodes came or went */

/* Of dossiers (deputy/): messages, and what that node may fetch for its dossier of the job. */
void coord_take_noted(struct coord *c, const uint8_t from[16], const json_t *body);
void coord_take_held(struct coord *c, const uint8_t from[16], const json_t *body);
struct file_set *coord_files(struct coord *c, const uint8_t to[16], uint64_t job);
/* "head-ask": a node is to take part in a job that another one heads. */
void coord_take_head_ask(struct coord *c, const uint8_t from[16], const json_t *body);
/* "job-adopted": a node has taken over a job of this one. It is no longer this one's, and its
 * result is fetched from there when it ends; parts: with what. */
void coord_take_adopted(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body);

/* A job that this node kept a dossier of is its own from now on. entry: of store_get_unfinished;
 * its inputs are in the loan (NULL: it has none); all borrowed. from: it was that one's. −EBADMSG
 * with a sentence: it cannot be read. Whether it goes on, its record says. */
int coord_take_over(struct coord *c, const json_t *entry, struct loan *loan, const struct job_head *from,
                    struct err *err);

const struct job *coord_find(const struct coord *c,
                             uint64_t id);            /* kept in memory: unfinished ones and the last ended */
const struct job *coord_first(const struct coord *c); /* newest first, through ->next */

/* The nodes a job would get now, ranks from us on, busy or not; false: none, and `why` is a
 * sentence. */
bool coord_ring(struct coord *c, struct members_ring *ret, char *why, size_t size);

#endif
