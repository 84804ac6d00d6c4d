/* SPDX-License-Identifier: MIT
 *
 * Ways to neighbours, as lanes and relays ask about them: which there are now, whose an address is,
 * which neighbour leads to a node; and a node's relay, told all that. Made and called by node.c,
 * worker.c and lanes.c. Loop thread. */
#ifndef DAEMON_ROUTES_H
#define DAEMON_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/peer/peers.h"
#include "net/ring.h"

struct node;
struct relay;

enum { PATHS_MAX = RING_MAX_NODES * PEERS_MAX_PATHS };
/* The ids of all paths to all neighbours. */
size_t paths_all(struct node *node, uint64_t ret[PATHS_MAX]);
/* The path at whose other end that address is ("[fe80::1%3]:1234", the port does not count); 0 =
 * none. */
uint64_t paths_at(struct node *node, const char *address);

struct relay *paths_relay_new(struct node *node);

#endif
