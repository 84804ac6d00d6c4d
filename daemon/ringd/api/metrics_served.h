/* SPDX-License-Identifier: MIT
 *
 * Metrics of models that this node is the head of: what requests waited for, and the load that the
 * stage reported last. Loop thread. */
#ifndef DAEMON_METRICS_SERVED_H
#define DAEMON_METRICS_SERVED_H

#include <stdio.h>

struct coord;
struct desk;

/* desk NULL: there is none any more. */
void metrics_write_served(FILE *to, const struct desk *desk, const struct coord *coord);

#endif
