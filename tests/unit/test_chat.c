/* SPDX-License-Identifier: MIT
 *
 * Chat templates of the world against what the reference implementation renders, row by row; and how a template is
 * found in a model's directory. */
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

static const char *shared_dir(void)
{
    const char *dir = getenv("RINGD_SHARED");
    return dir ? dir : "../shared/data";
}

static json_t *row_tokens(const json_t *row)
{
    return json_pack("{s:O,s:O}", "bos_token", json_object_get(row, "bos_token"), "eos_token",
                     json_object_get(row, "eos_token"));
}

/* A row's template is in it, or in a file beside it. */
static struct chat_template *row_template(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "template_file"));
    const json_t *text = json_object_get(row, "template");
    char path[600], *data = NULL;
    size_t n = 0;
    struct err err = {""};
    struct chat_template *tpl;
    if (name) {
        snprintf(path, sizeof path, "%s/chat-templates/templates/%s", shared_dir(), name);
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

static bool check_row(const json_t *row)
{
    const json_t *want = json_object_get(row, "expected"), *tools = json_object_get(row, "tools");
    struct chat_template *tpl = row_template(row);
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

static void test_expected(void **state)
{
    (void)state;
    char path[600], *line = NULL;
    size_t cap = 0, rows = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/chat-templates/expected.jsonl", shared_dir());
    FILE *file = fopen(path, "re");
    if (!file) {
        print_message("skipped: no %s (set RINGD_SHARED)\n", path);
        skip();
    }
    while (getline(&line, &cap, file) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        rows++;
        wrong += !check_row(row);
        json_decref(row);
    }
    free(line);
    fclose(file);
    print_message("%zu rows\n", rows);
    assert_true(rows >= 208);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
