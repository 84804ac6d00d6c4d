/* SPDX-License-Identifier: MIT
 *
 * A conversation as a prompt: one way for jobs and for `ringctl render`, so that what is shown is
 * what is fed. */
#ifndef DAEMON_STAGE_CHAT_H
#define DAEMON_STAGE_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

struct chat_prompt {
    struct chat_text text; /* what the template makes of the messages */
    char *end;             /* owned: the text of the token that ends a turn, NULL = the model names none */
    uint32_t *ids;         /* owned: n of them */
    size_t n;
};

/* The messages through the template of the model's directory, and, where `tok` is given, that text
 * as tokens; it is opened where it is still NULL, and the caller's. −ENOENT: the model has no
 * template; else what is wrong with it or with the messages. */
int chat_prompt_read(struct chat_prompt *ret, const char *model, struct tokenizer **tok,
                     const struct chat_request *req, struct err *err);
/* The same with an open template. */
int chat_prompt_render(struct chat_prompt *ret, const struct chat_template *tpl, const char *model,
                       struct tokenizer **tok, const struct chat_request *req, struct err *err);
void chat_prompt_done(struct chat_prompt *p);

#endif
