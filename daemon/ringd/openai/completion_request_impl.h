/* SPDX-License-Identifier: MIT
 *
 * Pieces of requests that several routes share. Each returns 0, or −EINVAL with the refusal.
 * Private to this room. */
#ifndef DAEMON_OPENAI_COMPLETION_REQUEST_IMPL_H
#define DAEMON_OPENAI_COMPLETION_REQUEST_IMPL_H

#include "daemon/common/fields.h"
#include "daemon/ringd/openai/completion_request.h"

/* A member that is not there or null is NULL. */
json_t *request_member(const json_t *json, const char *name);
/* As fields_read, and the refusal names the field. */
int request_read_fields(void *ret, const struct field *table, const json_t *json, struct refusal *refusal);
/* A text of 1 to `max` bytes; *ret stays as it is where there is none. */
int request_read_text(const char **ret, const json_t *json, const char *name, size_t max,
                      struct refusal *refusal);

/* A field that we do not have, and the value with which it does nothing (JSON; NULL: only null). */
struct request_lack {
    const char *name, *neutral, *instead; /* a sentence on what to do instead, or NULL */
};
/* The list ends with a name of NULL. */
int request_check_lacks(const struct request_lack *lacks, const json_t *json, struct refusal *refusal);

/* "stop" or "stop_sequences" */
int request_read_stops(struct completion_request *r, const char *name, struct refusal *refusal);
/* Temperature, top_p and so on, as OpenAI-compatible servers call them. */
int request_read_sampling(struct completion_request *r, struct refusal *refusal);
/* response_format, grammar and json_schema */
int request_read_form(struct completion_request *r, struct refusal *refusal);
/* A schema, kept; `name` is its field. */
int request_take_schema(struct completion_request *r, const char *name, const json_t *schema,
                        struct refusal *refusal);
int request_check_tool_name(const json_t *name, const char *param, struct refusal *refusal);
/* tools, tool_choice and parallel_tool_calls of OpenAI */
int request_read_tools(struct completion_request *r, struct refusal *refusal);
/* The list "tools": `add` takes each, by its place, into r->tools. */
int request_each_tool(struct completion_request *r,
                      int (*add)(struct completion_request *r, size_t i, const json_t *tool,
                                 struct refusal *refusal),
                      struct refusal *refusal);
/* Is the tool that tool_choice names among the tools, and are there any for "required"? */
int request_check_choice(const struct completion_request *r, struct refusal *refusal);
/* chat_template_kwargs, enable_thinking and reasoning_effort */
int request_read_reasoning(struct completion_request *r, struct refusal *refusal);
/* Sets a variable of the template, unless it was given. Takes over `value`. */
void request_template_arg(struct completion_request *r, const char *name, json_t *value);

/* "prompt" or "input": 1 to `max` texts or lists of tokens. *ret is for the caller to free, also
 * when it fails. */
int request_read_prompts(struct completion_prompt **ret, size_t *ret_n, const char *name, const json_t *given,
                         size_t max, struct refusal *refusal);
/* Is it a list of token ids, with one at least? */
bool request_are_tokens(const json_t *list);

int request_read_chat(struct completion_request *r, struct refusal *refusal);
int request_read_completions(struct completion_request *r, struct refusal *refusal);
int request_read_messages(struct completion_request *r, bool count_only, struct refusal *refusal);

#endif
