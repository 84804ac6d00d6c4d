/* SPDX-License-Identifier: MIT
 *
 * One answer of OpenAI's or Anthropic's API by a model that says what it is asked to: the text
 * behind "SAY:" in the last message that has it, or the prompt. Tokens are three bytes each, so
 * that they end inside characters, markers and stop strings.
 *   usage: answer PATH FORMAT [anthropic] <body      FORMAT: hermes, llama3 or deepseek
 * Prints the status, the content type and the body: "200 application/json\n{…}". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/embeddings.h"
#include "daemon/ringd/openai/model_list.h"
#include "daemon/ringd/openai/reply.h"
#include "daemon/ringd/openai/tokenize.h"

enum { TOKEN = 3, DIM = 8, INPUTS = 16 };

static int print_json(unsigned status, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    printf("%u application/json\n%s", status, text);
    free(text);
    json_decref(json);
    return 0;
}

static int refuse(const struct refusal *refusal, bool is_anthropic)
{
    return is_anthropic ? print_json(refusal_anthropic_status(refusal), refusal_anthropic(refusal))
                        : print_json(refusal_openai_status(refusal), refusal_openai(refusal));
}

static int show_models(bool is_list, bool is_anthropic)
{
    static const struct served_model models[] = {{"tiny", 1721952000, 512, NULL}};
    if (is_list)
        return print_json(200, is_anthropic ? model_list_anthropic(models, 1) : model_list_openai(models, 1));
    return print_json(200, is_anthropic ? model_anthropic(models) : model_openai(models));
}

static int embed(json_t *body)
{
    static float values[INPUTS * DIM];
    struct embedding_request r;
    struct refusal refusal;
    json_t *answer = NULL;
    for (size_t i = 0; i < INPUTS * DIM; i++)
        values[i] = 0.25F * (float)(i % DIM);
    if (embedding_request_read(&r, body, &refusal))
        return refuse(&refusal, false);
    const int rc = r.ninput > INPUTS
                       ? refusal_set(&refusal, REFUSAL_INVALID, "input", "at most %d inputs", INPUTS)
                       : embeddings_answer(&answer, &r, "tiny", values, DIM, 5, &refusal);
    embedding_request_done(&r);
    return rc ? refuse(&refusal, false) : print_json(200, answer);
}

static int count(json_t *body)
{
    struct completion_request r;
    struct refusal refusal;
    if (completion_request_read_count(&r, body, &refusal))
        return refuse(&refusal, true);
    completion_request_done(&r);
    return print_json(200, count_tokens_answer(17));
}

static const char *what_to_say(const struct completion_request *r)
{
    const char *say = r->api == API_COMPLETIONS ? r->prompts[0].text : "";
    const json_t *message;
    size_t i;
    json_array_foreach (r->messages, i, message) {
        const char *content = json_string_value(json_object_get(message, "content"));
        const char *found = content ? strstr(content, "SAY:") : NULL;
        say = found ? found + strlen("SAY:") : say;
    }
    return say ? say : "";
}

static void say(struct reply *reply, const struct completion_request *r, size_t choice, struct out_text *out)
{
    static const struct likely_text top = {"x", 1, -1.5};
    const char *text = what_to_say(r);
    const size_t len = strlen(text);
    enum reply_ending ending = REPLY_STOPPED;
    for (size_t at = 0; at < len; at += TOKEN) {
        const struct reply_token token = {
            {text + at, at + TOKEN < len ? TOKEN : len - at, -0.5}, &top, r->top_logprobs ? 1 : 0};
        if (r->max_tokens && at / TOKEN == r->max_tokens)
            ending = REPLY_CUT;
        if (ending == REPLY_CUT || !reply_token(reply, choice, &token, out))
            break;
        if (at == TOKEN)
            reply_ping(reply, out);
    }
    reply_end(reply, choice, ending, out);
}

static int complete(enum completion_api api, json_t *body, const char *format)
{
    struct completion_request r;
    struct refusal refusal;
    struct out_text out = {0};
    if (completion_request_read(&r, api, body, &refusal))
        return refuse(&refusal, api == API_MESSAGES);
    struct reply *reply = reply_new(&(struct reply_setup){.request = &r,
                                                          .format = {call_format_named(format), true, false},
                                                          .id = "0a1b2c3d",
                                                          .model = "tiny",
                                                          .created = 1721952000});
    reply_prompt(reply, 12, 4);
    reply_start(reply, &out);
    for (size_t i = 0; i < r.nprompts * r.n; i++)
        say(reply, &r, i, &out);
    reply_finish(reply, &out);
    printf("200 %s\n%s", r.stream ? "text/event-stream" : "application/json", out.data);
    reply_free(reply);
    completion_request_done(&r);
    out_text_done(&out);
    return 0;
}

static int answer(const char *path, json_t *body, const char *format, bool is_anthropic)
{
    if (!strncmp(path, "/v1/models", 10))
        return show_models(!path[10], is_anthropic);
    if (!strcmp(path, "/v1/embeddings"))
        return embed(body);
    if (!strcmp(path, "/v1/messages/count_tokens"))
        return count(body);
    if (!strcmp(path, "/v1/chat/completions"))
        return complete(API_CHAT, body, format);
    return complete(strcmp(path, "/v1/messages") ? API_COMPLETIONS : API_MESSAGES, body, format);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    json_t *body = json_loadf(stdin, 0, NULL);
    const int rc = answer(argv[1], body, argv[2], argc > 3);
    json_decref(body);
    return rc;
}
