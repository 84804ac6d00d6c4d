/* SPDX-License-Identifier: MIT
 *
 * Rows as conversations: OpenAI's messages, sharegpt's and alpaca's forms, and pairs, all become
 * the messages chat templates know. Called for each row while a file is read; owns nothing but what
 * it returns. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "train/data_impl.h"

void data_talk_done(struct data_talk *talk)
{
    json_decref(talk->messages);
    json_decref(talk->tools);
    json_decref(talk->trained);
    *talk = (struct data_talk){0};
}

/* --- pairs and instructions ------------------------------------------------------------------- */

static void add_turn(struct data_talk *talk, const char *role, json_t *content)
{
    json_array_append_new(talk->messages, json_pack("{s:s,s:o}", "role", role, "content", content));
    json_array_append_new(talk->trained, json_true());
}

static void add_system(struct data_talk *talk, const json_t *row)
{
    json_t *system = json_object_get(row, "system");
    if (json_string_length(system))
        add_turn(talk, "system", json_incref(system));
}

static int read_pair(const struct data_reader *r, const json_t *row, struct data_talk *talk)
{
    const struct data_fields *f = &r->req->fields;
    const char *keys[2] = {f->prompt ? f->prompt : "prompt", f->completion ? f->completion : "completion"};
    add_system(talk, row);
    for (size_t i = 0; i < 2; i++) {
        json_t *text = json_object_get(row, keys[i]);
        if (!json_is_string(text))
            return data_bad(r, -EBADMSG, "\"%s\" must be a string", keys[i]);
        add_turn(talk, i ? "assistant" : "user", json_incref(text));
    }
    return 0;
}

static int read_alpaca(const struct data_reader *r, const json_t *row, struct data_talk *talk)
{
    json_t *ask = json_object_get(row, "instruction"), *answer = json_object_get(row, "output");
    const char *input = json_string_value(json_object_get(row, "input"));
    if (!json_is_string(ask) || !json_is_string(answer))
        return data_bad(r, -EBADMSG, "\"%s\" must be a string",
                        json_is_string(ask) ? "output" : "instruction");
    add_system(talk, row);
    add_turn(talk, "user",
             input && *input ? json_sprintf("%s\n%s", json_string_value(ask), input) : json_incref(ask));
    add_turn(talk, "assistant", json_incref(answer));
    return 0;
}

/* --- messages --------------------------------------------------------------------------------- */

/* Roles of sharegpt and its followers → a template's. */
static const char *role_of(const char *name)
{
    static const char *const known[][2] = {{"human", "user"},         {"gpt", "assistant"},
                                           {"bot", "assistant"},      {"model", "assistant"},
                                           {"chatgpt", "assistant"},  {"function_call", "assistant"},
                                           {"observation", "tool"},   {"function_response", "tool"},
                                           {"tool_response", "tool"}, {"function", "tool"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i][0]))
            return known[i][1];
    return name;
}

/* {"name", "arguments"} as a call in OpenAI's form; NULL if it is none. */
static json_t *call_of(json_t *call)
{
    if (json_object_get(call, "function"))
        return json_incref(call);
    if (!json_is_string(json_object_get(call, "name")))
        return NULL;
    return json_pack("{s:s,s:O}", "type", "function", "function", call);
}

/* Calls written down as JSON: one, or a list. */
static int add_calls(const struct data_reader *r, size_t turn, const json_t *text, json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *read =
        json_loadb(json_string_value(text) ? json_string_value(text) : "", json_string_length(text), 0, NULL);
    json_t *list = json_is_array(read) ? json_incref(read) : json_pack("[O]", read);
    if (!calls) {
        calls = json_array();
        json_object_set_new(message, "tool_calls", calls);
    }
    int code = json_array_size(list) ? 0 : -EBADMSG;
    for (size_t i = 0; i < json_array_size(list) && !code; i++) {
        json_t *call = call_of(json_array_get(list, i));
        code = call ? json_array_append_new(calls, call) : -EBADMSG;
    }
    json_decref(list);
    json_decref(read);
    return code ? data_bad(r, -EBADMSG,
                           "turn %zu calls a function, but not as JSON with a \"name\" and \"arguments\"",
                           turn)
                : 0;
}

static int add_text(const json_t *text, json_t *message, const char *key)
{
    const json_t *before = json_object_get(message, key);
    json_t *both = json_sprintf("%s%s", before ? json_string_value(before) : "", json_string_value(text));
    return both ? json_object_set_new(message, key, both) : -1;
}

/* Content in parts: text, and where a set has them apart, the reasoning before it and calls of
 * tools. */
static int add_parts(const struct data_reader *r, size_t turn, const json_t *parts, json_t *message)
{
    json_object_set_new(message, "content", json_string(""));
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        int code = 0;
        if (!text)
            text = json_object_get(part, "value");
        if (type && !strcmp(type, "tool_call"))
            code = add_calls(r, turn, text, message);
        else if (type && json_is_string(text) && (!strcmp(type, "text") || !strcmp(type, "reasoning")))
            code = add_text(text, message, *type == 't' ? "content" : "reasoning_content");
        else
            code = data_bad(r, -ENOTSUP, "turn %zu has a part of type \"%s\"; only text can be learnt", turn,
                            type ? input_quote(type).text : "none");
        if (code)
            return code;
    }
    return 0;
}

/* {"weight": 0}, {"loss_weight": 0.0} and {"train": false} say that a turn is not to be learnt. */
static bool is_trained(const json_t *turn)
{
    static const char *const keys[] = {"weight", "loss_weight", "train", "training"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(turn, keys[i]);
        if (json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0))
            return false;
    }
    return true;
}

static json_t *copy_message(const json_t *turn, const char *role)
{
    static const char *const not_theirs[] = {"from", "value", "weight", "loss_weight", "train", "training"};
    json_t *message = json_pack("{s:s}", "role", role), *rest = json_copy((json_t *)turn);
    for (size_t i = 0; i < sizeof not_theirs / sizeof *not_theirs; i++)
        json_object_del(rest, not_theirs[i]);
    json_object_update_missing(message, rest);
    json_decref(rest);
    return message;
}

/* Who says it, as the set names them; NULL where it says nothing of that. */
static const char *turn_name(const json_t *turn)
{
    const json_t *role = json_object_get(turn, "role");
    return json_string_value(role ? role : json_object_get(turn, "from"));
}

static int read_turn(const struct data_reader *r, size_t i, const json_t *turn, struct data_talk *talk)
{
    const json_t *said = json_object_get(turn, "content");
    if (!said)
        said = json_object_get(turn, "value");
    const char *name = turn_name(turn);
    if (!name)
        return data_bad(r, -EBADMSG, "turn %zu has no \"role\", nor sharegpt's \"from\"", i + 1);
    json_t *message = copy_message(turn, role_of(name));
    json_array_append_new(talk->messages, message);
    json_array_append_new(talk->trained, json_boolean(is_trained(turn)));
    int code = 0;
    if (!strcmp(name, "function_call")) {
        json_object_set_new(message, "content", json_string(""));
        code = add_calls(r, i + 1, said, message);
    } else if (json_is_array(said)) {
        code = add_parts(r, i + 1, said, message);
    } else if (json_is_string(said) || !said || json_is_null(said)) {
        json_object_set(message, "content", said ? (json_t *)said : json_null());
    } else {
        code = data_bad(r, -EBADMSG, "turn %zu: its content must be a text", i + 1);
    }
    talk->has_calls |= json_array_size(json_object_get(message, "tool_calls")) > 0;
    return code;
}

/* The row's system prompt, unless its turns begin with one. */
static void add_system_before(struct data_talk *talk, const json_t *row, const json_t *turns)
{
    const char *name = turn_name(json_array_get(turns, 0));
    if (!name || strcmp(name, "system"))
        add_system(talk, row);
}

static int read_turns(const struct data_reader *r, const json_t *row, struct data_talk *talk)
{
    const json_t *turns = json_object_get(row, r->key);
    if (!json_is_array(turns) || !json_array_size(turns))
        return data_bad(r, -EBADMSG, "\"%s\" must be a list of turns, at least one", r->key);
    add_system_before(talk, row, turns);
    int code = 0;
    for (size_t i = 0; i < json_array_size(turns) && !code; i++)
        code = read_turn(r, i, json_array_get(turns, i), talk);
    return code;
}

/* A list, or the same as text; functions that stand alone are wrapped as OpenAI does. */
static int read_tools(const struct data_reader *r, const json_t *row, struct data_talk *talk)
{
    const char *key = r->req->fields.tools ? r->req->fields.tools : "tools";
    const json_t *given = json_object_get(row, key);
    if (!given || json_is_null(given) || (json_is_string(given) && !json_string_length(given)))
        return 0;
    json_t *list = json_is_string(given)
                       ? json_loadb(json_string_value(given), json_string_length(given), 0, NULL)
                       : json_incref((json_t *)given);
    if (!json_is_array(list)) {
        json_decref(list);
        return data_bad(r, -EBADMSG, "\"%s\" must be a list of functions, or such a list written as text",
                        key);
    }
    if (json_array_size(list))
        talk->tools = json_array();
    int code = 0;
    for (size_t i = 0; i < json_array_size(list) && !code; i++) {
        json_t *tool = call_of(json_array_get(list, i));
        if (!tool)
            code = data_bad(r, -EBADMSG, "entry %zu of \"%s\" is not a function with a \"name\"", i, key);
        else
            json_array_append_new(talk->tools, tool);
    }
    json_decref(list);
    return code;
}

/* --- arguments of calls ----------------------------------------------------------------------- */

/* A call whose arguments have the other form; ours alone, for rows are shared with nobody. */
static void set_arguments(json_t *call, bool as_text)
{
    json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    json_t *other = NULL;
    if (as_text && arguments && !json_is_string(arguments)) {
        char *text = json_dumps(arguments, JSON_ENCODE_ANY);
        other = text ? json_string(text) : NULL;
        free(text);
    } else if (!as_text && json_is_string(arguments)) {
        other = json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
    }
    if (other)
        json_object_set_new(function, "arguments", other);
}

void data_talk_arguments(struct data_talk *talk, bool as_text)
{
    for (size_t m = 0; m < json_array_size(talk->messages); m++) {
        json_t *calls = json_object_get(json_array_get(talk->messages, m), "tool_calls");
        for (size_t i = 0; i < json_array_size(calls); i++)
            set_arguments(json_array_get(calls, i), as_text);
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

/* A list of turns, or a text that is one turn of that role. */
static int read_said(const struct data_reader *r, const json_t *row, const char *key, const char *role,
                     struct data_talk *talk)
{
    json_t *said = json_object_get(row, key);
    const size_t before = json_array_size(talk->messages);
    if (json_is_string(said)) {
        add_turn(talk, role, json_incref(said));
        return 0;
    }
    if (!json_is_array(said) || !json_array_size(said))
        return data_bad(r, -EBADMSG, "\"%s\" must be a text, or a list of turns, at least one", key);
    int code = 0;
    for (size_t i = 0; i < json_array_size(said) && !code; i++)
        code = read_turn(r, before + i, json_array_get(said, i), talk);
    return code;
}

/* How many turns two conversations have in common at their beginnings. */
static size_t turns_alike(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* Some sets have the prompt as a text, and also in conversations that begin with it. As TRL does,
 * we take it from these alone. */
static bool is_said_again(const json_t *prompt, const json_t *chosen, const json_t *rejected)
{
    const char *name = turn_name(json_array_get(chosen, 0));
    return json_is_string(prompt) && turns_alike(chosen, rejected) && name &&
           strcmp(role_of(name), "assistant") != 0;
}

static int read_answer(const struct data_reader *r, const json_t *row, const char *key,
                       struct data_talk *talk)
{
    const char *prompt = r->req->fields.prompt ? r->req->fields.prompt : "prompt";
    const json_t *chosen = json_object_get(row, "chosen"), *rejected = json_object_get(row, "rejected"),
                 *asked = json_object_get(row, prompt);
    const bool has_prompt = asked && !is_said_again(asked, chosen, rejected);
    add_system_before(talk, row, has_prompt ? asked : chosen);
    int code = has_prompt ? read_said(r, row, prompt, "user", talk) : 0;
    talk->asked = json_array_size(talk->messages) + (has_prompt ? 0 : turns_alike(chosen, rejected));
    if (!code)
        code = read_said(r, row, key, "assistant", talk);
    if (!code && (!talk->asked || talk->asked >= json_array_size(talk->messages)))
        code = data_bad(r, -EBADMSG,
                        "\"%s\" is no answer to a prompt: give \"prompt\", or conversations that begin "
                        "alike and end with different answers",
                        key);
    return code ? code : read_tools(r, row, talk);
}

int data_talk_read_answer(struct data_reader *r, const json_t *row, const char *key, struct data_talk *ret)
{
    *ret = (struct data_talk){.messages = json_array(), .trained = json_array()};
    return read_answer(r, row, key, ret);
}

int data_talk_read(struct data_reader *r, const json_t *row, struct data_talk *ret)
{
    *ret = (struct data_talk){.messages = json_array(), .trained = json_array()};
    int code = r->kind == ROW_PAIR     ? read_pair(r, row, ret)
               : r->kind == ROW_ALPACA ? read_alpaca(r, row, ret)
                                       : read_turns(r, row, ret);
    if (!code && r->kind == ROW_TALK)
        code = read_tools(r, row, ret);
    return code;
}
