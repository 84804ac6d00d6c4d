/* SPDX-License-Identifier: MIT
 *
 * How ringctl writes things down: amounts for people, JSON for programs. Tables are in
 * ctl_table.h. */
#ifndef DAEMON_CTL_PRINT_H
#define DAEMON_CTL_PRINT_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

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

/* Of a stage of GET /v1/nodes, NULL: there is none: three cells of a table, its job, its rank and
 * what it does, or what its node does. */
void print_work(char *buf, size_t size, const json_t *stage, const json_t *node);

void print_state(FILE *to, const char *word); /* in its colour, where there are any */
void print_trouble(FILE *to, const char *head, const char *sentence);

void print_json(const json_t *json); /* one line, full precision, on standard output */

#endif
