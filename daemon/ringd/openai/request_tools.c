/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/completion_request_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PARAM = 64 };

int request_check_tool_name(const json_t *name, const char *param, struct refusal *refusal)
{
    const char *text = json_string_value(name);
    const size_t n = json_string_length(name);
    bool ok = n > 0 && n <= REQUEST_TOOL_NAME_MAX;
    for (size_t i = 0; ok && i < n; i++)
        ok = isalnum((unsigned char)text[i]) || strchr("_-.", text[i]);
    return ok ? 0
              : refusal_set(refusal, REFUSAL_INVALID, param,
                            "\"%s\" must be a text of 1 to %d letters, digits, \"_\", \"-\" or \".\"", param,
                            REQUEST_TOOL_NAME_MAX);
}

/* {"type": "function", "function": {"name", "description", "parameters", …}}; "strict" is for us
 * and not for the model. */
static int add_tool(struct completion_request *r, size_t i, const json_t *tool, struct refusal *refusal)
{
    char param[PARAM];
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_t *function = json_object_get(tool, "function"),
           *parameters = request_member(function, "parameters");
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (type && strcmp(type, "function") != 0)
        return refusal_set(refusal, REFUSAL_UNSUPPORTED, param,
                           "\"%s\": tools of type \"%.60s\" are not supported here, only functions", param,
                           type);
    if (!type || !json_is_object(function))
        return refusal_set(refusal, REFUSAL_INVALID, param,
                           "\"%s\" must be {\"type\": \"function\", \"function\": {…}}", param);
    if (parameters && !json_is_object(parameters))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\": \"parameters\" must be a JSON schema",
                           param);
    snprintf(param, sizeof param, "tools[%zu].function.name", i);
    if (request_check_tool_name(json_object_get(function, "name"), param, refusal))
        return -EINVAL;
    json_t *copy = json_copy(function);
    json_object_del(copy, "strict");
    json_array_append_new(r->tools, json_pack("{s:s,s:o}", "type", "function", "function", copy));
    return 0;
}

int request_each_tool(struct completion_request *r,
                      int (*add)(struct completion_request *r, size_t i, const json_t *tool,
                                 struct refusal *refusal),
                      struct refusal *refusal)
{
    const json_t *given = request_member(r->json, "tools"), *tool;
    size_t i;
    int rc = 0;
    if (given && (!json_is_array(given) || json_array_size(given) > REQUEST_TOOLS_MAX))
        return refusal_set(refusal, REFUSAL_INVALID, "tools", "\"tools\" must be a list of at most %d tools",
                           REQUEST_TOOLS_MAX);
    if (json_array_size(given))
        r->tools = json_array();
    json_array_foreach (given, i, tool)
        if (!rc)
            rc = add(r, i, tool, refusal);
    return rc;
}

static const json_t *tool_named(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach (tools, i, tool) {
        const char *has = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (has && !strcmp(has, name))
            return tool;
    }
    return NULL;
}

int request_check_choice(const struct completion_request *r, struct refusal *refusal)
{
    if (r->tool_choice == TOOLS_NAMED && !tool_named(r->tools, r->tool_name))
        return refusal_set(refusal, REFUSAL_INVALID, "tool_choice",
                           "\"tool_choice\" names \"%.64s\", which is none of \"tools\"", r->tool_name);
    if (r->tool_choice == TOOLS_REQUIRED && !json_array_size(r->tools))
        return refusal_set(refusal, REFUSAL_INVALID, "tool_choice",
                           "\"tool_choice\" requires a call, and there are no \"tools\"");
    return 0;
}

static bool choice_word(struct completion_request *r, const char *word)
{
    static const struct {
        const char *word;
        enum tool_choice choice;
    } words[] = {{"auto", TOOLS_AUTO}, {"none", TOOLS_NONE}, {"required", TOOLS_REQUIRED}};
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].word, word)) {
            r->tool_choice = words[i].choice;
            return true;
        }
    return false;
}

/* {"mode": …, "tools": [{"type": "function", "function": {"name": …}}, …]}: the other tools are
 * left out. */
static bool allow_tools(struct completion_request *r, const json_t *allowed)
{
    json_t *some = json_array();
    const json_t *one;
    size_t i;
    bool ok = choice_word(r, json_string_value(json_object_get(allowed, "mode")));
    json_array_foreach (json_object_get(allowed, "tools"), i, one) {
        const char *name = json_string_value(json_object_get(json_object_get(one, "function"), "name"));
        const json_t *tool = name ? tool_named(r->tools, name) : NULL;
        ok = ok && tool;
        json_array_append(some, (json_t *)tool);
    }
    json_decref(r->tools);
    r->tools = some;
    return ok;
}

static int read_choice(struct completion_request *r, const json_t *given, struct refusal *refusal)
{
    const char *type = json_string_value(json_object_get(given, "type"));
    if (json_is_string(given) && choice_word(r, json_string_value(given)))
        return 0;
    if (type && !strcmp(type, "function")) {
        r->tool_name = json_string_value(json_object_get(json_object_get(given, "function"), "name"));
        r->tool_choice = TOOLS_NAMED;
        if (r->tool_name)
            return 0;
    }
    if (type && !strcmp(type, "allowed_tools") && allow_tools(r, json_object_get(given, "allowed_tools")))
        return 0;
    return refusal_set(
        refusal, REFUSAL_INVALID, "tool_choice",
        "\"tool_choice\" must be \"none\", \"auto\", \"required\", or name functions of \"tools\"");
}

int request_read_tools(struct completion_request *r, struct refusal *refusal)
{
    const json_t *choice = request_member(r->json, "tool_choice");
    const json_t *parallel = request_member(r->json, "parallel_tool_calls");
    int rc = request_each_tool(r, add_tool, refusal);
    if (!rc && choice)
        rc = read_choice(r, choice, refusal);
    if (!rc)
        rc = request_check_choice(r, refusal);
    if (!rc && parallel && !json_is_boolean(parallel))
        rc = refusal_set(refusal, REFUSAL_INVALID, "parallel_tool_calls",
                         "\"parallel_tool_calls\" must be true or false");
    r->one_call = json_is_false(parallel);
    return rc;
}
