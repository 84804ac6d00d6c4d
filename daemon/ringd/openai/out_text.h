/* SPDX-License-Identifier: MIT
 *
 * Text that grows: what is sent to a client, and what a reply holds until it is whole. Also the
 * form of server-sent events (WHATWG HTML, section 9.2). Pure: any thread. */
#ifndef DAEMON_OPENAI_OUT_TEXT_H
#define DAEMON_OPENAI_OUT_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* All zero at the beginning. */
struct out_text {
    char *data;      /* owned, NUL behind it; NULL while nothing was added */
    size_t len, cap; /* bytes */
};

void out_text_add(struct out_text *out, const char *data, size_t n);
/* The value as compact JSON. Takes over the reference. */
void out_text_json(struct out_text *out, json_t *value);
/* "event: NAME\ndata: VALUE\n\n"; without the first line where `name` is NULL. Takes over the
 * reference. */
void out_text_event(struct out_text *out, const char *name, json_t *value);
void out_text_clear(struct out_text *out); /* empty, memory kept */
void out_text_done(struct out_text *out);

#endif
