/* SPDX-License-Identifier: MIT
 *
 * The last step of a training job as GET /v1/jobs/N/timeline tells of it, read for those who draw
 * it: ringctl trace and gantt. Pure; one thread. */
#ifndef DAEMON_STEP_VIEW_H
#define DAEMON_STEP_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

struct step_task {
    char kind[8];
    int mb, stage;                     /* −1: has none, or it is not known */
    double start, end, waited;         /* seconds, of the step */
    char message[16];                  /* waited for; "" = for nothing */
    int from;                          /* rank, −1 = none */
    double bytes;                      /* sent to other nodes, −1 = not known */
    double planned_start, planned_end; /* NAN = no plan */
};
struct step_rank {
    char node[64];
    struct step_task *tasks; /* owned */
    size_t n;
    bool is_placed; /* its clock is known, to `clock_error` seconds */
    double clock_error;
};
struct step_view {
    double job, step, steps, microbatches; /* steps: of several adapters, 1 of one */
    char schedule[32];
    double begin;                                            /* seconds of rank 0's clock */
    double seconds, bubble, planned_seconds, planned_bubble; /* the latter two NAN without a plan */
    size_t nranks;
    struct step_rank *ranks; /* owned */
};

/* −EBADMSG: not the answer of such a request. */
int step_view_read(struct step_view **ret, const json_t *timeline, struct err *err);
void step_view_free(struct step_view *view);

/* How long a rank stood still for one kind of message of one other rank. */
struct step_wait {
    size_t rank;
    const char *message; /* borrowed: the view's; "" = nothing that has a name */
    int from;
    double seconds;
};
/* The longest first, at most `max` of them; how many. −ENOMEM counts as none. */
size_t step_view_waits(const struct step_view *view, struct step_wait *ret, size_t max);

#endif
