/* SPDX-License-Identifier: MIT
 *
 * Which format a template shows: by a line of each real one, and by the files where they are there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/chat_format.h"

static void shows(const char *template, size_t n, const char *calls, bool reasons, bool texts)
{
    const struct chat_format f = chat_format_of(template, n);
    if (calls)
        assert_true(f.calls && !strcmp(f.calls->name, calls));
    else
        assert_null(f.calls);
    assert_int_equal(f.reasons, reasons);
    assert_int_equal(f.arguments_are_text, texts);
}

static void line_shows(const char *line, const char *calls, bool reasons, bool texts)
{
    shows(line, strlen(line), calls, reasons, texts);
}

static void lines(void **state)
{
    (void)state;
    line_shows("", NULL, false, false);
    line_shows("{{ message.content }}", NULL, false, false);
    line_shows("<tools></tools> in <tool_call></tool_call> {{ tool_call.arguments | tojson }}", "hermes",
               false, false);
    line_shows("{{ '<think>' + r + '</think>' }}<tool_call>", "hermes", true, false);
    line_shows("content.split('</think>')[-1]", NULL, true, false);
    line_shows("{{- \"<|python_tag|>\" + tool_call.name }}", "llama3", false, false);
    line_shows("{\"name\": function name, \"parameters\": dictionary of argument name and its value}.",
               "llama3", false, false);
    line_shows("'<｜tool▁calls▁begin｜>' + tool['function']['arguments'] + '\\n'", "deepseek", false, true);
    line_shows("'<｜tool▁calls▁begin｜>' + tool['function']['arguments'] | tojson + 'x'", "deepseek", false,
               false);
}

static void newer_lines(void **state)
{
    (void)state;
    line_shows("{{ '<tool_call>' + f.name }}<arg_key>", "glm", false, false);
    line_shows("<tool_call>\n<function=' + f.name + '>", "qwen3-coder", false, false);
    line_shows("{%- set begin = '<minimax:tool_call>' -%}", "minimax", false, false);
    line_shows("'<｜DSML｜function_calls>'", "dsml", false, false);
    line_shows("{{ '[TOOL_CALLS][' }}", "mistral", false, false);
    line_shows("a JSON list behind <|tool_call|>", "granite", false, false);
    line_shows("'<|tool|>' + m.tools + '<|/tool|>'", "phi4", false, false);
    line_shows("<function_calls>", "olmo3", false, false);
    assert_true(chat_format_of("[TOOL_CALLS] [ARGS]", 19).calls_are_named);
}

static void channels(void **state)
{
    (void)state;
    static const char harmony[] = "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content }}"
                                  "{{ '<|channel|>commentary ' }}";
    line_shows(harmony, "harmony", false, false);
    assert_true(chat_format_of(harmony, strlen(harmony)).in_channels);
    assert_false(chat_format_of("<|channel|>", 11).in_channels);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(call_format_named("hermes")->name, "hermes");
    assert_string_equal(call_format_named("llama3")->name, "llama3");
    assert_string_equal(call_format_named("deepseek")->name, "deepseek");
    assert_null(call_format_named("none"));
}

static bool opens(const char *prompt)
{
    return chat_format_opens_reasoning(prompt, strlen(prompt));
}

static void opened_reasoning(void **state)
{
    (void)state;
    assert_true(opens("<｜Assistant｜><think>\n"));
    assert_true(opens("<think>"));
    assert_false(opens("<think>\n\n</think>\n\n"));
    assert_false(opens("think>"));
    assert_false(opens(""));
    assert_false(opens("\n"));
}

static void files(void **state)
{
    static const struct {
        const char *name, *calls;
        bool reasons, texts;
    } rows[] = {
        {"deepseek-r1-distill-llama", "deepseek", true, true},
        {"deepseek-v3", "deepseek", true, true},
        {"deepseek-v3-tokenizer_config", "deepseek", true, true},
        {"deepseek-v3.1", "deepseek", true, false},
        {"llama3.1", "llama3", false, false},
        {"llama3.2", "llama3", false, false},
        {"qwen2.5", "hermes", false, false},
        {"qwen3", "hermes", true, false},
        {"qwen3-instruct-2507", "hermes", false, false},
        {"minimind", "hermes", true, false},
    };
    (void)state;
    const char *shared = getenv("RINGD_SHARED");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[512], *text = NULL;
        size_t size = 0;
        snprintf(path, sizeof path, "%s/data/chat-templates/templates/%s.jinja",
                 shared ? shared : "../shared", rows[i].name);
        FILE *f = fopen(path, "re");
        if (!f)
            skip();
        const ssize_t n = getdelim(&text, &size, '\0', f);
        fclose(f);
        assert_true(n > 0);
        shows(text, (size_t)n, rows[i].calls, rows[i].reasons, rows[i].texts);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines), cmocka_unit_test(newer_lines),      cmocka_unit_test(channels),
        cmocka_unit_test(names), cmocka_unit_test(opened_reasoning), cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
