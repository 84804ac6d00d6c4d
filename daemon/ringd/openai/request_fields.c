/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/completion_request_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

json_t *request_member(const json_t *json, const char *name)
{
    json_t *value = json_object_get(json, name);
    return json_is_null(value) ? NULL : value;
}

int request_read_fields(void *ret, const struct field *table, const json_t *json, struct refusal *refusal)
{
    /* One row at a time, so that the refusal knows which one. */
    for (const struct field *f = table; f->name; f++) {
        const struct field one[] = {*f, {.name = NULL}};
        struct err err;
        if (fields_read(ret, one, 0, json, &err))
            return refusal_set(refusal, REFUSAL_INVALID, f->name, "%s", err.text);
    }
    return 0;
}

int request_read_text(const char **ret, const json_t *json, const char *name, size_t max,
                      struct refusal *refusal)
{
    const json_t *given = request_member(json, name);
    const size_t n = json_string_length(given);
    if (!given)
        return 0;
    if (!json_is_string(given) || !n || n > max)
        return refusal_set(refusal, REFUSAL_INVALID, name, "\"%s\" must be a text of 1 to %zu bytes", name,
                           max);
    *ret = json_string_value(given);
    return 0;
}

/* json_equal takes 0 and 0.0 for different values. */
static bool is_same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

int request_check_lacks(const struct request_lack *lacks, const json_t *json, struct refusal *refusal)
{
    for (; lacks->name; lacks++) {
        const json_t *given = request_member(json, lacks->name);
        if (!given)
            continue;
        json_t *neutral = lacks->neutral ? json_loads(lacks->neutral, JSON_DECODE_ANY, NULL) : NULL;
        const bool is_harmless = neutral && is_same(given, neutral);
        json_decref(neutral);
        if (!is_harmless)
            return refusal_set(refusal, REFUSAL_UNSUPPORTED, lacks->name, "\"%s\" is not supported here%s%s",
                               lacks->name, lacks->instead ? ": " : "", lacks->instead ? lacks->instead : "");
    }
    return 0;
}

static int add_stop(struct completion_request *r, const char *name, const json_t *stop,
                    struct refusal *refusal)
{
    const size_t n = json_string_length(stop);
    if (!json_is_string(stop) || n > STOP_BYTES || r->nstops == STOPS_MAX)
        return refusal_set(refusal, REFUSAL_INVALID, name,
                           "\"%s\" must be at most %d texts of at most %d bytes", name, STOPS_MAX,
                           STOP_BYTES);
    if (n > 0) /* an empty text would end each answer before it began */
        r->stops[r->nstops++] = json_string_value(stop);
    return 0;
}

int request_read_stops(struct completion_request *r, const char *name, struct refusal *refusal)
{
    const json_t *given = request_member(r->json, name), *one;
    size_t i;
    int rc = 0;
    if (given && !json_is_array(given))
        return add_stop(r, name, given, refusal);
    json_array_foreach (given, i, one)
        if (!rc)
            rc = add_stop(r, name, one, refusal);
    return rc;
}

#define NUMBER(n, member, least, most, preset)                                                               \
    {                                                                                                        \
        .name = n, .type = FIELD_NUMBER, .offset = offsetof(struct sampling, member),                        \
        .size = sizeof(double), .min = least, .max = most, .def = preset                                     \
    }
#define WHOLE(n, type_, member, least, most, preset)                                                         \
    {                                                                                                        \
        .name = n, .type = FIELD_WHOLE, .offset = offsetof(type_, member), .size = sizeof(size_t),           \
        .min = least, .max = most, .def = preset                                                             \
    }

/* The ranges of a job's options (spec_fields.c), which hold those of OpenAI. Its defaults. */
static const struct field sampling_fields[] = {
    NUMBER("temperature", temperature, 0, 100, 1),
    NUMBER("top_p", top_p, 0, 1, 1),
    NUMBER("min_p", min_p, 0, 1, 0),
    NUMBER("repetition_penalty", repetition_penalty, 0.01, 100, 1),
    NUMBER("presence_penalty", presence_penalty, -100, 100, 0),
    NUMBER("frequency_penalty", frequency_penalty, -100, 100, 0),
    WHOLE("repeat_last_n", struct sampling, repeat_last_n, 0, 1024, 64),
    {.name = NULL},
};

enum { LEAST_TOP_P_INVERSE = 1000000 }; /* a top_p of 0 means the likeliest token alone */

static int read_bias(struct token_bias *ret, const char *key, const json_t *value, struct refusal *refusal)
{
    char *end = NULL;
    errno = 0;
    const unsigned long id = strtoul(key, &end, 10);
    const double add = json_number_value(value);
    if (!*key || strspn(key, "0123456789") != strlen(key) || *end || errno || id > UINT32_MAX)
        return refusal_set(refusal, REFUSAL_INVALID, "logit_bias",
                           "\"logit_bias\": \"%.40s\" is no id of a token", key);
    if (!json_is_number(value) || !(add >= -100 && add <= 100))
        return refusal_set(refusal, REFUSAL_INVALID, "logit_bias",
                           "\"logit_bias\" of token %lu must be a number from -100 to 100", id);
    *ret = (struct token_bias){(uint32_t)id, (float)add};
    return 0;
}

static int read_biases(struct completion_request *r, struct refusal *refusal)
{
    json_t *given = request_member(r->json, "logit_bias"), *value;
    const size_t n = json_object_size(given);
    const char *key;
    int rc = 0;
    if (given && (!json_is_object(given) || n > REQUEST_BIASES_MAX))
        return refusal_set(refusal, REFUSAL_INVALID, "logit_bias",
                           "\"logit_bias\" must be an object with at most %d ids of tokens",
                           REQUEST_BIASES_MAX);
    r->sampling.biases = n ? xcalloc(n, sizeof *r->sampling.biases) : NULL;
    json_object_foreach (given, key, value)
        if (!rc && !(rc = read_bias(&r->sampling.biases[r->sampling.nbiases], key, value, refusal)))
            r->sampling.nbiases++;
    return rc;
}

/* Also "repeat_penalty", as llama-server calls it; a top_k or seed of −1 is none there and in
 * vLLM. */
static int read_aliases(struct completion_request *r, struct refusal *refusal)
{
    static const struct field repeat[] = {NUMBER("repeat_penalty", repetition_penalty, 0.01, 100, 1),
                                          {.name = NULL}};
    static const struct field top_k[] = {WHOLE("top_k", struct sampling, top_k, 0, REQUEST_TOKENS_MAX, 0),
                                         {.name = NULL}};
    const json_t *json = r->json, *k = request_member(json, "top_k"), *seed = request_member(json, "seed");
    int rc = 0;
    if (request_member(json, "repeat_penalty") && !request_member(json, "repetition_penalty"))
        rc = request_read_fields(&r->sampling, repeat, json, refusal);
    if (!rc && !(json_is_integer(k) && json_integer_value(k) == -1))
        rc = request_read_fields(&r->sampling, top_k, json, refusal);
    if (!rc && seed && !json_is_integer(seed))
        rc = refusal_set(refusal, REFUSAL_INVALID, "seed", "\"seed\" must be a whole number");
    r->sampling.has_seed = seed && json_integer_value(seed) != -1;
    r->sampling.seed = r->sampling.has_seed ? (uint64_t)json_integer_value(seed) : 0;
    return rc;
}

int request_read_sampling(struct completion_request *r, struct refusal *refusal)
{
    int rc = request_read_fields(&r->sampling, sampling_fields, r->json, refusal);
    if (!rc)
        rc = read_aliases(r, refusal);
    if (!rc)
        rc = read_biases(r, refusal);
    if (r->sampling.top_p < 1.0 / LEAST_TOP_P_INVERSE)
        r->sampling.top_p = 1.0 / LEAST_TOP_P_INVERSE;
    return rc;
}

int request_take_schema(struct completion_request *r, const char *name, const json_t *schema,
                        struct refusal *refusal)
{
    char *text = json_is_object(schema) || json_is_boolean(schema)
                     ? json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY)
                     : NULL;
    const size_t n = text ? strlen(text) : 0;
    free(text);
    if (!n || n > REQUEST_GRAMMAR_MAX)
        return refusal_set(refusal, REFUSAL_INVALID, name, "\"%s\" must be a JSON schema of at most %d bytes",
                           name, REQUEST_GRAMMAR_MAX);
    r->form = ANSWER_SCHEMA;
    r->schema = schema;
    return 0;
}

static int read_response_format(struct completion_request *r, const json_t *format, struct refusal *refusal)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *inside = json_object_get(format, "json_schema"), *schema = request_member(format, "schema");
    if (type && !strcmp(type, "text"))
        return 0;
    if (type && !strcmp(type, "json_schema"))
        return request_take_schema(r, "response_format.json_schema.schema", json_object_get(inside, "schema"),
                                   refusal);
    if (!type || strcmp(type, "json_object") != 0)
        return refusal_set(refusal, REFUSAL_INVALID, "response_format",
                           "\"response_format\" must have a \"type\" of text, json_object or json_schema");
    r->form = ANSWER_JSON;
    return schema ? request_take_schema(r, "response_format.schema", schema, refusal)
                  : 0; /* llama-server's */
}

int request_read_form(struct completion_request *r, struct refusal *refusal)
{
    const json_t *format = request_member(r->json, "response_format"),
                 *schema = request_member(r->json, "json_schema");
    int rc = format ? read_response_format(r, format, refusal) : 0;
    if (!rc)
        rc = request_read_text(&r->grammar, r->json, "grammar", REQUEST_GRAMMAR_MAX, refusal);
    if (!rc && (r->form != ANSWER_TEXT) + (r->grammar != NULL) + (schema != NULL) > 1)
        rc = refusal_set(refusal, REFUSAL_INVALID, r->grammar ? "grammar" : "json_schema",
                         "\"response_format\", \"json_schema\" and \"grammar\" exclude each other");
    if (!rc && schema)
        rc = request_take_schema(r, "json_schema", schema, refusal);
    if (!rc && r->grammar)
        r->form = ANSWER_GRAMMAR;
    return rc;
}

void request_template_arg(struct completion_request *r, const char *name, json_t *value)
{
    if (!r->template_args)
        r->template_args = json_object();
    if (json_object_get(r->template_args, name))
        json_decref(value);
    else
        json_object_set_new(r->template_args, name, value);
}

/* Qwen's templates ask for enable_thinking, DeepSeek's for thinking, gpt-oss's for
 * reasoning_effort. */
int request_read_reasoning(struct completion_request *r, struct refusal *refusal)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    json_t *given = request_member(r->json, "chat_template_kwargs");
    const json_t *thinks = request_member(r->json, "enable_thinking");
    const json_t *effort = request_member(r->json, "reasoning_effort");
    bool is_effort = !effort;
    if (given && !json_is_object(given))
        return refusal_set(refusal, REFUSAL_INVALID, "chat_template_kwargs",
                           "\"chat_template_kwargs\" must be an object with variables of the chat template");
    if (thinks && !json_is_boolean(thinks))
        return refusal_set(refusal, REFUSAL_INVALID, "enable_thinking",
                           "\"enable_thinking\" must be true or false");
    for (size_t i = 0; !is_effort && i < sizeof efforts / sizeof *efforts; i++)
        is_effort = json_is_string(effort) && !strcmp(json_string_value(effort), efforts[i]);
    if (!is_effort)
        return refusal_set(refusal, REFUSAL_INVALID, "reasoning_effort",
                           "\"reasoning_effort\" must be none, minimal, low, medium, high, xhigh or max");
    if (given)
        r->template_args = json_copy(given);
    if (thinks || (effort && !strcmp(json_string_value(effort), "none"))) {
        const bool on = thinks ? json_is_true(thinks) : false;
        request_template_arg(r, "enable_thinking", json_boolean(on));
        request_template_arg(r, "thinking", json_boolean(on));
    }
    if (effort)
        request_template_arg(r, "reasoning_effort", json_string(json_string_value(effort)));
    return 0;
}
