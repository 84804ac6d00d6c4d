/* SPDX-License-Identifier: MIT
 *
 * A token and how likely it was, as results and events have it. Main thread of rank 0. */
#ifndef DAEMON_TOKEN_JSON_H
#define DAEMON_TOKEN_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/layer/layer.h"
#include "engine/text/tokenizer.h"

/* {"id", "logprob"}, and its "text" where there is a tokenizer (tok may be NULL). Takes over
 * `logprob`. A new object. */
json_t *token_json(struct tokenizer *tok, uint32_t id, json_t *logprob);

/* The likeliest tokens [n] of a position, as a new list of the same. */
json_t *token_json_top(struct tokenizer *tok, const struct likely *likely, size_t n);

#endif
