/* SPDX-License-Identifier: MIT
 *
 * How likely tokens were, in the two forms of OpenAI: that of the chat ("logprobs": {"content":
 * […]}) and that of /v1/completions ({"tokens", "token_logprobs", "top_logprobs", "text_offset"}).
 * Pure: any thread. */
#ifndef DAEMON_OPENAI_LOGPROBS_H
#define DAEMON_OPENAI_LOGPROBS_H

#include <jansson.h>
#include <stddef.h>

/* A token as its bytes, which may end inside a character, and its log-probability. */
struct likely_text {
    const char *text; /* borrowed [n] */
    size_t n;
    double logprob;
};

struct reply_token {
    struct likely_text self;
    const struct likely_text *top; /* borrowed [ntop]: the likeliest at its place, best first */
    size_t ntop;
};

/* An item of "content". */
json_t *logprobs_chat_token(const struct reply_token *token);

/* The object of /v1/completions with no token in it, and one more token; `offset`: characters of
 * the text before it. */
json_t *logprobs_text_new(void);
void logprobs_text_add(json_t *logprobs, const struct reply_token *token, size_t offset);
/* The first of a prompt, which follows nothing: null stands for how likely it was. */
void logprobs_text_add_first(json_t *logprobs, const struct reply_token *token);

#endif
