/* SPDX-License-Identifier: MIT
 *
 * Owns a request for the log-probabilities of a text: one ask at the desk without an answer, and
 * what came of its prompt. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/openai/score.h"
#include "daemon/ringd/serve/served.h"
#include "daemon/ringd/serve/visit.h"

struct score_call {
    struct http_call *call;
    struct model_ask *ask; /* owned, as all below */
    struct visit *visit;
    struct score_sum sum;
};

static void score_call_free(struct score_call *s, unsigned status)
{
    visit_end(s->visit, status);
    ask_drop(s->ask);
    score_sum_done(&s->sum);
    free(s);
}

static void on_failed(void *owner, const struct refusal *refusal)
{
    struct score_call *s = owner;
    score_call_free(s, served_refuse(s->call, false, refusal));
}

static void on_left(void *owner)
{
    struct score_call *s = owner;
    http_give_up(s->call);
    score_call_free(s, HTTP_LEFT);
}

static void on_begun(void *owner, const struct ask_begun *begun)
{
    struct score_call *s = owner;
    visit_tokens(s->visit, begun->prompt_tokens, 0);
}

static void on_prompt(void *owner, const struct ask_prompt_token *token)
{
    struct score_call *s = owner;
    struct refusal refusal;
    if (score_sum_add(&s->sum, token->said))
        return;
    refusal_set(&refusal, REFUSAL_TOO_LARGE, "top_logprobs",
                "the answer takes more than %d MiB: ask for fewer of the likeliest tokens, or a shorter text",
                SCORE_HELD_MAX >> 20);
    on_failed(owner, &refusal);
}

static void on_ended(void *owner, size_t choice, bool is_cut)
{
    struct score_call *s = owner;
    struct refusal refusal;
    json_t *answer;
    (void)choice, (void)is_cut;
    if (score_answer(&answer, &s->sum, &refusal)) {
        on_failed(owner, &refusal);
        return;
    }
    served_reply(s->call, answer);
    score_call_free(s, 200);
}

void served_score(const struct served *served, struct http_call *call, json_t *body)
{
    static const struct ask_ops ops = {
        .begun = on_begun, .prompt = on_prompt, .ended = on_ended, .failed = on_failed};
    struct score_request r;
    struct refusal refusal;
    if (score_request_read(&r, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, false, &refusal));
        return;
    }
    json_t *request = json_pack("{s:s s:b s:b s:I s:o}", "kind", "text", "prompt_logprobs", 1, "answer", 0,
                                "top_logprobs", (json_int_t)r.top_logprobs, r.text->text ? "text" : "ids",
                                r.text->text ? json_stringn(r.text->text, r.text->ntext)
                                             : json_incref((json_t *)(uintptr_t)r.text->token));
    score_request_done(&r);
    struct score_call *s = xcalloc(1, sizeof *s);
    s->call = call;
    s->visit = served->visit;
    score_sum_init(&s->sum);
    http_on_leave(call, on_left, s);
    if (desk_ask(served->desk, &s->ask, served->model->job, served_request(served, request), 1, &ops, s,
                 &refusal))
        on_failed(s, &refusal);
}
