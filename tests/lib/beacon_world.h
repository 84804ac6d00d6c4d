/* SPDX-License-Identifier: MIT
 *
 * Nodes with beacons, ports and segments (a cable is a segment of two), with a fake clock, delays
 * and losses, for tests. Every node's events are checked to make sense: up once, changed and down
 * only while up. */
#ifndef TESTS_LIB_BEACON_WORLD_H
#define TESTS_LIB_BEACON_WORLD_H

#include "net/beacon.h"

enum { WORLD_NODES = 16, WORLD_PORTS = 48, WORLD_CABLES = 128, WORLD_FLYING = 4096, WORLD_TAPE = 512 };

struct world_datagram {
    size_t from, to; /* ports */
    struct in6_addr source;
    uint64_t at_us;
    size_t n;
    uint8_t data[BEACON_MAX];
};

struct world_port {
    bool used;
    size_t node, segment;
    bool deaf, mute; /* hears nothing, is not heard */
    struct port port;
};

struct world_node {
    struct world *world;
    bool is_on, is_due;
    bool is_stopped; /* its process stands still: what comes waits in its sockets */
    struct beacons *beacons;
    struct beacons_self self;
    struct cable cables[WORLD_CABLES];
    size_t ncables;
    unsigned ups, downs, changes, troubles[NEIGHBOUR_CLONED + 1];
    enum cable_end last_end;
    /* a connection that is up, boot 0: none */
    uint8_t connected_id[16];
    uint64_t connected_boot;
};

struct world {
    struct instant now;
    uint64_t random;
    unsigned loss_percent;
    uint64_t delay_us; /* at most */
    struct beacon_key key;
    size_t nnodes, nports, nsegments;
    struct world_node nodes[WORLD_NODES];
    struct world_port ports[WORLD_PORTS];
    struct world_datagram *flying;
    size_t nflying;
    struct world_datagram *tape; /* the last that were delivered, for replays */
    size_t ntape;
    bool is_taping;
    uint64_t delivered, bytes;
    const char *error; /* the first thing that made no sense */
};

struct world *world_new(uint64_t seed);
struct world *world_pair(uint64_t seed); /* nodes 0 and 1, ports 0 and 1, a cable that is up */
void world_free(struct world *w);
uint64_t world_random(struct world *w);

size_t world_node(struct world *w); /* on, with an id and a boot of its own */
size_t world_segment(struct world *w);
size_t world_plug(struct world *w, size_t node, size_t segment); /* a port; its ifindex is its number + 1 */
size_t world_cable(struct world *w, size_t a,
                   size_t b); /* a new segment with two new ports: the first of them */
void world_pull(struct world *w, size_t port);
void world_kill(struct world *w, size_t node);  /* without goodbye */
void world_leave(struct world *w, size_t node); /* with */
void world_start(struct world *w, size_t node); /* with another boot */
/* Gives the port what it hears from the tape or elsewhere. */
int world_inject(struct world *w, size_t port, const struct world_datagram *d);

void world_run(struct world *w, uint64_t us);
/* Until what every node sees is what there is, looked at every 20 ms; the µs it took, or UINT64_MAX
 * after `most_us`. */
uint64_t world_run_until_true(struct world *w, uint64_t most_us);
/* The cables that all nodes on see are those that are there, with the same ids and the right
 * `shared` on both ends. */
bool world_is_true(const struct world *w);

#endif
