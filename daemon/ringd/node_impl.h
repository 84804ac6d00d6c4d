/* SPDX-License-Identifier: MIT
 *
 * Inside the node: which file wires which rooms. node.c calls these in the order of opening. */
#ifndef DAEMON_NODE_IMPL_H
#define DAEMON_NODE_IMPL_H

#include "engine/err.h"

struct node;

/* node_peer.c: the rooms cluster and peer. */
void node_open_enrol(struct node *n);
void node_open_measure(struct node *n);
void node_open_relay(struct node *n);
int node_open_peers(struct node *n, struct err *err);
int node_open_cables(struct node *n, struct err *err);

#endif
