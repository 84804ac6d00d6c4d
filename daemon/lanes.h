/* SPDX-License-Identifier: MIT
 *
 * The data connections from this node's stage to the next rank's: one over every path there is to that node (a path is a cable, or a
 * configured address), dialled, dialled again when it breaks, and dialled anew when a path comes back. While there is no path, one connection
 * is made through the nodes between (relay.h), and let go when a direct one stands. Owned by the worker; loop thread. */
#ifndef DAEMON_LANES_H
#define DAEMON_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/link.h"

struct lanes;
struct node;

struct lanes_ops {
    /* A connection stands: the callee takes the link. */
    void (*up)(void *owner, struct link *link, uint64_t path);
    /* The next node refused, saying why. */
    void (*refused)(void *owner, const char *text);
    /* The connection is relayed through these nodes ("b, d"); NULL: it is direct again, and lanes_keeps the relayed one no more. */
    void (*relayed)(void *owner, const char *through);
};

struct lanes *lanes_new(struct node *node, const struct lanes_ops *ops, void *owner);
void lanes_free(struct lanes *l);

/* hello: what a data connection says of the job; to: the next rank's node. */
void lanes_start(struct lanes *l, const uint8_t to[16], const struct link_hello *hello);
void lanes_stop(struct lanes *l);
/* The stage lost the lane over `path`: dialled again while the path exists. */
void lanes_lost(struct lanes *l, uint64_t path);
/* Whether the stage should hold on to its lane over that path: not if it is relayed and a direct one has taken over. */
bool lanes_keeps(const struct lanes *l, uint64_t path);
/* Paths came or went. */
void lanes_changed(struct lanes *l);

#endif
