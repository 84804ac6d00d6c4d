/* SPDX-License-Identifier: MIT
 *
 * A request for a model that is served, as the daemon's message {"do":"ask","ask":{…}} has it:
 *   "id"      the daemon's number for it
 *   "kind"    "text", "embed", "tokenize" or "detokenize"
 *   "adapter" of a text or an embedding: the name of one of the job's; without: the model alone
 *   the prompt: "messages" with perhaps "tools", "template_args" and "generation" (false: without
 *             the beginning of an answer), or "text" with perhaps "special", or "ids"
 *   of a text: "n" answers, "max_tokens" (0: what the context holds), "logprobs", "top_logprobs",
 *             "form" (serve_forms.h), what a job that generates has of the choice of tokens, and
 *             "so_far" [[ids], …], what was generated before a loss, by answer;
 *             "prompt_logprobs": true, how likely each token of the prompt was, with "top_logprobs"
 *             too; "answer": false, its answers have no token
 *   of an embedding: "pooling", "mean" or "last"
 *   of a tokenization: "pieces", each token's text
 * Reading it makes tokens of the prompt. Main thread of rank 0. */
#ifndef DAEMON_SERVE_ASK_H
#define DAEMON_SERVE_ASK_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/serve/serve_forms.h"
#include "engine/model/stage.h"
#include "engine/text/chat.h"

enum ask_kind { ASK_TEXT, ASK_EMBED, ASK_TOKENIZE, ASK_DETOKENIZE, ASK_KINDS };

struct serve_ask {
    uint64_t id;
    enum ask_kind kind;
    json_t *json;         /* owned: what spec points into */
    struct job_spec spec; /* of a text: the choice of its tokens */
    uint32_t *ids;        /* owned [n]: the prompt, or of detokenize what it is about */
    size_t n;
    char *tail;       /* owned: the end of the prompt's text, or NULL */
    uint32_t adapter; /* as in stage_piece */
    size_t choices, max_tokens;
    struct serve_form *form;           /* held; NULL: its answers may say anything */
    bool wants_prompt, has_no_answer;  /* as "prompt_logprobs", and "answer": false */
    bool wants_logprob, is_last_alone; /* is_last_alone: of an embedding, the last token's */
    bool has_end;                      /* the template names a token that ends a turn: */
    uint32_t end;
    size_t open;        /* answers that have not ended */
    bool is_begun;      /* the daemon was told */
    bool is_read;       /* its prompt is computed, so that its other answers share it */
    double *sum;        /* owned [dim]: of an embedding, so far; NULL: of none */
    size_t max_context; /* positions that its answers may have */
};

struct serve_model {
    struct head *head;         /* borrowed */
    struct chat_template *tpl; /* owned; NULL: the model has none */
    struct serve_forms forms;
    char why[sizeof((struct err *)NULL)->text]; /* why not */
};

/* −EINVAL, −ENOENT (no such adapter), −E2BIG (it is longer than the context) or −ENOMEM, with a
 * sentence. The ask is the caller's, for serve_ask_free. */
int serve_ask_read(struct serve_ask **ret, struct serve_model *model, const json_t *json, struct err *err);
void serve_ask_free(struct serve_ask *a);

/* The answers that need no stage: {"ids", "pieces"} and {"text"}; NULL and a sentence. */
json_t *serve_ask_tokens(const struct serve_ask *a, const struct serve_model *model, struct err *err);
json_t *serve_ask_plain_text(const struct serve_ask *a, const struct serve_model *model, struct err *err);

#endif
