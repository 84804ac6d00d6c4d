/* SPDX-License-Identifier: MIT
 *
 * What units of a model cost on this node, for plans of others: one question at a time, each by a
 * stage process of its own, and while a job works here only with what is kept of earlier timings.
 * Owned by the node; loop thread. */
#ifndef DAEMON_COST_SERVER_H
#define DAEMON_COST_SERVER_H

#include <jansson.h>
#include <stdint.h>

struct gauge;
struct node;

struct gauge *gauge_new(struct node *node);
void gauge_free(struct gauge *g);

/* "cost-ask". Others are left alone. */
void gauge_message(struct gauge *g, const uint8_t from[16], const char *kind, const json_t *body);
/* A job begins here: nothing is timed any more. */
void gauge_yield(struct gauge *g);

#endif
