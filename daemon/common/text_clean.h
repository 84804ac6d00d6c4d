/* SPDX-License-Identifier: MIT
 *
 * Text that others wrote, before it reaches a terminal, the journal or a page: names of nodes, log
 * lines of jobs, errors. What a terminal would obey (ESC and all control characters, C1 too), what
 * turns the direction of the text around it, and what is no UTF-8 becomes U+FFFD. Pure: any
 * thread. */
#ifndef DAEMON_TEXT_CLEAN_H
#define DAEMON_TEXT_CLEAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { TEXT_CLEAN_GROWTH = 3 }; /* a byte becomes so many at most */

/* Copies `from`, cleaned, and cut between two characters where it does not fit. `lines`: line
 * breaks and tabs stay; else they become spaces, so that nobody adds a line of his own. Returns the
 * bytes without the NUL. size > 0; the two do not overlap. */
size_t text_clean(char *to, size_t size, const char *from, bool lines);
/* Cleans each string in a value, lines and tabs kept, but for members of the name `except` (NULL:
 * no exception). */
void text_clean_json(json_t *value, const char *except);

#endif
