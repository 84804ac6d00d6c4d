/* SPDX-License-Identifier: MIT
 *
 * Ways to neighbours, as lanes and relays ask about them: which there are now, whose an address is,
 * which neighbour leads to a node. Called by worker.c, lanes.c and, for the relay, node_peer.c.
 * Loop thread. */
#ifndef DAEMON_ROUTES_H
#define DAEMON_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/peer/peers.h"
#include "net/ring.h"

struct members;
struct relay_hop;

enum { PATHS_MAX = RING_MAX_NODES * PEERS_MAX_PATHS };
/* The ids of all paths to all neighbours. */
size_t paths_all(const struct members *members, struct peers *peers, uint64_t ret[PATHS_MAX]);
/* The path at whose other end that address is ("[fe80::1%3]:1234", the port does not count); 0 =
 * none. */
uint64_t paths_at(const struct members *members, struct peers *peers, const char *address);

/* Whether there is such a path now. */
bool paths_has(const struct members *members, struct peers *peers, uint64_t path);
/* The neighbour that leads to the node, and a path to it. −EHOSTUNREACH. */
int paths_next_hop(const struct members *members, struct peers *peers, const uint8_t to[16],
                   struct relay_hop *ret);

#endif
