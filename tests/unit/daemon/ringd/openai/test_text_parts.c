/* SPDX-License-Identifier: MIT
 *
 * The text of a model becomes text, reasoning and calls, the same however it is cut into tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "daemon/ringd/openai/call_head.h"
#include "tests/unit/daemon/ringd/openai/parts_said.h"

static const char calls[] = "<｜tool▁calls▁begin｜>", call[] = "<｜tool▁call▁begin｜>";
static const char sep[] = "<｜tool▁sep｜>", call_end[] = "<｜tool▁call▁end｜>";
static const char calls_end[] = "<｜tool▁calls▁end｜>";

/* Whole, and in pieces of every size: always the same. */
static void check(const struct text_parts_setup *setup, const char *text, const char *want,
                  const char *want_stop)
{
    const size_t n = strlen(text);
    for (size_t step = 1; step <= n + 1; step++) {
        bool is_cut;
        const char *stop;
        char *got = parts_read(*setup, text, n, step, &is_cut, &stop);
        if (strcmp(got, want) != 0)
            fail_msg("in pieces of %zu: %s\nis read as     %s\nand should be %s", step, text, got, want);
        assert_false(is_cut);
        assert_true(stop == want_stop || (stop && want_stop && !strcmp(stop, want_stop)));
        free(got);
    }
}

/* Streamed and whole calls agree. */
static void reads(const char *format, const char *text, const char *want)
{
    struct text_parts_setup setup = {
        .format = {.calls = format ? call_format_named(format) : NULL, .reasons = true}};
    check(&setup, text, want, NULL);
    setup.whole_calls = true;
    check(&setup, text, want, NULL);
}

static void text_stays(void **state)
{
    (void)state;
    reads(NULL, "", "");
    reads(NULL, " a\n\nb \n", " a\n\nb \n");
    reads(NULL, "a <think>b</think>", "a <think>b</think>");
    reads(NULL, "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>");
    reads("hermes", " a\n\nb \n", " a\n\nb \n");
    reads("hermes", "a < b <tool", "a < b <tool");
    reads("hermes", "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80", "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80");
}

static void space_is_not_held_for_ever(void **state)
{
    (void)state;
    char text[300];
    memset(text, ' ', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    reads("hermes", text, text);
    memcpy(text + 290, "<think>a", 9); /* behind so much space it is no beginning any more */
    reads("hermes", text, text);
    struct text_parts_setup setup = {.format = {.calls = call_format_named("hermes")}};
    struct parts_said said = {.kind = -1};
    setup.take = said_take;
    setup.owner = &said;
    struct text_parts *p = text_parts_new(&setup);
    assert_true(text_parts_push(p, text, 200));
    assert_int_equal(said.text.len, 192);
    text_parts_free(p);
    out_text_done(&said.text);
}

static void bad_bytes_are_replaced(void **state)
{
    (void)state;
    reads(NULL,
          "a\xff"
          "b",
          "a\xef\xbf\xbd"
          "b");
    reads(NULL, "a\xe4\xbd", "a\xef\xbf\xbd");
    reads(NULL,
          "\xe4\xbd"
          "a\xc3",
          "\xef\xbf\xbd"
          "a\xef\xbf\xbd");
    reads(NULL, "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    reads(NULL, "\xc0\xaf\xf4\x90", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static void reasoning_is_apart(void **state)
{
    (void)state;
    reads(NULL, "<think>\na b\n\n</think>\n\nc", "{a b}c");
    reads(NULL, "\n<think>a", "{a}");
    reads(NULL, "<think>a</thi", "{a</thi}");
    reads(NULL, "<think>\n\n</think>\n\nc ", "c ");
    reads(NULL, "<think>a</think>b <think>c</think>", "{a}b <think>c</think>");
    reads(NULL, "<thinking>", "<thinking>");
    reads("hermes", "<think><tool_call>a</think>", "{<tool_call>a}");
    struct text_parts_setup setup = {.format = {.reasons = true}, .in_reasoning = true};
    check(&setup, "\na\n</think>\n\nb", "{a}b", NULL);
    check(&setup, "<think>a</think>b", "{a}b", NULL);
    check(&setup, "a<think>b</think>c", "{a<think>b}c", NULL);
    setup.format.reasons = false;
    check(&setup, "a</think>b", "a</think>b", NULL);
}

static void stops_end_it(void **state)
{
    (void)state;
    static const char *const stops[] = {"END", "\n\n", "ab", "aabX", "c"};
    struct text_parts_setup setup = {.stops = stops, .nstops = 5, .format = {.reasons = true}};
    check(&setup, "one EN two", "one EN two", NULL);
    check(&setup, "one EEND two", "one E", "END");
    check(&setup, "x\n\ny", "x", "\n\n");
    check(&setup, "xaabXy", "xa", "ab"); /* the first that is complete */
    check(&setup, "xaaac", "xaaa", "c");
    check(&setup, "x\n", "x\n", NULL);
    check(&setup, "<think>x END", "{x}", "END");
    check(&setup,
          "\xc3\xa9"
          "END\xc3",
          "\xc3\xa9", "END");
    static const char *const one[] = {"END"};
    setup = (struct text_parts_setup){
        .format = {.calls = call_format_named("hermes")}, .stops = one, .nstops = 1};
    check(&setup, "a\n<tool_call>END", "a\n<tool_call>", "END");
    check(&setup, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"END\"}}", "[f {\"a\":\"]", "END");
}

static void hermes_calls(void **state)
{
    (void)state;
    reads("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}\n</tool_call>",
          "[f {\"a\": \"}\"}]");
    reads("hermes", "Hi.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n", "Hi.[f {}]");
    reads("hermes",
          "<think>t</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
          "{\"name\": \"g\", \"arguments\": {\"b\": [1, {}]}}\n</tool_call>",
          "{t}[f {}][g {\"b\": [1, {}]}]");
    reads("hermes", "<tool_call>{\"name\":\"f\",\"parameters\":{\"a\":\"\\\"}\"}}</tool_call> so",
          "[f {\"a\":\"\\\"}\"}]so");
    /* other orders and forms */
    reads("hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", "[f {\"a\":1}]");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
          "[f {\"a\":1}]");
    reads("hermes",
          "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}</tool_call>",
          "[f {}]");
    reads("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "[f {}]");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "[f {}]");
    reads("hermes", "<tool_call>\n\t {\"parameters\": {}, \"name\": \"f\"}</tool_call>", "[f {}]");
    /* brackets forgotten, or too many */
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>", "[f {\"a\": 1}]");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}}</tool_call>b",
          "[f {\"a\": 1}]b");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"id\": {\"x\": 1}}</tool_call>",
          "[f {}]");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "[f {}]");
}

static void broken_calls_are_text(void **state)
{
    (void)state;
    reads("hermes", "a <tool_call>no</tool_call>", "a <tool_call>no</tool_call>");
    reads("hermes", "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": 1}</tool_call>");
    reads("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
          "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>");
    reads("hermes",
          "<tool_call>{\"x\": y}</tool_call> <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
          "<tool_call>{\"x\": y}</tool_call>[f {}]");
    reads("hermes", "<tool_call>{\"na", "<tool_call>{\"na");
    reads("hermes", "<tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
          "<tool_call>[f {}]");
    reads("hermes", "<tool_call>{\"name\":\"\xc3\xa9\",\xc3\xa9",
          "<tool_call>{\"name\":\"\xc3\xa9\",\xc3\xa9");
    struct text_parts_setup setup = {.format = {.calls = call_format_named("hermes")}};
    const char *broken = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": oops}}</tool_call>";
    check(&setup, broken, "[f {\"a\": ]oops}}</tool_call>", NULL);
    check(&setup, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", "[f {\"a\"]", NULL);
    setup.whole_calls = true;
    check(&setup, broken, broken, NULL);
    check(&setup, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"}}</tool_call>",
          "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"}}</tool_call>", NULL);
    check(&setup, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"",
          "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", NULL);
}

/* A call beyond CALL_BYTES_MAX is text; one that was given out already ends (`want`: how it
 * begins). */
static void check_long(struct text_parts_setup setup, const char *head, const char *want)
{
    struct out_text text = {0};
    bool is_cut;
    const char *stop;
    out_text_add(&text, head, strlen(head));
    while (text.len < CALL_BYTES_MAX + 1000)
        out_text_add(&text, "0123456789abcdef0123456789abcdef", 32);
    char *got = parts_read(setup, text.data, text.len, 1000, &is_cut, &stop);
    if (want) {
        assert_memory_equal(got, want, strlen(want));
        assert_string_equal(got + strlen(got) - 1, "]");
        assert_true(strlen(got) < CALL_BYTES_MAX + 10);
    } else {
        assert_string_equal(got, text.data);
    }
    free(got);
    out_text_done(&text);
}

static void calls_have_bounds(void **state)
{
    (void)state;
    struct text_parts_setup setup = {.format = {.calls = call_format_named("hermes")}, .most_calls = 1};
    const char *two = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
                      "tool_call><tool_call>{\"name\":\"g\",\"arguments\":{}}";
    check(&setup, two, "[f {}]", NULL);
    char long_name[400] = "<tool_call>{\"name\": \"";
    memset(long_name + strlen(long_name), 'x', 200);
    reads("hermes", long_name, long_name);
    check_long(setup, "<tool_call>{\"x\": \"", NULL);
    check_long(setup, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "[f {\"a\": \"");
    setup.whole_calls = true;
    check_long(setup, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", NULL);
}

static void llama_calls(void **state)
{
    (void)state;
    reads("llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "[f {\"a\": 1}]");
    reads("llama3", "\n{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
          "[f {}][g {}]");
    reads("llama3", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "[f {}]");
    reads("llama3", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "[f {}]");
    reads("llama3", "<|python_tag|>web.call(query=\"a b\", n=\"1\")",
          "[web {\"query\":\"a b\",\"n\":\"1\"}]");
    reads("llama3", "a {\"name\": \"f\", \"parameters\": {}}", "a {\"name\": \"f\", \"parameters\": {}}");
    reads("llama3", "{\"answer\": {\"x\": 1}} b", "{\"answer\": {\"x\": 1}} b");
    reads("llama3", "{\"parameters\": {}, \"name\": \"f\"}; {\"name\": \"g\"}", "[f {}][g {}]");
    reads("llama3", "<|python_tag|>web.call( query = \"a\" , n=\"1\" ) ",
          "[web {\"query\":\"a\",\"n\":\"1\"}]");
    reads("llama3", "<|python_tag|>web.call()", "[web {}]");
    reads("llama3", "<|python_tag|>a b.call(q=\"1\")", "<|python_tag|>a b.call(q=\"1\")");
    reads("llama3", "<|python_tag|>web.call(q=\"1\") + 1", "<|python_tag|>web.call(q=\"1\") + 1");
    reads("llama3", "<|python_tag|>web.call(q=1)", "<|python_tag|>web.call(q=1)");
    reads("llama3", "{}", "{}");
    reads("llama3", "{not json", "{not json");
    reads("llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)");
}

static void bare_calls_name_a_tool(void **state)
{
    (void)state;
    json_t *tools = json_pack("[{s:s,s:{s:s}},{s:s,s:{s:s}}]", "type", "function", "function", "name", "f",
                              "type", "function", "function", "name", "python");
    struct text_parts_setup setup = {.format = {.calls = call_format_named("llama3")}, .tools = tools};
    check(&setup, "{\"name\": \"f\", \"parameters\": {}}", "[f {}]", NULL);
    check(&setup, "{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}", NULL);
    check(&setup, "{\"parameters\": {}, \"name\": \"Bob\"}", "{\"parameters\": {}, \"name\": \"Bob\"}", NULL);
    check(&setup, "<|python_tag|>{\"name\": \"Bob\", \"parameters\": {}}", "[Bob {}]", NULL);
    check(&setup, "<|python_tag|>print(\"a\")\n", "[python {\"code\":\"print(\\\"a\\\")\\n\"}]", NULL);
    json_decref(tools);
}

static void deepseek_calls(void **state)
{
    (void)state;
    char text[1000];
    snprintf(text, sizeof text,
             "Hi%s%sfunction%sf\n```json\n{\"a\": 1}\n```%s\n%sfunction%sg\n```json\n{}\n```%s%s", calls,
             call, sep, call_end, call, sep, call_end, calls_end);
    reads("deepseek", text, "Hi[f {\"a\": 1}][g {}]");
    snprintf(text, sizeof text, "<think>t</think>\n%s%sf%s{\"a\": \"<\"}%s%sg%s{}%s%s", calls, call, sep,
             call_end, call, sep, call_end, calls_end);
    reads("deepseek", text, "{t}[f {\"a\": \"<\"}][g {}]");
    snprintf(text, sizeof text, "%sfunction%sf\n{\"a\": 1}%s", call, sep, call_end);
    reads("deepseek", text, "[f {\"a\": 1}]");
    snprintf(text, sizeof text, "%s function %s f \n```json\n{}\n```%s", call, sep, call_end);
    reads("deepseek", text, "[f {}]");
    snprintf(text, sizeof text, "%sf%sno", call, sep);
    reads("deepseek", text, text);
    snprintf(text, sizeof text, "%sf%s{\"a\" x}%s", call, sep, call_end);
    struct text_parts_setup setup = {.format = {.calls = call_format_named("deepseek")}, .whole_calls = true};
    check(&setup, text, text, NULL);
}

static void messages_in_channels(void **state)
{
    (void)state;
    static const char two[] =
        "<|channel|>analysis<|message|>why <b>\n<|end|><|start|>assistant<|channel|>commentary<|message|>I "
        "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|> "
        "{\"a\": \"<|x\"}<|call|>";
    struct text_parts_setup setup = {.format = {.calls = call_format_named("harmony"), .in_channels = true}};
    for (int whole = 0; whole < 2; whole++) {
        setup.whole_calls = whole;
        check(&setup, two, "{why <b>\n}I look.[f {\"a\": \"<|x\"}]", NULL);
        check(&setup, " to=functions.f<|channel|>commentary json<|message|>{}", "[f {}]", NULL);
        check(&setup, "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|en",
              "a\n\nb<|en", NULL);
        check(&setup, "<|channel|>analysis<|message|>t<|channel|>final<|message|>x<|return|>", "{t}x", NULL);
        check(&setup, "plain", "plain", NULL);
        check(&setup, "<|channel|>commentary to=functions.f<|message|>no JSON<|call|>", "no JSON", NULL);
    }
    check(&setup, "<|channel|>commentary to=f<|message|>{\"a\": ", "{\"a\": ", NULL); /* broken off */
    setup.most_calls = 1;
    check(&setup, "<|channel|>commentary to=f<|message|>{}<|call|><|channel|>final<|message|>x", "[f {}]",
          NULL);
    setup.format.calls = NULL; /* no tools were given */
    check(&setup, "<|channel|>commentary to=f<|message|>{}<|call|>", "{}", NULL);
}

static void kimi_calls(void **state)
{
    (void)state;
#define SECTION "<|tool_calls_section_begin|>"
#define BEGIN "<|tool_call_begin|>"
#define SEP "<|tool_call_argument_begin|>"
#define END "<|tool_call_end|>"
    reads("kimi",
          "Hi" SECTION BEGIN "functions.f:0" SEP "{\"a\": 1}" END BEGIN " functions.g:12 " SEP " {}" END
          "<|tool_calls_section_end|>",
          "Hi[f {\"a\": 1}][g {}]");
    reads("kimi", BEGIN "f" SEP "{}" END, "[f {}]");
    reads("kimi", BEGIN "functions.a:b" SEP "{}" END, "[a:b {}]");
    reads("kimi", BEGIN "functions." SEP "{}" END, "[functions. {}]");
    reads("kimi", BEGIN ":3" SEP "{}" END, "[:3 {}]");
    reads("kimi", BEGIN "functions.f:0" SEP "no", BEGIN "functions.f:0" SEP "no");
#undef SECTION
#undef BEGIN
#undef SEP
#undef END
}

static void lists_of_calls(void **state)
{
    (void)state;
    reads(
        "mistral",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]",
        "[f {\"a\": [1]}][g {}]");
    reads("mistral", "Hi. [TOOL_CALLS] [ {\"arguments\": {}, \"name\": \"f\", \"id\": \"x\"} ]", "Hi.[f {}]");
    reads("mistral", "[TOOL_CALLS]f[ARGS]{\"a\": \"[\"}[TOOL_CALLS]g[ARGS] {}", "[f {\"a\": \"[\"}][g {}]");
    reads("mistral", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}", "[f {}]");
    reads("mistral", "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "[f {}]");
    reads("mistral", "[TOOL_CALLS]no", "[TOOL_CALLS]no");
    reads("mistral", "[TOOL_CALLS][ARGS]{}", "[TOOL_CALLS][ARGS]{}");
    reads("mistral", "[TOOL_CALLS][1]", "[TOOL_CALLS][1]");
    reads("mistral", "[TOOL", "[TOOL");
    reads("granite",
          "<|tool_call|>[{\"arguments\": {\"a\": 1}, \"name\": \"f\"}, {\"name\": \"g\", \"arguments\": {}}]",
          "[f {\"a\":1}][g {}]");
    reads("phi4", "functools[{\"name\": \"f\", \"arguments\": {}}]", "[f {}]");
    reads("phi4", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "[f {}]");
    reads("phi4", "the functools module", "the functools module");
}

static void calls_in_tags(void **state)
{
    (void)state;
    reads("glm",
          "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x "
          "y\n</arg_value>\n<arg_key>b</arg_key><arg_value>[1, 2]</arg_value>\n</tool_call>",
          "[f {\"a\":\"x y\\n\",\"b\":[1,2]}]");
    reads("glm", "<think>t</think>\n<tool_call>f</tool_call>\n<tool_call>g\n</tool_call>", "{t}[f {}][g {}]");
    reads("glm", "<tool_call>f\n<arg_key>a</arg_key></tool_call>",
          "<tool_call>f\n<arg_key>a</arg_key></tool_call>");
    reads("glm", "<tool_call>f\n<arg_key>a</arg_key><arg_value>of </tool_call></arg_value></tool_call>",
          "[f {\"a\":\"of </tool_call>\"}]");
    reads("glm", "<tool_call>f\n<arg_key>a</arg_key><arg_value>b</tool_call>",
          "<tool_call>f\n<arg_key>a</arg_key><arg_value>b</tool_call>");
    reads("olmo3", "<function_calls>f(a='</function_calls>')</function_calls>",
          "[f {\"a\":\"</function_calls>\"}]");
    reads("glm", "<tool_call></tool_call>", "<tool_call></tool_call>");
    reads("glm", "<tool_call>f\n<arg_key>a", "<tool_call>f\n<arg_key>a");
    reads("qwen3-coder",
          "So:\n<tool_call>\n<function=f>\n<parameter=a>\n1 "
          "<b>\n2\n</parameter>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>",
          "So:[f {\"a\":\"1 <b>\\n2\",\"n\":7}]");
    reads("qwen3-coder", "<function=f>\n</function>", "[f {}]");
    reads("qwen3-coder", "<function=f>x</function>", "<function=f>x</function>");
    reads("minimax",
          "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\"> x "
          "</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
          "[f {\"a\":\" x \"}][g {}]");
    reads("dsml",
          "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
          "string=\"true\">12</｜DSML｜parameter>\n"
          "<｜DSML｜parameter name=\"b\" "
          "string=\"false\">12</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
          "[f {\"a\":\"12\",\"b\":12}]");
}

/* A schema says that 12 is a text; what it says nothing of is JSON if it can be. */
static void tools_say_what_is_text(void **state)
{
    (void)state;
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":"
                   "\"string\"},\"b\":{\"type\":\"integer\"}}}}}]",
                   0, NULL);
    const struct text_parts_setup setup = {.format = {.calls = call_format_named("minimax")}, .tools = tools};
    check(&setup,
          "<invoke name=\"f\"><parameter name=\"a\">12</parameter><parameter "
          "name=\"b\">12</parameter><parameter name=\"c\">true</parameter></invoke>",
          "[f {\"a\":\"12\",\"b\":12,\"c\":true}]", NULL);
    check(&setup, "<invoke name=\"f\"><parameter name=\"b\">a few</parameter></invoke>",
          "[f {\"b\":\"a few\"}]", NULL);
    json_decref(tools);
}

static void calls_as_python_writes_them(void **state)
{
    (void)state;
    reads("olmo3",
          "<function_calls>f(a=\"x\\n(\\\"\", b='y', c=[1, 2.5, {'k': None}], d=True)\ng()</function_calls>",
          "[f {\"a\":\"x\\n(\\\"\",\"b\":\"y\",\"c\":[1,2.5,{\"k\":null}],\"d\":true}][g {}]");
    reads("olmo3", "I look.\n<function_calls>\nf( a = -3 , b = false , )\n</function_calls>",
          "I look.[f {\"a\":-3,\"b\":false}]");
    static const char *const none[] = {"f(1)",    "f(a=x)",      "f(a=\"x)", "f",   "",
                                       "f(a=[1)", "f(a={1: 2})", "f() + 1",  "1f()"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char text[100];
        snprintf(text, sizeof text, "<function_calls>%s</function_calls>", none[i]);
        reads("olmo3", text, text);
    }
    char deep[300] = "<function_calls>f(a=";
    memset(deep + strlen(deep), '[', 60);
    strcat(deep, "</function_calls>");
    reads("olmo3", deep, deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays),
        cmocka_unit_test(space_is_not_held_for_ever),
        cmocka_unit_test(bad_bytes_are_replaced),
        cmocka_unit_test(reasoning_is_apart),
        cmocka_unit_test(stops_end_it),
        cmocka_unit_test(hermes_calls),
        cmocka_unit_test(broken_calls_are_text),
        cmocka_unit_test(calls_have_bounds),
        cmocka_unit_test(llama_calls),
        cmocka_unit_test(bare_calls_name_a_tool),
        cmocka_unit_test(deepseek_calls),
        cmocka_unit_test(messages_in_channels),
        cmocka_unit_test(kimi_calls),
        cmocka_unit_test(lists_of_calls),
        cmocka_unit_test(calls_in_tags),
        cmocka_unit_test(tools_say_what_is_text),
        cmocka_unit_test(calls_as_python_writes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
