/* SPDX-License-Identifier: MIT
 *
 * The tables of ringctl: columns as wide as what they hold, and all together no wider than the
 * terminal: the widest columns give way, long cells are cut with an ellipsis, and those of the last
 * column go on in the next line. One thread. */
#ifndef DAEMON_CTL_TABLE_H
#define DAEMON_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table;
struct table *table_new(const char *heads); /* column heads separated by tabs */
/* Cells separated by tabs, as many as there are heads or fewer. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t table_rows(const struct table *t);
void table_free(struct table *t);

/* width: in columns, 0 = no limit. Words of state are painted in the columns named STATE, STATUS
 * and LINK. */
void table_print(const struct table *t, FILE *to, size_t width, bool colors);
/* As the stream's terminal has it, and frees the table. */
void table_print_free(struct table *t, FILE *to);

#endif
