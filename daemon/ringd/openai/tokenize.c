/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/tokenize.h"

#include <errno.h>

#include "daemon/ringd/openai/completion_request_impl.h"
#include "daemon/ringd/openai/turns.h"
#include "daemon/ringd/openai/char_gate.h"

#define FLAG(n, member)                                                                                      \
    {                                                                                                        \
        .name = n, .type = FIELD_FLAG, .offset = offsetof(struct tokenize_request, member),                  \
        .size = sizeof(bool)                                                                                 \
    }

static const struct field fields[] = {
    FLAG("add_special_tokens", add_special),
    FLAG("add_generation_prompt", add_generation_prompt),
    FLAG("return_token_strs", with_pieces),
    {.name = NULL},
};
static const struct field llama_fields[] = {FLAG("add_special", add_special), {.name = NULL}};

static int read_model(const char **ret, const json_t *json, struct refusal *refusal)
{
    if (!json_is_object(json))
        return refusal_set(refusal, REFUSAL_INVALID, NULL, "the body must be a JSON object");
    return request_read_text(ret, json, "model", REQUEST_MODEL_MAX, refusal);
}

static int read_flags(struct tokenize_request *r, struct refusal *refusal)
{
    int rc = request_read_fields(r, fields, r->json, refusal);
    if (!rc && request_member(r->json, "add_special"))
        return request_read_fields(r, llama_fields, r->json, refusal);
    /* A chat template writes the special tokens itself. */
    if (!request_member(r->json, "add_special_tokens"))
        r->add_special = r->text != NULL;
    if (!request_member(r->json, "add_generation_prompt"))
        r->add_generation_prompt = true;
    return rc;
}

int tokenize_request_read(struct tokenize_request *ret, json_t *json, struct refusal *refusal)
{
    struct tokenize_request r = {.json = json_incref(json)};
    const json_t *messages = request_member(json, "messages"), *text = request_member(json, "prompt");
    int rc = read_model(&r.model, json, refusal);
    if (!text)
        text = request_member(json, "content");
    r.text = json_string_value(text);
    r.ntext = json_string_length(text);
    if (!rc && !r.text == !messages)
        rc = refusal_set(refusal, REFUSAL_INVALID, "prompt",
                         "the body must have either a text as \"prompt\" or a conversation as \"messages\"");
    if (!rc && messages)
        rc = turns_of_openai(&r.messages, messages, refusal);
    if (!rc)
        rc = read_flags(&r, refusal);
    if (rc)
        tokenize_request_done(&r);
    else
        *ret = r;
    return rc;
}

void tokenize_request_done(struct tokenize_request *r)
{
    json_decref(r->messages);
    json_decref(r->json);
}

json_t *tokenize_answer(const uint32_t *ids, size_t n, size_t max_context, json_t *pieces)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(tokens, json_integer(ids[i]));
    json_t *answer = json_pack("{s:I,s:I,s:o}", "count", (json_int_t)n, "max_model_len",
                               (json_int_t)max_context, "tokens", tokens);
    if (pieces)
        json_object_set_new(answer, "token_strs", pieces);
    return answer;
}

int detokenize_request_read(struct detokenize_request *ret, json_t *json, struct refusal *refusal)
{
    struct detokenize_request r = {.json = json, .token = request_member(json, "tokens")};
    int rc = read_model(&r.model, json, refusal);
    if (!rc && (!json_is_array(r.token) || (json_array_size(r.token) && !request_are_tokens(r.token))))
        rc = refusal_set(refusal, REFUSAL_INVALID, "tokens", "\"tokens\" must be a list of token ids");
    if (rc)
        return rc;
    json_incref(json);
    *ret = r;
    return 0;
}

void detokenize_request_done(struct detokenize_request *r)
{
    json_decref(r->json);
}

json_t *detokenize_answer(const char *text, size_t n)
{
    json_t *json = text_lossy_json(text, n);
    return json_pack("{s:O,s:o}", "prompt", json, "content", json);
}

json_t *count_tokens_answer(size_t n)
{
    return json_pack("{s:I}", "input_tokens", (json_int_t)n);
}
