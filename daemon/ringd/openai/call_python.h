/* SPDX-License-Identifier: MIT
 *
 * Calls as Python writes them, with values that are literals. Private to call_marked.c. */
#ifndef DAEMON_OPENAI_CALL_PYTHON_H
#define DAEMON_OPENAI_CALL_PYTHON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A line for each: name(key=value, …), where a value is text in either kind of quotes, a number,
 * True, False, None, a list or a dict; also true, false and null. A new list of {"name",
 * "arguments"}, or NULL: some of it is no such call, or there is none. ret_is_open: whether a text
 * has no end. */
json_t *call_read_lines(const char *text, size_t n, bool *ret_is_open);

#endif
