/* SPDX-License-Identifier: MIT
 *
 * Requests to the models that this node serves: it is the head of a job of type serve, and its
 * stage, rank 0, answers. The desk hands requests to the stage and gives back what it says. It
 * keeps the tokens of an answer until the answer ends: should the job lose a node, it asks the
 * next stage to go on behind them. Knows no client. Loop thread. */
#ifndef DAEMON_DESK_H
#define DAEMON_DESK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/openai/logprobs.h"
#include "daemon/ringd/openai/refusal.h"
#include "daemon/ringd/serve/desk_model.h"

struct model_ask; /* one request */
struct desk;
struct event_base;
struct ledger;

struct desk_setup {
    struct event_base *base; /* borrowed */
    struct ledger *ledger;   /* borrowed: gets the queue "asks"; may be NULL */
    /* To the stage of that job, which runs on this node. Takes the reference. Not 0: there is none
     * now; the desk asks again once it serves. */
    int (*say)(void *owner, uint64_t job, json_t *message);
    /* Requests of that job are there, from none before, or none are any more. */
    void (*asked)(void *owner, uint64_t job, bool has_asks);
    void *owner;
    unsigned patience_ms; /* with a stage that says nothing of a request; 0: ten minutes */
};
struct desk *desk_new(const struct desk_setup *setup);
/* Requests that wait fail with a sentence. Before http_stop. */
void desk_free(struct desk *d);

/* --- models ----------------------------------------------------------------------------------- */

const struct desk_model *desk_model(const struct desk *d, uint64_t job); /* NULL: it has not served yet */

/* The one after it; NULL begins, and ends. */
const struct desk_model *desk_next(const struct desk *d, const struct desk_model *before);

struct visit_lines *desk_visit_lines(struct desk *d); /* of all models (visit_lines.h) */

/* An event of a stage. True: it was for the desk alone. */
bool desk_hear(struct desk *d, uint64_t job, const char *kind, const json_t *event);
void desk_ended(struct desk *d, uint64_t job, const char *why); /* that job, with a sentence */

/* --- requests --------------------------------------------------------------------------------- */

struct ask_begun {
    size_t prompt_tokens, cached_tokens; /* cached: of the prompt, computed before */
    const char *tail;                    /* [ntail] borrowed: the end of the prompt's text */
    size_t ntail;
};

/* A token of the prompt, of a request that wants their log-probabilities. */
struct ask_prompt_token {
    const struct reply_token *token; /* borrowed, as all of it */
    bool is_first;                   /* nothing stands before it: it has no log-probability */
    const json_t *said;              /* {"id", "alone", "logprob", "top"}; alone: its text by itself */
};

/* What comes of a request. Each of them may drop it. NULL: such a word is not for this one. */
struct ask_ops {
    void (*begun)(void *owner, const struct ask_begun *begun); /* once, before all tokens */
    /* In their order, before all tokens of answers. */
    void (*prompt)(void *owner, const struct ask_prompt_token *token);
    /* False: no more tokens of this choice are wanted, and its `ended` is not called. */
    bool (*token)(void *owner, size_t choice, const struct reply_token *token);
    void (*ended)(void *owner, size_t choice, bool is_cut); /* is_cut: at max_tokens, or the context */
    void (*answered)(void *owner, const json_t *event);     /* of a request without tokens */
    /* Instead of all the rest: nothing more comes. */
    void (*failed)(void *owner, const struct refusal *refusal);
};

/* `request`: as {"do":"ask"} of a stage has it (daemon/stage/serve), without its "id". Takes the
 * reference. `choices`: how many answers it has. ops and owner are borrowed. −EINVAL and the
 * refusal: there is no room. The request lives until ask_drop. */
int desk_ask(struct desk *d, struct model_ask **ret, uint64_t job, json_t *request, size_t choices,
             const struct ask_ops *ops, void *owner, struct refusal *refusal);
/* Is there one of that job that wants this adapter? */
bool desk_wants(const struct desk *d, uint64_t job, const char *adapter);
/* Those that want `adapter` want `former` when they are asked again: what it was so far. */
void desk_rename(struct desk *d, uint64_t job, const char *adapter, const char *former);
/* NULL is accepted. What has not ended is cancelled. */
void ask_drop(struct model_ask *a);

#endif
