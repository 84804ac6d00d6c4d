/* SPDX-License-Identifier: MIT
 *
 * What is counted since the start, and all of it with what the node knows of itself as Prometheus
 * text, or as a row of the history's series. Labels are bounded: routes of the API's table, states,
 * neighbours, ports. Loop thread. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct node;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

/* An event of a job submitted here: "step" and "token" count. */
void metrics_event(struct metrics *m, const char *kind, const json_t *event);
void metrics_job_ended(struct metrics *m, const char *state);
/* route: of the API's table (it is kept by its address), NULL for one that is none. */
void metrics_request(struct metrics *m, const char *route, unsigned status);

char *metrics_text(struct node *node); /* the exposition format 0.0.4; the caller frees */

/* Adds [name, time, value] for each series to `rows`: of this node and of its cables. `seconds`
 * since the last call, 0 = the first. */
void metrics_sample(struct node *node, double seconds, int64_t now, json_t *rows);

#endif
