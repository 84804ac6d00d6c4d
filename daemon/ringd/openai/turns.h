/* SPDX-License-Identifier: MIT
 *
 * Conversations as clients send them → messages as a chat template wants them: {"role", "content"}
 * with a content that is one text. Of an assistant also "reasoning_content" and "tool_calls" =
 * [{"id", "type": "function", "function": {"name", "arguments": object}}], of a tool's result
 * "tool_call_id". A role "developer" becomes "system". Images and other parts are refused by name.
 * Pure: any thread. */
#ifndef DAEMON_OPENAI_TURNS_H
#define DAEMON_OPENAI_TURNS_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ringd/openai/refusal.h"

/* The "messages" of OpenAI's chat. A new reference; −EINVAL and the refusal. */
int turns_of_openai(json_t **ret, const json_t *messages, struct refusal *refusal);

/* The "messages" of Anthropic's API, behind its "system" (NULL: none). A result of a tool, a block
 * of a user's message there, becomes a message of its own. */
int turns_of_anthropic(json_t **ret, const json_t *system, const json_t *messages, struct refusal *refusal);

/* For a template of messages in channels (chat_format.in_channels): a copy with reasoning as
 * "thinking". Beside calls that is all the text there is: such templates take no "content" of null,
 * and no two texts. A new reference. */
json_t *turns_in_channels(const json_t *messages);

/* For a template that joins arguments to texts (chat_format.arguments_are_text): a copy of the
 * messages with arguments as texts of JSON. A new reference. */
json_t *turns_with_text_arguments(const json_t *messages);

#endif
