/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/score.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/ringd/openai/completion_request_impl.h"

enum { HELD_OF_TOKEN = 200 }; /* bytes that a token and each of the likeliest take, roughly */

int score_request_read(struct score_request *ret, json_t *json, struct refusal *refusal)
{
    static const struct field fields[] = {{.name = "top_logprobs",
                                           .type = FIELD_WHOLE,
                                           .offset = offsetof(struct score_request, top_logprobs),
                                           .size = sizeof(size_t),
                                           .max = REQUEST_TOP_MAX},
                                          {.name = NULL}};
    struct score_request r = {.json = json_incref(json)};
    size_t n = 0;
    int rc = json_is_object(json)
                 ? request_read_text(&r.model, json, "model", REQUEST_MODEL_MAX, refusal)
                 : refusal_set(refusal, REFUSAL_INVALID, NULL, "the body must be a JSON object");
    if (!rc)
        rc = request_read_fields(&r, fields, json, refusal);
    if (!rc)
        rc = request_read_prompts(&r.text, &n, "prompt", request_member(json, "prompt"), 1, refusal);
    if (rc)
        score_request_done(&r);
    else
        *ret = r;
    return rc;
}

void score_request_done(struct score_request *r)
{
    free(r->text);
    json_decref(r->json);
}

void score_sum_init(struct score_sum *sum)
{
    *sum = (struct score_sum){.tokens = json_array()};
}

void score_sum_done(struct score_sum *sum)
{
    json_decref(sum->tokens);
}

bool score_sum_add(struct score_sum *sum, const json_t *said)
{
    json_t *top = json_object_get(said, "top");
    json_t *token =
        json_pack("{s:O? s:O? s:O* s:O*}", "id", json_object_get(said, "id"), "logprob",
                  json_object_get(said, "logprob"), "text", json_object_get(said, "alone"), "top", top);
    sum->total += json_number_value(json_object_get(said, "logprob"));
    sum->held += HELD_OF_TOKEN * (1 + json_array_size(top));
    json_array_append_new(sum->tokens, token);
    return sum->held < SCORE_HELD_MAX;
}

int score_answer(json_t **ret, const struct score_sum *sum, struct refusal *refusal)
{
    const size_t n = json_array_size(sum->tokens);
    if (n < 2)
        return refusal_set(refusal, REFUSAL_INVALID, "prompt",
                           "one token alone has no probability to score: give at least two");
    *ret = json_pack("{s:O s:f s:f}", "tokens", sum->tokens, "total", sum->total, "perplexity",
                     exp(-sum->total / (double)(n - 1)));
    return 0;
}
