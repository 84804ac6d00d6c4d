/* SPDX-License-Identifier: MIT
 *
 * Templates that are wrong, or mean no good: refused with the line and what is there, and none runs
 * away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/rng.h"
#include "tests/lib/templates.h"

static void test_refusals(void **state)
{
    static const struct template_case cases[] = {
        {"{{ people|map(attribute=\"tags.0\")|list }}",
         "line 1: \"tags\" is undefined, so it has no \"item\""},
        {"{{ nope|tojson }}", "line 1: tojson: something undefined is nothing JSON knows"},
        {"{{ nope.x }}", "line 1: \"nope\" is undefined, so it has no \"x\""},
        {"{{ nope + 1 }}", "line 1: \"nope\" is undefined, so there is no + for it"},
        {"{{ nope() }}", "line 1: \"nope\" is not known, so it cannot be called"},
        {"{{ d.nope.x }}", "line 1: \"nope\" is undefined, so it has no \"x\""},
        {"{{ \"abc\".rsplit(\"\") }}", "line 1: rsplit: the separator is empty"},
        {"{{ raise_exception(\"no: \" ~ n) }}", "line 1: the template refuses these messages: no: 7"},
        {"{{ s|nofilter }}", "line 1: the filter \"nofilter\" is not known"},
        {"{% nosuch %}", "line 1: the tag {% nosuch %} is not known here"},
        {"{{ s is nosuch }}", "line 1: the test \"is nosuch\" is not known"},
        {"{{ s.nosuch() }}", "line 1: \"nosuch\" is not known, so it cannot be called"},
        {"{{ l.append(1) }}", "line 1: \"append\" is not known, so it cannot be called"},
        {"{{ nosuch(1) }}", "line 1: \"nosuch\" is not known, so it cannot be called"},
        {"{{ 1 / 0 }}", "line 1: a division by zero"},
        {"{{ 1 < \"a\" }}", "line 1: a number and a text have no order"},
        {"{{ \"a\" + 1 }}", "line 1: there is no + of a text and a number"},
        {"{{ a.b", "line 1: {{ has no end }}"},
        {"{% if t %}x", "line 1: the block that begins on line 1 has no {% endif %}"},
        {"{% for x in l %}{{ x }}", "line 1: the block that begins on line 1 has no {% endfor %}"},
        {"{{ x }", "line 1: \"}\" closes nothing that is open"},
        {"{{ ] }}", "line 1: \"]\" closes nothing that is open"},
        {"{{ (1 }}", "line 1: \"}\" closes nothing that is open"},
        {"{% if t %}{% endfor %}", "line 1: the tag {% endfor %} is not known here"},
        {"{% set 1 = 2 %}", "line 1: \"1\" stands where a name is expected"},
        {"{% set d.x = 2 %}", "line 1: only a namespace can be changed: \"d\" is a dict"},
        {"{% else %}", "line 1: the tag {% else %} is not known here"},
        {"{{ 'abc }}", "line 1: a text that begins with ' has no end"},
        {"{{ }}", "line 1: a value is missing"},
        {"{# open", "line 1: the comment {# has no end #}"},
        {"{{ 1 if }}", "line 1: a value is missing"},
        {"{% for x l %}{% endfor %}", "line 1: \"l\" stands where \"in\" is expected"},
        {"{{ \"a\" if t else }}", "line 1: a value is missing"},
        {"{{ l|join(\",\")|upper ~ 1 + 2 }}", "line 1: there is no + of a text and a number"},
        {"{{ 1 + 2 ~ 3 }} {{ \"a\" ~ 1 * 2 }} {{ not 1 == 2 }} {{ not (1 in l) }} {{ -1|abs }} {{ 2 + "
         "3|string|length }} {{ l|length > 2 and t }}",
         "line 1: there is no + of a number and a text"},
        {"{{ {\"a\":1}.update({\"b\":2}) }}", "line 1: \"update\" is not known, so it cannot be called"},
        {"{{ range(1000000) }}", "line 1: range: more than 100000 numbers"},
        {"{%- for x in [1,2] +%}", "line 1: the block that begins on line 1 has no {% endfor %}"},
        {"{%+ endfor %}", "line 1: the tag {% endfor %} is not known here"},
        {"{{", "line 1: {{ has no end }}"},
        {"{%%}", "line 1: the tag {% %} %} is not known here"},
        {"a\n{{ n }}\n{{ s|nope }}\n", "line 3: the filter \"nope\" is not known"},
        {"a\n\n{% include 'x' %}", "line 3: the tag {% include %} is not known here"},
        {"{% for x in l recursive %}{% endfor %}", "line 1: recursive loops are not known"},
        {"\n{{\n s.nope(\n1) }}", "line 3: \"nope\" is not known, so it cannot be called"},
        {"{{ f(*l) }}", "line 1: arguments from a list (* and **) are not known"},
        {"{{ 99999999999999999999 }}", "line 1: \"99999999999999999999\" is not a number of 64 bits"},
        {"{{ '\\ud800' }}", "line 1: the text holds \\ud800, which is no character"},
        {"{% break %}", "line 1: break and continue belong into a loop"},
        {"{{ '%q' % 1 }}", "line 1: the format %q is not known"},
        {"{{ strftime_now('%Q') }}", "line 1: strftime_now: %Q is not known"},
        {"{{ l|tojson(x=1) }}", "line 1: tojson: the argument \"x\" is not known"},
        {"{{ n $ n }}", "line 1: \"$\" means nothing within a tag"},
        {"{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "line 1: the macro \"m\" has no argument \"b\""},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "line 1: the macro \"m\" takes 1 arguments, not 2"}};
    (void)state;
    template_check_refused(cases, sizeof cases / sizeof *cases);
}

/* --- bounds --- */

static void test_bounds(void **state)
{
    (void)state;
    static const struct template_case endless[] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", ""},
        {"{% set a = range(99999)|list %}{{ a|select('in', a)|list|length }}", "steps"},
        {"{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
         "%}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
         ""},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
         "}}",
         "levels"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
         "== [ns.l] }}",
         ""},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ "
         "ns.l|tojson }}",
         "levels"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels"},
        {"{% macro m(x) %}{{ m(x) ~ m(x) }}{% endmacro %}{{ m(1) }}", "levels"},
        {"{{ 'x' * 999999999 }}", ""},
        {"{{ ('x' * 9999999)|replace('', 'y' * 999) }}", ""},
        {"{{ 'x'.ljust(999999999) }}", "width"},
        {"{{ 'x'.ljust(9, 'xy') }}", "must be one character"},
        {"{{ ('x' * 999999).join(['y'] * 99999) }}", "join: a text of more than 64 MiB"},
        {"{{ ('x\n' * 999999)|indent('y' * 99) }}", "indent: a text of more than 64 MiB"},
        {"{{ ('x' * 999999).rfind('x' * 99999 ~ 'y' ~ 'x' * 99999) }}", "steps"},
        {"{{ ('x' * 999999).rsplit('x' * 99999 ~ 'y' ~ 'x' * 99999) }}", "steps"},
        {"{{ ('x' * 999999).rpartition('x' * 99999 ~ 'y' ~ 'x' * 99999) }}", "steps"},
        {"{{ [0] * 999999999 }}", ""},
        {"{{ range(9999999) }}", "range"},
        {"{{ 2 ** 99 }}", "64 bits"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(20) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
         "ns.l|string|length }}{{ ns.l == [ns.l] }}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l] %}{% "
         "endfor %}{{ ns.l }}",
         ""},
    };
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        struct chat_text got;
        struct err err;
        if (template_render(endless[i].template, strlen(endless[i].template), &got, &err) ||
            !strstr(err.text, endless[i].want))
            fail_msg("%s: \"%s\"", endless[i].template, err.text);
    }
}

/* Brackets, blocks and operators within one another, as deep as somebody likes. */
static void test_depth(void **state)
{
    (void)state;
    static const char *const parts[] = {"(",  "[",  "{1:",        "not ", "-",     "a if b else ",
                                        "a(", "a[", "a|default(", "1+",   "a.b|d|"};
    enum { TIMES = 50000 };
    for (size_t i = 0; i <= sizeof parts / sizeof *parts; i++) {
        bool is_block = i == sizeof parts / sizeof *parts;
        const char *part = is_block ? "{% if 1 %}" : parts[i];
        size_t len = strlen(part), n = is_block ? 0 : 3;
        char *text = malloc(TIMES * len + 3);
        memcpy(text, "{{ ", 3);
        for (size_t k = 0; k < TIMES; k++, n += len)
            memcpy(text + n, part, len);
        struct chat_text got;
        struct err err;
        assert_null(template_render(text, n, &got, &err));
        assert_true(strlen(err.text) > 10);
        free(text);
    }
}

/* Operators one after the other nest to the left. */
static void test_long_sums(void **state)
{
    (void)state;
    enum { TIMES = 300 };
    char text[16 + 4 * TIMES] = "{{ 1";
    for (int i = 1; i < TIMES; i++)
        strcat(text, " + 1");
    strcat(text, " }}");
    template_check(&(struct template_case){text, "300"}, 1);
}

/* Any cut and any changed byte of a template that uses everything: a text or a sentence. */
static void test_damage(void **state)
{
    (void)state;
    static const char whole[] =
        "{%- macro m(a, b=2) -%}{{ a ~ b }}{%- endmacro -%}{# c #}{% set ns = namespace(x=[1, {'a': 2.5}]) %}"
        "{% for p in people if p.age > 1 %}{{ loop.index }}{{ p['name'][::-1] | upper }}{% if p.tags is "
        "defined %}"
        "{{ p.tags|tojson(indent=1) }}{% elif not t %}{% break %}{% else %}{% set ns.x = ns.x + [p.age] %}{% "
        "endif %}"
        "{% else %}-{% endfor %}{% raw %}{{ }}{% endraw %}{% call m(1) %}x{% endcall %}{% filter trim %} y "
        "{% endfilter %}"
        "{% generation %}{{ '%s' % 'a\\u00e9' }}{% endgeneration %}{% with a = 1 %}{{ a // 2 ** 3 }}{% "
        "endwith %}\n";
    struct chat_text got;
    struct err err;
    char text[sizeof whole];
    for (size_t n = 0; n < sizeof whole; n++) {
        assert_true(template_render(whole, n, &got, &err) || err.text[0]);
        chat_text_done(&got);
    }
    struct rng rng = rng_for(5, "damage");
    for (int i = 0; i < 20000; i++) {
        memcpy(text, whole, sizeof whole);
        text[rng_below(&rng, sizeof whole - 1)] = whole[rng_below(&rng, sizeof whole - 1)];
        text[rng_below(&rng, sizeof whole - 1)] = (char)rng_below(&rng, 128);
        if (!template_render(text, sizeof whole - 1, &got, &err) && !err.text[0])
            fail_msg("round %d of seed 5: refused without a word", i);
        chat_text_done(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_bounds), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_long_sums), cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
