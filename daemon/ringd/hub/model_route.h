/* SPDX-License-Identifier: MIT
 *
 * From where each node of a ring gets a model. One that lacks it takes it from its neighbours that
 * are nearer to a node that has it, so each byte crosses each cable once, and the direction is the
 * same for all: nobody waits for one that waits for him. Where nobody has it, one node pulls it
 * from the hub, and the others wait for that one: the way outside carries each byte once, too.
 * PURE; any thread. */
#ifndef DAEMON_MODEL_ROUTE_H
#define DAEMON_MODEL_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

enum { ROUTE_SOURCES = 2 };

/* A node, by its place in the ring. */
struct route_node {
    bool has;    /* the model, whole */
    bool cannot; /* it has asked the hub in vain */
    bool joined; /* a cable leads to the next node; the last one's to the first */
};

enum route_way { ROUTE_HAS, ROUTE_TAKES, ROUTE_PULLS, ROUTE_WAITS };

struct route_step {
    enum route_way way;
    size_t from[ROUTE_SOURCES], nfrom; /* of ROUTE_TAKES: places; of ROUTE_WAITS: who pulls */
};

/* nodes [n], ret [n]; n is at least 1. */
void model_route(const struct route_node *nodes, size_t n, struct route_step *ret);

#endif
