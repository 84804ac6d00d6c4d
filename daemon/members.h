/* SPDX-License-Identifier: MIT
 *
 * Who there is: the link-state record of every node, flooded by all, and what follows from the records alone:
 * who is reachable, the ring, the next hop. PURE but for the time given in: no sockets, no timers, so tests
 * feed it records in any order. */
#ifndef DAEMON_MEMBERS_H
#define DAEMON_MEMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/clock.h"
#include "net/ring.h"

struct member {
    uint8_t id[16];
    char name[64], version[32];
    uint64_t boot, seq;
    unsigned cores, threads;
    uint64_t memory_total, memory_available;
    size_t nlinks;
    uint8_t links[RING_MAX_NODES][16]; /* whom it has a control connection with */
    /* what it does */
    uint64_t job;     /* 0 = nothing */
    uint8_t head[16]; /* the job's head */
    int rank;
    char doing[128];
    double seconds;
    struct instant heard;
};

struct members;

struct members *members_new(const struct member *self); /* our own record to begin with */
void members_free(struct members *m);

/* Our own record, to be changed in place; members_touch then gives it a new sequence number. */
struct member *members_self(struct members *m);
void members_touch(struct members *m);

json_t *member_encode(const struct member *who);
/* 1: news (flood it on), 0: known or older, −EBADMSG: nonsense, −ENOSPC: more nodes than a ring can hold,
 * −EEXIST: our own id from another machine (a copied identity file). */
int members_learn(struct members *m, const json_t *record, struct instant now);

size_t members_count(const struct members *m);                      /* known, reachable or not */
const struct member *members_at(const struct members *m, size_t i); /* 0 is ourselves */
const struct member *members_find(const struct members *m, const uint8_t id[16]);
bool members_reachable(const struct members *m, const uint8_t id[16]); /* over links both ends agree on */
bool members_linked(const struct members *m, const uint8_t a[16], const uint8_t b[16]); /* both say so */
/* Of the nodes out of reach one that had a connection, by its own last word, to one in reach: the others may only be behind it. */
const struct member *members_cut_off(const struct members *m);
/* Neighbour to hand a message for `id` to; NULL if there is no way. */
const struct member *members_next_hop(const struct members *m, const uint8_t id[16]);

struct members_ring {
    enum ring_shape shape;
    size_t n;
    const struct member *at[RING_MAX_NODES]; /* borrowed until the next change */
};
/* The ring of all reachable nodes as everyone computes it; with `head` turned to start there (unchanged if it
 * cannot). */
void members_ring(const struct members *m, const uint8_t *head, struct members_ring *ret);
/* One sentence about the ring: "a ring of 3: a, b, c", or what is missing. */
void members_describe(const struct members *m, char *buf, size_t n);

#endif
