/* SPDX-License-Identifier: MIT
 *
 * The data connections between this node's stage and that of the next rank, or of the one before:
 * one over every path there is to that node (a path is a cable, or a configured address). A
 * firewall may let calls through in one direction only, so over each path the end dials that
 * dialled the control connection there. If that is not answered, the other end does from then on. A
 * connection that breaks is dialled again, and so is a path that comes back. While there is no
 * path, one connection is made through the nodes between (relay.h), and let go when a direct one
 * stands. Owned by the worker; loop thread. */
#ifndef DAEMON_LANES_H
#define DAEMON_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/link.h"

struct event_base;
struct lanes;
struct members;
struct peers;
struct relay;

struct lanes_ops {
    /* A connection to the rank stands: the callee takes the link. */
    void (*up)(void *owner, struct link *link, uint32_t rank, uint64_t path);
    /* There is none to the rank, with the reason: its node refused, or neither end answers the
     * other. */
    void (*refused)(void *owner, uint32_t rank, const char *text);
    /* The connection to the rank is relayed through these nodes ("b, d"); NULL: it is direct again,
     * and lanes_keeps the relayed one no more. */
    void (*relayed)(void *owner, uint32_t rank, const char *through);
};

struct lanes_setup { /* all borrowed */
    struct event_base *base;
    struct members *members;
    struct peers *peers;
    struct relay *relay;
    const struct lanes_ops *ops;
    void *owner;
};

struct lanes *lanes_new(const struct lanes_setup *setup);
void lanes_free(struct lanes *l);

/* hello: what a data connection says of the job; to: the node of its to_rank; relays: while there
 * is no path, this end asks for a relayed one. */
void lanes_start(struct lanes *l, const uint8_t to[16], const struct link_hello *hello, bool relays);
/* The other end has made a connection over `path`. */
void lanes_came(struct lanes *l, uint64_t path);
void lanes_stop(struct lanes *l);
/* The stage lost the lane over `path`: dialled again while the path exists. */
void lanes_lost(struct lanes *l, uint64_t path);
/* Whether the stage should hold on to its lane over that path: not if it is relayed and a direct
 * one has taken over. */
bool lanes_keeps(const struct lanes *l, uint64_t path);
/* Paths came or went. */
void lanes_changed(struct lanes *l);

#endif
