/* SPDX-License-Identifier: MIT
 *
 * What both forms of conversations share. Private to this room. */
#ifndef DAEMON_OPENAI_TURNS_IMPL_H
#define DAEMON_OPENAI_TURNS_IMPL_H

#include <stdbool.h>

#include "daemon/ringd/openai/out_text.h"
#include "daemon/ringd/openai/turns.h"

enum { TURN_PARAM = 64 };

/* Adds a text behind a line break, unless it is the first. */
void turn_join(struct out_text *text, const json_t *more);
json_t *turn_text(struct out_text *text); /* a JSON string of it, and empties it */
/* Refuses a part of a content by its type. */
int turn_refuse_part(const json_t *part, const char *param, struct refusal *refusal);
int turn_check_list(const json_t *messages, struct refusal *refusal);

#endif
