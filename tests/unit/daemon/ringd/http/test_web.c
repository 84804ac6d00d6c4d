/* SPDX-License-Identifier: MIT
 *
 * The dashboard as it was built in: every file the page names is there with the type its ending
 * has, and nothing in our own files leads out of this node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/web.h"

/* The n bytes from `at` on that stand before `end`, as a string; NULL: too long for a path. */
static const char *word(const char *at, char end, char ret[128])
{
    size_t n = 0;
    while (at[n] && at[n] != end && n < 127)
        n++;
    if (at[n] != end)
        return NULL;
    snprintf(ret, 128, "%.*s", (int)n, at);
    return ret;
}

/* Every file named after `before` in the text of an asset is an asset too. */
static size_t check_named(const struct web_asset *a, const char *before, char end)
{
    char name[128], path[132];
    size_t found = 0;
    for (const char *at = a->begin; (at = strstr(at, before)) && at < a->end;) {
        at += strlen(before);
        if (*at == '#' || !word(at, end, name))
            continue;
        snprintf(path, sizeof path, "/%s", !strncmp(name, "./", 2) ? name + 2 : name);
        if (!web_find(path))
            fail_msg("%s names %s, which is not built in", a->path, path);
        found++;
    }
    return found;
}

static void the_page_is_whole(void **state)
{
    (void)state;
    const struct web_asset *page = web_find("/");
    assert_non_null(page);
    assert_string_equal(page->type, "text/html; charset=utf-8");
    assert_true(check_named(page, " href=\"", '"') >= 3);
    assert_true(check_named(page, " src=\"", '"') >= 2);
    for (size_t i = 0; i < n_web_assets; i++)
        if (!strncmp(web_assets[i].type, "text/javascript", 15))
            check_named(&web_assets[i], " from './", '\'');
    assert_null(web_find("/index.htm"));
    assert_null(web_find(""));
    assert_null(web_find("/../etc/passwd"));
}

static void files_are_told_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_web_assets; i++) {
        const struct web_asset *a = &web_assets[i];
        assert_true(a->end > a->begin);
        assert_int_equal(*a->end, 0); /* so that text can be searched */
        assert_int_equal(strlen(a->tag), 18);
        assert_true(a->tag[0] == '"' && a->tag[17] == '"');
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(a->path, web_assets[j].path);
            assert_string_not_equal(a->tag, web_assets[j].tag);
        }
    }
}

/* Offline, and under a policy of 'self': no address of another host, no style or script inside the
 * page. */
static void nothing_leads_elsewhere(void **state)
{
    (void)state;
    static const char *const forbidden[] = {"https://", "src=\"http", "href=\"http", "url(",
                                            "@import",  " style=\"",  "onclick="};
    for (size_t i = 0; i < n_web_assets; i++) {
        const struct web_asset *a = &web_assets[i];
        if (strstr(a->path, "dygraph") || strstr(a->path, "marked"))
            continue;
        for (size_t k = 0; k < sizeof forbidden / sizeof *forbidden; k++)
            if (strstr(a->begin, forbidden[k]))
                fail_msg("%s has %s in it", a->path, forbidden[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_whole),
        cmocka_unit_test(files_are_told_apart),
        cmocka_unit_test(nothing_leads_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
