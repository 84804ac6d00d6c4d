/* SPDX-License-Identifier: MIT
 *
 * What units of the model take on every node of the ring, and what lies between the nodes: timed
 * here, asked of the others through the daemon, and filled in where a node could not say. For
 * stage_search.c and decode_forecast.c, in the stage process of rank 0; main thread. */
#ifndef DAEMON_COST_TABLE_H
#define DAEMON_COST_TABLE_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_units.h"

struct cost_table_node {
    struct sched_cost cost[UNITS_MOST]; /* as in list */
    bool have[UNITS_MOST], any;
    char why[300]; /* it could not time all of it, or "" */
};
struct cost_table {
    struct head *h;               /* borrowed */
    struct unit_list list;        /* what is timed: for the caller to fill in before cost_table_take */
    struct cost_table_node *node; /* owned: by rank, as the ranks stood then */
    json_t *nodes;                /* owned: those nodes */
    json_t *answers;              /* owned: what they said, or NULL */
};

/* NULL: out of memory. */
struct cost_table *cost_table_new(struct head *h);
void cost_table_free(struct cost_table *t);

/* This node first, then all others at once, so that nodes that share a machine and a cache do not
 * time the same thing against each other. What is `needed` has been timed here at least. */
int cost_table_take(struct cost_table *t, struct err *err);
/* What it took there; of another node that could not say, in proportion. Not of rank 0 where it was
 * not timed: have is false. */
struct sched_cost cost_table_cost(const struct cost_table *t, size_t rank, size_t at);
/* How much slower a node is than this one with what both have timed, else by its threads. */
double cost_table_slowness(const struct cost_table *t, size_t rank);
/* The way from a rank's node to another's for a message, as both have measured it, else as the
 * slowest cable of the ring is said to be. */
struct sched_link cost_table_link(const struct cost_table *t, size_t from, size_t to, double bytes);
/* How long it takes from where two ranks have something for each other to where both have it: for
 * each byte, and besides for a small message and a large one. */
struct gather_way {
    double byte, small, large;
};
struct gather_way cost_table_gather(const struct cost_table *t, size_t from, size_t to);
double gather_way_seconds(const struct gather_way *way, double bytes);
/* Lines of log about nodes that were not timed. */
void cost_table_say(const struct cost_table *t);

/* The first unit that costs the same as this one; `lowest`: the unit at which the backward ends, 0
 * where there is none. */
size_t cost_table_like(const struct head *h, size_t unit, size_t lowest);

/* What is known of a node: "speed" (threads), "memory", …; and how it is called. */
double cost_table_number(const struct cost_table *t, size_t rank, const char *key);
double cost_table_threads(const struct cost_table *t, size_t rank);
const char *cost_table_name(const struct cost_table *t, size_t rank);

#endif
