/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/chat_format.h"

#include <string.h>

#include "daemon/ringd/openai/markers.h"

static const struct call_format formats[] = {
    {.name = "deepseek",
     .style = CALL_DEEPSEEK,
     .opens = {MARK_DEEPSEEK_CALLS},
     .begins = {MARK_DEEPSEEK_CALL},
     .ends = {MARK_DEEPSEEK_CALL_END, MARK_DEEPSEEK_CALLS_END},
     .skips = "`"},
    {.name = "kimi",
     .style = CALL_KIMI,
     .opens = {MARK_KIMI_CALLS},
     .begins = {MARK_KIMI_CALL},
     .ends = {MARK_KIMI_CALL_END, MARK_KIMI_CALLS_END}},
    {.name = "hermes", .style = CALL_JSON, .begins = {"<tool_call>"}, .ends = {"</tool_call>"}, .skips = "}"},
    {.name = "llama3",
     .style = CALL_JSON,
     .begins = {"<|python_tag|>"},
     .skips = ";,",
     .is_bare = true,
     .takes_code = true},
    {.name = "harmony", .style = CALL_MESSAGE},
    {.name = "dsml",
     .style = CALL_INVOKE,
     .opens = {MARK_DSML_CALLS},
     .begins = {MARK_DSML_CALL},
     .ends = {MARK_DSML_CALLS_END},
     .closes = MARK_DSML_CALL_END},
    {.name = "glm", .style = CALL_GLM, .begins = {"<tool_call>"}, .closes = "</tool_call>"},
    {.name = "qwen3-coder",
     .style = CALL_FUNCTION,
     .opens = {"<tool_call>"},
     .begins = {"<function="},
     .ends = {"</tool_call>"},
     .closes = "</function>"},
    {.name = "minimax",
     .style = CALL_INVOKE,
     .opens = {"<minimax:tool_call>"},
     .begins = {"<invoke name="},
     .ends = {"</minimax:tool_call>"},
     .closes = "</invoke>"},
    {.name = "mistral",
     .style = CALL_MISTRAL,
     .begins = {MARK_MISTRAL_CALLS},
     .skips = "],",
     .is_list = true},
    {.name = "granite", .style = CALL_JSON, .begins = {"<|tool_call|>["}, .skips = "],", .is_list = true},
    {.name = "phi4",
     .style = CALL_JSON,
     .begins = {"functools[", "<|tool_call|>["},
     .ends = {"<|/tool_call|>"},
     .skips = "],",
     .is_list = true},
    {.name = "olmo3", .style = CALL_PYTHON, .begins = {"<function_calls>"}, .closes = "</function_calls>"},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* What a template has that asks for a format. The first row that is found counts. */
static const struct {
    const char *text, *format;
} signs[] = {
    {MARK_DEEPSEEK_CALLS, "deepseek"},
    {MARK_CHANNEL "commentary", "harmony"},
    {MARK_KIMI_CALLS, "kimi"},
    {MARK_DSML_CALLS, "dsml"},
    {"<arg_key>", "glm"},
    {"<function=", "qwen3-coder"},
    {"<minimax:tool_call>", "minimax"},
    {MARK_MISTRAL_CALLS, "mistral"},
    {"<|tool_call|>", "granite"},
    {"<|tool|>", "phi4"},
    {"<function_calls>", "olmo3"},
    {"<tool_call>", "hermes"},
    {"<|python_tag|>", "llama3"},
    /* Llama 3.2 has no such marker, and names the form in its instructions. */
    {"\"parameters\": dictionary of argument name and its value", "llama3"},
};

static bool has(const char *text, size_t n, const char *what)
{
    return memmem(text, n, what, strlen(what)) != NULL;
}

const struct call_format *call_format_named(const char *name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return &formats[i];
    return NULL;
}

/* DeepSeek V3 and R1 write `tool['function']['arguments'] + '\n'`. That is an error of the template
 * for an object. The others pipe arguments through tojson, or ask whether they are a string. */
static bool joins_arguments(const char *text, size_t n)
{
    return has(text, n, "['arguments'] +") || has(text, n, "[\"arguments\"] +") ||
           has(text, n, ".arguments +");
}

struct chat_format chat_format_of(const char *chat_template, size_t n)
{
    struct chat_format f = {.reasons =
                                has(chat_template, n, MARK_THINK) || has(chat_template, n, MARK_THINK_END),
                            .in_channels = has(chat_template, n, MARK_CHANNEL "final" MARK_MESSAGE),
                            .calls_in_code = has(chat_template, n, "```json"),
                            .calls_are_named = has(chat_template, n, MARK_MISTRAL_ARGS),
                            .arguments_are_text = joins_arguments(chat_template, n)};
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !f.calls; i++)
        if (has(chat_template, n, signs[i].text))
            f.calls = call_format_named(signs[i].format);
    return f;
}

bool chat_format_opens_reasoning(const char *prompt, size_t n)
{
    const size_t mark = strlen(MARK_THINK);
    while (n > 0 && strchr(" \t\r\n", prompt[n - 1]) && prompt[n - 1])
        n--;
    return n >= mark && !memcmp(prompt + n - mark, MARK_THINK, mark);
}
