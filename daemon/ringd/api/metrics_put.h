/* SPDX-License-Identifier: MIT
 *
 * Pieces of Prometheus' text, exposition format 0.0.4. Names are without "ringd_", which all
 * have. */
#ifndef DAEMON_METRICS_PUT_H
#define DAEMON_METRICS_PUT_H

#include <stdio.h>

/* The two lines before the values of a metric. */
void put_metric(FILE *to, const char *name, const char *type, const char *help);
/* A metric of one value. */
void put_single(FILE *to, const char *name, const char *type, const char *help, double value);
/* name="value"; what would end it is escaped. */
void put_label(FILE *to, const char *name, const char *value);

#endif
