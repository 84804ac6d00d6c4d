/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/turns_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/completion_request.h"

void turn_join(struct out_text *text, const json_t *more)
{
    if (text->len)
        out_text_add(text, "\n", 1);
    out_text_add(text, json_string_value(more), json_string_length(more));
}

json_t *turn_text(struct out_text *text)
{
    json_t *json = json_stringn(text->data ? text->data : "", text->len);
    out_text_clear(text);
    return json;
}

int turn_refuse_part(const json_t *part, const char *param, struct refusal *refusal)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type)
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must be an object with a \"type\"",
                           param);
    return refusal_set(refusal, REFUSAL_UNSUPPORTED, param,
                       "\"%s\": content of type \"%.60s\" is not supported here, only text is", param, type);
}

int turn_check_list(const json_t *messages, struct refusal *refusal)
{
    const size_t n = json_array_size(messages);
    if (n > 0 && n <= REQUEST_MESSAGES_MAX)
        return 0;
    return refusal_set(refusal, REFUSAL_INVALID, "messages",
                       "\"messages\" must be a list of 1 to %d messages", REQUEST_MESSAGES_MAX);
}

static const char *text_of_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && !strcmp(type, "text"))
        return "text";
    return type && !strcmp(type, "refusal") ? "refusal" : NULL;
}

/* A text, or parts that are joined, as a new JSON string. */
static int read_content(json_t **ret, const json_t *content, size_t at, struct refusal *refusal)
{
    char param[TURN_PARAM];
    struct out_text text = {0};
    const json_t *part;
    size_t i;
    int rc = 0;
    snprintf(param, sizeof param, "messages[%zu].content", at);
    if (json_is_string(content)) {
        *ret = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must be a text or a list of parts",
                           param);
    json_array_foreach (content, i, part) {
        const char *name = text_of_part(part);
        const json_t *more = name ? json_object_get(part, name) : NULL;
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", at, i);
        if (!rc && name && !json_is_string(more))
            rc = refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" has no text", param);
        else if (!rc && !name)
            rc = turn_refuse_part(part, param, refusal);
        if (!rc)
            turn_join(&text, more);
    }
    if (!rc)
        *ret = turn_text(&text);
    out_text_done(&text);
    return rc;
}

/* Clients send arguments as a text of JSON. What is no object, because a model wrote it so, stays a
 * text. */
static json_t *read_arguments(json_t *given)
{
    json_t *object = json_is_string(given) ? json_loads(json_string_value(given), 0, NULL) : NULL;
    if (json_is_object(object))
        return object;
    json_decref(object);
    if (!given || json_is_null(given) || (json_is_string(given) && !json_string_length(given)))
        return json_object();
    return json_incref(given);
}

static int add_call(json_t *calls, const json_t *call, const char *param, struct refusal *refusal)
{
    const json_t *function = json_object_get(call, "function"), *id = json_object_get(call, "id");
    json_t *name = json_object_get(function, "name");
    if (!json_is_string(name))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must have a \"function\" with a \"name\"",
                           param);
    json_t *clean = json_object();
    if (json_is_string(id))
        json_object_set(clean, "id", (json_t *)id);
    json_object_set_new(clean, "type", json_string("function"));
    json_object_set_new(clean, "function",
                        json_pack("{s:O,s:o}", "name", name, "arguments",
                                  read_arguments(json_object_get(function, "arguments"))));
    json_array_append_new(calls, clean);
    return 0;
}

static int read_calls(json_t *turn, const json_t *given, size_t at, struct refusal *refusal)
{
    char param[TURN_PARAM];
    json_t *calls = json_array();
    const json_t *call;
    size_t i;
    int rc = 0;
    snprintf(param, sizeof param, "messages[%zu].tool_calls", at);
    if (!json_is_array(given))
        rc = refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must be a list", param);
    json_array_foreach (given, i, call) {
        snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu]", at, i);
        if (!rc)
            rc = add_call(calls, call, param, refusal);
    }
    if (!rc && json_array_size(calls)) /* templates ask whether there is the member */
        json_object_set(turn, "tool_calls", calls);
    json_decref(calls);
    return rc;
}

static json_t *reasoning_of(const json_t *message)
{
    json_t *given = json_object_get(message, "reasoning_content");
    return json_is_string(given) ? given : json_object_get(message, "reasoning");
}

static int read_assistant(json_t *turn, const json_t *message, size_t at, struct refusal *refusal)
{
    json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
    json_t *text = NULL;
    int rc = 0;
    if (json_object_get(message, "function_call") && !json_is_null(json_object_get(message, "function_call")))
        return refusal_set(refusal, REFUSAL_UNSUPPORTED, "messages",
                           "messages[%zu]: \"function_call\" is not supported here: use \"tool_calls\"", at);
    if (calls && !json_is_null(calls))
        rc = read_calls(turn, calls, at, refusal);
    const bool has_calls = json_object_get(turn, "tool_calls") != NULL;
    if (!rc && content && !json_is_null(content))
        rc = read_content(&text, content, at, refusal);
    else if (!rc) /* templates of DeepSeek ask for none beside calls */
        text = has_calls ? json_null() : json_string("");
    if (!rc)
        json_object_set_new(turn, "content", text);
    if (!rc && json_is_string(reasoning_of(message)))
        json_object_set(turn, "reasoning_content", reasoning_of(message));
    return rc;
}

static int read_other(json_t *turn, const json_t *message, size_t at, struct refusal *refusal)
{
    json_t *text = NULL, *name = json_object_get(message, "name");
    json_t *id = json_object_get(message, "tool_call_id");
    const int rc = read_content(&text, json_object_get(message, "content"), at, refusal);
    if (rc)
        return rc;
    json_object_set_new(turn, "content", text);
    if (json_is_string(name))
        json_object_set(turn, "name", name);
    if (json_is_string(id))
        json_object_set(turn, "tool_call_id", id);
    return 0;
}

static int read_turn(json_t *list, const json_t *message, size_t at, struct refusal *refusal)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(message, "role"));
    char param[TURN_PARAM];
    bool is_known = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        is_known = is_known || !strcmp(role, roles[i]);
    snprintf(param, sizeof param, "messages[%zu].role", at);
    if (!is_known)
        return refusal_set(refusal, REFUSAL_INVALID, param,
                           "\"%s\" must be system, developer, user, assistant or tool", param);
    json_t *turn = json_pack("{s:s}", "role", strcmp(role, "developer") ? role : "system");
    const int rc = strcmp(role, "assistant") ? read_other(turn, message, at, refusal)
                                             : read_assistant(turn, message, at, refusal);
    json_array_append_new(list, turn);
    return rc;
}

int turns_of_openai(json_t **ret, const json_t *messages, struct refusal *refusal)
{
    json_t *list = json_array();
    const json_t *message;
    size_t i;
    int rc = turn_check_list(messages, refusal);
    json_array_foreach (messages, i, message)
        if (!rc)
            rc = read_turn(list, message, i, refusal);
    if (rc)
        json_decref(list);
    else
        *ret = list;
    return rc;
}

/* What was said before a call is written as thought too. */
static void think_aloud(json_t *turn)
{
    struct out_text all = {0};
    const json_t *said[] = {json_object_get(turn, "thinking"), json_object_get(turn, "content")};
    for (size_t i = 0; i < 2; i++)
        if (json_string_length(said[i]))
            turn_join(&all, said[i]);
    json_object_del(turn, "thinking");
    json_object_del(turn, "content");
    if (all.len)
        json_object_set_new(turn, "thinking", turn_text(&all));
    out_text_done(&all);
}

json_t *turns_in_channels(const json_t *messages)
{
    json_t *copy = json_deep_copy(messages), *turn;
    size_t i;
    json_array_foreach (copy, i, turn) {
        if (json_object_get(turn, "reasoning_content"))
            json_object_set(turn, "thinking", json_object_get(turn, "reasoning_content"));
        json_object_del(turn, "reasoning_content");
        if (json_object_get(turn, "tool_calls"))
            think_aloud(turn);
    }
    return copy;
}

json_t *turns_with_text_arguments(const json_t *messages)
{
    json_t *copy = json_deep_copy(messages), *turn, *call;
    size_t i, k;
    json_array_foreach (copy, i, turn)
        json_array_foreach (json_object_get(turn, "tool_calls"), k, call) {
            json_t *function = json_object_get(call, "function");
            const json_t *arguments = json_object_get(function, "arguments");
            char *text = json_is_string(arguments) ? NULL : json_dumps(arguments, JSON_ENCODE_ANY);
            if (text)
                json_object_set_new(function, "arguments", json_string(text));
            free(text);
        }
    return copy;
}
