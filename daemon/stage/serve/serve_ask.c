/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve_ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/stage/choice.h"
#include "daemon/stage/stage_chat.h"
#include "daemon/stage/token_json.h"

enum { TAIL = 128, CHOICES_MAX = 32 };

static size_t size_of(const json_t *json, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (size_t)value : 0;
}

/* --- the prompt ------------------------------------------------------------------------------- */

static int take_ids(uint32_t **ret, size_t *ret_n, const json_t *list, size_t vocab, struct err *err)
{
    const size_t n = json_array_size(list);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return err_set(err, -ENOMEM, "no memory for a prompt of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        const json_int_t id = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || id < 0 || (size_t)id >= vocab) {
            free(ids);
            return err_set(err, -EINVAL, "entry %zu of the token ids is no token: this model has 0 to %zu",
                           i + 1, vocab - 1);
        }
        ids[i] = (uint32_t)id;
    }
    *ret = ids;
    *ret_n = n;
    return 0;
}

/* The end of a text, from the beginning of a character on. */
static char *tail_of(const char *text, size_t n)
{
    size_t at = n > TAIL ? n - TAIL : 0;
    while (at < n && ((unsigned char)text[at] & 0xc0) == 0x80)
        at++;
    return strndup(text + at, n - at);
}

static int read_chat(struct serve_ask *a, struct serve_model *m, struct err *err)
{
    struct chat_prompt prompt = {0};
    const struct chat_request req = {.messages = json_object_get(a->json, "messages"),
                                     .tools = json_object_get(a->json, "tools"),
                                     .add_generation_prompt =
                                         !json_is_false(json_object_get(a->json, "generation")),
                                     .extra = json_object_get(a->json, "template_args"),
                                     .now = time(NULL)};
    if (!m->tpl)
        return err_set(err, -EINVAL, "%s", m->why);
    int r = chat_prompt_render(&prompt, m->tpl, m->head->spec.model, &m->head->tok, &req, err);
    if (r)
        return r == -ENOMEM ? r : -EINVAL;
    a->ids = prompt.ids;
    a->n = prompt.n;
    prompt.ids = NULL;
    a->tail = tail_of(prompt.text.text, prompt.text.n);
    a->has_end = prompt.end && !tokenizer_id(m->head->tok, prompt.end, &a->end);
    chat_prompt_done(&prompt);
    return 0;
}

static int read_prompt(struct serve_ask *a, struct serve_model *m, struct err *err)
{
    const json_t *text = json_object_get(a->json, "text"), *ids = json_object_get(a->json, "ids");
    struct head *h = m->head;
    if (json_is_array(ids))
        return take_ids(&a->ids, &a->n, ids, h->config.vocab, err);
    if (json_is_array(json_object_get(a->json, "messages")))
        return read_chat(a, m, err);
    if (!json_is_string(text))
        return err_set(err, -EINVAL, "the request has no prompt");
    if (!h->tok)
        return err_set(err, -EINVAL, "%s has no tokenizer.json: ask with token ids", h->spec.model);
    return tokenizer_encode(h->tok, json_string_value(text), json_string_length(text),
                            !json_is_false(json_object_get(a->json, "special")), &a->ids, &a->n, err);
}

/* --- the rest --------------------------------------------------------------------------------- */

static int read_choice(struct serve_ask *a, const struct serve_model *m, struct err *err)
{
    json_t *spec = json_copy(a->json);
    json_object_del(spec, "max_tokens"); /* 0 means another thing here */
    json_object_set_new(spec, "model", json_string(m->head->spec.model));
    int r = fields_read(&a->spec, job_spec_fields(), JOB_SPEC_OF(JOB_GENERATE), spec, err);
    json_decref(spec); /* what it points into is shared with a->json, but for the model's path */
    a->spec.model = m->head->spec.model;
    return r ? r : choice_check(&a->spec, m->head->config.vocab, err);
}

static int read_form(struct serve_ask *a, struct serve_model *m, struct err *err)
{
    const json_t *how = json_object_get(a->json, "form");
    return how ? serve_form_take(&a->form, &m->forms, how, err) : 0;
}

static int read_text(struct serve_ask *a, struct serve_model *m, struct err *err)
{
    const size_t room = m->head->plan.positions;
    a->wants_prompt = json_is_true(json_object_get(a->json, "prompt_logprobs"));
    a->has_no_answer = json_is_false(json_object_get(a->json, "answer"));
    const size_t least = !a->has_no_answer;
    a->choices = size_of(a->json, "n") ? size_of(a->json, "n") : 1;
    a->max_tokens = size_of(a->json, "max_tokens");
    a->wants_logprob = json_is_true(json_object_get(a->json, "logprobs"));
    if (a->choices > CHOICES_MAX)
        return err_set(err, -EINVAL, "%zu answers are asked for: at most %d are given", a->choices,
                       CHOICES_MAX);
    if (a->n + least > room || a->max_tokens > room - a->n)
        return err_set(err, -E2BIG,
                       "the prompt has %zu tokens, and %zu are asked for: both together may be %zu here "
                       "(`ringctl serve --max-context`)",
                       a->n, a->max_tokens ? a->max_tokens : least, room);
    if (!a->max_tokens)
        a->max_tokens = room - a->n;
    const int r = read_choice(a, m, err);
    return r ? r : read_form(a, m, err);
}

static int read_embedding(struct serve_ask *a, const struct serve_model *m, struct err *err)
{
    const char *pooling = json_string_value(json_object_get(a->json, "pooling"));
    a->choices = 1;
    a->is_last_alone = pooling && !strcmp(pooling, "last");
    a->sum = calloc(m->head->config.dim, sizeof *a->sum);
    if (!a->sum)
        return err_set(err, -ENOMEM, "no memory for an embedding");
    return a->n <= m->head->plan.positions
               ? 0
               : err_set(err, -E2BIG, "the text has %zu tokens, and at most %zu are read here", a->n,
                         m->head->plan.positions);
}

static int read_adapter(struct serve_ask *a, const struct head *h, struct err *err)
{
    const char *name = json_string_value(json_object_get(a->json, "adapter"));
    a->adapter = STAGE_NO_ADAPTER;
    for (uint32_t i = 0; name && *name && i < h->nadapters; i++)
        if (!strcmp(h->adapters[i].name, name))
            a->adapter = i;
    return !name || a->adapter != STAGE_NO_ADAPTER
               ? 0
               : err_set(err, -ENOENT,
                         "the adapter \"%s\" is not served any more: GET /v1/models lists what is", name);
}

static int read_ask(struct serve_ask *a, struct serve_model *m, struct err *err)
{
    static const char *const kinds[ASK_KINDS] = {"text", "embed", "tokenize", "detokenize"};
    const char *kind = json_string_value(json_object_get(a->json, "kind"));
    while (a->kind < ASK_KINDS && (!kind || strcmp(kind, kinds[a->kind])))
        a->kind++;
    if (a->kind == ASK_KINDS)
        return err_set(err, -EINVAL, "the request is of no kind that this version knows");
    int r = read_adapter(a, m->head, err);
    if (!r)
        r = read_prompt(a, m, err);
    if (!r && a->kind <= ASK_EMBED && !a->n)
        r = err_set(err, -EINVAL, "the prompt is empty, and this tokenizer adds no token: give a text");
    if (!r && a->kind == ASK_TEXT)
        r = read_text(a, m, err);
    if (!r && a->kind == ASK_EMBED)
        r = read_embedding(a, m, err);
    a->open = a->choices;
    return r;
}

int serve_ask_read(struct serve_ask **ret, struct serve_model *m, const json_t *json, struct err *err)
{
    struct serve_ask *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, -ENOMEM, "no memory for a request");
    a->id = size_of(json, "id");
    a->json = json_incref((json_t *)(uintptr_t)json);
    const int r = read_ask(a, m, err);
    if (r)
        serve_ask_free(a);
    else
        *ret = a;
    return r;
}

void serve_ask_free(struct serve_ask *a)
{
    if (!a)
        return;
    serve_form_drop(a->form);
    json_decref(a->json);
    free(a->ids);
    free(a->tail);
    free(a->sum);
    free(a);
}

/* --- answers without a stage ------------------------------------------------------------------ */

static json_t *pieces_of(const struct serve_ask *a, const struct serve_model *m, struct err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; m->head->tok && i < a->n; i++) {
        char *text;
        size_t n;
        if (tokenizer_decode(m->head->tok, &a->ids[i], 1, false, &text, &n, err)) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, token_text(text, n));
        free(text);
    }
    return list;
}

json_t *serve_ask_tokens(const struct serve_ask *a, const struct serve_model *m, struct err *err)
{
    json_t *ids = json_array(), *pieces = NULL;
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(ids, json_integer(a->ids[i]));
    if (json_is_true(json_object_get(a->json, "pieces")) && !(pieces = pieces_of(a, m, err))) {
        json_decref(ids);
        return NULL;
    }
    return json_pack("{s:I s:o s:o*}", "id", (json_int_t)a->id, "ids", ids, "pieces", pieces);
}

json_t *serve_ask_plain_text(const struct serve_ask *a, const struct serve_model *m, struct err *err)
{
    char *text;
    size_t n;
    if (!m->head->tok) {
        err_set(err, -EINVAL, "%s has no tokenizer.json", m->head->spec.model);
        return NULL;
    }
    if (tokenizer_decode(m->head->tok, a->ids, a->n, false, &text, &n, err))
        return NULL;
    json_t *answer = json_pack("{s:I s:o}", "id", (json_int_t)a->id, "text", token_text(text, n));
    free(text);
    return answer;
}
