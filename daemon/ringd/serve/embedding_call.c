/* SPDX-License-Identifier: MIT
 *
 * Owns a request for embeddings: an ask at the desk for each input. */
#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/openai/embeddings.h"
#include "daemon/ringd/serve/served.h"
#include "daemon/ringd/serve/visit.h"

struct embedding;

struct input_ask {
    struct embedding *of; /* borrowed: owner */
    size_t at;
    struct model_ask *ask; /* owned */
};

struct embedding {
    struct http_call *call;
    struct embedding_request request;
    char *model; /* owned */
    size_t dim, open, prompt_tokens;
    struct visit *visit;    /* owned, until it ends */
    float *values;          /* owned [request.ninput, dim] */
    struct input_ask *asks; /* owned [request.ninput] */
};

static void embedding_free(struct embedding *e, unsigned status)
{
    visit_tokens(e->visit, e->prompt_tokens, 0);
    visit_end(e->visit, status);
    for (size_t i = 0; i < e->request.ninput; i++)
        ask_drop(e->asks[i].ask);
    embedding_request_done(&e->request);
    free(e->values);
    free(e->asks);
    free(e->model);
    free(e);
}

static void fail(struct embedding *e, const struct refusal *refusal)
{
    embedding_free(e, served_refuse(e->call, false, refusal));
}

static void on_failed(void *owner, const struct refusal *refusal)
{
    fail(((struct input_ask *)owner)->of, refusal);
}

static void on_left(void *owner)
{
    struct embedding *e = owner;
    http_give_up(e->call);
    embedding_free(e, HTTP_LEFT);
}

static void finish(struct embedding *e)
{
    struct refusal refusal;
    json_t *answer;
    if (embeddings_answer(&answer, &e->request, e->model, e->values, e->dim, e->prompt_tokens, &refusal)) {
        fail(e, &refusal);
        return;
    }
    served_reply(e->call, answer);
    embedding_free(e, 200);
}

static void on_answered(void *owner, const json_t *event)
{
    const struct input_ask *a = owner;
    struct embedding *e = a->of;
    const json_t *values = json_object_get(event, "values");
    struct refusal refusal;
    if (json_array_size(values) != e->dim) {
        refusal_set(&refusal, REFUSAL_INTERNAL, NULL, "the stage answered with %zu values instead of %zu",
                    json_array_size(values), e->dim);
        fail(e, &refusal);
        return;
    }
    for (size_t i = 0; i < e->dim; i++)
        e->values[a->at * e->dim + i] = (float)json_number_value(json_array_get(values, i));
    e->prompt_tokens += (size_t)json_integer_value(json_object_get(event, "prompt_tokens"));
    if (!--e->open)
        finish(e);
}

static json_t *ask_of(const struct completion_prompt *input)
{
    return json_pack("{s:s s:s s:o}", "kind", "embed", "pooling", "mean", input->text ? "text" : "ids",
                     input->text ? json_stringn(input->text, input->ntext)
                                 : json_incref((json_t *)input->token));
}

void served_embed(const struct served *served, struct http_call *call, json_t *body)
{
    static const struct ask_ops ops = {.answered = on_answered, .failed = on_failed};
    struct refusal refusal;
    struct embedding *e = xcalloc(1, sizeof *e);
    if (embedding_request_read(&e->request, body, &refusal)) {
        visit_end(served->visit, served_refuse(call, false, &refusal));
        free(e);
        return;
    }
    const size_t n = e->request.ninput;
    e->call = call;
    e->visit = served->visit;
    http_on_leave(call, on_left, e);
    e->model = xstrdup(served->name);
    e->dim = served->model->dim;
    e->open = n;
    e->values = xcalloc(n * e->dim + 1, sizeof *e->values);
    e->asks = xcalloc(n, sizeof *e->asks);
    int r = 0;
    for (size_t i = 0; i < n && !r; i++) {
        struct input_ask *a = &e->asks[i];
        *a = (struct input_ask){.of = e, .at = i};
        r = desk_ask(served->desk, &a->ask, served->model->job,
                     served_request(served, ask_of(&e->request.input[i])), 0, &ops, a, &refusal);
    }
    if (r)
        fail(e, &refusal);
}
