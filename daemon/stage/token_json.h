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

/* A text [n] of tokens as a JSON string, never NULL. Readers of events take a zero byte for the end
 * of a text, so each is shown as U+FFFD. */
json_t *token_text(const char *text, size_t n);

/* {"id", "logprob"}, and its "text" where there is a tokenizer (tok may be NULL). Takes over
 * `logprob`. A new object. */
json_t *token_json(struct tokenizer *tok, uint32_t id, json_t *logprob);

/* The likeliest tokens [n] of a position, as a new list of the same. */
json_t *token_json_top(struct tokenizer *tok, const struct likely *likely, size_t n);

#endif
