/* SPDX-License-Identifier: MIT
 *
 * A token and the likeliest at its place, as a stage says them (daemon/stage/serve/serve_tell.c).
 * Pure: any thread. */
#ifndef DAEMON_DESK_READ_H
#define DAEMON_DESK_READ_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ringd/openai/logprobs.h"

enum {
    DESK_TOP_MAX = 20,
    DESK_BYTES_MAX = 256, /* of a token's text that is no UTF-8 */
};

struct desk_read {
    char rooms[DESK_TOP_MAX + 1][DESK_BYTES_MAX];
    struct likely_text top[DESK_TOP_MAX];
    struct reply_token token; /* borrows from the event, and from the members above */
};

/* False: it has no text. A log-probability that is missing or null is 0. */
bool desk_read_token(struct desk_read *ret, const json_t *said);

#endif
