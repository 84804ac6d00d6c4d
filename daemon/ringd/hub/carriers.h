/* SPDX-License-Identifier: MIT
 *
 * Models on their way between nodes. For each model that comes or goes there is one process of
 * ringd-fetch, which takes from some nodes and gives to others at once; here are its life and its
 * connections. Both ends know of a connection before it is made: the taker says so in a message, so
 * either can dial, as the firewalls between them want it. The bytes are in docs/PROTOCOL.md. Loop
 * thread. */
#ifndef DAEMON_CARRIERS_H
#define DAEMON_CARRIERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/ringd/hub/carry_order.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/model_route.h"

struct carriers;
struct link;
struct link_hello;
struct members;
struct peers;
struct relay;

struct carriers_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct members *members;
    struct peers *peers;
    struct relay *relay;
    struct fetchers *fetchers;
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* Which files a model is that is here, at least its outline; NULL: it is not, or nothing is
     * known. */
    const char *(*content)(void *owner, const char *model);
    void *owner;
};
struct carriers *carriers_new(const struct carriers_setup *setup);
void carriers_free(struct carriers *c);

/* Takes a model from those nodes, and gives it to others meanwhile. Of ops, room, progress and
 * over come: over with NULL once all is here that was wanted. One of that model which takes
 * already takes from these nodes from now on, and these blocks too; its ops stay. over with
 * FETCH_PASSES: the process ended, and may do better at once. */
void carriers_take(struct carriers *c, const struct carry_order *order, const struct hub_fetch_ops *ops,
                   void *owner);
/* The answer to `room`. */
void carriers_say_room(struct carriers *c, const char *model, const char *why);
/* Its owner hears nothing more; what has come stays on the disk. */
void carriers_leave(struct carriers *c, const char *model);

/* Messages, whose fields have been checked: "model-give" and "model-denied". */
void carriers_take_give(struct carriers *c, const uint8_t from[16], const json_t *body);
void carriers_take_denied(struct carriers *c, const uint8_t from[16], const json_t *body);

/* A data connection of no job: its hello (0, or −EPERM and why not), then the connection, which is
 * taken. */
int carriers_hello(struct carriers *c, const struct link_hello *peer, char *why, size_t size);
void carriers_up(struct carriers *c, struct link *link);
/* Paths came or went. */
void carriers_changed(struct carriers *c);

#endif
