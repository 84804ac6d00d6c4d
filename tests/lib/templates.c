/* SPDX-License-Identifier: MIT
 *
 * Owns the variables that the cases use. Called by test_jinja.c and test_jinja_bounds.c, one
 * thread. */
#include "tests/lib/templates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/jinja/jinja.h"

static const char vars_text[] =
    "{\"s\":\"Hello, W\\u00f6rld "
    "\",\"e\":\"\",\"n\":7,\"f\":2.5,\"neg\":-3,\"t\":true,\"no\":false,\"nul\":null,"
    "\"l\":[3,1,2],\"w\":[\"b\",\"A\",\"c\",\"a\"],\"d\":{\"b\":1,\"a\":[1,2],\"items\":5,\"x y\":null},"
    "\"people\":[{\"name\":\"Ann\",\"age\":3,\"tags\":[\"x\"]},{\"name\":\"bob\",\"age\":1},"
    "{\"name\":\"Cy\",\"age\":2,\"tags\":[]}],"
    "\"q\":\"it's \\\"q\\\"\\n\\t\\\\ \\u00e9\\u2028\\u0001 \\ud83d\\ude00\",\"big\":1e16,\"small\":1e-5,"
    "\"lines\":\"a\\nb\\n\\nc\\n\"}";

/* The text, or NULL with the sentence. */
const char *template_render(const char *template, size_t n, struct chat_text *ret, struct err *err)
{
    struct jinja *program;
    err->text[0] = '\0';
    *ret = (struct chat_text){0};
    if (jinja_parse(&program, template, n, err))
        return NULL;
    json_t *vars = json_loads(vars_text, 0, NULL);
    assert_non_null(vars);
    const json_t *const all[] = {NULL, vars};
    int r = jinja_render(program, all, 2, 1721952000, ret, err);
    json_decref(vars);
    jinja_free(program);
    return r ? NULL : ret->text;
}

void template_check(const struct template_case *cases, size_t n)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct chat_text got;
        struct err err;
        const char *text = template_render(cases[i].template, strlen(cases[i].template), &got, &err);
        if (!text || strcmp(text, cases[i].want) != 0) {
            print_message("%s\n  got    %s\n  wanted %s\n", cases[i].template, text ? text : err.text,
                          cases[i].want);
            wrong++;
        }
        chat_text_done(&got);
    }
    assert_int_equal(wrong, 0);
}

/* The sentence begins with the line. */
void template_check_refused(const struct template_case *cases, size_t n)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct chat_text got;
        struct err err;
        bool is_refused = !template_render(cases[i].template, strlen(cases[i].template), &got, &err);
        if (!is_refused || strcmp(err.text, cases[i].want) != 0) {
            print_message("%s\n  got    %s\n  wanted %s\n", cases[i].template,
                          is_refused ? err.text : got.text, cases[i].want);
            wrong++;
        }
        chat_text_done(&got);
    }
    assert_int_equal(wrong, 0);
}
