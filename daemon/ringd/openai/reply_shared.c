/* SPDX-License-Identifier: MIT
 *
 * What the three forms of an answer share. */
#include "daemon/ringd/openai/reply_impl.h"

#include <stdio.h>

json_t *reply_json_text(const struct out_text *text)
{
    return json_stringn(text->data ? text->data : "", text->len);
}

void reply_call_id(const struct reply_choice *c, const char *prefix, size_t call, char ret[REPLY_CALL_ID])
{
    snprintf(ret, REPLY_CALL_ID, "%s%s%02zu%03zu", prefix, c->reply->setup.id, c->index, call);
}

json_t *reply_usage(const struct reply *r)
{
    return json_pack("{s:I,s:I,s:I,s:{s:I},s:{s:I}}", "prompt_tokens", (json_int_t)r->prompt_tokens,
                     "completion_tokens", (json_int_t)r->tokens, "total_tokens",
                     (json_int_t)(r->prompt_tokens + r->tokens), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)r->cached_tokens, "completion_tokens_details", "reasoning_tokens",
                     (json_int_t)r->reasoning_tokens);
}

const char *reply_finish_reason(const struct reply_choice *c)
{
    if (c->ending == REPLY_CUT)
        return "length";
    return text_parts_calls(c->parts) ? "tool_calls" : "stop";
}

json_t *reply_take_logprobs(struct reply_choice *c)
{
    json_t *taken = c->logprobs;
    c->logprobs = NULL;
    return taken ? taken : json_null();
}
