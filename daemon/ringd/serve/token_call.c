/* SPDX-License-Identifier: MIT
 *
 * Owns a request about tokens: one ask at the desk, whose answer takes another form for each
 * route. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/openai/tokenize.h"
#include "daemon/ringd/serve/served.h"
#include "daemon/ringd/serve/visit.h"

struct token_call {
    struct http_call *call;
    struct model_ask *ask; /* owned, as the next */
    struct visit *visit;
    bool is_anthropic;
    size_t max_context;
    json_t *(*answer)(const struct token_call *t, const json_t *event);
};

static void token_call_free(struct token_call *t, unsigned status)
{
    visit_end(t->visit, status);
    ask_drop(t->ask);
    free(t);
}

static void on_failed(void *owner, const struct refusal *refusal)
{
    struct token_call *t = owner;
    token_call_free(t, served_refuse(t->call, t->is_anthropic, refusal));
}

static void on_left(void *owner)
{
    struct token_call *t = owner;
    http_give_up(t->call);
    token_call_free(t, HTTP_LEFT);
}

static void on_answered(void *owner, const json_t *event)
{
    struct token_call *t = owner;
    visit_tokens(t->visit, json_array_size(json_object_get(event, "ids")), 0);
    served_reply(t->call, t->answer(t, event));
    token_call_free(t, 200);
}

static void ask(const struct served *served, const struct token_call *call, json_t *request)
{
    static const struct ask_ops ops = {.answered = on_answered, .failed = on_failed};
    struct refusal refusal;
    struct token_call *t = xmemdup(call, sizeof *call);
    t->max_context = served->model->max_context;
    t->visit = served->visit;
    http_on_leave(t->call, on_left, t);
    if (desk_ask(served->desk, &t->ask, served->model->job, request, 0, &ops, t, &refusal))
        on_failed(t, &refusal);
}

/* --- /v1/tokenize ----------------------------------------------------------------------------- */

static json_t *tokens_answer(const struct token_call *t, const json_t *event)
{
    const json_t *list = json_object_get(event, "ids");
    const size_t n = json_array_size(list);
    uint32_t *ids = xcalloc(n + 1, sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    json_t *answer = tokenize_answer(ids, n, t->max_context, json_incref(json_object_get(event, "pieces")));
    free(ids);
    return answer;
}

void served_tokenize(const struct served *served, struct http_call *call, json_t *body)
{
    struct tokenize_request r;
    struct refusal refusal;
    if (tokenize_request_read(&r, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, false, &refusal));
        return;
    }
    json_t *request = json_pack("{s:s s:b s:b s:b s:o}", "kind", "tokenize", "special", (int)r.add_special,
                                "pieces", (int)r.with_pieces, "generation", (int)r.add_generation_prompt,
                                r.messages ? "messages" : "text",
                                r.messages ? json_incref(r.messages) : json_stringn(r.text, r.ntext));
    tokenize_request_done(&r);
    ask(served, &(struct token_call){.call = call, .answer = tokens_answer}, request);
}

/* --- /v1/detokenize --------------------------------------------------------------------------- */

static json_t *text_answer(const struct token_call *t, const json_t *event)
{
    const json_t *text = json_object_get(event, "text");
    (void)t;
    return detokenize_answer(json_is_string(text) ? json_string_value(text) : "", json_string_length(text));
}

void served_detokenize(const struct served *served, struct http_call *call, json_t *body)
{
    struct detokenize_request r;
    struct refusal refusal;
    if (detokenize_request_read(&r, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, false, &refusal));
        return;
    }
    json_t *request = json_pack("{s:s s:O}", "kind", "detokenize", "ids", r.token);
    detokenize_request_done(&r);
    ask(served, &(struct token_call){.call = call, .answer = text_answer}, request);
}

/* --- /v1/messages/count_tokens ---------------------------------------------------------------- */

static json_t *count_answer(const struct token_call *t, const json_t *event)
{
    (void)t;
    return count_tokens_answer(json_array_size(json_object_get(event, "ids")));
}

void served_count(const struct served *served, struct http_call *call, json_t *body)
{
    struct completion_request r;
    struct refusal refusal;
    if (completion_request_read_count(&r, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, true, &refusal));
        return;
    }
    json_t *request = json_pack("{s:s s:O}", "kind", "tokenize", "messages", r.messages);
    if (r.tools && r.tool_choice != TOOLS_NONE)
        json_object_set(request, "tools", r.tools);
    completion_request_done(&r);
    ask(served, &(struct token_call){.call = call, .is_anthropic = true, .answer = count_answer}, request);
}
