/* SPDX-License-Identifier: MIT
 *
 * The metrics of models that this node is the head of, as Prometheus text. Each value has the
 * labels `model` and `job`. Loop thread. */
#ifndef DAEMON_METRICS_SERVE_H
#define DAEMON_METRICS_SERVE_H

#include <stdio.h>

struct coord;
struct desk;

/* Nothing where nothing is served. */
void metrics_serve(FILE *to, const struct coord *coord, const struct desk *desk);

#endif
