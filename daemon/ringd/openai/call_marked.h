/* SPDX-License-Identifier: MIT
 *
 * Calls whose arguments are no JSON: each in tags of its own, or as Python writes them. They are
 * read once they are whole. Pure: any thread. */
#ifndef DAEMON_OPENAI_CALL_MARKED_H
#define DAEMON_OPENAI_CALL_MARKED_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ringd/openai/chat_format.h"

/* From what stands between the first marker and the last: a new list of {"name", "arguments": {…}},
 * or NULL where it is no call. tools (borrowed, or NULL: [{"function": {…}}, …]) say which values
 * are text; of others, and where no tool says it, what reads as JSON is JSON. ret_is_open: with
 * NULL, whether an argument has no end yet: then the last marker belongs to it, and more may
 * come. */
json_t *call_read_marked(enum call_style style, const char *text, size_t n, const json_t *tools,
                         bool *ret_is_open);
/* The "function" of that name in such tools: borrowed, or NULL. */
const json_t *call_find_tool(const json_t *tools, const char *name);

#endif
