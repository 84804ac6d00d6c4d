/* SPDX-License-Identifier: MIT
 *
 * The form of Prometheus' text. PURE: any thread. */
#ifndef DAEMON_METRICS_WRITE_H
#define DAEMON_METRICS_WRITE_H

#include <stdio.h>

/* The lines that stand before a metric's first value. */
void metrics_describe(FILE *to, const char *name, const char *type, const char *help);
/* name="value": what would end the value is escaped. */
void metrics_label(FILE *to, const char *name, const char *value);

#endif
