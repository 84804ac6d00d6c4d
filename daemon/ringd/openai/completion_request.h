/* SPDX-License-Identifier: MIT
 *
 * A request for text, in one struct for three routes: OpenAI's /v1/chat/completions and
 * /v1/completions (platform.openai.com/docs/api-reference) and Anthropic's /v1/messages
 * (docs.anthropic.com/en/api/messages), with what llama-server and vLLM add to them.
 *
 * A field that would change the answer and that we do not have is refused by its name. A field that
 * changes nothing here (user, store, service_tier, …) is ignored, as are fields that nobody knows.
 * null is as good as a missing field. Pure: any thread. */
#ifndef DAEMON_OPENAI_COMPLETION_REQUEST_H
#define DAEMON_OPENAI_COMPLETION_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/openai/refusal.h"
#include "daemon/ringd/openai/stop_scan.h"

enum {
    REQUEST_MODEL_MAX = 256,     /* bytes of a model's name */
    REQUEST_MESSAGES_MAX = 8192, /* of a conversation */
    REQUEST_TOOLS_MAX = 128,     /* as OpenAI */
    REQUEST_TOOL_NAME_MAX = 64,  /* bytes, as OpenAI */
    REQUEST_CHOICES_MAX = 32,    /* answers: prompts times n */
    REQUEST_BIASES_MAX = 1024,   /* of logit_bias */
    REQUEST_TOKENS_MAX = 1 << 24,
    REQUEST_TOP_MAX = 20,           /* of top_logprobs, as OpenAI */
    REQUEST_GRAMMAR_MAX = 64 * 1024 /* bytes of a grammar or a schema */
};

enum completion_api { API_CHAT, API_COMPLETIONS, API_MESSAGES };
enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED };
/* What an answer must look like. */
enum answer_form { ANSWER_TEXT, ANSWER_JSON, ANSWER_SCHEMA, ANSWER_GRAMMAR };

struct token_bias {
    uint32_t id;
    float add; /* to its logit */
};

struct sampling {
    double temperature, top_p, min_p; /* as in engine/text/sample.h */
    size_t top_k;                     /* 0: all */
    double repetition_penalty;        /* 1: none */
    double presence_penalty, frequency_penalty;
    size_t repeat_last_n;      /* tokens that penalties look at */
    struct token_bias *biases; /* owned [nbiases] */
    size_t nbiases;
    bool has_seed;
    uint64_t seed; /* of the first choice; the others count on */
};

/* A prompt of /v1/completions: a text, or tokens. */
struct completion_prompt {
    const char *text;    /* borrowed: request->json; NULL where it has tokens */
    size_t ntext;        /* bytes */
    const json_t *token; /* borrowed: an array of checked token ids, or NULL */
};

struct completion_request {
    enum completion_api api;
    json_t *json;      /* owned: what the pointers below borrow from */
    const char *model; /* NULL: not named, which OpenAI-compatible servers allow */
    /* API_CHAT, API_MESSAGES: owned, as a chat template wants them (turns.h). The template gets
     * `tools` unless they are NULL; TOOLS_NONE leaves them out. */
    json_t *messages, *tools;
    json_t *template_args; /* owned: more variables of the template, or NULL */
    bool continues;        /* the last message is the beginning of the answer */
    enum tool_choice tool_choice;
    const char *tool_name; /* of TOOLS_NAMED */
    bool one_call;         /* parallel_tool_calls: false */
    /* API_COMPLETIONS */
    struct completion_prompt *prompts; /* owned [nprompts] */
    size_t nprompts;                   /* 1 for a conversation */
    bool echo;                         /* the prompt stands before its answer, */
    bool has_no_answer;                /* which has no token: max_tokens is 0 */
    size_t n;                          /* answers for each prompt; choice = prompt * n + answer */
    struct sampling sampling;
    size_t max_tokens;            /* of an answer; 0: as many as the context holds */
    const char *stops[STOPS_MAX]; /* borrowed [nstops]: none is empty or longer than STOP_BYTES */
    size_t nstops;
    bool logprobs;
    size_t top_logprobs;
    bool stream, include_usage;
    enum answer_form form;
    const json_t *schema; /* of ANSWER_SCHEMA: JSON schema */
    const char *grammar;  /* of ANSWER_GRAMMAR: as llama-server writes them (GBNF) */
};

/* Reads the body of a request. Takes over nothing: keeps a reference of `json`. −EINVAL and the
 * refusal; *ret is then untouched. */
int completion_request_read(struct completion_request *ret, enum completion_api api, json_t *json,
                            struct refusal *refusal);
/* The body of Anthropic's /v1/messages/count_tokens, which needs no max_tokens. */
int completion_request_read_count(struct completion_request *ret, json_t *json, struct refusal *refusal);
void completion_request_done(struct completion_request *request);

#endif
