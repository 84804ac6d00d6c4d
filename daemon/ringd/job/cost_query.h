/* SPDX-License-Identifier: MIT
 *
 * What units of a model cost on the other nodes of a ring, asked on behalf of a stage process here
 * that plans. Owned by the node; its stages by the worker and the planner. Loop thread. */
#ifndef DAEMON_COST_QUERY_H
#define DAEMON_COST_QUERY_H

#include <jansson.h>
#include <stdint.h>

struct node;
struct spawn;
struct survey;

struct survey *survey_new(struct node *node);
void survey_free(struct survey *s);

/* event: the stage's {"nodes": [ids by rank, ours first], "question"}. It gets
 * {"do":"surveyed","answers"}, by rank, at the latest once the time for it is over: {"ways",
 * "costs", "why"}, each where it is known. */
void survey_ask(struct survey *s, struct spawn *stage, const json_t *event);
void survey_forget(struct survey *s, const struct spawn *stage); /* the stage is about to be freed */

/* "cost-heard", "cost-told". Others are left alone. */
void survey_message(struct survey *s, const uint8_t from[16], const char *kind, const json_t *body);
/* Nodes came or went: whoever is out of reach is not waited for. */
void survey_changed(struct survey *s);

#endif
