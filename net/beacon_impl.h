/* SPDX-License-Identifier: MIT
 *
 * Inside beacons: shared by beacon.c (sending, receiving), beacon_port.c (what a port remembers)
 * and beacon_table.c (neighbours and what they are), and by nobody else. */
#ifndef NET_BEACON_IMPL_H
#define NET_BEACON_IMPL_H

#include "beacon.h"

enum beacon_table_sizes {
    BEACON_SENT =
        128, /* own beacons remembered: more than the quickest sender sends within the longest hold time */
    BEACON_TOMBS = 64,
    BEACON_NODES = 64,
    BEACON_OLD_BOOTS = 8,
};

struct bucket { /* how far the sender has used up its rate: the time at which it would be even again */
    struct instant even;
};

struct beacon_neighbour {
    bool used;
    enum neighbour_state state;
    struct cable cable;
    uint8_t proto_min, proto_max;
    uint64_t seq, hold_us;
    struct instant first, heard; /* beacons */
    bool is_proved;
    struct instant proved; /* the last beacon that named a recent one of ours */
    bool is_leaving;       /* it said goodbye, and a connection with it is still up */
    struct bucket bucket;
};

/* The last word of a neighbour that is gone: whoever repeats it, or anything before, is not
 * heard. */
struct tomb {
    bool used;
    uint8_t node_id[16];
    uint32_t port_id;
    uint64_t boot, seq;
};

/* One record per node id that has proved to be there. A boot is random, so only order of appearance
 * tells a restart (the old one is silent from then on) from a copy (both go on). */
struct node_boots {
    bool used;
    uint8_t node_id[16];
    uint64_t boot; /* the newest */
    struct instant proved, cloned_until;
    struct {
        uint64_t boot;
        struct instant until;
    } old[BEACON_OLD_BOOTS];
    size_t nold; /* ever: the last BEACON_OLD_BOOTS are kept */
};

struct beacon_port {
    struct port port;
    uint8_t attempt;
    bool shared;
    struct instant loop_until; /* another port of ours was heard here */
    uint64_t first_seq, seq;   /* seq: of the next beacon */
    struct instant sent[BEACON_SENT];
    struct instant due, changed;
    unsigned quick; /* beacons to be sent at short intervals */
    size_t rotate;  /* where the next list of neighbours begins */
    struct bucket strangers;
    struct instant crowded; /* when a datagram was last refused for being one too many */
    struct beacon_neighbour neighbours[BEACON_NEIGHBOURS];
    struct tomb tombs[BEACON_TOMBS];
    size_t next_tomb;
};

struct beacons {
    struct beacons_self self;
    const struct beacons_ops *ops; /* borrowed */
    void *owner;                   /* borrowed */
    uint64_t random;
    struct beacon_key *key; /* owned: secret.h */
    bool has_key;
    uint64_t last_seq; /* of all ports that are gone: one that comes back goes on from there */
    struct beacon_port *ports[BEACON_PORTS]; /* owned; NULL = free */
    struct node_boots nodes[BEACON_NODES];   /* [0] is ourselves */
    struct beacons_stats stats;
    uint64_t slept_us; /* all times here are of a clock that stood still for so long: */
    struct instant seen,
        wanted; /* when somebody last called, and when that was to be again (0 = not said); of the caller's clock */
};

/* beacon.c */
/* The time by our own clock, which stands still while this process does: what nobody could hear or
 * say meanwhile is nobody's silence. */
struct instant beacons_clock(struct beacons *b, struct instant now);

/* beacon_port.c */
bool bucket_take(struct bucket *bucket, unsigned per_second, struct instant now);
void beacon_port_kick(struct beacon_port *port,
                      struct instant now); /* something to tell: soon and repeatedly */
uint64_t beacon_port_hold_us(const struct beacon_port *port);
/* When we sent that beacon; false if it was not within the hold time. */
bool beacon_port_sent(const struct beacon_port *port, uint64_t seq, struct instant now, struct instant *ret);

/* beacon_table.c */
/* A beacon or goodbye of another machine that has opened. 0, −ESTALE, −ENOSPC. */
int beacon_table_learn(struct beacons *b, struct beacon_port *port, const struct beacon *beacon,
                       const struct in6_addr *from, struct instant now);
/* All neighbours of the port looked at again: who is silent, who has changed state. */
void beacon_table_review(struct beacons *b, struct beacon_port *port, struct instant now);
void beacon_table_clear(struct beacons *b, struct beacon_port *port, struct instant now);
/* The earliest time at which beacon_table_review would change something. */
struct instant beacon_table_due(const struct beacons *b, const struct beacon_port *port);

#endif
