/* SPDX-License-Identifier: MIT
 *
 * Whole nodes without sockets, for tests: beacons, peering and members of up to 12 nodes over
 * cables and switches with delays, losses, cuts and one-way faults. Every node has a clock of its
 * own, may be slow, and may be stopped and started. Connections are simulated as the links behave:
 * in order, held up while the way is cut, closed with or without a word, dead after 10 s of
 * silence. */
#ifndef TESTS_LIB_RING_WORLD_H
#define TESTS_LIB_RING_WORLD_H

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/peer/peering.h"
#include "net/beacon.h"

enum { RING_NODES = 12, RING_PORTS = 72, RING_WAYS = 96, RING_CABLES = 512 };

struct ring_world;
struct ring_way { /* as a daemon keeps it */
    struct way way;
    struct cable cable;
};
struct ring_node {
    struct ring_world *world;
    size_t number;
    bool is_on;
    unsigned life;     /* events of another one are void */
    uint64_t clock_us; /* its monotonic clock beside the world's */
    int64_t wall_us;   /* its wall clock beside the world's */
    uint64_t slow_us;  /* now and then it stands still, for up to so long */
    uint64_t busy_until, tick_at, settle_at, numbers;
    unsigned beats;
    struct beacons *beacons;
    struct beacons_self self;
    struct members *members;
    struct ring_way ways[RING_WAYS];
    size_t nways;
};
struct ring_port {
    size_t node, segment;
    bool plugged;    /* has carrier */
    bool deaf, mute; /* hears nothing, is not heard, and nobody is told */
    struct port port;
};
struct ring_world {
    uint64_t now_us, random, order;
    unsigned loss_percent; /* of beacons */
    uint64_t delay_us;     /* at most */
    struct beacon_key key;
    size_t nnodes, nports, nsegments, nsessions, nevents, cap;
    struct ring_node nodes[RING_NODES];
    struct ring_port ports[RING_PORTS];
    struct ring_session **sessions; /* owned, each */
    struct ring_event *events;      /* owned; a heap */
    const char *error;              /* the first thing that made no sense */
    uint64_t records, datagrams;    /* delivered */
};

struct ring_world *ring_world_new(uint64_t seed, size_t nodes);
void ring_world_free(struct ring_world *w);
uint64_t ring_world_random(struct ring_world *w, uint64_t below);

size_t ring_world_segment(struct ring_world *w);
size_t ring_world_port(struct ring_world *w, size_t node, size_t segment); /* plugged in */
void ring_world_cable(struct ring_world *w, size_t a, size_t b);
void ring_world_pull(struct ring_world *w, size_t segment); /* all its ports lose their carrier */
void ring_world_plug(struct ring_world *w, size_t segment);

enum ring_stop {
    RING_CRASH,
    RING_LEAVE,
    RING_POWER
}; /* the kernel closes what it had; with goodbyes; nobody is told */
void ring_world_stop(struct ring_world *w, size_t node, enum ring_stop how);
void ring_world_start(struct ring_world *w, size_t node);

void ring_world_run(struct ring_world *w, uint64_t us);
/* Every node that is on has a connection with exactly those it can have one with, and all that are
 * connected compute the same ring of exactly themselves. */
bool ring_world_agrees(const struct ring_world *w);
/* What each node has and what it lacks, for the message of a failure. */
void ring_world_describe(const struct ring_world *w, char *buf, size_t size);

#endif
