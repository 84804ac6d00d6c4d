/* SPDX-License-Identifier: MIT
 *
 * Anthropic's message, whole and as a stream of events. An answer is a list of blocks: thinking,
 * text, tool_use; in a stream one is open at a time. */
#include "daemon/ringd/openai/reply_impl.h"

/* Anthropic counts tokens that were cached apart from the others. */
static json_t *usage_of(const struct reply *r, size_t output)
{
    const size_t fresh = r->prompt_tokens > r->cached_tokens ? r->prompt_tokens - r->cached_tokens : 0;
    return json_pack("{s:I,s:I,s:I,s:I}", "input_tokens", (json_int_t)fresh, "cache_creation_input_tokens",
                     (json_int_t)0, "cache_read_input_tokens", (json_int_t)r->cached_tokens, "output_tokens",
                     (json_int_t)output);
}

static const char *stop_reason(const struct reply_choice *c)
{
    if (c->ending == REPLY_CUT)
        return "max_tokens";
    if (text_parts_stop(c->parts))
        return "stop_sequence";
    return text_parts_calls(c->parts) ? "tool_use" : "end_turn";
}

static json_t *message_of(const struct reply *r, json_t *content, const char *reason, const char *stop,
                          size_t output)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:o,s:s?,s:s?,s:o}", "id", r->id, "type", "message", "role",
                     "assistant", "model", r->setup.model, "content", content, "stop_reason", reason,
                     "stop_sequence", stop, "usage", usage_of(r, output));
}

static json_t *text_block(json_t *text)
{
    return json_pack("{s:s,s:o}", "type", "text", "text", text);
}

/* A signature proves to Anthropic that it wrote the reasoning. We prove nothing. */
static json_t *thinking_block(json_t *text)
{
    return json_pack("{s:s,s:o,s:s}", "type", "thinking", "thinking", text, "signature", "");
}

static json_t *use_block(const struct reply_choice *c, size_t call, json_t *name, json_t *input)
{
    char id[REPLY_CALL_ID];
    reply_call_id(c, "toolu_", call, id);
    return json_pack("{s:s,s:s,s:o,s:o}", "type", "tool_use", "id", id, "name", name, "input", input);
}

static void put(struct out_text *out, const char *type, json_t *event)
{
    json_object_set_new(event, "type", json_string(type));
    out_text_event(out, type, event);
}

static void start(struct reply *r, struct out_text *out)
{
    put(out, "message_start", json_pack("{s:o}", "message", message_of(r, json_array(), NULL, NULL, 0)));
    put(out, "ping", json_object());
}

static void close_block(struct reply_choice *c)
{
    if (c->block_kind < 0)
        return;
    put(c->out, "content_block_stop", json_pack("{s:I}", "index", (json_int_t)c->block));
    c->block++;
    c->block_kind = -1;
}

static void open_block(struct reply_choice *c, const struct text_part *part)
{
    json_t *block = part->kind == TEXT_PART_TEXT ? text_block(json_string(""))
                    : part->kind == TEXT_PART_REASONING
                        ? thinking_block(json_string(""))
                        : use_block(c, part->call, json_stringn(part->text, part->n), json_object());
    close_block(c);
    put(c->out, "content_block_start",
        json_pack("{s:I,s:o}", "index", (json_int_t)c->block, "content_block", block));
    c->block_kind = (int)part->kind;
}

static void put_part(struct reply_choice *c, const struct text_part *part)
{
    static const char *const types[][2] = {[TEXT_PART_TEXT] = {"text_delta", "text"},
                                           [TEXT_PART_REASONING] = {"thinking_delta", "thinking"},
                                           [TEXT_PART_ARGUMENTS] = {"input_json_delta", "partial_json"}};
    /* The block of a call takes its arguments too. */
    if (part->kind == TEXT_PART_CALL ||
        (part->kind != TEXT_PART_ARGUMENTS && c->block_kind != (int)part->kind))
        open_block(c, part);
    if (part->kind == TEXT_PART_CALL)
        return;
    put(c->out, "content_block_delta",
        json_pack("{s:I,s:{s:s,s:o}}", "index", (json_int_t)c->block, "delta", "type", types[part->kind][0],
                  types[part->kind][1], json_stringn(part->text, part->n)));
}

static void end(struct reply_choice *c)
{
    close_block(c);
    put(c->out, "message_delta",
        json_pack("{s:{s:s,s:s?},s:o}", "delta", "stop_reason", stop_reason(c), "stop_sequence",
                  text_parts_stop(c->parts), "usage", usage_of(c->reply, c->reply->tokens)));
}

static void finish(struct reply *r, struct out_text *out)
{
    (void)r;
    put(out, "message_stop", json_object());
}

static json_t *whole(struct reply *r)
{
    const struct reply_choice *c = &r->choices[0];
    json_t *content = json_array(), *call;
    size_t i;
    if (c->reasoning.len)
        json_array_append_new(content, thinking_block(reply_json_text(&c->reasoning)));
    if (c->text.len)
        json_array_append_new(content, text_block(reply_json_text(&c->text)));
    json_array_foreach (c->calls, i, call) {
        const json_t *arguments = json_object_get(call, "arguments");
        json_t *input = json_loads(json_string_value(arguments), 0, NULL);
        json_array_append_new(content, use_block(c, i, json_incref(json_object_get(call, "name")),
                                                 input ? input : json_object()));
    }
    return message_of(r, content, stop_reason(c), text_parts_stop(c->parts), r->tokens);
}

const struct reply_form reply_form_messages = {
    .prefix = "msg_", .start = start, .part = put_part, .end = end, .finish = finish, .whole = whole};
