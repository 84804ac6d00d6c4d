/* SPDX-License-Identifier: MIT
 *
 * What is of OpenAI's own: /v1/chat/completions and /v1/completions. */
#include "daemon/ringd/openai/completion_request_impl.h"

#include <errno.h>
#include <string.h>

#include "daemon/ringd/openai/turns.h"

/* What OpenAI, vLLM and llama-server know and would change the answer. */
static const struct request_lack common_lacks[] = {
    {"best_of", "1", "use \"n\""},
    {"suffix", "\"\"", NULL},
    {"use_beam_search", "false", NULL},
    {"length_penalty", "1", NULL},
    {"stop_token_ids", "[]", "use \"stop\" or \"logit_bias\""},
    {"ignore_eos", "false", NULL},
    {"min_tokens", "0", NULL},
    {"bad_words", "[]", NULL},
    {"allowed_token_ids", "[]", NULL},
    {"logits_processors", "[]", NULL},
    {"prompt_logprobs", NULL, "ask /v1/completions with \"echo\" and \"logprobs\""},
    {"truncate_prompt_tokens", NULL, NULL},
    {"typical_p", "1", NULL},
    {"typ_p", "1", NULL},
    {"tfs_z", "1", NULL},
    {"top_a", "0", NULL},
    {"mirostat", "0", NULL},
    {"dry_multiplier", "0", NULL},
    {"xtc_probability", "0", NULL},
    {"dynatemp_range", "0", NULL},
    {"samplers", NULL, NULL},
    {"guided_json", NULL, "use \"response_format\""},
    {"guided_regex", NULL, "use \"grammar\""},
    {"guided_choice", NULL, "use \"grammar\""},
    {"guided_grammar", NULL, "use \"grammar\""},
    {"structured_outputs", NULL, "use \"response_format\""},
    {.name = NULL},
};

static const struct request_lack chat_lacks[] = {
    {"functions", "[]", "use \"tools\""},
    {"function_call", "\"none\"", "use \"tool_choice\""},
    {"audio", NULL, NULL},
    {"modalities", "[\"text\"]", "only text is"},
    {"web_search_options", NULL, NULL},
    {"moderation", NULL, NULL},
    {"verbosity", "\"medium\"", NULL},
    {"echo", "false", NULL},
    {"documents", "[]", NULL},
    {.name = NULL},
};

#define WHOLE(n, member, least, most, preset)                                                                \
    {                                                                                                        \
        .name = n, .type = FIELD_WHOLE, .offset = offsetof(struct completion_request, member),               \
        .size = sizeof(size_t), .min = least, .max = most, .def = preset                                     \
    }
#define FLAG(n, member)                                                                                      \
    {                                                                                                        \
        .name = n, .type = FIELD_FLAG, .offset = offsetof(struct completion_request, member),                \
        .size = sizeof(bool)                                                                                 \
    }

static const struct field common_fields[] = {
    WHOLE("n", n, 1, REQUEST_CHOICES_MAX, 1),
    FLAG("stream", stream),
    {.name = NULL},
};
static const struct field chat_fields[] = {
    FLAG("logprobs", logprobs),
    WHOLE("top_logprobs", top_logprobs, 0, REQUEST_TOP_MAX, 0),
    FLAG("continue_final_message", continues), /* vLLM's */
    {.name = NULL},
};
static const struct field text_fields[] = {
    FLAG("echo", echo),
    WHOLE("logprobs", top_logprobs, 0, REQUEST_TOP_MAX, 0),
    {.name = NULL},
};

/* −1 is as many as there is room for, as in llama-server. Of a text alone 0 is none, as OpenAI has
 * it for a prompt that is only scored. */
static int read_max_tokens(struct completion_request *r, const char *name, struct refusal *refusal)
{
    const json_t *given = request_member(r->json, name);
    const struct field fields[] = {WHOLE(name, max_tokens, 1, REQUEST_TOKENS_MAX, 0), {.name = NULL}};
    if (json_is_integer(given) && json_integer_value(given) == -1)
        return 0;
    r->has_no_answer = r->api == API_COMPLETIONS && json_is_integer(given) && !json_integer_value(given);
    if (r->has_no_answer)
        return 0;
    return given ? request_read_fields(r, fields, r->json, refusal) : 0;
}

static int read_stream_options(struct completion_request *r, struct refusal *refusal)
{
    static const struct field fields[] = {FLAG("include_usage", include_usage), {.name = NULL}};
    const json_t *options = request_member(r->json, "stream_options");
    if (options && !json_is_object(options))
        return refusal_set(refusal, REFUSAL_INVALID, "stream_options",
                           "\"stream_options\" must be an object");
    return request_read_fields(r, fields, options, refusal);
}

static int read_common(struct completion_request *r, struct refusal *refusal)
{
    int rc = request_check_lacks(common_lacks, r->json, refusal);
    if (!rc)
        rc = request_read_fields(r, common_fields, r->json, refusal);
    if (!rc)
        rc = read_stream_options(r, refusal);
    if (!rc)
        rc = read_max_tokens(r, "max_tokens", refusal);
    if (!rc)
        rc = request_read_stops(r, "stop", refusal);
    if (!rc)
        rc = request_read_sampling(r, refusal);
    if (!rc)
        rc = request_read_form(r, refusal);
    return rc;
}

/* A final message that is continued has to be one of the assistant's, and plain. */
static int check_continued(const struct completion_request *r, struct refusal *refusal)
{
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const bool is_closed = json_is_false(json_object_get(r->json, "add_generation_prompt"));
    if (is_closed && !r->continues) /* vLLM wants both together */
        return refusal_set(
            refusal, REFUSAL_UNSUPPORTED, "add_generation_prompt",
            "\"add_generation_prompt\" is false, which needs \"continue_final_message\": true");
    if (!r->continues || (role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls")))
        return 0;
    return refusal_set(refusal, REFUSAL_INVALID, "continue_final_message",
                       "\"continue_final_message\" needs a text of the assistant as the last message");
}

int request_read_chat(struct completion_request *r, struct refusal *refusal)
{
    int rc = read_common(r, refusal);
    if (!rc)
        rc = request_check_lacks(chat_lacks, r->json, refusal);
    if (!rc)
        rc = read_max_tokens(r, "max_completion_tokens", refusal); /* of two the newer one counts */
    if (!rc)
        rc = request_read_fields(r, chat_fields, r->json, refusal);
    if (!rc && r->top_logprobs && !r->logprobs)
        rc = refusal_set(refusal, REFUSAL_INVALID, "top_logprobs",
                         "\"top_logprobs\" needs \"logprobs\": true");
    if (!rc)
        rc = turns_of_openai(&r->messages, request_member(r->json, "messages"), refusal);
    if (!rc)
        rc = check_continued(r, refusal);
    if (!rc)
        rc = request_read_tools(r, refusal);
    if (!rc)
        rc = request_read_reasoning(r, refusal);
    return rc;
}

/* --- prompts --- */

static int read_text_prompts(struct completion_request *r, struct refusal *refusal)
{
    r->nprompts = 0;
    const int rc = request_read_prompts(&r->prompts, &r->nprompts, "prompt",
                                        request_member(r->json, "prompt"), REQUEST_CHOICES_MAX, refusal);
    if (!rc && r->nprompts * r->n > REQUEST_CHOICES_MAX)
        return refusal_set(refusal, REFUSAL_INVALID, "n",
                           "\"prompt\" and \"n\" must ask for at most %d answers, and ask for %zu",
                           REQUEST_CHOICES_MAX, r->nprompts * r->n);
    return rc;
}

/* What is scored or shown before the answer begins. */
static int check_echo(const struct completion_request *r, struct refusal *refusal)
{
    if (r->has_no_answer && !r->echo)
        return refusal_set(refusal, REFUSAL_INVALID, "max_tokens",
                           "\"max_tokens\": 0 asks for nothing without \"echo\": true");
    for (size_t i = 0; i < r->nprompts && r->echo && !r->logprobs; i++)
        if (!r->prompts[i].text)
            return refusal_set(refusal, REFUSAL_UNSUPPORTED, "echo",
                               "\"echo\" of a prompt of tokens needs \"logprobs\", which reads their texts");
    return 0;
}

enum { TEXT_TOKENS = 16 }; /* OpenAI's default for /v1/completions */

int request_read_completions(struct completion_request *r, struct refusal *refusal)
{
    r->max_tokens = TEXT_TOKENS;
    if (json_integer_value(json_object_get(r->json, "max_tokens")) == -1)
        r->max_tokens = 0;
    int rc = read_common(r, refusal);
    if (!rc)
        rc = request_read_fields(r, text_fields, r->json, refusal);
    r->logprobs = request_member(r->json, "logprobs") != NULL;
    if (!rc)
        rc = read_text_prompts(r, refusal);
    if (!rc)
        rc = check_echo(r, refusal);
    return rc;
}
