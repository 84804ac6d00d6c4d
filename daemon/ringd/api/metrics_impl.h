/* SPDX-License-Identifier: MIT
 *
 * Inside the metrics: metrics_text.c has those of the node, metrics_served.c those of models that
 * it serves. */
#ifndef DAEMON_METRICS_IMPL_H
#define DAEMON_METRICS_IMPL_H

#include <stdio.h>

#include "daemon/ringd/api/metrics_text.h"

/* The lines that stand before a metric's first value. */
void metrics_describe(FILE *to, const char *name, const char *type, const char *help);
/* name="value", with what would end the value escaped. */
void metrics_label(FILE *to, const char *name, const char *value);

void metrics_write_served(FILE *to, const struct metrics_sources *from);

#endif
