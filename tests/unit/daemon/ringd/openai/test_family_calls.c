/* SPDX-License-Identifier: MIT
 *
 * Every family by a template in the style of its released ones: which format of calls that shows,
 * and that calls which the template writes for an earlier turn are read as the same calls when a
 * model writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/text_parts.h"
#include "file/config.h"
#include "file/input.h"
#include "tests/lib/known_families.h"
#include "text/chat.h"

#define TEMPLATES "tests/data/chat-templates/templates"

static const struct {
    const char *families, *file, *format;
    size_t calls; /* that one answer may have */
} rows[] = {
    {"llama", "llama3", "llama3", 1},
    {"mistral", "mistral", "mistral", 2},
    {"ministral3", "ministral", "mistral", 2},
    {"qwen2 qwen3 qwen3_moe qwen3_next smollm3", "hermes", "hermes", 2},
    {"qwen3_5_text qwen3_5_moe_text", "qwen3-coder", "qwen3-coder", 2},
    {"deepseek_v2 deepseek_v3", "deepseek-v3.1", "deepseek", 2},
    {"deepseek_v32", "deepseek-v3.2", "dsml", 2},
    {"kimi_k2", "kimi-k2", "kimi", 2},
    {"granite", "granite", "granite", 2},
    {"phi3", "phi4-mini", "phi4", 2},
    {"olmo3", "olmo3", "olmo3", 2},
    {"glm4_moe", "glm", "glm", 2},
    {"minimax_m2", "minimax", "minimax", 2},
    {"gpt_oss", "gpt-oss", "harmony", 2},
    {"gemma2 gemma3_text", "gemma3", NULL, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"find_price\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"town\":{\"type\":\"string\"},\"code\":{\"type\":\"string\"},\"count\":{\"type\":"
    "\"integer\"},\"exact\":{\"type\":\"boolean\"},\"near\":{\"type\":\"array\"},\"more\":{\"type\":"
    "\"object\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"time-of.day\",\"parameters\":{}}}]";

/* Text that looks like a number, that has brackets, quotes and lines; and every other kind. */
static const char calls[] =
    "[{\"id\":\"callnumb0\",\"type\":\"function\",\"function\":{\"name\":\"find_price\",\"arguments\":{"
    "\"town\":"
    "\"Fez <b> "
    "\\\"x\\\"\\n}\",\"code\":\"12\",\"count\":2,\"exact\":true,\"near\":[\"a\",{\"b\":null}],\"more\":"
    "{\"c\":-1.5}}}},{\"id\":\"callnumb1\",\"type\":\"function\",\"function\":{\"name\":\"time-of.day\","
    "\"arguments\":{}}}]";

/* --- rendering -------------------------------------------------------------------------------- */

static char *source_of(size_t row, size_t *ret_n)
{
    struct err err;
    char path[256], *text = NULL;
    snprintf(path, sizeof path, TEMPLATES "/%s.jinja", rows[row].file);
    if (input_read(path, 1 << 20, &text, ret_n, &err))
        fail_msg("%s", err.text);
    return text;
}

/* The caller frees; `list` is taken. */
static char *rendered(size_t row, json_t *list, bool prompt)
{
    struct err err = {""};
    struct chat_template *t;
    struct chat_text text = {0};
    size_t n;
    char *source = source_of(row, &n);
    json_t *tokens = json_pack("{s:s s:s}", "bos_token", "<s>", "eos_token", "</s>"),
           *given = json_loads(tools, 0, NULL);
    const struct chat_request req = {.messages = list, .tools = given, .add_generation_prompt = prompt};
    if (chat_template_parse(&t, source, n, tokens, &err) || chat_render(t, &req, &text, &err))
        fail_msg("%s: %s", rows[row].file, err.text);
    char *ret = strndup(text.text, text.n);
    chat_text_done(&text);
    chat_template_close(t);
    json_decref(tokens);
    json_decref(given);
    json_decref(list);
    free(source);
    return ret;
}

static json_t *messages(size_t with_calls, const char *content)
{
    json_t *list = json_pack("[{s:s s:s}]", "role", "user", "content", "What do lamps cost?");
    json_t *all = json_loads(calls, 0, NULL);
    assert_non_null(all);
    while (json_array_size(all) > with_calls)
        json_array_remove(all, json_array_size(all) - 1);
    json_t *said = json_pack("{s:s s:s}", "role", "assistant", "content", content);
    if (with_calls)
        json_object_set(said, "tool_calls", all);
    json_array_append_new(list, said);
    json_decref(all);
    return list;
}

/* What the model would have written: the answer's turn behind the prompt. */
static char *answer_of(size_t row, size_t with_calls, const char *content)
{
    json_t *list = messages(with_calls, content), *first = json_pack("[O]", json_array_get(list, 0));
    char *prompt = rendered(row, first, true), *all = rendered(row, list, false);
    size_t n = 0;
    while (prompt[n] && prompt[n] == all[n])
        n++;
    char *ret = strdup(all + n);
    free(prompt);
    free(all);
    return ret;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct heard {
    json_t *calls;
    char text[512], arguments[1024];
};

static void close_call(struct heard *h)
{
    json_t *last = json_array_get(h->calls, json_array_size(h->calls) - 1);
    if (last && !json_object_get(last, "arguments"))
        json_object_set_new(last, "arguments", json_loads(h->arguments, 0, NULL));
    h->arguments[0] = '\0';
}

static void hear(void *owner, const struct text_part *part)
{
    struct heard *h = owner;
    char *to = part->kind == TEXT_PART_ARGUMENTS ? h->arguments : h->text;
    if (part->kind == TEXT_PART_CALL) {
        close_call(h);
        json_array_append_new(h->calls, json_pack("{s:s%}", "name", part->text, part->n));
    } else {
        strncat(to, part->text, part->n);
    }
}

static void check_calls(size_t row, size_t n, const char *content, size_t step)
{
    size_t source_n;
    struct heard h = {.calls = json_array()};
    char *source = source_of(row, &source_n), *answer = answer_of(row, n, content);
    json_t *given = json_loads(tools, 0, NULL), *want = json_loads(calls, 0, NULL);
    const struct text_parts_setup setup = {
        .format = chat_format_of(source, source_n), .tools = given, .take = hear, .owner = &h};
    struct text_parts *p = text_parts_new(&setup);
    for (size_t at = 0, len = strlen(answer); at < len; at += step)
        text_parts_push(p, answer + at, len - at < step ? len - at : step);
    text_parts_end(p);
    text_parts_free(p);
    close_call(&h);
    assert_int_equal(json_array_size(h.calls), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *got = json_array_get(h.calls, i),
                     *call = json_object_get(json_array_get(want, i), "function");
        char *text = json_dumps(got, 0);
        if (!json_equal(json_object_get(got, "name"), json_object_get(call, "name")) ||
            !json_equal(json_object_get(got, "arguments"), json_object_get(call, "arguments")))
            fail_msg("%s: %s\nis read as %s", rows[row].file, answer, text);
        free(text);
    }
    if (*content)
        assert_non_null(strstr(h.text, content));
    json_decref(h.calls);
    json_decref(given);
    json_decref(want);
    free(source);
    free(answer);
}

static void a_template_shows_its_format(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        size_t n;
        char *source = source_of(i, &n);
        const struct chat_format f = chat_format_of(source, n);
        const char *is = f.calls ? f.calls->name : "none", *want = rows[i].format ? rows[i].format : "none";
        if (strcmp(is, want) != 0)
            fail_msg("%s shows %s, not %s", rows[i].file, is, want);
        free(source);
    }
}

static void what_a_template_writes_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t n = 1; n <= rows[i].calls; n++)
            for (size_t step = 1; step < 64; step += 21)
                check_calls(i, n, "", step);
}

static void an_answer_without_calls_is_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        check_calls(i, 0, "They cost [13] {crowns}.", 3);
}

static bool has_row(const void *of, const char *family)
{
    const size_t n = strlen(family);
    (void)of;
    for (size_t i = 0; i < ROWS; i++)
        for (const char *at = rows[i].families; (at = strstr(at, family)); at += n)
            if ((at == rows[i].families || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
                return true;
    return false;
}

static void no_family_is_left_out(void **state)
{
    (void)state;
    known_families_all(has_row, NULL, "has no template here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_shows_its_format),
        cmocka_unit_test(what_a_template_writes_is_read),
        cmocka_unit_test(an_answer_without_calls_is_text),
        cmocka_unit_test(no_family_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
