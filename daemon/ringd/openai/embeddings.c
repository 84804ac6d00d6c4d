/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/embeddings.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/openai/completion_request_impl.h"

static const struct field_choice encodings[] = {{"float", false}, {"base64", true}, {NULL, 0}};
static const struct field fields[] = {
    {.name = "encoding_format",
     .type = FIELD_CHOICE,
     .offset = offsetof(struct embedding_request, is_base64),
     .size = sizeof(bool),
     .choices = encodings},
    {.name = "dimensions",
     .type = FIELD_WHOLE,
     .offset = offsetof(struct embedding_request, dimensions),
     .size = sizeof(size_t),
     .min = 1,
     .max = 1 << 20},
    {.name = NULL},
};

int embedding_request_read(struct embedding_request *ret, json_t *json, struct refusal *refusal)
{
    struct embedding_request r = {.json = json_incref(json)};
    int rc = json_is_object(json)
                 ? 0
                 : refusal_set(refusal, REFUSAL_INVALID, NULL, "the body must be a JSON object");
    if (!rc)
        rc = request_read_text(&r.model, json, "model", REQUEST_MODEL_MAX, refusal);
    if (!rc)
        rc = request_read_fields(&r, fields, json, refusal);
    if (!rc)
        rc = request_read_prompts(&r.input, &r.ninput, "input", request_member(json, "input"), EMBEDDINGS_MAX,
                                  refusal);
    for (size_t i = 0; !rc && i < r.ninput; i++)
        if (r.input[i].text && !r.input[i].ntext)
            rc = refusal_set(refusal, REFUSAL_INVALID, "input", "\"input\" must not be an empty text");
    if (rc)
        embedding_request_done(&r);
    else
        *ret = r;
    return rc;
}

void embedding_request_done(struct embedding_request *r)
{
    free(r->input);
    json_decref(r->json);
}

/* RFC 4648, section 4. */
static json_t *base64(const unsigned char *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = xmalloc(4 * ((n + 2) / 3) + 1), *at = text;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t bits = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                              (left > 2 ? data[i + 2] : 0);
        *at++ = digits[bits >> 18];
        *at++ = digits[bits >> 12 & 63];
        *at++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[bits & 63] : '=';
    }
    json_t *json = json_stringn(text, (size_t)(at - text));
    free(text);
    return json;
}

/* The factor that brings the first n to length 1. */
static double scale_of(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return sum > 0 ? 1 / sqrt(sum) : 1;
}

static json_t *vector_json(const float *values, size_t n, double scale, bool is_base64)
{
    unsigned char *bytes = is_base64 ? xmalloc(4 * n) : NULL;
    json_t *list = is_base64 ? NULL : json_array();
    for (size_t i = 0; i < n; i++) {
        const float v = (float)((double)values[i] * scale);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        for (size_t k = 0; is_base64 && k < 4; k++)
            bytes[4 * i + k] = (unsigned char)(bits >> 8 * k);
        if (list)
            json_array_append_new(list, json_real(isfinite(v) ? (double)v : 0));
    }
    if (is_base64)
        list = base64(bytes, 4 * n);
    free(bytes);
    return list;
}

int embeddings_answer(json_t **ret, const struct embedding_request *r, const char *model, const float *values,
                      size_t dim, size_t prompt_tokens, struct refusal *refusal)
{
    const size_t n = r->dimensions ? r->dimensions : dim;
    if (n > dim)
        return refusal_set(refusal, REFUSAL_INVALID, "dimensions",
                           "\"dimensions\" must be a whole number from 1 to %zu for this model, and is %zu",
                           dim, n);
    json_t *data = json_array();
    for (size_t i = 0; i < r->ninput; i++) {
        const float *v = values + i * dim;
        const double scale = n < dim ? scale_of(v, n) : 1;
        json_array_append_new(data, json_pack("{s:s,s:I,s:o}", "object", "embedding", "index", (json_int_t)i,
                                              "embedding", vector_json(v, n, scale, r->is_base64)));
    }
    *ret = json_pack("{s:s,s:o,s:s,s:{s:I,s:I}}", "object", "list", "data", data, "model", model, "usage",
                     "prompt_tokens", (json_int_t)prompt_tokens, "total_tokens", (json_int_t)prompt_tokens);
    return 0;
}
