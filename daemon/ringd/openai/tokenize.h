/* SPDX-License-Identifier: MIT
 *
 * /v1/tokenize and /v1/detokenize, as vLLM has them ("Tokenizer API" of its server), with the
 * "content" of llama-server. Pure: any thread. */
#ifndef DAEMON_OPENAI_TOKENIZE_H
#define DAEMON_OPENAI_TOKENIZE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/openai/refusal.h"

struct tokenize_request {
    json_t *json;      /* owned: what the pointers below borrow from */
    const char *model; /* NULL: not named */
    const char *text;  /* a text [ntext], or NULL */
    size_t ntext;
    json_t *messages; /* owned: a conversation for the chat template (turns.h), or NULL */
    bool add_special; /* also tokens that the tokenizer puts around a text; for a text the default */
    bool add_generation_prompt;
    bool with_pieces; /* also the text of each token */
};

/* −EINVAL and the refusal; *ret is then untouched. */
int tokenize_request_read(struct tokenize_request *ret, json_t *json, struct refusal *refusal);
void tokenize_request_done(struct tokenize_request *request);
/* {"count", "max_model_len", "tokens"}; `pieces`: the tokens' texts as strings, or NULL. Takes over
 * `pieces`. */
json_t *tokenize_answer(const uint32_t *ids, size_t n, size_t max_context, json_t *pieces);

struct detokenize_request {
    json_t *json;        /* owned */
    const char *model;   /* NULL: not named */
    const json_t *token; /* borrowed: json; an array of checked token ids */
};

int detokenize_request_read(struct detokenize_request *ret, json_t *json, struct refusal *refusal);
void detokenize_request_done(struct detokenize_request *request);
/* {"prompt", "content"}: the same text under vLLM's and llama-server's name. */
json_t *detokenize_answer(const char *text, size_t n);

/* The answer of Anthropic's /v1/messages/count_tokens. */
json_t *count_tokens_answer(size_t n);

#endif
