/* SPDX-License-Identifier: MIT
 *
 * The form that a request wants of its answers: a response_format, a grammar, or a call of a tool
 * that must come, written as the model writes calls. Pure: any thread. */
#ifndef DAEMON_OPENAI_ANSWER_FORM_H
#define DAEMON_OPENAI_ANSWER_FORM_H

#include "daemon/ringd/openai/chat_format.h"
#include "daemon/ringd/openai/completion_request.h"

/* As a stage has it (daemon/stage/serve/serve_forms.h): a new reference, or NULL where the answer
 * may say anything. −EINVAL and the refusal: the model has no form of calls that we know. */
int answer_form_of(json_t **ret, const struct completion_request *request, const struct chat_format *format,
                   struct refusal *refusal);

#endif
