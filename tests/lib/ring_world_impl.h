/* SPDX-License-Identifier: MIT
 *
 * Inside the fake network of whole nodes: shared by ring_world.c and ring_sessions.c. */
#ifndef TESTS_LIB_RING_WORLD_IMPL_H
#define TESTS_LIB_RING_WORLD_IMPL_H

#include "tests/lib/ring_world.h"

struct ring_datagram {
    struct in6_addr source;
    size_t n;
    uint8_t data[];
};

enum ring_event_kind {
    RING_DATAGRAM, /* arrives at port `at` */
    RING_TICK,     /* beacons are due */
    RING_TIMER,    /* of way `at` */
    RING_FLOW,     /* the next word of session `at` arrives at this node, end `due` */
    RING_BEAT,
    RING_SETTLE /* the members are due */
};
struct ring_event {
    uint64_t at_us, order;
    enum ring_event_kind kind;
    size_t node;
    unsigned life;
    size_t at;
    uint64_t due;
    struct ring_datagram *datagram; /* owned */
};

void ring_wrong(struct ring_world *w, const char *what);
struct instant ring_local(const struct ring_node *n);
uint64_t ring_delay(struct ring_world *w);
bool ring_passes(const struct ring_world *w, size_t from,
                 size_t to); /* between two ports, in that direction */
void ring_later(struct ring_node *n, uint64_t in_us, enum ring_event_kind kind, size_t at, uint64_t due);

/* ring_sessions.c */
extern const struct beacons_ops ring_beacons_ops;
void ring_way_fired(struct ring_node *n, size_t way, uint64_t due);
void ring_session_flow(struct ring_node *n, size_t session, uint64_t end);
void ring_settle_fired(struct ring_node *n, uint64_t due);
void ring_sessions_beat(struct ring_node *n);
void ring_sessions_stop(struct ring_node *n,
                        bool closes); /* the node is; its kernel may live on and close them */
void ring_sessions_free(struct ring_world *w);

#endif
