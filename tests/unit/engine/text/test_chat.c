/* SPDX-License-Identifier: MIT
 *
 * Chat templates of the world against what the reference implementation renders, row by row; and
 * how a template is found in a model's directory. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file/input.h"
#include "text/chat.h"

#define BUILT "tests/data/chat-templates"

static json_t *row_tokens(const json_t *row)
{
    return json_pack("{s:O,s:O}", "bos_token", json_object_get(row, "bos_token"), "eos_token",
                     json_object_get(row, "eos_token"));
}

/* A row's template is in it, or in a file beside it. */
static struct chat_template *row_template(const char *root, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "template_file"));
    const json_t *text = json_object_get(row, "template");
    char path[600], *data = NULL;
    size_t n = 0;
    struct err err = {""};
    struct chat_template *tpl;
    if (name) {
        snprintf(path, sizeof path, "%s/templates/%s", root, name);
        assert_int_equal(input_read(path, 1 << 20, &data, &n, &err), 0);
    }
    json_t *tokens = row_tokens(row);
    int r = chat_template_parse(&tpl, data ? data : json_string_value(text),
                                data ? n : json_string_length(text), tokens, &err);
    json_decref(tokens);
    free(data);
    if (r)
        fail_msg("%s: %s", json_string_value(json_object_get(row, "name")), err.text);
    return tpl;
}

static bool check_row(const char *root, const json_t *row)
{
    const json_t *want = json_object_get(row, "expected"), *tools = json_object_get(row, "tools");
    struct chat_template *tpl = row_template(root, row);
    struct chat_request req = {.messages = json_object_get(row, "messages"),
                               .tools = json_is_null(tools) ? NULL : tools,
                               .add_generation_prompt =
                                   json_is_true(json_object_get(row, "add_generation_prompt")),
                               .extra = json_object_get(row, "kwargs")};
    struct chat_text got = {0};
    struct err err = {""};
    bool same = chat_render(tpl, &req, &got, &err) == 0 && got.n == json_string_length(want) &&
                !memcmp(got.text, json_string_value(want), got.n);
    if (!same)
        print_message("%s: %s\n--- got\n%s\n--- wanted\n%s\n",
                      json_string_value(json_object_get(row, "name")), err.text, got.text ? got.text : "",
                      json_string_value(want));
    chat_text_done(&got);
    chat_template_close(tpl);
    return same;
}

/* Every row of ROOT/expected.jsonl, and their number; 0 where there is none. */
static size_t check_folder(const char *root)
{
    char path[600], *line = NULL;
    size_t cap = 0, rows = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/expected.jsonl", root);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &cap, file) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        rows++;
        wrong += !check_row(root, row);
        json_decref(row);
    }
    free(line);
    if (file)
        fclose(file);
    assert_int_equal(wrong, 0);
    return rows;
}

static void test_expected(void **state)
{
    (void)state;
    assert_true(check_folder(BUILT) >= 70);
}

/* Templates of released models are other people's and lie outside the repository. */
static void test_real_ones(void **state)
{
    (void)state;
    const char *shared = getenv("RINGD_SHARED");
    char root[512];
    snprintf(root, sizeof root, "%s/chat-templates", shared ? shared : "../shared/data");
    print_message("%zu rows in %s\n", check_folder(root), root);
}

/* --- a model's directory --- */

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void drop(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

/* What the directory's template makes of one message "x"; or the sentence. */
static const char *said(const char *dir)
{
    static char text[600];
    struct chat_template *tpl;
    struct chat_text got;
    struct err err = {""};
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");
    struct chat_request req = {.messages = messages};
    int r = chat_template_open(&tpl, dir, &err);
    if (!r) {
        r = chat_render(tpl, &req, &got, &err);
        chat_template_close(tpl);
    }
    snprintf(text, sizeof text, "%s", r ? err.text : got.text);
    if (!r)
        chat_text_done(&got);
    json_decref(messages);
    return text;
}

static void test_directory(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_chat.XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_non_null(strstr(said(dir), "has no chat template"));
    put(dir, "tokenizer_config.json",
        "{\"bos_token\":{\"content\":\"<b>\",\"lstrip\":false},\"eos_token\":\"<e>\",\"pad_token\":null,"
        "\"chat_template\":\"1{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined "
        "}}\"}");
    assert_string_equal(said(dir), "1<b>x<e>False");
    struct chat_template *tpl;
    assert_int_equal(chat_template_open(&tpl, dir, NULL), 0);
    assert_string_equal(chat_template_token(tpl, "bos_token"), "<b>");
    assert_null(chat_template_token(tpl, "pad_token"));
    chat_template_close(tpl);
    put(dir, "chat_template.json", "{\"chat_template\":\"2{{ bos_token }}\"}");
    assert_string_equal(said(dir), "2<b>");
    put(dir, "chat_template.jinja", "3{{ bos_token }}\n");
    assert_string_equal(said(dir), "3<b>");

    static const struct {
        const char *config, *says;
    } others[] = {
        {"{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"default\",\"template\":\"d\"}"
         "]}",
         "d"},
        {"{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"}]}", "r"},
        {"{\"chat_template\":[{\"name\":\"a\",\"template\":\"r\"},{\"name\":\"b\",\"template\":\"d\"}]}",
         "\"default\""},
        {"{\"chat_template\":7}", "neither a text nor a list"},
        {"{\"chat_template\":null}", "has no chat template"},
        {"{\"chat_template\":\"\\n{% nope %}\"}", "tokenizer_config.json: line 2: the tag {% nope %}"},
        {"{\"chat_template\":\"\\ud800\"}", "tokenizer_config.json is damaged: "},
        {"[]", "tokenizer_config.json is no JSON object"},
        {"{\"chat", "tokenizer_config.json is damaged: "},
    };
    drop(dir, "chat_template.jinja");
    drop(dir, "chat_template.json");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put(dir, "tokenizer_config.json", others[i].config);
        if (!strstr(said(dir), others[i].says))
            fail_msg("%s: %s", others[i].config, said(dir));
    }
    drop(dir, "tokenizer_config.json");
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_real_ones),
        cmocka_unit_test(test_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
