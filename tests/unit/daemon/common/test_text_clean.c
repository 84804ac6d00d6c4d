/* SPDX-License-Identifier: MIT
 *
 * Text of others: nothing in it commands a terminal, forges a line, turns text around or breaks a
 * character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/common/text_clean.h"

#define BAD "\xEF\xBF\xBD"

static void is_cleaned_to(const char *from, bool lines, const char *wanted)
{
    char text[256];
    assert_int_equal(text_clean(text, sizeof text, from, lines), strlen(wanted));
    assert_string_equal(text, wanted);
}

static void commands_of_a_terminal_are_shown_as_such(void **state)
{
    (void)state;
    is_cleaned_to("plain, gr\xC3\xBC\xC3\x9F dich \xE2\x82\xAC \xF0\x9F\x99\x82", false,
                  "plain, gr\xC3\xBC\xC3\x9F dich \xE2\x82\xAC \xF0\x9F\x99\x82");
    is_cleaned_to("\x1B[2J\x1B]0;title\x07", true, BAD "[2J" BAD "]0;title" BAD);
    is_cleaned_to("\xC2\x9B"
                  "31m\x7F\x08",
                  true, BAD "31m" BAD BAD); /* CSI as one C1 character */
    is_cleaned_to("a\xE2\x80\xAE"
                  "b\xE2\x81\xA6",
                  true, "a" BAD "b" BAD);
    is_cleaned_to("\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D", false, "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D");
}

static void lines_are_not_forged(void **state)
{
    (void)state;
    is_cleaned_to("job\n<3>root: all is lost\ta", false, "job <3>root: all is lost a");
    is_cleaned_to("one\r\ntwo\t", true, "one" BAD "\ntwo\t");
    is_cleaned_to("a\xE2\x80\xA8"
                  "b",
                  true, "a" BAD "b");
}

static void what_is_no_utf8_becomes_text(void **state)
{
    (void)state;
    is_cleaned_to("\xFF"
                  "a\xC3",
                  false, BAD "a" BAD);
    is_cleaned_to("\xE2\x82", false, BAD BAD);
    is_cleaned_to("\xC0\x80 \xED\xA0\x80 \xF4\x90\x80\x80", false,
                  BAD BAD " " BAD BAD BAD " " BAD BAD BAD BAD);
    is_cleaned_to("", false, "");
}

static void a_cut_is_between_characters(void **state)
{
    (void)state;
    for (size_t size = 1; size < 12; size++) {
        char text[16];
        memset(text, 'x', sizeof text);
        const size_t n = text_clean(text, size, "\xC3\xBC\xC3\xBC\xE2\x82\xAC\xE2\x82\xAC", false);
        assert_true(n < size);
        assert_int_equal(n, strlen(text));
        json_t *string = json_string(text); /* NULL if it is no UTF-8 */
        assert_non_null(string);
        json_decref(string);
        assert_int_equal(text[size], 'x');
    }
}

static void strings_of_a_value_are_cleaned(void **state)
{
    (void)state;
    json_t *v = json_pack("{s:s s:[{s:s s:s}] s:i}", "error", "a\x1B", "lines", "text", "b\x1B", "name",
                          "c\x1B\nd", "n", 1);
    text_clean_json(v, "text");
    const json_t *line = json_array_get(json_object_get(v, "lines"), 0);
    assert_string_equal(json_string_value(json_object_get(v, "error")), "a" BAD);
    assert_string_equal(json_string_value(json_object_get(line, "text")), "b\x1B");
    assert_string_equal(json_string_value(json_object_get(line, "name")), "c" BAD "\nd");
    text_clean_json(v, NULL);
    assert_string_equal(json_string_value(json_object_get(line, "text")), "b" BAD);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_of_a_terminal_are_shown_as_such),
        cmocka_unit_test(lines_are_not_forged),
        cmocka_unit_test(what_is_no_utf8_becomes_text),
        cmocka_unit_test(a_cut_is_between_characters),
        cmocka_unit_test(strings_of_a_value_are_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
