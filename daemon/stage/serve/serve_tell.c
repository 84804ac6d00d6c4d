/* SPDX-License-Identifier: MIT
 *
 * Events of a job that serves; the daemon's desk (daemon/ringd/serve/desk.h) hears them. */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/token_json.h"

enum { LOAD_US = 1000000 };

void tell_serving(struct server_run *s)
{
    const char *source = s->model.tpl ? chat_template_source(s->model.tpl) : NULL;
    stage_event(s->head->events, "chat-template", json_pack("{s:s?}", "template", source));
    stage_event(s->head->events, "serving",
                json_pack("{s:I s:I s:I}", "max_context", (json_int_t)s->plan->positions, "dim",
                          (json_int_t)s->plan->dim, "kv_blocks", (json_int_t)s->plan->kv_blocks));
}

void tell_begun(struct server_run *s, struct seq *q, size_t cached)
{
    q->ask->is_begun = true;
    s->counts.cached += cached;
    stage_event(s->head->events, "ask-begun",
                json_pack("{s:I s:I s:I s:s?}", "id", (json_int_t)q->ask->id, "prompt_tokens",
                          (json_int_t)q->n_prompt, "cached_tokens",
                          (json_int_t)(cached < q->n_prompt ? cached : q->n_prompt), "tail", q->ask->tail));
}

/* Each of the likeliest by itself, as a text. */
static json_t *top_of(struct server_run *s, const struct likely *likely, size_t top)
{
    json_t *list = json_array();
    for (size_t i = 0; i < top; i++) {
        char *text = NULL;
        size_t n = 0;
        struct err quiet;
        if (s->head->tok && tokenizer_decode(s->head->tok, &likely[i].id, 1, false, &text, &n, &quiet))
            text = NULL;
        json_array_append_new(list, json_pack("{s:o s:f}", "text", token_text(text ? text : "", n), "logprob",
                                              (double)likely[i].logprob));
        free(text);
    }
    return list;
}

int tell_token(struct server_run *s, json_t *list, const struct seq *q, const struct chosen_token *chosen,
               struct err *err)
{
    const struct rows_token *token = chosen->token;
    json_t *item = json_pack("{s:I s:I s:I s:I s:o}", "id", (json_int_t)q->ask->id, "choice",
                             (json_int_t)q->choice, "n", (json_int_t)(q->n - q->n_prompt), "token",
                             (json_int_t)token->token, "text", token_text(chosen->text, chosen->n));
    if (q->ask->wants_logprob)
        json_object_set_new(item, "logprob", json_real((double)token->logprob));
    if (chosen->top)
        json_object_set_new(item, "top", top_of(s, rows_token_likely(token), chosen->top));
    return json_array_append_new(list, item) ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* As its text goes on, and by itself, as a job that scores has it. */
static json_t *prompt_token(struct server_run *s, struct seq *q, const struct rows_token *token,
                            struct err *err)
{
    const size_t top = q->ask->spec.top_logprobs;
    const char *text = "";
    size_t n = 0;
    if (q->again && tokenizer_stream_push(q->again, q->ids[q->reported], &text, &n)) {
        err_set(err, -ENOMEM, "out of memory for a request");
        return NULL;
    }
    json_t *item = token_json(s->head->tok, q->ids[q->reported],
                              token ? json_real((double)token->logprob) : json_null()),
           *alone = json_object_get(item, "text");
    json_object_set(item, "alone", alone);
    json_object_set_new(item, "text", token_text(text, n));
    if (top)
        json_object_set_new(
            item, "top",
            token_json_top(s->head->tok, token ? rows_token_likely(token) : NULL, token ? top : 0));
    return item;
}

int tell_prompt(struct server_run *s, struct seq *q, const struct rows_token *token, size_t n,
                struct err *err)
{
    json_t *list = json_array();
    const size_t at = q->reported;
    int r = 0;
    for (size_t i = 0; i < n && !r; i++) {
        json_t *item = prompt_token(s, q, token, err);
        r = item ? json_array_append_new(list, item) : -ENOMEM;
        q->reported++;
        token = token ? rows_token_next(token, q->ask->spec.top_logprobs) : NULL;
    }
    stage_event(
        s->head->events, "prompt-tokens",
        json_pack("{s:I s:I s:o}", "id", (json_int_t)q->ask->id, "at", (json_int_t)at, "tokens", list));
    return r;
}

void tell_ended(struct server_run *s, const struct seq *q)
{
    stage_event(s->head->events, "ended",
                json_pack("{s:I s:I s:s s:s*}", "id", (json_int_t)q->ask->id, "choice", (json_int_t)q->choice,
                          "why", q->ending, "error", q->fault));
}

void tell_refused(struct server_run *s, uint64_t id, int code, const char *why)
{
    stage_event(s->head->events, "refused",
                json_pack("{s:I s:s s:s}", "id", (json_int_t)id, "kind",
                          code == -E2BIG    ? "too_long"
                          : code == -ENOENT ? "no_model"
                          : code == -ENOMEM ? "busy"
                                            : "invalid",
                          "error", why));
}

void tell_embedded(struct server_run *s, const struct seq *q)
{
    const size_t dim = s->plan->dim;
    json_t *values = json_array();
    double norm = 0;
    for (size_t i = 0; i < dim; i++)
        norm += q->ask->sum[i] * q->ask->sum[i];
    norm = norm > 0 ? sqrt(norm) : 1; /* of length 1, as OpenAI's are: then a mean and a sum are the same */
    for (size_t i = 0; i < dim; i++)
        json_array_append_new(values, json_real((double)(float)(q->ask->sum[i] / norm)));
    stage_event(s->head->events, "embedded",
                json_pack("{s:I s:o s:I}", "id", (json_int_t)q->ask->id, "values", values, "prompt_tokens",
                          (json_int_t)q->n_prompt));
}

void tell_load(struct server_run *s, bool must)
{
    const struct instant now = clock_now();
    struct serve_counts *c = &s->counts;
    if (!must && clock_since_us(now, s->reported_at) < LOAD_US)
        return;
    const struct serve_ask *last = NULL;
    c->requests = c->running = c->waiting = 0;
    for (const struct seq *q = s->seqs; q; q = q->next) {
        c->requests += q->ask != last; /* the answers of a request stand beside each other */
        last = q->ask;
        c->running += q->is_running;
        c->waiting += !q->is_running;
    }
    if (!memcmp(c, &s->reported, sizeof *c))
        return;
    s->reported = *c;
    s->reported_at = now;
    json_t *load =
        json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "requests", (json_int_t)c->requests, "running",
                  (json_int_t)c->running, "waiting", (json_int_t)c->waiting, "kv_used",
                  (json_int_t)kv_pool_used(s->pool), "kv_blocks", (json_int_t)s->plan->kv_blocks,
                  "prompt_tokens", (json_int_t)c->prompt, "cached_tokens", (json_int_t)c->cached,
                  "generated_tokens", (json_int_t)c->generated, "preempted", (json_int_t)c->preempted);
    json_t *guesses =
        json_pack("{s:I s:I s:I s:I}", "guessed_tokens", (json_int_t)c->guessed[DRAFT_TEXT], "guessed_right",
                  (json_int_t)c->right[DRAFT_TEXT], "drafted_tokens", (json_int_t)c->guessed[DRAFT_MODEL],
                  "drafted_right", (json_int_t)c->right[DRAFT_MODEL]);
    json_object_update(load, guesses);
    json_decref(guesses);
    stage_event(s->head->events, "load", load);
}
