/* SPDX-License-Identifier: MIT
 *
 * Sentences can be printed and told in JSON, whatever the names in them are, and wherever they are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "err.h"

static void names_are_disarmed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"model.layers.0", "model.layers.0: no"},
        {"\x1b[2Jgone\r\n\ttwo\x7f", "?[2Jgone?  two?: no"},
        {"128 × 128 … 𝄞 ü", "128 × 128 … 𝄞 ü: no"},
        {"cut \xe2\x80", "cut ??: no"},
        {"latin \xfc and \xc0\xaf", "latin ? and ??: no"},
        {"\xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x80\x80\x80", "??? ???? ????: no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        assert_int_equal(err_set(&err, -1, "%s: no", cases[i].name), -1);
        assert_string_equal(err.text, cases[i].want);
        assert_int_equal(err_set(&err, -1, "no"), -1);
        assert_int_equal(err_prefix(&err, -2, "%s", cases[i].name), -2);
        assert_string_equal(err.text, cases[i].want);
    }
}

static void is_told(const struct err *err)
{
    json_t *told = json_string(err->text);
    assert_non_null(told);
    json_decref(told);
}

/* At each byte of a character. */
static void what_is_cut_can_be_told(void **state)
{
    (void)state;
    char long_name[3 * sizeof(struct err) + 1] = "";
    for (size_t i = 0; i < sizeof(struct err); i++)
        strcat(long_name, "…");
    for (int at = 0; at < 9; at++) {
        struct err err;
        err_set(&err, -1, "%.*s%s", at, "xxxxxxxxx", long_name);
        assert_int_equal(strlen(err.text), sizeof err.text - 1);
        is_told(&err);
        err_prefix(&err, -1, "%.*s", at, long_name);
        is_told(&err);
        err_set(&err, -1, "nobody listens");
        err_prefix(&err, -1, "%s", long_name);
        is_told(&err);
    }
    assert_int_equal(err_set(NULL, -1, "nobody listens"), -1);
    assert_int_equal(err_prefix(NULL, -1, "nobody listens"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_disarmed),
        cmocka_unit_test(what_is_cut_can_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
