/* SPDX-License-Identifier: MIT
 *
 * /v1/score, a route of our own: how likely each token of a text is. Its answer is the result of a
 * job that scores (docs/API.md), so that `ringctl score` shows either. Pure: any thread. */
#ifndef DAEMON_OPENAI_SCORE_H
#define DAEMON_OPENAI_SCORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/openai/completion_request.h"
#include "daemon/ringd/openai/refusal.h"

struct score_request {
    json_t *json;                   /* owned: what the pointers below borrow from */
    const char *model;              /* NULL: not named */
    struct completion_prompt *text; /* owned: one */
    size_t top_logprobs;
};

/* −EINVAL and the refusal; *ret is then untouched. */
int score_request_read(struct score_request *ret, json_t *json, struct refusal *refusal);
void score_request_done(struct score_request *request);

/* What came so far. */
struct score_sum {
    json_t *tokens; /* owned */
    double total;   /* in the order of the text, as the job adds */
    size_t held;    /* bytes, roughly */
};
void score_sum_init(struct score_sum *sum);
void score_sum_done(struct score_sum *sum);
/* The next token: {"id", "alone", "logprob", "top"} of a stage. False: there would be more than
 * SCORE_HELD_MAX bytes. */
enum { SCORE_HELD_MAX = 32 << 20 };
bool score_sum_add(struct score_sum *sum, const json_t *said);
/* {"tokens", "total", "perplexity"}; −EINVAL and the refusal: one token has nothing before it. */
int score_answer(json_t **ret, const struct score_sum *sum, struct refusal *refusal);

#endif
