/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/turns_impl.h"

#include <stdio.h>
#include <string.h>

static bool is_type(const json_t *block, const char *type)
{
    const char *has = json_string_value(json_object_get(block, "type"));
    return has && !strcmp(has, type);
}

/* A text, or blocks of text that are joined, as a new JSON string. */
static int read_texts(json_t **ret, const json_t *content, const char *param, struct refusal *refusal)
{
    struct out_text text = {0};
    const json_t *block;
    size_t i;
    int rc = 0;
    if (!content || json_is_string(content)) {
        *ret = content ? json_incref((json_t *)content) : json_string("");
        return 0;
    }
    if (!json_is_array(content))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must be a text or a list of blocks",
                           param);
    json_array_foreach (content, i, block) {
        if (rc)
            continue;
        if (!is_type(block, "text"))
            rc = turn_refuse_part(block, param, refusal);
        else if (!json_is_string(json_object_get(block, "text")))
            rc = refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" has a block without a text", param);
        else
            turn_join(&text, json_object_get(block, "text"));
    }
    if (!rc)
        *ret = turn_text(&text);
    out_text_done(&text);
    return rc;
}

/* A message of the role with the text so far, if there is any. */
static void end_text(json_t *list, const char *role, struct out_text *text)
{
    if (text->len)
        json_array_append_new(list, json_pack("{s:s,s:o}", "role", role, "content", turn_text(text)));
}

static int add_result(json_t *list, const json_t *block, const char *param, struct refusal *refusal)
{
    json_t *text = NULL, *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must have a \"tool_use_id\"", param);
    const int rc = read_texts(&text, json_object_get(block, "content"), param, refusal);
    if (!rc)
        json_array_append_new(
            list, json_pack("{s:s,s:o,s:O}", "role", "tool", "content", text, "tool_call_id", id));
    return rc;
}

/* Results of tools become messages of their own, between the texts that stand around them. */
static int read_user_blocks(json_t *list, const char *role, const json_t *blocks, size_t at,
                            struct refusal *refusal)
{
    char param[TURN_PARAM];
    struct out_text text = {0};
    const json_t *block;
    size_t i;
    int rc = 0;
    json_array_foreach (blocks, i, block) {
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", at, i);
        if (rc)
            continue;
        if (is_type(block, "tool_result")) {
            end_text(list, role, &text);
            rc = add_result(list, block, param, refusal);
        } else if (is_type(block, "text") && json_is_string(json_object_get(block, "text"))) {
            turn_join(&text, json_object_get(block, "text"));
        } else {
            rc = turn_refuse_part(block, param, refusal);
        }
    }
    if (!rc)
        end_text(list, role, &text);
    out_text_done(&text);
    return rc;
}

static int add_use(json_t *calls, const json_t *block, const char *param, struct refusal *refusal)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    json_t *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must have an \"id\" and a \"name\"",
                           param);
    json_array_append_new(calls, json_pack("{s:O,s:s,s:{s:O,s:o}}", "id", id, "type", "function", "function",
                                           "name", name, "arguments",
                                           json_is_object(input) ? json_incref(input) : json_object()));
    return 0;
}

/* What the blocks of an assistant's message become. */
struct assistant_turn {
    struct out_text text, reasoning;
    json_t *calls;
};

static int read_assistant_block(struct assistant_turn *turn, const json_t *block, const char *param,
                                struct refusal *refusal)
{
    if (is_type(block, "text") && json_is_string(json_object_get(block, "text")))
        turn_join(&turn->text, json_object_get(block, "text"));
    else if (is_type(block, "thinking") && json_is_string(json_object_get(block, "thinking")))
        turn_join(&turn->reasoning, json_object_get(block, "thinking"));
    else if (is_type(block, "tool_use"))
        return add_use(turn->calls, block, param, refusal);
    else if (!is_type(block, "redacted_thinking")) /* encrypted: nobody here can read it */
        return turn_refuse_part(block, param, refusal);
    return 0;
}

static int read_assistant_blocks(json_t *list, const json_t *blocks, size_t at, struct refusal *refusal)
{
    struct assistant_turn turn = {.calls = json_array()};
    char param[TURN_PARAM];
    const json_t *block;
    size_t i;
    int rc = 0;
    json_array_foreach (blocks, i, block) {
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", at, i);
        if (!rc)
            rc = read_assistant_block(&turn, block, param, refusal);
    }
    json_t *message = json_pack("{s:s}", "role", "assistant");
    const bool has_calls = json_array_size(turn.calls) > 0;
    const bool has_reasoning = turn.reasoning.len > 0;
    json_object_set_new(message, "content",
                        has_calls && !turn.text.len ? json_null() : turn_text(&turn.text));
    if (has_reasoning)
        json_object_set_new(message, "reasoning_content", turn_text(&turn.reasoning));
    if (has_calls)
        json_object_set(message, "tool_calls", turn.calls);
    json_array_append_new(list, message);
    json_decref(turn.calls);
    out_text_done(&turn.text);
    out_text_done(&turn.reasoning);
    return rc;
}

static int read_turn(json_t *list, const json_t *message, size_t at, struct refusal *refusal)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content");
    char param[TURN_PARAM];
    snprintf(param, sizeof param, "messages[%zu]", at);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0))
        return refusal_set(refusal, REFUSAL_INVALID, param,
                           "\"%s\" must have a \"role\" of user or assistant", param);
    if (json_is_string(content)) {
        json_array_append_new(list, json_pack("{s:s,s:O}", "role", role, "content", content));
        return 0;
    }
    if (!json_is_array(content))
        return refusal_set(refusal, REFUSAL_INVALID, param,
                           "\"%s\" must have a \"content\": a text or a list of blocks", param);
    return strcmp(role, "assistant") ? read_user_blocks(list, role, content, at, refusal)
                                     : read_assistant_blocks(list, content, at, refusal);
}

int turns_of_anthropic(json_t **ret, const json_t *system, const json_t *messages, struct refusal *refusal)
{
    json_t *list = json_array(), *text = NULL;
    const json_t *message;
    size_t i;
    int rc = turn_check_list(messages, refusal);
    if (!rc && system)
        rc = read_texts(&text, system, "system", refusal);
    if (!rc && json_string_length(text))
        json_array_append_new(list, json_pack("{s:s,s:O}", "role", "system", "content", text));
    json_array_foreach (messages, i, message)
        if (!rc)
            rc = read_turn(list, message, i, refusal);
    if (!rc && !json_array_size(list))
        rc = refusal_set(refusal, REFUSAL_INVALID, "messages", "\"messages\" have no text");
    json_decref(text);
    if (rc)
        json_decref(list);
    else
        *ret = list;
    return rc;
}
