/* SPDX-License-Identifier: MIT
 *
 * Who there is: the link-state record of every node, flooded by all, and what follows from the
 * records alone: who is reachable, the ring, the next hop. PURE but for the time given in: no
 * sockets, no timers, so tests feed it records in any order. members.c: the records;
 * members_ring.c: what follows. Whether a record may be believed is record.h's business. */
#ifndef DAEMON_MEMBERS_H
#define DAEMON_MEMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/conf.h"
#include "daemon/common/job_type.h"
#include "net/clock.h"
#include "net/prefix.h"
#include "net/ring.h"

enum {
    MEMBERS_SETTLE_US =
        1500000, /* a closed ring is reordered so long after the last change of what would be better */
    MEMBER_RING_TEXT = CONF_RING_BYTES,
    MEMBER_CABLES = 16, /* that are told: a record has to fit into a heartbeat */
    MEMBER_STAGES = 8,  /* that a node holds at once */
    MEMBER_RUNS = 18,   /* of units that a stage maps: more than a rank can have */
};

struct member_link { /* the control connections with one neighbour, together */
    uint8_t id[16];
    uint32_t class_mbps; /* ring_class of all cables to it; 0 = not known */
    bool shared;         /* every way there is a switch, a radio, or what leads to the rest of the world */
};
struct member_cable { /* our end of one that only two nodes share */
    char port[16];
    struct prefix six, four; /* our addresses, with the subnet's length; family 0: none */
};
struct member_stage { /* of a job, on that node */
    uint64_t job;
    uint8_t head[16]; /* the job's, which has given it that number */
    int rank;
    enum job_class class;
    uint64_t bytes; /* of memory that it was promised; 0: it has no plan yet */
    /* Of it what it maps of a model's files, which a stage of another job with the same key
     * shares. */
    uint64_t weights; /* key of mapped.h; 0: nothing that others may share */
    size_t nruns;
    struct member_run {
        uint32_t from, end; /* units, as in split.h: the first one, and the one after the last */
    } runs[MEMBER_RUNS];    /* in order */
    char doing[128];
    double seconds;
};
struct member {
    uint8_t id[16];
    char name[64], version[32];
    uint64_t boot, seq;
    unsigned cores, threads;
    char kernels[16]; /* what it computes with, as num_isa; "" = an earlier version does not say */
    uint64_t memory_total, memory_available;
    size_t nlinks;
    struct member_link links[RING_MAX_NODES];
    size_t nended;
    uint8_t ended[RING_MAX_NODES]
                 [16]; /* its neighbours whose daemon it saw end, and has had no connection with since */
    size_t ncables;
    struct member_cable cables[MEMBER_CABLES];
    char ring[MEMBER_RING_TEXT]; /* names with commas: the order its owner set with --ring; "" = none */
    char drained[96];            /* why it takes no part in jobs; "" = it does */
    uint64_t jobs;               /* how often the rows of its own jobs have changed: job_news.h */
    size_t nstages;
    struct member_stage stages[MEMBER_STAGES];
    struct instant heard; /* when its owner said it, by the ages it was passed on with */
};

struct members;

struct members *members_new(const struct member *self); /* our own record to begin with */
void members_free(struct members *m);

/* Our own record, to be changed in place; members_touch then gives it a new sequence number. */
struct member *members_self(struct members *m);
void members_touch(struct members *m);

/* Its stage of that job; NULL: it has none. */
const struct member_stage *member_stage_of(const struct member *m, const uint8_t head[16], uint64_t job);

/* Its runs, as they travel: [from, end, from, end, …], a new object. */
json_t *member_stage_units(const struct member_stage *stage);

/* Its stage of a job that trains: there is one at most. */
const struct member_stage *member_trains(const struct member *m);

/* Both tell others the same: all but the sequence number and the time, and free memory only where
 * it differs by more than 1/256 of all. */
bool member_says_the_same(const struct member *a, const struct member *b);

json_t *member_encode(const struct member *who);
int member_decode(struct member *ret, const json_t *record); /* −EBADMSG: nonsense */

/* Would members_learn take it? What is not news need not be verified. A word under our own id
 * counts as news. */
bool members_is_news(const struct members *m, const struct member *record);
/* 1: news (flood it on), 0: known or older, −EBADMSG: nonsense, −ENOSPC: more nodes than a ring can
 * hold, −EEXIST: our own id from another machine (a copied identity file). `said`: when its owner
 * said it. */
int members_learn(struct members *m, const json_t *record, struct instant said);

/* A record older than `patience` is believed no more: its node is out of reach, whatever links are
 * claimed. 0 = for ever (the beginning). members_expire looks; true: somebody went. members_due:
 * when next to look. Who looks later than that stood still, and could not hear the others: they are
 * given the time again. */
void members_set_patience(struct members *m, uint64_t patience_us);
bool members_expire(struct members *m, struct instant now);
struct instant members_due(const struct members *m);

size_t members_count(const struct members *m);                      /* known, reachable or not */
const struct member *members_at(const struct members *m, size_t i); /* 0 is ourselves */
const struct member *members_find(const struct members *m, const uint8_t id[16]);
/* By its name or the digits of its id; of several so called one that can be reached. NULL: none. */
const struct member *members_named(const struct members *m, const char *name);
bool members_reachable(const struct members *m, const uint8_t id[16]); /* over links both ends agree on */
/* A node in reach saw its daemon end: it is not merely a cable that is out. */
bool members_ended(const struct members *m, const uint8_t id[16]);
bool members_linked(const struct members *m, const uint8_t a[16], const uint8_t b[16]); /* both say so */
/* Of the nodes out of reach one that had a connection, by its own last word, to one in reach: the
 * others may only be behind it. */
const struct member *members_cut_off(const struct members *m);
/* Neighbour to hand a message for `id` to; NULL if there is no way. */
const struct member *members_next_hop(const struct members *m, const uint8_t id[16]);

struct members_ring {
    enum ring_shape shape;
    size_t n;
    const struct member *at[RING_MAX_NODES]; /* borrowed until the next change */
    uint32_t class_mbps;                     /* of the slowest hop; 0 = not known */
    size_t shared;                           /* hops over shared segments */
    bool by_hand;                            /* as somebody's --ring says */
};
/* The ring of all reachable nodes: the one that stands, else the best, as everyone computes it;
 * with `head` turned to start there (unchanged if it cannot). */
void members_ring(const struct members *m, const uint8_t *head, struct members_ring *ret);
/* To be called after changes, and when it says (UINT64_MAX: after the next change). A closed ring
 * that can go on stands: a better one takes its place MEMBERS_SETTLE_US later, and never while a
 * node of it works on a job. What cannot go on is replaced at once. */
struct instant members_settle(struct members *m, struct instant now);

struct members_gap {
    const struct member *a, *b; /* borrowed until the next change */
};
/* Connections that would close the ring, the fewest there can be; up to `cap` are written, their
 * number returned. */
size_t members_missing(const struct members *m, struct members_gap *ret, size_t cap);
/* The order set by hand, "" = none, and one sentence on what is wrong with it (or that nodes
 * disagree), "" = nothing. */
void members_override(const struct members *m, char ret_ring[MEMBER_RING_TEXT], char *trouble, size_t n);
/* One sentence about the ring: "a ring of 3: a, b, c", or what is missing. */
void members_describe(const struct members *m, char *buf, size_t n);

#endif
