/* SPDX-License-Identifier: MIT
 *
 * From whom each node takes a model that is pushed. One that lacks it takes it from the nearest
 * node on its way to one that has it, be that a node which is taking it itself. So each byte
 * crosses each cable once, and all go away from those that have it: nobody waits for one that
 * waits for him. PURE; any thread. */
#ifndef DAEMON_PUSH_ROUTE_H
#define DAEMON_PUSH_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "net/ring.h"

enum { PUSH_SOURCES = 2 };

enum push_part {
    PUSH_PASSES, /* neither: others' connections may be relayed through it */
    PUSH_HAS,
    PUSH_TAKES
};

struct push_step {
    size_t from[PUSH_SOURCES], n; /* places; n is 0 of one that takes nothing */
};

/* joined [n * n]: whether a cable leads from one to the other; parts [n], ret [n]; n at most
 * RING_MAX_NODES. Where no cable leads to a node it takes from the first that has it. */
void push_route(const bool *joined, size_t n, const enum push_part *parts, struct push_step *ret);

#endif
