/* SPDX-License-Identifier: MIT
 *
 * Owns a completion from its request to its last byte: the asks at the desk, one for each prompt,
 * and the reply that their tokens become. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/openai/answer_form.h"
#include "daemon/ringd/openai/reply.h"
#include "daemon/ringd/openai/turns.h"
#include "daemon/ringd/serve/served.h"
#include "daemon/ringd/serve/visit.h"

enum {
    STREAM_MOST = 4 << 20, /* bytes that a client has not taken: it is too slow, and is let go */
    ID_ROOM = 17,
};
#define SEED_MOST UINT64_C(9000000000000000) /* of a job's spec (spec_fields.c) */

struct completion;

struct prompt_ask {
    struct completion *of; /* borrowed: owner */
    size_t at;             /* its prompt */
    struct model_ask *ask; /* owned */
};

struct completion {
    struct http_call *call; /* until it is answered, or its stream begins */
    struct http_feed *feed; /* owned: of a stream that has begun */
    struct completion_request request;
    struct chat_format format;
    char *model; /* owned */
    time_t created;
    struct reply *reply;     /* owned; NULL: none of the prompts has begun */
    struct prompt_ask *asks; /* owned [request.nprompts] */
    json_t *form;            /* owned: of all answers, or NULL */
    size_t open;             /* choices that have not ended */
    size_t tokens_in, tokens_out;
    struct visit *visit; /* owned */
    unsigned status;     /* how it ends, if it ends now */
    struct out_text out;
};

/* --- its end ---------------------------------------------------------------------------------- */

static void completion_free(struct completion *c)
{
    for (size_t i = 0; i < c->request.nprompts; i++)
        ask_drop(c->asks[i].ask);
    if (c->feed)
        http_feed_end(c->feed);
    visit_end(c->visit, c->status);
    reply_free(c->reply);
    completion_request_done(&c->request);
    out_text_done(&c->out);
    json_decref(c->form);
    free(c->asks);
    free(c->model);
    free(c);
}

static void flush(struct completion *c)
{
    if (!c->feed)
        return;
    http_feed_put(c->feed, c->out.data, c->out.len);
    out_text_clear(&c->out);
}

static void on_failed(void *owner, const struct refusal *refusal)
{
    struct completion *c = ((struct prompt_ask *)owner)->of;
    c->status = served_status(c->request.api == API_MESSAGES, refusal);
    if (c->call) {
        served_refuse(c->call, c->request.api == API_MESSAGES, refusal);
    } else {
        reply_fail(c->reply, refusal, &c->out);
        flush(c);
    }
    completion_free(c);
}

/* Before its answer, or its stream. */
static void on_left(void *owner)
{
    struct completion *c = owner;
    http_give_up(c->call);
    completion_free(c);
}

static void finish(struct completion *c)
{
    reply_finish(c->reply, &c->out);
    c->status = 200;
    if (c->call)
        http_reply(c->call, 200, "application/json", c->out.data, c->out.len);
    else
        flush(c);
    completion_free(c);
}

/* --- while it goes on ------------------------------------------------------------------------- */

/* The client has left, or has taken what there was. */
static void on_feed(void *owner)
{
    struct completion *c = owner;
    if (!http_feed_is_open(c->feed))
        completion_free(c);
}

/* Of an id, which no other answer may have, and of a seed that nobody gave. */
static uint64_t drawn(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)time(NULL) << 20;
    return number;
}

static void begin(struct completion *c, const struct ask_begun *begun)
{
    char id[ID_ROOM];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)drawn());
    c->reply = reply_new(
        &(struct reply_setup){.request = &c->request,
                              .format = c->format,
                              .in_reasoning = chat_format_opens_reasoning(begun->tail, begun->ntail),
                              .id = id,
                              .model = c->model,
                              .created = c->created});
    reply_prompt(c->reply, begun->prompt_tokens, begun->cached_tokens);
    reply_start(c->reply, &c->out);
    if (!c->request.stream)
        return;
    struct http_call *call = c->call;
    c->call = NULL;
    c->feed = http_feed_new(call, on_feed, c);
    flush(c);
}

static void on_begun(void *owner, const struct ask_begun *begun)
{
    struct completion *c = ((struct prompt_ask *)owner)->of;
    visit_tokens(c->visit, c->tokens_in += begun->prompt_tokens, c->tokens_out);
    if (c->reply)
        reply_prompt(c->reply, begun->prompt_tokens, begun->cached_tokens);
    else
        begin(c, begun);
}

static void end_choice(struct completion *c, size_t choice, enum reply_ending ending)
{
    reply_end(c->reply, choice, ending, &c->out);
    flush(c);
    if (!--c->open)
        finish(c);
}

static void on_prompt(void *owner, const struct ask_prompt_token *token)
{
    const struct prompt_ask *a = owner;
    struct completion *c = a->of;
    struct refusal refusal;
    const bool fits = reply_prompt_token(c->reply, a->at, token->token, token->is_first, &c->out);
    flush(c);
    if (!fits) {
        refusal_set(
            &refusal, REFUSAL_TOO_LARGE, "logprobs",
            "the log-probabilities take more than %d MiB: send fewer prompts at once, or shorter ones",
            REPLY_HELD_MAX >> 20);
        on_failed(owner, &refusal);
    } else if (c->feed && http_feed_waiting(c->feed) > STREAM_MOST) {
        completion_free(c);
    }
}

static bool on_token(void *owner, size_t choice, const struct reply_token *token)
{
    const struct prompt_ask *a = owner;
    struct completion *c = a->of;
    const size_t at = a->at * c->request.n + choice;
    visit_tokens(c->visit, c->tokens_in, ++c->tokens_out);
    const bool goes_on = reply_token(c->reply, at, token, &c->out);
    flush(c);
    if (c->feed && http_feed_waiting(c->feed) > STREAM_MOST) {
        completion_free(c);
        return true; /* it is gone, and its asks with it */
    }
    if (!goes_on)
        end_choice(c, at, REPLY_STOPPED);
    return goes_on;
}

static void on_ended(void *owner, size_t choice, bool is_cut)
{
    const struct prompt_ask *a = owner;
    end_choice(a->of, a->at * a->of->request.n + choice, is_cut ? REPLY_CUT : REPLY_STOPPED);
}

/* --- its beginning ---------------------------------------------------------------------------- */

static json_t *choice_fields(const struct completion_request *q, size_t prompt)
{
    const struct sampling *s = &q->sampling;
    const uint64_t seed = (s->has_seed ? s->seed : drawn() % SEED_MOST) + prompt * q->n;
    json_t *json =
        json_pack("{s:s s:I s:I s:f s:f s:f s:I s:f s:f s:f s:I s:I s:b s:I}", "kind", "text", "n",
                  (json_int_t)q->n, "max_tokens", (json_int_t)(q->has_no_answer ? 0 : q->max_tokens),
                  "temperature", s->temperature, "top_p", s->top_p, "min_p", s->min_p, "top_k",
                  (json_int_t)s->top_k, "repetition_penalty", s->repetition_penalty, "presence_penalty",
                  s->presence_penalty, "frequency_penalty", s->frequency_penalty, "repeat_last_n",
                  (json_int_t)s->repeat_last_n, "seed", (json_int_t)(seed % SEED_MOST), "logprobs",
                  (int)q->logprobs, "top_logprobs", (json_int_t)q->top_logprobs);
    if (q->echo && q->logprobs)
        json_object_set_new(json, "prompt_logprobs", json_true());
    if (q->has_no_answer)
        json_object_set_new(json, "answer", json_false());
    json_t *biases = s->nbiases ? json_object() : NULL;
    for (size_t i = 0; i < s->nbiases; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", s->biases[i].id);
        json_object_set_new(biases, id, json_real((double)s->biases[i].add));
    }
    if (biases)
        json_object_set_new(json, "logit_bias", biases);
    return json;
}

/* As its template wants them. A new reference. */
static json_t *messages_of(const struct completion *c)
{
    json_t *messages = c->request.messages;
    return c->format.in_channels          ? turns_in_channels(messages)
           : c->format.arguments_are_text ? turns_with_text_arguments(messages)
                                          : json_incref(messages);
}

static json_t *ask_of(const struct completion *c, size_t prompt)
{
    const struct completion_request *q = &c->request;
    json_t *json = choice_fields(q, prompt);
    if (c->form)
        json_object_set(json, "form", c->form);
    if (q->api == API_COMPLETIONS) {
        const struct completion_prompt *p = &q->prompts[prompt];
        json_object_set_new(json, p->text ? "text" : "ids",
                            p->text ? json_stringn(p->text, p->ntext) : json_incref((json_t *)p->token));
        return json;
    }
    json_object_set_new(json, "messages", messages_of(c));
    json_object_set_new(json, "generation", json_boolean(!q->continues));
    if (q->tools && q->tool_choice != TOOLS_NONE)
        json_object_set(json, "tools", q->tools);
    if (q->template_args)
        json_object_set(json, "template_args", q->template_args);
    return json;
}

void served_complete(const struct served *served, struct http_call *call, enum completion_api api,
                     json_t *body)
{
    static const struct ask_ops ops = {
        .begun = on_begun, .prompt = on_prompt, .token = on_token, .ended = on_ended, .failed = on_failed};
    struct refusal refusal;
    struct completion *c = xcalloc(1, sizeof *c);
    if (completion_request_read(&c->request, api, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, api == API_MESSAGES, &refusal));
        free(c);
        return;
    }
    c->call = call;
    http_on_leave(call, on_left, c);
    c->visit = served->visit;
    c->status = HTTP_LEFT;
    c->format = served->model->format;
    c->model = xstrdup(served->name);
    c->created = time(NULL);
    c->open = c->request.nprompts * c->request.n;
    c->asks = xcalloc(c->request.nprompts, sizeof *c->asks);
    int r = answer_form_of(&c->form, &c->request, &c->format, &refusal);
    for (size_t i = 0; i < c->request.nprompts && !r; i++) {
        struct prompt_ask *a = &c->asks[i];
        *a = (struct prompt_ask){.of = c, .at = i};
        r = desk_ask(served->desk, &a->ask, served->model->job, served_request(served, ask_of(c, i)),
                     c->request.n, &ops, a, &refusal);
    }
    if (r) {
        c->status = served_refuse(call, api == API_MESSAGES, &refusal);
        completion_free(c);
    }
}
