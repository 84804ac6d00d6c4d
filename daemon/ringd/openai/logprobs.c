/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/logprobs.h"

#include <math.h>
#include <stdio.h>

#include "daemon/ringd/openai/out_text.h"
#include "daemon/ringd/openai/char_gate.h"

/* JSON has no infinity; OpenAI writes this for what is not likely at all. */
static json_t *number(double logprob)
{
    return json_real(isfinite(logprob) ? logprob : -9999.0);
}

static json_t *chat_likely(const struct likely_text *t)
{
    json_t *bytes = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)t->text[i]));
    return json_pack("{s:o,s:o,s:o}", "token", text_lossy_json(t->text, t->n), "logprob", number(t->logprob),
                     "bytes", bytes);
}

json_t *logprobs_chat_token(const struct reply_token *token)
{
    json_t *item = chat_likely(&token->self), *top = json_array();
    for (size_t i = 0; i < token->ntop; i++)
        json_array_append_new(top, chat_likely(&token->top[i]));
    json_object_set_new(item, "top_logprobs", top);
    return item;
}

json_t *logprobs_text_new(void)
{
    return json_pack("{s:[],s:[],s:[],s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
}

/* A token that is no text by itself is written as OpenAI does: bytes:\xe2\x80 */
static json_t *text_of(const struct likely_text *t)
{
    json_t *text = json_stringn(t->text, t->n);
    if (text)
        return text;
    struct out_text out = {0};
    out_text_add(&out, "bytes:", 6);
    for (size_t i = 0; i < t->n; i++) {
        char byte[5];
        snprintf(byte, sizeof byte, "\\x%02x", (unsigned char)t->text[i]);
        out_text_add(&out, byte, sizeof byte - 1);
    }
    text = json_stringn(out.data, out.len);
    out_text_done(&out);
    return text;
}

void logprobs_text_add(json_t *logprobs, const struct reply_token *token, size_t offset)
{
    json_t *top = json_object(), *text = text_of(&token->self);
    for (size_t i = 0; i < token->ntop; i++) {
        json_t *key = text_of(&token->top[i]);
        if (!json_object_get(top, json_string_value(key))) /* of tokens with one text the likelier counts */
            json_object_set_new(top, json_string_value(key), number(token->top[i].logprob));
        json_decref(key);
    }
    json_array_append_new(json_object_get(logprobs, "tokens"), text);
    json_array_append_new(json_object_get(logprobs, "token_logprobs"), number(token->self.logprob));
    json_array_append_new(json_object_get(logprobs, "top_logprobs"), top);
    json_array_append_new(json_object_get(logprobs, "text_offset"), json_integer((json_int_t)offset));
}

void logprobs_text_add_first(json_t *logprobs, const struct reply_token *token)
{
    json_array_append_new(json_object_get(logprobs, "tokens"), text_of(&token->self));
    json_array_append_new(json_object_get(logprobs, "token_logprobs"), json_null());
    json_array_append_new(json_object_get(logprobs, "top_logprobs"), json_null());
    json_array_append_new(json_object_get(logprobs, "text_offset"), json_integer(0));
}
