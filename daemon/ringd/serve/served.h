/* SPDX-License-Identifier: MIT
 *
 * Requests of clients for a model that a job of this node serves: a call of HTTP becomes requests
 * at the desk, and what comes of them becomes its answer. Each function answers and frees the
 * call, now or later, and keeps a reference of the body. Loop thread. */
#ifndef DAEMON_SERVED_H
#define DAEMON_SERVED_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "daemon/ringd/openai/completion_request.h"
#include "daemon/ringd/serve/desk.h"

struct http_call;
struct visit;

struct served {
    struct desk *desk;              /* borrowed */
    const struct desk_model *model; /* borrowed: for the call */
    const char *name;               /* borrowed: for the call; as the answer calls it */
    const char *adapter;            /* borrowed: for the call; NULL: the model alone */
    struct visit *visit;            /* taken over by each function */
    time_t created;
};

/* /v1/chat/completions, /v1/completions, /v1/messages. */
void served_complete(const struct served *served, struct http_call *call, enum completion_api api,
                     json_t *body);
/* /v1/embeddings. */
void served_embed(const struct served *served, struct http_call *call, json_t *body);
/* /v1/score. */
void served_score(const struct served *served, struct http_call *call, json_t *body);
/* /v1/tokenize, /v1/detokenize, /v1/messages/count_tokens. */
void served_tokenize(const struct served *served, struct http_call *call, json_t *body);
void served_detokenize(const struct served *served, struct http_call *call, json_t *body);
void served_count(const struct served *served, struct http_call *call, json_t *body);

/* The request to the model with its adapter; the same object. */
json_t *served_request(const struct served *served, json_t *request);
/* An error in the form of OpenAI, or of Anthropic; returns its status. */
unsigned served_refuse(struct http_call *call, bool is_anthropic, const struct refusal *refusal);
unsigned served_status(bool is_anthropic, const struct refusal *refusal); /* that, by itself */
/* Takes over the reference. */
void served_reply(struct http_call *call, json_t *answer);

#endif
