/* SPDX-License-Identifier: MIT
 *
 * What the node knows of itself and what it has counted, as Prometheus text, or as a row of the
 * history's series. Labels are bounded: routes of the API's table, states, neighbours, ports. Loop
 * thread. */
#ifndef DAEMON_METRICS_TEXT_H
#define DAEMON_METRICS_TEXT_H

#include <jansson.h>
#include <stdint.h>

struct coord;
struct desk;
struct ledger;
struct members;
struct metrics;
struct peers;
struct store;
struct workers;

struct metrics_sources { /* all borrowed; the node's own record is up to date */
    struct metrics *metrics;
    struct members *members;
    struct peers *peers;
    struct workers *workers;
    struct coord *coord;
    struct store *store;
    const struct ledger *ledger;
    const struct desk *desk;
    double lateness; /* of the loop, in seconds */
};

char *metrics_text(const struct metrics_sources *from); /* exposition format 0.0.4; the caller frees */

/* Adds [name, time, value] for each series to `rows`: of this node and of its cables. `seconds`
 * since the last call, 0 = the first. */
void metrics_sample(const struct metrics_sources *from, double seconds, int64_t now, json_t *rows);

#endif
