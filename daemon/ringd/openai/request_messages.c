/* SPDX-License-Identifier: MIT
 *
 * What is of Anthropic's own: /v1/messages. */
#include "daemon/ringd/openai/completion_request_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/openai/turns.h"

static const struct request_lack lacks[] = {
    {"container", NULL, NULL},
    {"mcp_servers", "[]", NULL},
    {.name = NULL},
};

/* {"name", "description", "input_schema"} becomes the function of a tool as OpenAI has it, whose
 * schema is called "parameters". */
static int add_tool(struct completion_request *r, size_t i, const json_t *tool, struct refusal *refusal)
{
    char param[64];
    const json_t *type = request_member(tool, "type");
    json_t *schema = json_object_get(tool, "input_schema"), *name = json_object_get(tool, "name");
    json_t *description = json_object_get(tool, "description");
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "custom") != 0))
        return refusal_set(refusal, REFUSAL_UNSUPPORTED, param,
                           "\"%s\": tools of type \"%.60s\" are not supported here, only custom ones", param,
                           json_is_string(type) ? json_string_value(type) : "");
    if (!json_is_object(schema))
        return refusal_set(refusal, REFUSAL_INVALID, param, "\"%s\" must have an \"input_schema\"", param);
    snprintf(param, sizeof param, "tools[%zu].name", i);
    if (request_check_tool_name(name, param, refusal))
        return -EINVAL;
    json_t *function = json_pack("{s:O}", "name", name);
    if (json_is_string(description))
        json_object_set(function, "description", description);
    json_object_set(function, "parameters", schema);
    json_array_append_new(r->tools, json_pack("{s:s,s:o}", "type", "function", "function", function));
    return 0;
}

static int read_choice(struct completion_request *r, struct refusal *refusal)
{
    static const struct {
        const char *type;
        enum tool_choice choice;
    } types[] = {{"auto", TOOLS_AUTO}, {"any", TOOLS_REQUIRED}, {"tool", TOOLS_NAMED}, {"none", TOOLS_NONE}};
    const json_t *given = request_member(r->json, "tool_choice");
    const char *type = json_string_value(json_object_get(given, "type"));
    bool is_known = !given;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, type)) {
            r->tool_choice = types[i].choice;
            is_known = true;
        }
    r->tool_name = json_string_value(json_object_get(given, "name"));
    r->one_call = json_is_true(json_object_get(given, "disable_parallel_tool_use"));
    if (!is_known || (r->tool_choice == TOOLS_NAMED && !r->tool_name))
        return refusal_set(
            refusal, REFUSAL_INVALID, "tool_choice",
            "\"tool_choice\" must have a \"type\" of auto, any, none, or tool with a \"name\"");
    return request_check_choice(r, refusal);
}

/* How many tokens a model may think is not in our hands; whether it thinks is. */
static int read_thinking(struct completion_request *r, struct refusal *refusal)
{
    const json_t *thinking = request_member(r->json, "thinking");
    const char *type = json_string_value(json_object_get(thinking, "type"));
    const bool on = type && (!strcmp(type, "enabled") || !strcmp(type, "adaptive"));
    if (!thinking)
        return 0;
    if (!on && (!type || strcmp(type, "disabled") != 0))
        return refusal_set(refusal, REFUSAL_INVALID, "thinking",
                           "\"thinking\" must have a \"type\" of enabled, adaptive or disabled");
    request_template_arg(r, "enable_thinking", json_boolean(on));
    request_template_arg(r, "thinking", json_boolean(on));
    return 0;
}

static int read_output(struct completion_request *r, struct refusal *refusal)
{
    const json_t *output = request_member(r->json, "output_config"),
                 *format = request_member(output, "format");
    const json_t *effort = request_member(output, "effort");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (json_is_string(effort))
        request_template_arg(r, "reasoning_effort", json_string(json_string_value(effort)));
    if (!format)
        return 0;
    if (!type || strcmp(type, "json_schema") != 0)
        return refusal_set(refusal, REFUSAL_INVALID, "output_config.format",
                           "\"output_config.format\" must have a \"type\" of json_schema");
    return request_take_schema(r, "output_config.format.schema", json_object_get(format, "schema"), refusal);
}

static int read_numbers(struct completion_request *r, bool count_only, struct refusal *refusal)
{
    static const struct field fields[] = {
        {.name = "max_tokens",
         .type = FIELD_WHOLE,
         .offset = offsetof(struct completion_request, max_tokens),
         .size = sizeof(size_t),
         .min = 1,
         .max = REQUEST_TOKENS_MAX,
         .missing = ""},
        {.name = "stream",
         .type = FIELD_FLAG,
         .offset = offsetof(struct completion_request, stream),
         .size = sizeof(bool)},
        {.name = NULL},
    };
    return request_read_fields(r, fields + (count_only ? 1 : 0), r->json, refusal);
}

int request_read_messages(struct completion_request *r, bool count_only, struct refusal *refusal)
{
    int rc = request_check_lacks(lacks, r->json, refusal);
    if (!rc)
        rc = read_numbers(r, count_only, refusal);
    if (!rc)
        rc = turns_of_anthropic(&r->messages, request_member(r->json, "system"),
                                request_member(r->json, "messages"), refusal);
    if (!rc)
        rc = request_read_stops(r, "stop_sequences", refusal);
    if (!rc)
        rc = request_read_sampling(r, refusal);
    if (!rc)
        rc = request_each_tool(r, add_tool, refusal);
    if (!rc)
        rc = read_choice(r, refusal);
    if (!rc)
        rc = read_thinking(r, refusal);
    if (!rc)
        rc = read_output(r, refusal);
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    /* An answer goes on with what the assistant has said last. */
    r->continues = role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls");
    return rc;
}
