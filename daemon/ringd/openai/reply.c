/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/reply_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/openai/char_gate.h"

static const struct reply_form *form_of(enum completion_api api)
{
    return api == API_CHAT          ? &reply_form_chat
           : api == API_COMPLETIONS ? &reply_form_text
                                    : &reply_form_messages;
}

/* --- an answer that is no stream: all is kept --- */

/* The arguments of the last call are whole. */
static void close_call(struct reply_choice *c)
{
    json_t *call = json_array_get(c->calls, json_array_size(c->calls) - 1);
    if (call && c->arguments.len)
        json_object_set_new(call, "arguments", reply_json_text(&c->arguments));
    out_text_clear(&c->arguments);
}

static void keep_part(struct reply_choice *c, const struct text_part *part)
{
    c->reply->held += part->n;
    switch (part->kind) {
    case TEXT_PART_TEXT: out_text_add(&c->text, part->text, part->n); break;
    case TEXT_PART_REASONING: out_text_add(&c->reasoning, part->text, part->n); break;
    case TEXT_PART_CALL:
        close_call(c);
        json_array_append_new(c->calls, json_pack("{s:o}", "name", json_stringn(part->text, part->n)));
        break;
    case TEXT_PART_ARGUMENTS: out_text_add(&c->arguments, part->text, part->n); break;
    }
}

static void take_part(void *owner, const struct text_part *part)
{
    struct reply_choice *c = owner;
    if (c->reply->setup.request->stream)
        c->reply->form->part(c, part);
    else
        keep_part(c, part);
}

/* --- its life --- */

static void open_choice(struct reply *r, size_t i)
{
    const struct completion_request *q = r->setup.request;
    struct reply_choice *c = &r->choices[i];
    *c = (struct reply_choice){.reply = r, .index = i, .calls = json_array(), .block_kind = -1};
    struct text_parts_setup setup = {.format = r->setup.format,
                                     .in_reasoning = r->setup.in_reasoning,
                                     .whole_calls = !q->stream,
                                     .most_calls = q->one_call ? 1 : 0,
                                     .stops = q->stops,
                                     .nstops = q->nstops,
                                     .tools = q->tools,
                                     .take = take_part,
                                     .owner = c};
    if (!q->tools || q->tool_choice == TOOLS_NONE)
        setup.format.calls = NULL;
    if (q->api == API_COMPLETIONS)
        setup.format = (struct chat_format){.calls = NULL};
    c->parts = text_parts_new(&setup);
}

struct reply *reply_new(const struct reply_setup *setup)
{
    struct reply *r = xcalloc(1, sizeof *r);
    r->setup = *setup;
    r->form = form_of(setup->request->api);
    snprintf(r->id, sizeof r->id, "%s%.*s", r->form->prefix, REPLY_ID_MAX, setup->id);
    r->setup.id = r->id + strlen(r->form->prefix);
    r->nchoices = setup->request->nprompts * setup->request->n;
    r->choices = xcalloc(r->nchoices, sizeof *r->choices);
    for (size_t i = 0; i < r->nchoices; i++)
        open_choice(r, i);
    return r;
}

void reply_free(struct reply *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->nchoices; i++) {
        struct reply_choice *c = &r->choices[i];
        text_parts_free(c->parts);
        out_text_done(&c->text);
        out_text_done(&c->reasoning);
        out_text_done(&c->arguments);
        json_decref(c->calls);
        json_decref(c->logprobs);
    }
    free(r->choices);
    free(r);
}

void reply_start(struct reply *r, struct out_text *out)
{
    const struct completion_request *q = r->setup.request;
    for (size_t i = 0; q->echo && i < r->nchoices; i++) {
        const struct completion_prompt *p = &q->prompts[i / q->n];
        if (p->text) /* that of tokens comes with them */
            out_text_add(&r->choices[i].text, p->text, p->ntext);
    }
    if (q->stream)
        r->form->start(r, out);
}

void reply_prompt(struct reply *r, size_t tokens, size_t cached)
{
    r->prompt_tokens += tokens;
    r->cached_tokens += cached;
}

/* Characters of UTF-8: bytes that begin one. */
static size_t characters(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] >> 6) != 2;
    return count;
}

enum {
    HELD_OF_LIKELY = 400, /* bytes that JSON needs for a token beside its text, roughly */
    LOGPROBS_HELD = 64,   /* of a stream: tokens whose text may belong to a call or stop string */
};

static size_t logprobs_held(const struct reply_choice *c)
{
    return json_array_size(json_is_array(c->logprobs) ? c->logprobs : json_object_get(c->logprobs, "tokens"));
}

/* What of the prompt's text no token had: the answer stands behind all of it. */
static void skip_echo(struct reply_choice *c)
{
    const struct completion_request *q = c->reply->setup.request;
    const struct completion_prompt *p = q->echo ? &q->prompts[c->index / q->n] : NULL;
    if (p && p->text) {
        c->offset += characters(p->text + c->echoed, p->ntext - c->echoed);
        c->echoed = p->ntext;
    }
}

static void keep_logprob(struct reply_choice *c, const struct reply_token *token)
{
    const struct completion_request *q = c->reply->setup.request;
    if (!q->logprobs || q->api == API_MESSAGES)
        return;
    skip_echo(c);
    if (!c->logprobs)
        c->logprobs = q->api == API_CHAT ? json_array() : logprobs_text_new();
    if (q->api == API_CHAT)
        json_array_append_new(c->logprobs, logprobs_chat_token(token));
    else
        logprobs_text_add(c->logprobs, token, c->offset);
    c->offset += characters(token->self.text, token->self.n);
    c->reply->held += q->stream ? 0 : HELD_OF_LIKELY * (1 + token->ntop);
}

enum { AROUND = 16 }; /* bytes, of a token that the tokenizer has put into the text */

/* Where the text of a token stands in what is left of a prompt, within a few bytes; `n` of it. */
static const char *find_in(const char *left, size_t n_left, const char *token, size_t n)
{
    return n ? memmem(left, n + AROUND < n_left ? n + AROUND : n_left, token, n) : NULL;
}

/* Of a prompt that came as a text: moves to the token's place in it. The tokenizer's own tokens are
 * not in it, nor is the space that it may begin a text with: these stand before what follows. */
static void move_to(struct reply_choice *c, const struct completion_prompt *p, const struct likely_text *t,
                    size_t *ret_chars)
{
    const char *left = p->text + c->echoed;
    const size_t n_left = p->ntext - c->echoed, space = t->n && t->text[0] == ' ';
    size_t n = t->n;
    const char *at = find_in(left, n_left, t->text, n);
    if (!at && space)
        at = find_in(left, n_left, t->text + 1, --n);
    if (!at)
        return;
    c->offset += characters(left, (size_t)(at - left));
    c->echoed = (size_t)(at - p->text) + n;
    *ret_chars = characters(at, n);
}

static void echo_token(struct reply_choice *c, const struct completion_prompt *p,
                       const struct reply_token *token, bool is_first)
{
    const struct completion_request *q = c->reply->setup.request;
    json_t *text = text_lossy_json(token->self.text, token->self.n); /* who says it may be hostile */
    const struct text_part part = {
        .kind = TEXT_PART_TEXT, .text = json_string_value(text), .n = json_string_length(text)};
    size_t chars = 0;
    if (p->text)
        move_to(c, p, &token->self, &chars);
    else
        chars = characters(part.text, part.n);
    if (!c->logprobs)
        c->logprobs = logprobs_text_new();
    if (is_first)
        logprobs_text_add_first(c->logprobs, token);
    else
        logprobs_text_add(c->logprobs, token, c->offset);
    c->offset += chars;
    if (!p->text && part.n)
        take_part(c, &part);
    json_decref(text);
    if (q->stream && logprobs_held(c) >= LOGPROBS_HELD)
        c->reply->form->logprobs(c);
    c->reply->held += q->stream ? 0 : HELD_OF_LIKELY * (1 + token->ntop);
}

bool reply_prompt_token(struct reply *r, size_t prompt, const struct reply_token *token, bool is_first,
                        struct out_text *out)
{
    const struct completion_request *q = r->setup.request;
    for (size_t i = prompt * q->n; i < (prompt + 1) * q->n; i++) {
        struct reply_choice *c = &r->choices[i];
        c->out = out;
        echo_token(c, &q->prompts[prompt], token, is_first);
        c->out = NULL;
    }
    return r->held < REPLY_HELD_MAX;
}

bool reply_token(struct reply *r, size_t choice, const struct reply_token *token, struct out_text *out)
{
    struct reply_choice *c = &r->choices[choice];
    r->tokens++;
    r->reasoning_tokens += text_parts_is_reasoning(c->parts);
    c->out = out;
    keep_logprob(c, token);
    bool goes_on = text_parts_push(c->parts, token->self.text, token->self.n);
    if (r->setup.request->stream && logprobs_held(c) >= LOGPROBS_HELD)
        r->form->logprobs(c);
    c->out = NULL;
    if (goes_on && r->held >= REPLY_HELD_MAX) {
        c->ending = REPLY_CUT;
        goes_on = false;
    }
    return goes_on;
}

void reply_end(struct reply *r, size_t choice, enum reply_ending ending, struct out_text *out)
{
    struct reply_choice *c = &r->choices[choice];
    if (c->is_over)
        return;
    c->out = out;
    text_parts_end(c->parts);
    close_call(c);
    c->is_over = true;
    if (ending == REPLY_CUT)
        c->ending = ending;
    if (r->setup.request->stream)
        r->form->end(c);
    c->out = NULL;
}

void reply_finish(struct reply *r, struct out_text *out)
{
    if (r->setup.request->stream)
        r->form->finish(r, out);
    else
        out_text_json(out, r->form->whole(r));
}

void reply_fail(struct reply *r, const struct refusal *refusal, struct out_text *out)
{
    const bool is_messages = r->setup.request->api == API_MESSAGES;
    json_t *body = is_messages ? refusal_anthropic(refusal) : refusal_openai(refusal);
    if (r->setup.request->stream)
        out_text_event(out, is_messages ? "error" : NULL, body);
    else
        out_text_json(out, body);
}

void reply_ping(const struct reply *r, struct out_text *out)
{
    static const char comment[] = ": ping\n\n";
    if (!r->setup.request->stream)
        return;
    if (r->setup.request->api == API_MESSAGES)
        out_text_event(out, "ping", json_pack("{s:s}", "type", "ping"));
    else
        out_text_add(out, comment, sizeof comment - 1);
}

size_t reply_completion_tokens(const struct reply *r)
{
    return r->tokens;
}
