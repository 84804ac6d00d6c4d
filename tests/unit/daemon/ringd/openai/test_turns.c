/* SPDX-License-Identifier: MIT
 *
 * Conversations of both APIs become messages of a chat template. Where the real templates are
 * there, each of them writes these messages down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/chat_format.h"
#include "daemon/ringd/openai/turns.h"
#include "engine/text/chat.h"

static json_t *parse(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &where);
    if (!json)
        fail_msg("%s: %s", where.text, text);
    return json;
}

/* `system` "" : OpenAI's form. */
static void becomes(const char *system, const char *given, const char *want)
{
    struct refusal refusal;
    json_t *json = parse(given), *wanted = parse(want), *sys = *system ? parse(system) : NULL, *got = NULL;
    if (sys ? turns_of_anthropic(&got, sys, json, &refusal) : turns_of_openai(&got, json, &refusal))
        fail_msg("%s: %s", refusal.text, given);
    char *text = json_dumps(got, JSON_COMPACT);
    if (!json_equal(got, wanted))
        fail_msg("%s\nbecame    %s\ninstead of %s", given, text, want);
    free(text);
    json_decref(got);
    json_decref(sys);
    json_decref(wanted);
    json_decref(json);
}

static void refused(bool anthropic, const char *given, const char *param, const char *words)
{
    struct refusal refusal;
    json_t *json = parse(given), *got = NULL;
    if (!(anthropic ? turns_of_anthropic(&got, NULL, json, &refusal) : turns_of_openai(&got, json, &refusal)))
        fail_msg("taken: %s", given);
    assert_null(got);
    if (strcmp(refusal.param, param) != 0 || !strstr(refusal.text, words))
        fail_msg("%s is refused for %s: %s", given, refusal.param, refusal.text);
    json_decref(json);
}

static void openai_texts(void **state)
{
    (void)state;
    becomes("",
            "[{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", \"name\": \"bob\", "
            "\"content\": [{\"type\": "
            "\"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]",
            "[{\"role\": \"system\", \"content\": \"d\"}, {\"role\": \"user\", \"name\": \"bob\", "
            "\"content\": \"a\\nb\"}]");
    becomes("",
            "[{\"role\": \"assistant\", \"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}], "
            "\"reasoning\": \"r\"}]",
            "[{\"role\": \"assistant\", \"content\": \"no\", \"reasoning_content\": \"r\"}]");
    becomes("", "[{\"role\": \"assistant\", \"content\": null}]",
            "[{\"role\": \"assistant\", \"content\": \"\"}]");
    refused(false,
            "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
            "\"image_url\"}]}]",
            "messages[0].content[1]", "\"image_url\" is not supported here");
    refused(false, "[{\"role\": \"user\"}]", "messages[0].content", "text or a list");
    refused(false, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "messages[0].content[0]",
            "no text");
    refused(false, "[{\"role\": \"user\", \"content\": [1]}]", "messages[0].content[0]", "\"type\"");
    refused(false, "[{\"role\": \"function\", \"content\": \"\"}]", "messages[0].role", "must be system");
    refused(false, "[1]", "messages[0].role", "must be system");
    refused(false, "[]", "messages", "1 to 8192");
    refused(false, "{}", "messages", "1 to 8192");
}

static void openai_calls(void **state)
{
    (void)state;
    becomes(
        "",
        "[{\"role\": \"assistant\", \"reasoning_content\": \"t\", \"tool_calls\": [{\"id\": \"c1\", "
        "\"type\": \"function\","
        "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}, {\"id\": \"c2\", \"function\": "
        "{\"name\": "
        "\"g\", \"arguments\": \"\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"x\"}]",
        "[{\"role\": \"assistant\", \"reasoning_content\": \"t\", \"content\": null, \"tool_calls\": "
        "[{\"id\": \"c1\", "
        "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}, {\"id\": "
        "\"c2\", \"type\": "
        "\"function\", \"function\": {\"name\": \"g\", \"arguments\": {}}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": \"c1\", "
        "\"content\": \"x\"}]");
    /* arguments that no model should have written stay as they were */
    becomes("",
            "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"function\": {\"name\": "
            "\"f\", \"arguments\": "
            "\"{oops\"}}, {\"function\": {\"name\": \"f\", \"arguments\": {\"b\": 2}}}]}]",
            "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"type\": \"function\", "
            "\"function\": {\"name\": "
            "\"f\", \"arguments\": \"{oops\"}}, {\"type\": \"function\", \"function\": {\"name\": \"f\", "
            "\"arguments\": {\"b\": "
            "2}}}]}]");
    becomes("", "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}]",
            "[{\"role\": \"assistant\", \"content\": \"a\"}]");
    refused(false, "[{\"role\": \"assistant\", \"tool_calls\": 1}]", "messages[0].tool_calls", "list");
    refused(false, "[{\"role\": \"assistant\", \"tool_calls\": [{}]}]", "messages[0].tool_calls[0]",
            "\"name\"");
    refused(false, "[{\"role\": \"assistant\", \"function_call\": {}}]", "messages", "use \"tool_calls\"");
}

static void anthropic_blocks(void **state)
{
    (void)state;
    becomes("\"s\"", "[{\"role\": \"user\", \"content\": \"a\"}]",
            "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}]");
    becomes("[{\"type\": \"text\", \"text\": \"s\", \"cache_control\": {}}, {\"type\": \"text\", \"text\": "
            "\"t\"}]",
            "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", "
            "\"text\": \"b\"}]}]",
            "[{\"role\": \"system\", \"content\": \"s\\nt\"}, {\"role\": \"user\", \"content\": \"a\\nb\"}]");
    becomes("\"\"",
            "[{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"t\", "
            "\"signature\": \"\"}, {\"type\": "
            "\"redacted_thinking\"}, {\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"tool_use\", \"id\": "
            "\"u1\", \"name\": "
            "\"f\", \"input\": {\"x\": 1}}]}, {\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", "
            "\"tool_use_id\": "
            "\"u1\", \"content\": [{\"type\": \"text\", \"text\": \"r\"}]}, {\"type\": \"tool_result\", "
            "\"tool_use_id\": \"u2\"}, "
            "{\"type\": \"text\", \"text\": \"so?\"}]}]",
            "[{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"t\", \"tool_calls\": "
            "[{\"id\": \"u1\", "
            "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}, "
            "{\"role\": \"tool\", "
            "\"content\": \"r\", \"tool_call_id\": \"u1\"}, {\"role\": \"tool\", \"content\": \"\", "
            "\"tool_call_id\": \"u2\"}, "
            "{\"role\": \"user\", \"content\": \"so?\"}]");
    becomes("\"\"",
            "[{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"u\", \"name\": "
            "\"f\"}]}]",
            "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"u\", \"type\": "
            "\"function\", \"function\": "
            "{\"name\": \"f\", \"arguments\": {}}}]}]");
    refused(true, "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]", "messages[0].content[0]",
            "\"image\"");
    refused(true, "[{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\"}]}]",
            "messages[0].content[0]", "tool_use_id");
    refused(true,
            "[{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"u\", "
            "\"content\": [{\"type\": "
            "\"image\"}]}]}]",
            "messages[0].content[0]", "\"image\"");
    refused(true, "[{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\"}]}]",
            "messages[0].content[0]", "\"id\"");
    refused(true, "[{\"role\": \"assistant\", \"content\": [{\"type\": \"image\"}]}]",
            "messages[0].content[0]", "\"image\"");
    refused(true, "[{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"u\"}]}]",
            "messages[0].content[0]", "\"name\"");
    refused(true, "[{\"role\": \"user\"}]", "messages[0]", "\"content\"");
    refused(true, "[{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\"}]}]",
            "messages[0].content[0]", "thinking");
    refused(true, "[{\"role\": \"assistant\", \"content\": [{\"type\": \"text\"}]}]",
            "messages[0].content[0]", "text");
    refused(true, "[{\"role\": \"tool\", \"content\": \"\"}]", "messages[0]", "\"role\"");
    refused(true, "[{\"role\": \"user\", \"content\": []}]", "messages", "no text");
}

static void arguments_as_text(void **state)
{
    (void)state;
    json_t *given =
        parse("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
              "{\"a\": 1}}}, "
              "{\"function\": {\"name\": \"f\", \"arguments\": \"{oops\"}}]}, {\"role\": \"user\"}]");
    json_t *want =
        parse("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
              "\"{\\\"a\\\": "
              "1}\"}}, {\"function\": {\"name\": \"f\", \"arguments\": \"{oops\"}}]}, {\"role\": \"user\"}]");
    json_t *before = json_deep_copy(given), *got = turns_with_text_arguments(given);
    assert_true(json_equal(got, want));
    assert_true(json_equal(given, before));
    json_decref(before);
    json_decref(got);
    json_decref(want);
    json_decref(given);
}

static void thinking_in_channels(void **state)
{
    (void)state;
    json_t *given = parse("[{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"t\"}, "
                          "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}, "
                          "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"t\", "
                          "\"tool_calls\": []}]"),
           *want = parse("[{\"role\": \"assistant\", \"content\": \"a\", \"thinking\": \"t\"}, "
                         "{\"role\": \"assistant\", \"tool_calls\": []}, "
                         "{\"role\": \"assistant\", \"thinking\": \"t\\na\", \"tool_calls\": []}]"),
           *before = json_deep_copy(given), *got = turns_in_channels(given);
    assert_true(json_equal(got, want));
    assert_true(json_equal(given, before));
    json_decref(before);
    json_decref(got);
    json_decref(want);
    json_decref(given);
}

/* --- with real templates --- */

static char *read_template(const char *name, size_t *ret_n)
{
    const char *shared = getenv("RINGD_SHARED");
    char path[512];
    snprintf(path, sizeof path, "%s/data/chat-templates/templates/%s.jinja", shared ? shared : "../shared",
             name);
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    char *text = NULL;
    size_t size = 0;
    const ssize_t n = getdelim(&text, &size, '\0', f);
    fclose(f);
    assert_true(n > 0);
    *ret_n = (size_t)n;
    return text;
}

/* A turn with a call and its result, written down by the template. */
static void writes(const char *name, const char *want_call, const char *want_result)
{
    size_t n = 0;
    char *source = read_template(name, &n);
    if (!source)
        skip();
    const struct chat_format format = chat_format_of(source, n);
    struct refusal refusal;
    struct chat_template *tpl;
    struct chat_text text;
    struct err err = {""};
    json_t *given =
        parse("[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": null, "
              "\"tool_calls\": "
              "[{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
              "\"{\\\"a\\\": "
              "\\\"b\\\"}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"42\"}]");
    json_t *tokens = parse("{\"bos_token\": \"<s>\"}"), *turns = NULL;
    assert_int_equal(turns_of_openai(&turns, given, &refusal), 0);
    if (format.arguments_are_text) {
        json_t *texts = turns_with_text_arguments(turns);
        json_decref(turns);
        turns = texts;
    }
    const struct chat_request request = {.messages = turns, .add_generation_prompt = true, .now = 1721952000};
    assert_int_equal(chat_template_parse(&tpl, source, n, tokens, &err), 0);
    if (chat_render(tpl, &request, &text, &err))
        fail_msg("%s: %s", name, err.text);
    if (!strstr(text.text, want_call) || !strstr(text.text, want_result))
        fail_msg("%s writes %s\nwithout %s or %s", name, text.text, want_call, want_result);
    chat_text_done(&text);
    chat_template_close(tpl);
    json_decref(tokens);
    json_decref(turns);
    json_decref(given);
    free(source);
}

static void real_templates(void **state)
{
    (void)state;
    writes("qwen2.5", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>", "42");
    writes("qwen3", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>", "42");
    writes("llama3.1", "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "42");
    writes("llama3.2", "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "42");
    writes("deepseek-v3", "function<｜tool▁sep｜>f\n```json\n{\"a\": \"b\"}\n```<｜tool▁call▁end｜>", "42");
    writes("deepseek-r1-distill-llama", "<｜tool▁sep｜>f\n```json\n{\"a\": \"b\"}\n```", "42");
    writes("deepseek-v3.1", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"b\"}<｜tool▁call▁end｜>", "42");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openai_texts),         cmocka_unit_test(openai_calls),
        cmocka_unit_test(anthropic_blocks),     cmocka_unit_test(arguments_as_text),
        cmocka_unit_test(thinking_in_channels), cmocka_unit_test(real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
