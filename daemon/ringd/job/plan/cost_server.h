/* SPDX-License-Identifier: MIT
 *
 * What units of a model cost on this node, for plans of others: one question at a time, each by a
 * stage process of its own, and while a job works here only with what is kept of earlier timings.
 * Loop thread. */
#ifndef DAEMON_COST_SERVER_H
#define DAEMON_COST_SERVER_H

#include <jansson.h>
#include <stdint.h>

struct cost_server;
struct event_base;
struct peers;
struct spawner;
struct workers;

struct cost_server_setup { /* all borrowed */
    struct event_base *base;
    const int *threads; /* may change */
    struct spawner *spawner;
    struct peers *peers;
    const struct workers *workers;
};

struct cost_server *cost_server_new(const struct cost_server_setup *setup);
void cost_server_free(struct cost_server *g);

/* The message "cost-ask", whose fields have been checked. */
void cost_server_take_ask(struct cost_server *g, const uint8_t from[16], const json_t *body);
/* A job begins here: nothing is timed any more. */
void cost_server_yield(struct cost_server *g);

#endif
