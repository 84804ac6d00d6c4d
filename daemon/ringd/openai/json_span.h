/* SPDX-License-Identifier: MIT
 *
 * Where a JSON object ends, byte by byte, while a model writes it. It counts brackets outside of
 * strings, and refuses bytes that JSON (RFC 8259) has inside strings only; whether the object is
 * well-formed, a parser says once it is whole. Pure: any thread. */
#ifndef DAEMON_OPENAI_JSON_SPAN_H
#define DAEMON_OPENAI_JSON_SPAN_H

#include <stdbool.h>
#include <stddef.h>

/* All zero before the first bracket. */
struct json_span {
    size_t depth; /* brackets that are open */
    bool in_string, is_escaped;
};

/* False: no JSON goes on so. The span is then as it was. */
bool json_span_push(struct json_span *span, char byte);

#endif
