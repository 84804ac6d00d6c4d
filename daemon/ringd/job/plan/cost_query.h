/* SPDX-License-Identifier: MIT
 *
 * What units of a model cost on the other nodes of a ring, asked on behalf of a stage process here
 * that plans. The stages are owned by worker and plan_request. Loop thread. */
#ifndef DAEMON_COST_QUERY_H
#define DAEMON_COST_QUERY_H

#include <jansson.h>
#include <stdint.h>

struct cost_query;
struct event_base;
struct members;
struct peers;
struct spawn;

struct cost_query_setup { /* all borrowed */
    struct event_base *base;
    struct members *members;
    struct peers *peers;
};

struct cost_query *cost_query_new(const struct cost_query_setup *setup);
void cost_query_free(struct cost_query *s);

/* event: the stage's {"nodes": [ids by rank, ours first], "question"}. It gets
 * {"do":"surveyed","answers"}, by rank, at the latest once the time for it is over: {"ways",
 * "costs", "why"}, each where it is known. */
void cost_query_ask(struct cost_query *s, struct spawn *stage, const json_t *event);
void cost_query_forget(struct cost_query *s, const struct spawn *stage); /* the stage is about to be freed */

/* The messages "cost-heard" and "cost-told", whose fields have been checked. */
void cost_query_take_heard(struct cost_query *s, const uint8_t from[16], const json_t *body);
void cost_query_take_told(struct cost_query *s, const uint8_t from[16], const json_t *body);
/* Nodes came or went: whoever is out of reach is not waited for. */
void cost_query_changed(struct cost_query *s);

#endif
