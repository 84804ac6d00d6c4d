/* SPDX-License-Identifier: MIT
 *
 * Grammars as forms: which texts they let through, and what is said of those that are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/unit/engine/text/form_world.h"
#include "text/utf8.h"

static const struct {
    const char *grammar, *good[8], *bad[8];
} cases[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno", "maybe", "no "}},
    {"root ::= [a-c]+ x? # and so on\nx ::= \"!\" \".\"", {"a", "abc", "cc!."}, {"", "d", "a!", "!."}},
    {"root ::= (\"a\" | \"b\")* \"c\"", {"c", "abbac"}, {"ab", "cc"}},
    {"root ::= \"a\"{2,3} \"b\"{2} \"c\"{1,} \"d\"{,1}",
     {"aabbc", "aaabbccc", "aabbcd"},
     {"abbc", "aaaabbc", "aabc", "aabb", "aabbcdd"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\"", {"A\xc3\xa9\xf0\x9f\x98\x80\n"}, {"A", "A\xc3"}},
    {"root ::= [^a-z\\]\\\\] .", {"A\xc3\xa9", "\xf0\x9f\x98\x80z"}, {"aa", "]a", "\\a", "A", "A\xc3"}},
    {"root ::=\n  \"a\"\n  | \"b\"\nother ::= root", {"a", "b"}, {"c", ""}},
    {"root ::= ( \"a\"\n \"b\" # two\n )?", {"", "ab"}, {"a", "abab"}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "(x)", "((((x))))"}, {"(x", "x)", "()"}},
    {"root ::= list\nlist ::= \"1\" | \"1,\" list", {"1", "1,1,1"}, {"1,", ",1"}},
    {"root ::= (\"\"? | \"a\"*)* \"b\"", {"b", "aab"}, {"", "a"}},
    {"root ::= a a a a a a a a\na ::= \"a\"?", {"", "a", "aaaaaaaa"}, {"aaaaaaaaa"}},
    {"root ::= \"a\" | never\nnever ::= \"b\" never", {"a"}, {"b", "bb"}},
    {"root ::= \"a\" (\"b\" | [^\\x00-\\U0010FFFF])", {"ab"}, {"a", "ac"}},
    {"root ::= \"a\"{0} \"b\"", {"b"}, {"ab"}},
    {"root ::= (\"a\" \"b\"{2}){2,3}", {"abbabb", "abbabbabb"}, {"abb", "abbab"}},
};

static void grammars_let_their_texts_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct form_world w;
        world_open(&w, grammar(cases[i].grammar), NULL);
        for (size_t k = 0; k < 8 && cases[i].good[k]; k++)
            if (!accepts(&w, cases[i].good[k]))
                fail_msg("%s: %s is not let through", cases[i].grammar, cases[i].good[k]);
        for (size_t k = 0; k < 8 && cases[i].bad[k]; k++)
            if (accepts(&w, cases[i].bad[k]))
                fail_msg("%s: %s is let through", cases[i].grammar, cases[i].bad[k]);
        world_close(&w);
    }
}

static const char *const wrong[][2] = {
    {"", "no rule \"root\""},
    {"a ::= \"x\"", "no rule \"root\""},
    {"root ::= \"x", "line 1, column 10: this text has no closing \""},
    {"root ::= a\n\na ::= [x", "line 3, column 7: this class has no closing ]"},
    {"root ::= (\"x\"", "line 1, column 10: this bracket has no closing )"},
    {"root ::= \"x\")", "line 1, column 13: this ) closes nothing"},
    {"root = \"x\"", "line 1, column 6: ::= is expected"},
    {"root ::= \"\xc3\xa9\" b\n", "line 1, column 14: this rule is used here and nowhere defined"},
    {"root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: this rule is defined a second time"},
    {"root ::= [z-a]", "this range ends before it begins"},
    {"root ::= \"x\"{3,2}", "less than the first"},
    {"root ::= \"x\"{", "a number is expected"},
    {"root ::= \"x\"{99999}", "at most 65536"},
    {"root ::= \"\\q\"", "line 1, column 11: one of \\x"},
    {"root ::= \"\\xZZ\"", "hexadecimal digits"},
    {"root ::= \"\\UFFFFFFFF\"", "this is no character"},
    {"root ::= \"\\uD800\"", "surrogate"},
    {"root ::= <think>", "tokens by name"},
    {"root ::= \"x\" , \"y\"", "line 1, column 14"},
    {"root ::= root \"x\" | \"x\"", "the rule \"root\" begins with itself"},
    {"root ::= \"x\" a\na ::= b?  c\nb ::= \"y\"\nc ::= d\nd ::= \"\"* a \"z\" | \"w\"",
     "begins with itself"},
    {"root ::= (\"a\"? | r)+\nr ::= root", "begins with itself"},
    {"root ::= r? \"a\"\nr ::= (\"b\"? r2)*\nr2 ::= r", "begins with itself"},
    {"root ::= \"x\" root", "the rule \"root\" never comes to an end"},
    {"root ::= []", "never comes to an end"},
    {"root ::= ((\"a\"{60000} \"b\"){60000} \"c\"){60000} \"\"{3} (\"a\" \"b\"){65536} (\"a\" \"c\"){65536}",
     "too large"},
    {"root ::= \"\xff\"", "this is no UTF-8"},
};

static void what_is_wrong_is_named_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct form *form = NULL;
        struct err err = {""};
        const int r = form_of_grammar(&form, wrong[i][0], strlen(wrong[i][0]), &err);
        if (!r || !strstr(err.text, wrong[i][1]))
            fail_msg("%s: \"%s\" is not in \"%s\"", wrong[i][0], wrong[i][1], err.text);
        assert_null(form);
    }
}

static void brackets_are_nested_within_a_bound(void **state)
{
    (void)state;
    for (size_t n = 60; n < 70; n++) {
        char text[400] = "root ::= ";
        struct form *form = NULL;
        struct err err = {""};
        memset(text + 9, '(', n);
        text[9 + n] = 'r';
        memset(text + 10 + n, ')', n);
        strcpy(text + 10 + 2 * n, "\nr ::= \"x\"");
        assert_int_equal(form_of_grammar(&form, text, strlen(text), &err), n <= 64 ? 0 : -EINVAL);
        form_free(form);
    }
}

static bool is_in(const struct utf8_char *c, const uint32_t (*ranges)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c->cp >= ranges[i][0] && c->cp <= ranges[i][1])
            return true;
    return false;
}

/* Of every character there is, and of bytes that are none. */
static void classes_hold_their_characters_and_no_others(void **state)
{
    (void)state;
    struct rng rng = rng_for(3, "classes");
    for (int round = 0; round < 6; round++) {
        static const uint32_t limits[] = {0x80, 0x1000, 0x10000, 0x110000};
        uint32_t ranges[4][2];
        char text[200] = "root ::= [";
        const bool negated = round % 2;
        strcat(text, negated ? "^" : "");
        for (size_t i = 0; i < 4; i++) {
            const uint32_t a = (uint32_t)rng_below(&rng, limits[i]), b = (uint32_t)rng_below(&rng, limits[i]);
            ranges[i][0] = a < b ? a : b;
            ranges[i][1] = a < b ? b : a;
            sprintf(text + strlen(text), "\\U%08X-\\U%08X", ranges[i][0], ranges[i][1]);
        }
        strcat(text, "]");
        struct form_world w;
        world_open(&w, grammar(text), NULL);
        for (uint32_t cp = 0; cp < 0x110000; cp += cp < 0x3000 ? 1 : 1 + (uint32_t)rng_below(&rng, 40)) {
            char bytes[4];
            const size_t n = utf8_encode(cp, bytes);
            const struct utf8_char c = utf8_next(bytes, n);
            const bool is = c.valid && is_in(&c, ranges, 4) != negated;
            if (accepts_bytes(&w, bytes, n) != is)
                fail_msg("%s: U+%04X", text, cp);
        }
        for (int i = 0; i < 20000; i++) {
            char bytes[4];
            for (size_t k = 0; k < 4; k++)
                bytes[k] = (char)(0x80 + rng_below(&rng, 0x80));
            const size_t n = 1 + rng_below(&rng, 4);
            const struct utf8_char c = utf8_next(bytes, n);
            const bool is = c.valid && c.len == n && is_in(&c, ranges, 4) != negated;
            assert_int_equal(accepts_bytes(&w, bytes, n), is);
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_let_their_texts_through),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(brackets_are_nested_within_a_bound),
        cmocka_unit_test(classes_hold_their_characters_and_no_others),
    };
    return cmocka_run_group_tests_name("form", tests, NULL, NULL);
}
