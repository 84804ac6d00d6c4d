/* SPDX-License-Identifier: MIT
 *
 * What a request wants of its answers becomes a form; what the form lets through is read back as
 * the calls that it stands for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/openai/answer_form.h"
#include "daemon/ringd/openai/call_head.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"city\":{\"$ref\":\"#/$defs/c\"}},\"required\":[\"city\"],\"$defs\":{\"c\":{\"const\":\"Rome\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"time\"}}]";

static const struct {
    const char *name, *source;
} templates[] = {{"hermes", "<tool_call> <think>"},
                 {"llama3", "<|python_tag|>"},
                 {"deepseek", "<｜tool▁calls▁begin｜> ```json"},
                 {"deepseek", "<｜tool▁calls▁begin｜>"},
                 {"kimi", "<|tool_calls_section_begin|>"},
                 {"mistral", "[TOOL_CALLS] [ARGS]"},
                 {"mistral", "[TOOL_CALLS]"},
                 {"granite", "<|tool_call|>"},
                 {"phi4", "<|tool|>"}};
enum { TEMPLATES = sizeof templates / sizeof *templates };

static struct completion_request request_of(const char *fields)
{
    struct completion_request q;
    struct refusal refusal;
    char text[4096];
    snprintf(text, sizeof text, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":%s%s}",
             tools, fields);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (completion_request_read(&q, API_CHAT, json, &refusal))
        fail_msg("%s", refusal.text);
    json_decref(json);
    return q;
}

static json_t *form_of(const char *fields, const char *template_source)
{
    struct completion_request q = request_of(fields);
    const struct chat_format f = chat_format_of(template_source, strlen(template_source));
    struct refusal refusal;
    json_t *form = NULL;
    if (answer_form_of(&form, &q, &f, &refusal))
        fail_msg("%s", refusal.text);
    completion_request_done(&q);
    return form;
}

static const char *text_at(const json_t *form, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(form, "values"), i), key));
}

static void a_call_is_written_as_the_model_writes_calls(void **state)
{
    static const char *const begins[TEMPLATES] = {
        "<tool_call>\n",
        "",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>",
        "[TOOL_CALLS]weather[ARGS]",
        "[TOOL_CALLS][",
        "<|tool_call|>[",
        "functools["};
    (void)state;
    for (size_t i = 0; i < TEMPLATES; i++) {
        json_t *form = form_of(",\"tool_choice\":\"required\"", templates[i].source);
        assert_int_equal(json_array_size(json_object_get(form, "values")), 2);
        assert_string_equal(text_at(form, 0, "before"), begins[i]);
        json_decref(form);
        form = form_of(",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"time\"}}",
                       templates[i].source);
        assert_int_equal(json_array_size(json_object_get(form, "values")), 1);
        json_decref(form);
    }
}

/* The head of what may come is one that the reader of answers finds. */
static void what_comes_is_read_as_that_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEMPLATES; i++) {
        const struct call_format *calls = call_format_named(templates[i].name);
        json_t *form = form_of(",\"tool_choice\":\"required\"", templates[i].source);
        const char *before = text_at(form, 0, "before"),
                   *at = calls->is_bare ? before : strstr(before, calls->begins[0]);
        char name[CALL_NAME_MAX + 1], text[512];
        assert_non_null(at);
        const bool in_json =
            calls->style == CALL_JSON || (calls->style == CALL_MISTRAL && !strstr(before, "[ARGS]"));
        snprintf(text, sizeof text, "%s%s", at + (calls->is_bare ? 0 : strlen(calls->begins[0])),
                 !in_json         ? "{"
                 : calls->is_bare ? "{ \"name\": \"weather\", \"parameters\": {"
                                  : "{ \"name\": \"weather\", \"arguments\": {");
        assert_int_equal(call_head_read(calls->style, text, strlen(text), name), CALL_HEAD_FOUND);
        assert_string_equal(name, "weather");
        json_decref(form);
    }
}

static void a_form_of_text(void **state)
{
    static const char schema[] =
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"
        "{\"type\":\"integer\"}}}";
    char with[512];
    (void)state;
    json_t *form = form_of(",\"response_format\":{\"type\":\"json_object\"}", "");
    assert_true(json_is_true(json_object_get(form, "json")));
    assert_null(json_object_get(form, "opens"));
    json_decref(form);
    form = form_of(",\"grammar\":\"root ::= [0-9]\"", "<think>");
    assert_string_equal(json_string_value(json_object_get(form, "grammar")), "root ::= [0-9]");
    assert_string_equal(json_string_value(json_object_get(form, "closes")), "</think>");
    json_decref(form);
    form = form_of(schema, "<tool_call>"); /* it may call a tool instead */
    assert_int_equal(json_array_size(json_object_get(form, "values")), 3);
    json_decref(form);
    snprintf(with, sizeof with, "%s,\"tool_choice\":\"none\"", schema);
    form = form_of(with, "<tool_call>");
    assert_int_equal(json_array_size(json_object_get(form, "values")), 1);
    json_decref(form);
    assert_null(form_of("", "<tool_call>"));
}

/* Messages in channels: the form is that of the last one, and calls cannot be forced. */
static void a_form_in_a_channel(void **state)
{
    static const char harmony[] = "<|channel|>commentary <|channel|>final<|message|>",
                      grammar[] = ",\"grammar\":\"root ::= [0-9]\"";
    char with[512];
    (void)state;
    snprintf(with, sizeof with, "%s,\"tool_choice\":\"none\"", grammar);
    json_t *form = form_of(with, harmony);
    assert_string_equal(json_string_value(json_object_get(form, "opens")), "<|start|>assistant");
    assert_string_equal(json_string_value(json_object_get(form, "closes")), "<|channel|>final<|message|>");
    json_decref(form);
    const char *const refused[] = {grammar, ",\"tool_choice\":\"required\""};
    for (size_t i = 0; i < 2; i++) {
        struct completion_request q = request_of(refused[i]);
        const struct chat_format f = chat_format_of(harmony, strlen(harmony));
        struct refusal refusal;
        form = NULL;
        assert_int_not_equal(answer_form_of(&form, &q, &f, &refusal), 0);
        assert_non_null(strstr(refusal.text, "special tokens"));
        completion_request_done(&q);
    }
}

static void a_model_without_calls_cannot_be_made_to(void **state)
{
    struct completion_request q = request_of(",\"tool_choice\":\"required\"");
    const struct chat_format f = chat_format_of("{{ x }}", 7);
    struct refusal refusal;
    json_t *form = NULL;
    (void)state;
    assert_int_not_equal(answer_form_of(&form, &q, &f, &refusal), 0);
    assert_non_null(strstr(refusal.text, "shows none of the formats"));
    completion_request_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_written_as_the_model_writes_calls),
        cmocka_unit_test(what_comes_is_read_as_that_call),
        cmocka_unit_test(a_form_of_text),
        cmocka_unit_test(a_form_in_a_channel),
        cmocka_unit_test(a_model_without_calls_cannot_be_made_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
