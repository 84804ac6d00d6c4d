/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/answer_form.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/openai/markers.h"

enum { FRAME_MAX = 256 };

/* What a tool takes, as a document of its own: references inside begin there. */
static json_t *arguments_of(const json_t *function)
{
    json_t *schema = json_copy(json_object_get(function, "parameters"));
    if (!json_object_size(schema)) {
        json_decref(schema);
        schema = json_pack("{s:s}", "type", "object");
    }
    if (!json_object_get(schema, "$id"))
        json_object_set_new(schema, "$id", json_string("arguments"));
    return schema;
}

static json_t *call_in_json(const char *name, json_t *arguments, const struct chat_format *f)
{
    const bool is_bare = f->calls->is_bare, is_list = f->calls->is_list;
    const char *key = is_bare ? "parameters" : "arguments", *begins = f->calls->begins[0];
    char before[FRAME_MAX] = "", after[FRAME_MAX] = "";
    if (is_list) {
        snprintf(before, sizeof before, "%s%s", begins, begins[strlen(begins) - 1] == '[' ? "" : "[");
        snprintf(after, sizeof after, "]");
    } else if (!is_bare) {
        snprintf(before, sizeof before, "%s\n", f->calls->begins[0]);
        snprintf(after, sizeof after, "\n%s", f->calls->ends[0]);
    }
    return json_pack("{s:{s:s s:{s:{s:s} s:o} s:[s s] s:b} s:s s:s}", "schema", "type", "object",
                     "properties", "name", "const", name, key, arguments, "required", "name", key,
                     "additionalProperties", 0, "before", before, "after", after);
}

static json_t *call_of_deepseek(const char *name, json_t *arguments, const struct chat_format *f)
{
    char before[FRAME_MAX];
    const char *after = f->calls_in_code ? "\n```" MARK_DEEPSEEK_CALL_END MARK_DEEPSEEK_CALLS_END
                                         : MARK_DEEPSEEK_CALL_END MARK_DEEPSEEK_CALLS_END;
    snprintf(before, sizeof before,
             f->calls_in_code ? MARK_DEEPSEEK_CALLS MARK_DEEPSEEK_CALL "function" MARK_DEEPSEEK_SEP
                                                                       "%s\n```json\n"
                              : MARK_DEEPSEEK_CALLS MARK_DEEPSEEK_CALL "%s" MARK_DEEPSEEK_SEP,
             name);
    return json_pack("{s:o s:s s:s}", "schema", arguments, "before", before, "after", after);
}

static json_t *call_of_kimi(const char *name, json_t *arguments)
{
    char before[FRAME_MAX];
    snprintf(before, sizeof before, MARK_KIMI_CALLS MARK_KIMI_CALL "functions.%s:0" MARK_KIMI_SEP, name);
    return json_pack("{s:o s:s s:s}", "schema", arguments, "before", before, "after",
                     MARK_KIMI_CALL_END MARK_KIMI_CALLS_END);
}

static json_t *call_of_mistral(const char *name, json_t *arguments)
{
    char before[FRAME_MAX];
    snprintf(before, sizeof before, MARK_MISTRAL_CALLS "%s" MARK_MISTRAL_ARGS, name);
    return json_pack("{s:o s:s s:s}", "schema", arguments, "before", before, "after", "");
}

/* `arguments` is taken. */
static json_t *call_of(const char *name, json_t *arguments, const struct chat_format *f)
{
    switch (f->calls->style) {
    case CALL_DEEPSEEK: return call_of_deepseek(name, arguments, f);
    case CALL_KIMI: return call_of_kimi(name, arguments);
    case CALL_MISTRAL:
        return f->calls_are_named ? call_of_mistral(name, arguments) : call_in_json(name, arguments, f);
    default: return call_in_json(name, arguments, f);
    }
}

/* A call of each tool that may be called. */
static void add_calls(json_t *values, const struct completion_request *q, const struct chat_format *f)
{
    const json_t *tool;
    size_t i;
    json_array_foreach (q->tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name || (q->tool_choice == TOOLS_NAMED && strcmp(name, q->tool_name) != 0))
            continue;
        json_array_append_new(values, call_of(name, arguments_of(function), f));
    }
}

static json_t *values_of(const struct completion_request *q, const struct chat_format *f, bool must_call)
{
    json_t *values = json_array();
    if (q->form == ANSWER_SCHEMA && !must_call)
        json_array_append_new(values, json_pack("{s:O}", "schema", q->schema));
    if (must_call || (f->calls && q->tools && q->tool_choice != TOOLS_NONE))
        add_calls(values, q, f);
    return json_pack("{s:o}", "values", values);
}

int answer_form_of(json_t **ret, const struct completion_request *q, const struct chat_format *f,
                   struct refusal *refusal)
{
    const bool must_call = q->tool_choice == TOOLS_REQUIRED || q->tool_choice == TOOLS_NAMED;
    if (must_call && !f->calls)
        return refusal_set(
            refusal, REFUSAL_UNSUPPORTED, "tool_choice",
            "\"tool_choice\" cannot ask for a call: the chat template of this model shows none of the "
            "formats in which calls can be asked for (Llama 3, Hermes and Qwen, DeepSeek, Kimi-K2, "
            "Mistral, Granite, Phi-4-mini)");
    const bool may_call = f->calls && q->tools && q->tool_choice != TOOLS_NONE;
    if (f->in_channels && may_call && (must_call || q->form))
        return refusal_set(refusal, REFUSAL_UNSUPPORTED, must_call ? "tool_choice" : "response_format",
                           "this model says in special tokens that it calls a tool, and no form can hold "
                           "those: ask for a form or give it tools, and leave \"tool_choice\" at \"auto\"");
    if (may_call && f->calls->closes && (must_call || q->form))
        return refusal_set(
            refusal, REFUSAL_UNSUPPORTED, must_call ? "tool_choice" : "response_format",
            "this model writes arguments in tags or as Python does, and no form holds those: ask "
            "for a form or give it tools, and leave \"tool_choice\" at \"auto\"");
    if (must_call || q->form == ANSWER_SCHEMA)
        *ret = values_of(q, f, must_call);
    else if (q->form == ANSWER_GRAMMAR)
        *ret = json_pack("{s:s}", "grammar", q->grammar);
    else
        *ret = q->form == ANSWER_JSON ? json_pack("{s:b}", "json", 1) : NULL;
    if (*ret && f->in_channels) {
        json_object_set_new(*ret, "opens", json_string(MARK_START "assistant"));
        json_object_set_new(*ret, "closes", json_string(MARK_CHANNEL "final" MARK_MESSAGE));
    } else if (*ret && f->reasons) {
        json_object_set_new(*ret, "opens", json_string(MARK_THINK));
        json_object_set_new(*ret, "closes", json_string(MARK_THINK_END));
    }
    return 0;
}
