/* SPDX-License-Identifier: MIT
 *
 * How ringctl writes things down: aligned tables, amounts for people, JSON for programs. */
#ifndef DAEMON_CTL_PRINT_H
#define DAEMON_CTL_PRINT_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

struct table;
struct table *table_new(const char *heads); /* column heads separated by tabs */
/* Cells separated by tabs. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t table_rows(const struct table *t);
void table_print_free(struct table *t, FILE *to);

struct amount {
    char text[24];
};
struct amount print_bytes(double bytes);      /* "7.9 GiB" */
struct amount print_duration(double seconds); /* "3 h 12 min", "1.3 s" */
struct amount print_time(double unix_time);   /* "2026-11-21 14:03:07", "-" for 0 */
struct amount print_number(const json_t *number,
                           const char *otherwise); /* six digits; `otherwise` if it is none */

/* Fields of an answer, with something to print where one is missing. */
const char *field_text(const json_t *object, const char *key, const char *otherwise);
double field_number(const json_t *object, const char *key);

void print_json(const json_t *json); /* one line, full precision, on standard output */

#endif
