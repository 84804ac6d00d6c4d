/* SPDX-License-Identifier: MIT
 *
 * OpenAI's chat.completion and chat.completion.chunk. */
#include "daemon/ringd/openai/reply_impl.h"

static json_t *envelope(const struct reply *r, const char *object, json_t *choices)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", r->id, "object", object, "created",
                     (json_int_t)r->setup.created, "model", r->setup.model, "choices", choices);
}

static void put_chunk(const struct reply *r, json_t *choices, json_t *usage, struct out_text *out)
{
    json_t *chunk = envelope(r, "chat.completion.chunk", choices);
    if (r->setup.request->include_usage)
        json_object_set(chunk, "usage", usage ? usage : json_null());
    json_decref(usage);
    out_text_event(out, NULL, chunk);
}

/* {"content": […], "refusal": null}, or null */
static json_t *logprobs_of(struct reply_choice *c)
{
    json_t *tokens = reply_take_logprobs(c);
    return json_is_null(tokens) ? tokens : json_pack("{s:o,s:n}", "content", tokens, "refusal");
}

static void put_delta(struct reply_choice *c, json_t *delta, const char *reason, struct out_text *out)
{
    json_t *choice = json_pack("{s:I,s:o,s:o,s:s?}", "index", (json_int_t)c->index, "delta", delta,
                               "logprobs", logprobs_of(c), "finish_reason", reason);
    put_chunk(c->reply, json_pack("[o]", choice), NULL, out);
}

static void start(struct reply *r, struct out_text *out)
{
    for (size_t i = 0; i < r->nchoices; i++)
        put_delta(&r->choices[i], json_pack("{s:s,s:s}", "role", "assistant", "content", ""), NULL, out);
}

static json_t *call_delta(const struct reply_choice *c, const struct text_part *part)
{
    char id[REPLY_CALL_ID];
    json_t *text = json_stringn(part->text, part->n);
    if (part->kind == TEXT_PART_ARGUMENTS)
        return json_pack("{s:[{s:I,s:{s:o}}]}", "tool_calls", "index", (json_int_t)part->call, "function",
                         "arguments", text);
    reply_call_id(c, "call_", part->call, id);
    return json_pack("{s:[{s:I,s:s,s:s,s:{s:o,s:s}}]}", "tool_calls", "index", (json_int_t)part->call, "id",
                     id, "type", "function", "function", "name", text, "arguments", "");
}

static void put_part(struct reply_choice *c, const struct text_part *part)
{
    json_t *delta = NULL;
    if (part->kind == TEXT_PART_TEXT)
        delta = json_pack("{s:o}", "content", json_stringn(part->text, part->n));
    else if (part->kind == TEXT_PART_REASONING)
        delta = json_pack("{s:o}", "reasoning_content", json_stringn(part->text, part->n));
    else
        delta = call_delta(c, part);
    put_delta(c, delta, NULL, c->out);
}

static void put_logprobs(struct reply_choice *c)
{
    put_delta(c, json_object(), NULL, c->out);
}

static void end(struct reply_choice *c)
{
    put_delta(c, json_object(), reply_finish_reason(c), c->out);
}

static void finish(struct reply *r, struct out_text *out)
{
    static const char done[] = "data: [DONE]\n\n";
    if (r->setup.request->include_usage)
        put_chunk(r, json_array(), reply_usage(r), out);
    out_text_add(out, done, sizeof done - 1);
}

static json_t *calls_of(const struct reply_choice *c)
{
    json_t *list = json_array(), *call;
    char id[REPLY_CALL_ID];
    size_t i;
    json_array_foreach (c->calls, i, call) {
        reply_call_id(c, "call_", i, id);
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:O}", "id", id, "type", "function", "function", call));
    }
    return list;
}

static json_t *choice_of(struct reply_choice *c)
{
    const bool has_calls = json_array_size(c->calls) > 0;
    json_t *content = has_calls && !c->text.len ? json_null() : reply_json_text(&c->text);
    json_t *message = json_pack("{s:s,s:o,s:n}", "role", "assistant", "content", content, "refusal");
    if (c->reasoning.len)
        json_object_set_new(message, "reasoning_content", reply_json_text(&c->reasoning));
    if (has_calls)
        json_object_set_new(message, "tool_calls", calls_of(c));
    return json_pack("{s:I,s:o,s:o,s:s}", "index", (json_int_t)c->index, "message", message, "logprobs",
                     logprobs_of(c), "finish_reason", reply_finish_reason(c));
}

static json_t *whole(struct reply *r)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < r->nchoices; i++)
        json_array_append_new(choices, choice_of(&r->choices[i]));
    json_t *body = envelope(r, "chat.completion", choices);
    json_object_set_new(body, "usage", reply_usage(r));
    return body;
}

const struct reply_form reply_form_chat = {.prefix = "chatcmpl-",
                                           .start = start,
                                           .part = put_part,
                                           .logprobs = put_logprobs,
                                           .end = end,
                                           .finish = finish,
                                           .whole = whole};
