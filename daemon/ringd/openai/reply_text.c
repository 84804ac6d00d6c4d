/* SPDX-License-Identifier: MIT
 *
 * OpenAI's text_completion. */
#include "daemon/ringd/openai/reply_impl.h"

static json_t *envelope(const struct reply *r, json_t *choices)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", r->id, "object", "text_completion", "created",
                     (json_int_t)r->setup.created, "model", r->setup.model, "choices", choices);
}

static json_t *choice_of(struct reply_choice *c, json_t *text, const char *reason)
{
    return json_pack("{s:I,s:o,s:o,s:s?}", "index", (json_int_t)c->index, "text", text, "logprobs",
                     reply_take_logprobs(c), "finish_reason", reason);
}

static void put_chunk(struct reply *r, json_t *choices, json_t *usage, struct out_text *out)
{
    json_t *chunk = envelope(r, choices);
    if (r->setup.request->include_usage)
        json_object_set(chunk, "usage", usage ? usage : json_null());
    json_decref(usage);
    out_text_event(out, NULL, chunk);
}

static void put_text(struct reply_choice *c, json_t *text, const char *reason, struct out_text *out)
{
    put_chunk(c->reply, json_pack("[o]", choice_of(c, text, reason)), NULL, out);
}

/* Prompts that are to be shown. */
static void start(struct reply *r, struct out_text *out)
{
    for (size_t i = 0; i < r->nchoices; i++) {
        struct reply_choice *c = &r->choices[i];
        if (c->text.len)
            put_text(c, reply_json_text(&c->text), NULL, out);
        out_text_clear(&c->text);
    }
}

static void put_part(struct reply_choice *c, const struct text_part *part)
{
    put_text(c, json_stringn(part->text, part->n), NULL, c->out);
}

static void put_logprobs(struct reply_choice *c)
{
    put_text(c, json_string(""), NULL, c->out);
}

static void end(struct reply_choice *c)
{
    put_text(c, json_string(""), reply_finish_reason(c), c->out);
}

static void finish(struct reply *r, struct out_text *out)
{
    static const char done[] = "data: [DONE]\n\n";
    if (r->setup.request->include_usage)
        put_chunk(r, json_array(), reply_usage(r), out);
    out_text_add(out, done, sizeof done - 1);
}

static json_t *whole(struct reply *r)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < r->nchoices; i++) {
        struct reply_choice *c = &r->choices[i];
        json_array_append_new(choices, choice_of(c, reply_json_text(&c->text), reply_finish_reason(c)));
    }
    json_t *body = envelope(r, choices);
    json_object_set_new(body, "usage", reply_usage(r));
    return body;
}

const struct reply_form reply_form_text = {.prefix = "cmpl-",
                                           .start = start,
                                           .part = put_part,
                                           .logprobs = put_logprobs,
                                           .end = end,
                                           .finish = finish,
                                           .whole = whole};
