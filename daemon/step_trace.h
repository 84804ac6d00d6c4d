/* SPDX-License-Identifier: MIT
 *
 * A step in the format of Chrome's trace viewer, which Perfetto reads too. Pure; called by ringctl trace. */
#ifndef DAEMON_STEP_TRACE_H
#define DAEMON_STEP_TRACE_H

#include <jansson.h>

#include "daemon/step_view.h"

/* A process for each node: what it did and what it waited for in one thread, what was planned in another, and the bytes it has sent as
 * a counter; arrows follow activations and gradients from node to node. NULL: out of memory. */
json_t *step_trace(const struct step_view *view);

#endif
