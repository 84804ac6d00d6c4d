/* SPDX-License-Identifier: MIT
 *
 * Why a request is not answered, in the forms of OpenAI ("API errors" of its reference) and
 * Anthropic ("Errors" of its reference). Pure: any thread. */
#ifndef DAEMON_OPENAI_REFUSAL_H
#define DAEMON_OPENAI_REFUSAL_H

#include <jansson.h>

enum refusal_kind {
    REFUSAL_INVALID,     /* a field is missing, out of range or of another type */
    REFUSAL_UNSUPPORTED, /* a field asks for what we do not have */
    REFUSAL_TOO_LONG,    /* prompt and answer do not fit into the model's context */
    REFUSAL_NO_KEY,
    REFUSAL_FORBIDDEN,
    REFUSAL_NO_MODEL, /* there is no model of this name */
    REFUSAL_TOO_LARGE,
    REFUSAL_RATE,     /* this client asks too often */
    REFUSAL_BUSY,     /* no client can be served now */
    REFUSAL_INTERNAL, /* our fault, or a node was lost */
    REFUSALS
};

struct refusal {
    enum refusal_kind kind;
    char param[64]; /* the field, as "messages[2].content"; "" where none is to blame */
    char text[512]; /* a sentence; long ones are cut */
};

/* Fills it in; `param` may be NULL. Always −EINVAL, so that a reader can return it. */
int refusal_set(struct refusal *ret, enum refusal_kind kind, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The status of HTTP, which differs between the two. */
unsigned refusal_openai_status(const struct refusal *refusal);
unsigned refusal_anthropic_status(const struct refusal *refusal);
/* The body, as a new object. */
json_t *refusal_openai(const struct refusal *refusal);
json_t *refusal_anthropic(const struct refusal *refusal);

#endif
