/* SPDX-License-Identifier: MIT
 *
 * What a head knows of a job whose stage processes have ended though nothing is wrong with the job:
 * whom it waits for, until when, and how often that has happened. job_life.c acts on it. Loop
 * thread. */
#ifndef DAEMON_INTERRUPTION_H
#define DAEMON_INTERRUPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/plan/placed_plan.h"

struct interruption {
    char cause[700];
    int64_t since, until;   /* seconds since 1970; until then all nodes are waited for, 0: for ever */
    struct job_nodes nodes; /* those it had */
    bool is_waited;         /* `until` has passed: it may go on with fewer */
    size_t refused;         /* so many nodes cannot hold it, as planning said; 0: none tried */
    /* Of all interruptions so far. */
    size_t fitted;            /* so many nodes were planned for last, and can hold it; 0: none yet */
    unsigned count, in_a_row; /* in_a_row: without a step between */
    const char *unit;         /* static: "step", "token" or "row" */
    uint64_t step;            /* of the latest, */
    char stage_of[64];        /* and the node whose stage process ended, "" if a node was lost */
};

/* It happens again: `stage_of` as above, the job having made `step` steps, or what `unit` counts.
 * False: it is the job itself, and `why` ends a sentence that names the cause: the same step ended
 * stages of two nodes, or there were too many interruptions without a step between. */
bool interruption_begin(struct interruption *i, const struct job_nodes *nodes, const char *stage_of,
                        const char *unit, uint64_t step, const char *cause, char *why, size_t size);

/* The job has come through it without a step, as a conversation does in which nobody speaks: the
 * next one is no fault of the job. */
void interruption_end(struct interruption *i);

/* It stopped after a step, to go on elsewhere or later: nothing was lost. unit: as above; borrowed,
 * static. */
void interruption_plan(struct interruption *i, const struct job_nodes *nodes, const char *unit, uint64_t step,
                       const char *cause);

/* How many of its nodes are not in reach and not drained; their names, with commas between them, in
 * `names`. */
size_t interruption_missing(const struct interruption *i, const struct members *members, char *names,
                            size_t size);

/* "after step 12", "before its first step". */
struct interruption_where {
    char text[64];
};
struct interruption_where interruption_where(const struct interruption *i);

/* Seconds since 1970 as "14:02:20". */
enum { INTERRUPTION_CLOCK = 16 };
void interruption_clock(char ret[INTERRUPTION_CLOCK], int64_t seconds);

/* "interrupted at 14:02:20 after step 12: node b is gone: …; it waits for b until 14:03:20, then
 * goes on without"; or "before its first step". names: as above; obstacle: why no ring stands, ""
 * if one does. */
void interruption_describe(const struct interruption *i, const char *names, const char *obstacle, char *text,
                           size_t size);

#endif
