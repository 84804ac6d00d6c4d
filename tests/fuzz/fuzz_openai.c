/* SPDX-License-Identifier: MIT
 *
 * What clients of the OpenAI and Anthropic APIs send, and what a model may write. A request is
 * refused with a sentence and a field, or has what its header says. The text of a model becomes the
 * same parts however it is cut, none of them ends inside a character, and whole calls have
 * arguments that are an object. An answer is JSON, whatever the model wrote. Input: u8 what ‖ u8
 * how, then a request in JSON, values that become one, or a text. */
#include "tests/fuzz/lib/input.h"

#include "daemon/ringd/openai/embeddings.h"
#include "daemon/ringd/openai/reply.h"
#include "daemon/ringd/openai/score.h"
#include "daemon/ringd/openai/tokenize.h"
#include "daemon/ringd/openai/turns.h"
#include "tests/unit/daemon/ringd/openai/parts_said.h"

/* --- texts --- */

static struct text_parts_setup setup_of(uint8_t how)
{
    static const char *const formats[] = {"hermes", "llama3", "deepseek"};
    static const char *const stops[] = {"END", "\n\n", "NDx", "aab", "\xc3\xa9"};
    static const char *const others[] = {"kimi", "glm",     "qwen3-coder", "minimax",
                                         "dsml", "mistral", "phi4",        "olmo3"};
    const bool is_other = (how & 131) == 131, in_channels = how & 128 && !is_other;
    const char *calls = is_other      ? others[how >> 2 & 7]
                        : in_channels ? "harmony"
                                      : formats[how & 3 ? (how & 3) - 1 : 0];
    return (struct text_parts_setup){
        .format = {.calls = how & 3 ? call_format_named(calls) : NULL,
                   .reasons = how & 4,
                   .in_channels = in_channels},
        .in_reasoning = how & 8,
        .whole_calls = how & 16,
        .most_calls = how & 32 ? 1 : 0,
        .stops = stops,
        .nstops = how & 64 ? sizeof stops / sizeof *stops : 0,
    };
}

static void read_text(const uint8_t *data, size_t n, uint8_t how)
{
    const char *text = (const char *)data, *stop, *other_stop;
    bool is_cut;
    char *whole = parts_read(setup_of(how), text, n, n + 1, &is_cut, &stop);
    expect(!is_cut);
    for (size_t step = 1; step <= 8; step = 2 * step + 1) {
        char *got = parts_read(setup_of(how), text, n, step, &is_cut, &other_stop);
        expect(!is_cut && stop == other_stop && !strcmp(got, whole));
        free(got);
    }
    free(whole);
}

/* --- requests --- */

static void check_refusal(const struct refusal *refusal)
{
    json_t *openai = refusal_openai(refusal), *anthropic = refusal_anthropic(refusal);
    expect(openai && anthropic && refusal->text[0]);
    expect(refusal_openai_status(refusal) == 400 && refusal_anthropic_status(refusal) == 400);
    json_decref(openai);
    json_decref(anthropic);
}

static void check_messages(const json_t *messages)
{
    const json_t *message;
    size_t i;
    expect(json_array_size(messages) > 0);
    json_array_foreach (messages, i, message) {
        const json_t *content = json_object_get(message, "content");
        expect(json_is_string(json_object_get(message, "role")));
        expect(json_is_string(content) ||
               (json_is_null(content) && json_array_size(json_object_get(message, "tool_calls")) > 0));
    }
}

static void check_request(const struct completion_request *r)
{
    if (r->api == API_COMPLETIONS)
        expect(!r->messages && r->nprompts > 0);
    else
        check_messages(r->messages);
    expect(r->n > 0 && r->nprompts * r->n <= REQUEST_CHOICES_MAX && r->nstops <= STOPS_MAX);
    for (size_t i = 0; i < r->nstops; i++)
        expect(r->stops[i][0] && strlen(r->stops[i]) <= STOP_BYTES);
    for (size_t i = 0; r->api == API_COMPLETIONS && i < r->nprompts; i++)
        expect(!r->prompts[i].text != !r->prompts[i].token);
    expect(json_array_size(r->tools) <= REQUEST_TOOLS_MAX && r->max_tokens <= REQUEST_TOKENS_MAX);
    expect(r->tool_choice != TOOLS_NAMED || (r->tool_name && json_array_size(r->tools)));
    expect(r->sampling.temperature >= 0 && r->sampling.top_p > 0 && r->sampling.top_p <= 1);
    expect((r->form == ANSWER_SCHEMA) == (r->schema != NULL) &&
           (r->form == ANSWER_GRAMMAR) == (r->grammar != NULL));
    json_decref(r->messages ? turns_with_text_arguments(r->messages) : NULL);
}

/* Events of a stream have JSON in them; a whole answer is JSON. */
static void check_answer(const struct out_text *out, bool is_stream)
{
    const char *at = out->data;
    expect(at != NULL);
    if (!is_stream) {
        json_t *json = json_loads(at, 0, NULL);
        expect(json_is_object(json));
        json_decref(json);
    }
    while (is_stream && (at = strstr(at, "data: "))) {
        const char *end = strstr(at, "\n\n");
        expect(end != NULL);
        if (strncmp(at, "data: [DONE]", 12) != 0) {
            json_t *json = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
            expect(json_is_object(json));
            json_decref(json);
        }
        at = end;
    }
}

static void answer(const struct completion_request *r, uint8_t how)
{
    static const char said[] =
        "<think>a\xff</think> b <tool_call>{\"name\":\"f\",\"arguments\":{\"c\":1}}</tool_call>END";
    static const struct likely_text top = {"\xc3", 1, -1};
    struct out_text out = {0};
    struct reply *reply = reply_new(&(struct reply_setup){.request = r,
                                                          .format = setup_of(how).format,
                                                          .in_reasoning = how & 8,
                                                          .id = "0123456789abcdef",
                                                          .model = "m"});
    reply_start(reply, &out);
    for (size_t p = 0; r->echo && r->logprobs && p < r->nprompts; p++)
        for (size_t at = 0; at + 3 < sizeof said; at += 3)
            reply_prompt_token(reply, p, &(struct reply_token){{said + at, 3, -0.5}, &top, 1}, !at, &out);
    for (size_t c = 0; c < r->nprompts * r->n; c++) {
        const size_t step = 1 + (how + c) % 20;
        for (size_t at = 0; at < sizeof said - 1; at += step) {
            const size_t n = at + step < sizeof said ? step : sizeof said - 1 - at;
            const struct reply_token token = {{said + at, n, -0.5}, &top, 1};
            if (!reply_token(reply, c, &token, &out))
                break;
        }
        reply_end(reply, c, how & 128 ? REPLY_CUT : REPLY_STOPPED, &out);
    }
    reply_finish(reply, &out);
    check_answer(&out, r->stream);
    reply_free(reply);
    out_text_done(&out);
}

static void read_embeddings(json_t *json)
{
    static float values[EMBEDDINGS_MAX * 3];
    struct embedding_request r;
    struct refusal refusal;
    json_t *got = NULL;
    if (embedding_request_read(&r, json, &refusal)) {
        check_refusal(&refusal);
        return;
    }
    expect(r.ninput > 0 && r.ninput <= EMBEDDINGS_MAX);
    if (embeddings_answer(&got, &r, "m", values, 3, 1, &refusal))
        check_refusal(&refusal);
    else
        expect(json_array_size(json_object_get(got, "data")) == r.ninput);
    json_decref(got);
    embedding_request_done(&r);
}

static void read_tokenize(json_t *json)
{
    struct tokenize_request r;
    struct detokenize_request back;
    struct score_request score;
    struct refusal refusal;
    if (score_request_read(&score, json, &refusal)) {
        check_refusal(&refusal);
    } else {
        expect(!score.text->text != !score.text->token && score.top_logprobs <= REQUEST_TOP_MAX);
        score_request_done(&score);
    }
    if (tokenize_request_read(&r, json, &refusal)) {
        check_refusal(&refusal);
    } else {
        expect(!r.text != !r.messages);
        tokenize_request_done(&r);
    }
    if (detokenize_request_read(&back, json, &refusal)) {
        check_refusal(&refusal);
    } else {
        expect(json_is_array(back.token));
        detokenize_request_done(&back);
    }
}

static void read_request(json_t *json, uint8_t what, uint8_t how)
{
    struct completion_request r;
    struct refusal refusal;
    if (what == 3 || what == 4) {
        what == 3 ? read_embeddings(json) : read_tokenize(json);
        return;
    }
    const int rc = how & 64 && what == API_MESSAGES ? completion_request_read_count(&r, json, &refusal)
                                                    : completion_request_read(&r, what, json, &refusal);
    if (rc) {
        check_refusal(&refusal);
        return;
    }
    check_request(&r);
    answer(&r, how);
    completion_request_done(&r);
}

static json_t *built(const uint8_t *data, size_t n)
{
    static const char *const keys[] = {"model",
                                       "messages",
                                       "role",
                                       "content",
                                       "type",
                                       "text",
                                       "tools",
                                       "function",
                                       "name",
                                       "parameters",
                                       "tool_choice",
                                       "tool_calls",
                                       "arguments",
                                       "id",
                                       "tool_call_id",
                                       "stop",
                                       "stream",
                                       "stream_options",
                                       "include_usage",
                                       "n",
                                       "max_tokens",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "seed",
                                       "logit_bias",
                                       "7",
                                       "logprobs",
                                       "top_logprobs",
                                       "response_format",
                                       "json_schema",
                                       "schema",
                                       "prompt",
                                       "echo",
                                       "system",
                                       "input_schema",
                                       "stop_sequences",
                                       "thinking",
                                       "tool_use_id",
                                       "input",
                                       "reasoning_content",
                                       "chat_template_kwargs",
                                       "encoding_format",
                                       "dimensions",
                                       "tokens",
                                       NULL};
    static const char *const texts[] = {
        "user",        "assistant",   "tool", "system",    "text",     "function",    "f",        "auto",
        "required",    "none",        "{}",   "{\"a\":1}", "tool_use", "tool_result", "thinking", "enabled",
        "json_schema", "json_object", "any",  "END",       "base64",   NULL};
    static const struct input_words words = {keys, texts};
    struct input in = {data, n};
    return input_object(&in, &words, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    const uint8_t what = data[0], how = data[1];
    if (what % 16 == 15) {
        read_text(data + 2, n - 2, how);
        return 0;
    }
    json_t *json =
        what & 16 ? built(data + 2, n - 2) : json_loadb((const char *)data + 2, n - 2, JSON_DECODE_ANY, NULL);
    if (json)
        read_request(json, what % 16 % 5, how);
    json_decref(json);
    return 0;
}
