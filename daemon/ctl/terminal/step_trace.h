/* SPDX-License-Identifier: MIT
 *
 * Steps in the format of Chrome's trace viewer, which Perfetto reads too. Pure; called by ringctl
 * trace, and by train --trace. */
#ifndef DAEMON_STEP_TRACE_H
#define DAEMON_STEP_TRACE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ctl/terminal/step_view.h"

/* A process for each node: what it did and what it waited for in one thread, what was planned in
 * another, and the bytes it has sent as a counter; arrows follow activations and gradients from
 * node to node. NULL: out of memory. */
json_t *step_trace(const struct step_view *view);

/* Where the next step of a job goes in its trace; all zero before the first one. */
struct step_trace_place {
    bool has_begun;
    double zero;       /* seconds of rank 0's clock at which the trace begins */
    json_int_t arrows; /* so many have a number */
};
/* The events of one step, after those of the steps before: the same events, and a slice for the
 * step as a whole. The names of nodes come with the first step. An array for the caller to free;
 * NULL: out of memory. */
json_t *step_trace_next(struct step_trace_place *place, const struct step_view *view);

#endif
