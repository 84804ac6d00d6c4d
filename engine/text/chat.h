/* SPDX-License-Identifier: MIT
 *
 * Chat templates: a conversation → the text a model was trained to see. The template is the Jinja
 * source of a model's directory, run by an interpreter of the subset such templates use (jinja.h),
 * bounded in time and memory because it comes with somebody's model. Thread-safe once opened. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "err.h"
#include "text/chat_text.h"

struct chat_template;

/* The template of a model's directory, the first there is of: chat_template.jinja,
 * chat_template.json, and the chat_template of tokenizer_config.json: a text, or a list of named
 * ones, of which "default" is taken. Special tokens (bos_token, …) come from tokenizer_config.json.
 * −ENOENT where the model has none. */
int chat_template_open(struct chat_template **ret, const char *dir, struct err *err);
/* The template in memory; `tokens` ({"bos_token": "<s>", …}) may be NULL. */
int chat_template_parse(struct chat_template **ret, const char *text, size_t n, const json_t *tokens,
                        struct err *err);
void chat_template_close(struct chat_template *tpl);
/* As it was read. */
const char *chat_template_source(const struct chat_template *tpl);
/* The text of a special token the model names ("eos_token"), NULL if it names none. */
const char *chat_template_token(const struct chat_template *tpl, const char *name);

struct chat_request {
    const json_t *messages; /* [{"role": …, "content": …, …}, …] */
    const json_t *tools;    /* or NULL */
    bool add_generation_prompt;
    const json_t *extra; /* more variables of the template ({"enable_thinking": false}), or NULL */
    time_t now;          /* what strftime_now formats, in local time */
};

/* Fails with the line of the template where it is a construct we do not know, an error of the
 * template, or its own raise_exception (−EPROTO: the template refuses these messages). */
int chat_render(const struct chat_template *tpl, const struct chat_request *req, struct chat_text *ret,
                struct err *err);
void chat_text_done(struct chat_text *text);

#endif
