/* SPDX-License-Identifier: MIT
 *
 * The worker's inside, shared by workers.c (all of them), worker.c (the stage process and the
 * head's messages), worker_head.c (whom it takes for the head), worker_absence.c (when the head or
 * others are gone), worker_copies.c (files of copies), worker_model.c (what a stage lacks of
 * its model), worker_rest.c (the stage process between two
 * attempts at a job), worker_lanes.c (its data connections) and worker_show.c (what others see of
 * it). */
#ifndef DAEMON_WORKER_IMPL_H
#define DAEMON_WORKER_IMPL_H

#include "daemon/common/model/mapped.h"
#include "daemon/common/model/model_name.h"
#include "daemon/ringd/job/deputy/origin.h"
#include "daemon/ringd/peer/absence.h"
#include "daemon/ringd/job/survive/held_files.h"
#include "daemon/ringd/job/survive/line_log.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/job/worker.h"
#include "net/ring.h"

/* From the plug to a data connection, at most: no part of the outage. */
enum { WORKER_RETURN_US = 2000000 };

enum worker_state {
    WORKER_IDLE,
    WORKER_PLANNING,
    WORKER_OPENING,
    WORKER_READY,
    WORKER_RUNNING,
    WORKER_ENDING
};

enum worker_rest {
    REST_NONE,  /* the stage works, or is to end */
    REST_ASKED, /* it is to let go of this attempt at its job, */
    REST_KEPT,  /* and has: it waits for the next, which it makes faster */
};

struct worker {
    struct worker_setup setup;
    enum worker_state state;
    uint64_t job;
    json_int_t attempt; /* at it, as its head counts */
    uint8_t head[16];
    struct origin origin; /* where it was submitted */
    uint64_t submitted;   /* and when: its number may come again after a loss */
    uint64_t changes;     /* of what it asks for, when its stage was started */
    struct head_question {
        struct origin of;
        uint8_t head[16];
    } asked;                /* the node that was taken for the head of that job, last */
    struct noting *noting;  /* that this node takes part is on its way to the disk; NULL: it is there */
    json_t *ready;          /* owned: what the stage said, until then; NULL: nothing */
    char lacks[MODEL_NAME]; /* the model that its stage waits for; "": for none */
    json_t *holders;        /* owned: who has the weights of the job's model, as its head says, or NULL */
    bool parts;             /* none of them has all */
    int rank;
    size_t ranks;
    uint8_t nodes[RING_MAX_NODES][16]; /* by rank */
    char fingerprint[33];
    uint32_t dim;
    struct spawn *stage; /* owned; of a worker that is idle, it rests */
    enum worker_rest rest;
    struct timer *rest_over; /* owned: the end of the patience with it */
    uint32_t talks;          /* to these ranks, a bit each */
    struct lanes
        *lanes[RING_MAX_NODES];      /* owned: data connections to each rank; NULL: none were made so far */
    unsigned alive[RING_MAX_NODES];  /* data connections the stage has, by rank */
    struct absence absent;           /* the head, while it is out of reach */
    struct timer *missed;            /* owned: for too long */
    json_t *reports;                 /* owned: messages to the head, sent again if it may have missed them */
    struct timer *again;             /* owned: they are, while it is ready */
    bool is_connecting;              /* it has said so */
    struct timer *patience;          /* owned: how long a broken connection may stay broken; */
    struct instant patience_due;     /* until then */
    char why_lost[400];              /* the sentence if it runs out */
    struct timer *release;           /* owned: frees the lease outside of all callbacks */
    struct worker_totals past;       /* of stages that are gone */
    struct lane_counts *counts;      /* owned: what its data connections carried */
    uint64_t planned_bytes;          /* of memory, for the stage here, and */
    struct mapped mapped;            /* owned: what of it is mapped from a model's files */
    uint64_t own_bytes;              /* of memory that is no file's, as the stage says */
    uint64_t read_bytes, read_total; /* of weights that the stage reads to compare them; 0 of 0: of none */
    struct held_files held;          /* of the job that had a stage here last */
    struct line_log lines;           /* of the same job */
    uint64_t said;                   /* the last step that the head knows of, without these */
    bool trains;                     /* the job does */
    bool has_company;                /* other jobs are at work here when it is planned: nothing is timed */
    enum job_class class;
    bool reported; /* the stage said how it ended: "done" or "failed" */
};

/* To the head, about this rank; takes over `fields`. */
void worker_tell(struct worker *w, const char *kind, json_t *fields);
/* What the head waits for, once more: it may have missed it. */
void worker_tell_again(struct worker *w);
/* goes_on: the stage may rest until its job does. Else its process ends. */
void worker_end_stage(struct worker *w, bool goes_on);
/* The patience with a data connection that is missing runs out in so long. */
void worker_wait(struct worker *w, uint64_t us);
/* To the stage; takes over `message`. */
void worker_say(struct worker *w, json_t *message);
/* r: whether the stage's socket took a message. If not, the stage is at its end. */
void worker_check_taken(struct worker *w, int r);

/* Adds what that process has used so far; NULL: nothing. */
void worker_add_stage(const struct spawn *stage, struct worker_totals *to);

enum { WORKER_AGAIN_MS = 3000 /* a rank that is ready, and hears nothing, says so again */ };

/* Who heads the job. Does the sender, as far as this node knows? ret: where it was submitted. */
void worker_origin_of(struct origin *ret, const uint8_t head[16], const json_t *body); /* of "job-open" */
bool worker_may_open(struct worker *w, const uint8_t head[16], const json_t *body, struct origin *ret,
                     char *cause, size_t size);
/* This node takes part in the attempt. Nobody takes the job over with a word that it gave before
 * (ballots.h): so no head hears that it is ready before that is on the disk. */
void worker_note_attempt(struct worker *w);
void worker_forget_noting(struct worker *w);
void worker_fail(struct worker *w, const char *cause);         /* the head hears why, the stage here ends */
void worker_hear_ready(struct worker *w, const json_t *event); /* the stage is */
/* The job is over, unless the message "job-stop" says that it goes on later. */
void worker_let_go(struct worker *w, const json_t *stop);
/* Of a job that no worker knows: files on the disk go. False: another node heads it by now, and may
 * still need its copies. */
bool worker_let_go_of_earlier(const struct worker_setup *s, const uint8_t head[16], uint64_t job);

/* To a head: this node takes no part in that attempt, and why. Leaves all leases alone. */
void worker_refuse(const struct worker_setup *s, const uint8_t head[16], const json_t *body,
                   const char *cause);
void worker_answer_stop(const struct worker_setup *s, const uint8_t head[16],
                        const json_t *body); /* its stage is gone */
void worker_no_stage(const struct worker_setup *s, const struct link_hello *peer, char *why, size_t size);

void worker_yield(const struct worker *w); /* others on this node want its processors */

/* Copies of what the job trains. A stage process gets files for them, those of earlier processes
 * first; −errno as spawn_send. */
int worker_give_files(struct worker *w);
/* The stage's events "settled" and "kept". */
void worker_settle_copies(struct worker *w, const json_t *event);
void worker_name_copies(struct worker *w, const json_t *event);
/* Its job is over: in memory and on the disk. */
void worker_drop_copies(struct worker *w);
/* That job is over: in memory. */
void worker_drop_memory(struct worker *w, const uint8_t head[16], uint64_t job);
/* Another job trains from now on: what it keeps of those before goes, but for what is on the
 * disk. */
void worker_drop_kept(struct worker *w);
/* worker_model.c. Its stage lacks blocks of a model: the event "lacks". */
void worker_hear_lacks(struct worker *w, const json_t *event);
void worker_hear_travel(struct worker *w, const json_t *event);
/* Adds to an order for the stage which files that model is. */
void worker_add_content(const struct worker *w, json_t *order, const char *model);

/* The stage process between two attempts at its job. Asks it to rest; false: it has not come so far
 * that this would be worth it. */
bool worker_rest_ask(struct worker *w);
void worker_rest_heard(struct worker *w); /* it rests */
void worker_rest_begin(struct worker *w); /* the lease is free: from here on it has so much time */
/* It begins again, of the same job. False: there is none. */
bool worker_rest_wake(struct worker *w);
/* Lets go of the stage, whatever it does; what it has used is added to what is past. */
void worker_drop_stage(struct worker *w);
void worker_rest_init(struct worker *w);

/* The patience with a head that is out of reach. */
void worker_absence_init(struct worker *w);

/* Data connections: to be made once all ranks are ready; those whose path is gone let go of. */
void worker_connect(struct worker *w);
void worker_lane_lost(struct worker *w, const json_t *event); /* as the stage says */
void worker_cut_lanes(struct worker *w);
void worker_stop_lanes(struct worker *w);
void worker_free_lanes(struct worker *w);

#endif
