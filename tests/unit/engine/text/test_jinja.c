/* SPDX-License-Identifier: MIT
 *
 * What each construct of a template makes: the texts are those of Jinja 3.1 with the settings of
 * chat templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/lib/templates.h"

#define CHECK(...)                                                                                           \
    static const struct template_case cases[] = {__VA_ARGS__};                                               \
    (void)state;                                                                                             \
    template_check(cases, sizeof cases / sizeof *cases)

static void test_text(void **state)
{
    CHECK(
        {"{{ s }}|{{ s|trim }}|{{ s.strip() }}|{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s.title() }}|{{ "
         "s|capitalize }}|{{ s|length }}",
         "Hello, Wörld |Hello, Wörld|Hello, Wörld|HELLO, WÖRLD |hello, wörld |Hello, Wörld |Hello, Wörld "
         "|Hello, wörld |13"},
        {"{{ \"%s is %d and %.2f, %5d|%-5d|%05d %x %%\"|format(\"a\", 3, 2.5, 7, 7, 7, 255) }} {{ \"%s\" % "
         "\"x\" }} {{ \"%s-%s\" % (1, 2) }} {{ \"%r\" % \"a\" }} {{ \"%5s|%-5s|%.2s\" % "
         "(\"ab\",\"ab\",\"abc\") }} {{ \"%+d %e %g\" % (3, 12345.678, 0.0001) }} {{ \"%d\" % 3.9 }} {{ "
         "\"%d\" % -3 }}{{ \"%05.1f\" % -2.25 }}",
         "a is 3 and 2.50,     7|7    |00007 ff % x 1-2 'a'    ab|ab   |ab +3 1.234568e+04 0.0001 3 -3-02.2"},
        {"{{ lines|indent }}| {{ lines|indent(2, true) }}| {{ lines|indent(2, blank=true) }}| {{ "
         "lines|indent(\">> \", true) }}| {{ \"a\"|indent }}|{{ \"\"|indent(2,true) }}|",
         "a\n    b\n\n    c\n|   a\n  b\n\n  c\n| a\n  b\n  \n  c\n  | >> a\n>> b\n\n>> c\n| a|  |"},
        {"{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ \"a,b,,c\".split(\",\") }} {{ "
         "\"a,b,c\".split(\",\", 1) }} {{ \" a  b c \".split() }} {{ \" a  b c \".split(none, 1) }} {{ "
         "\"a,b,c\".rsplit(\",\", 1) }} {{ \" a b c \".rsplit(none, 1) }} {{ \" a b c \".rsplit(none, 5) }} "
         "{{ \"   \".rsplit() }} {{ \" a \".rsplit(none, 0) }} {{ \" a \".split(none, 0) }} {{ "
         "\"aaa\".rsplit(\"aa\", 1) }} {{ \"aaa\".split(\"aa\") }} {{ \"\".split() }} {{ \"\".split(\",\") "
         "}} {{ \"\".rsplit(\",\") }} {{ \" a  b \".rsplit() }}",
         "['a', 'b', '', 'c'] ['a\\n', 'b\\n', '\\n', 'c\\n'] ['a', 'b', '', 'c'] ['a', 'b,c'] ['a', 'b', "
         "'c'] ['a', 'b c '] ['a,b', 'c'] [' a b', 'c'] ['a', 'b', 'c'] [] [' a'] ['a '] ['a', ''] ['', 'a'] "
         "[] [''] [''] ['a', 'b']"},
        {"{{ \"a=b=c\".partition(\"=\") }} {{ \"a=b=c\".rpartition(\"=\") }} {{ \"abc\".partition(\"=\") }} "
         "{{ \"abc\".rpartition(\"=\") }}",
         "('a', '=', 'b=c') ('a=b', '=', 'c') ('abc', '', '') ('', '', 'abc')"},
        {"{{ \"abcabc\".find(\"c\") }} {{ \"abcabc\".find(\"c\", 3) }} {{ \"abcabc\".rfind(\"c\") }} {{ "
         "\"é1é\".find(\"1\") }} {{ \"abc\".find(\"z\") }} {{ \"abc\".index(\"b\") }} {{ "
         "\"banana\".count(\"an\") }} {{ \"abc\".count(\"\") }} {{ \"abc\".find(\"\") }} {{ "
         "\"abc\".rfind(\"\") }} {{ \"abc\".find(\"c\", -1) }}",
         "2 5 5 1 -1 1 2 4 0 3 2"},
        {"{{ \"abc\".replace(\"b\", \"xx\") }} {{ \"aaa\".replace(\"a\", \"b\", 2) }} {{ "
         "\"abc\".replace(\"\", \"-\") }} {{ \"aaa\"|replace(\"a\",\"b\") }} {{ "
         "\"aaa\"|replace(\"a\",\"b\",1) }} {{ 112|replace(1, 3) }} {{ \"\".replace(\"\", \"x\") }}",
         "axxc bba -a-b-c- bbb baa 332 x"},
        {"{{ \"xxaxx\".strip(\"x\") }} {{ \"xyax\".lstrip(\"xy\") }} {{ \"xyax\".rstrip(\"xy\") }} {{ \"\\n "
         "a \\n\".strip() }} {{ \"\\n a \\n\".lstrip(\"\\n\") }} {{ \"abc\".strip(\"\") }} {{ "
         "\"--a--\"|trim(\"-\") }} {{ \"éaé\".strip(\"é\") }}",
         "a ax xya a  a \n abc a a"},
        {"{{ \"abc\".startswith(\"a\") }} {{ \"abc\".startswith((\"x\",\"a\")) }} {{ "
         "\"abc\".endswith(\"bc\") }} {{ \"abc\".endswith(\"\") }} {{ \"abc\".removeprefix(\"a\") }} {{ "
         "\"abc\".removesuffix(\"c\") }} {{ \"abc\".removesuffix(\"\") }}",
         "True True True True bc ab abc"},
        {"{{ \"aBc\".upper() }} {{ \"aBc\".lower() }} {{ \"aBc\".swapcase() }} {{ \"hello wORLD "
         "it's\".title() }} {{ \"hello-wORLD it's (ok) x.y\"|title }} {{ \"ß\".upper() }} {{ "
         "\"éÀ\".capitalize() }} {{ \"ÀÉ\"|lower }}",
         "ABC abc AbC Hello World It'S Hello-World It's (Ok) X.y SS Éà àé"},
        {"{{ \"abc\".isalpha() }} {{ \"12\".isdigit() }} {{ \"a1\".isalnum() }} {{ \" \".isspace() }} {{ "
         "\"\".isalpha() }} {{ \"AB1\".isupper() }} {{ \"ab\".islower() }} {{ \"12\".isupper() }}",
         "True True True True False True True False"},
        {"{{ \"ab\".ljust(5) }}|{{ \"ab\".rjust(5, \"-\") }}|{{ \"ab\".center(5, \"-\") }}|{{ "
         "\"abc\".center(6, \"-\") }}|{{ \"ab\"|center(7) }}|{{ \"-\".join([\"a\",\"b\"]) }}|{{ \"\".join(w) "
         "}}",
         "ab   |---ab|--ab-|-abc--|   ab  |a-b|bAca"});
}

static void test_values(void **state)
{
    CHECK(
        {"{{ s[0] }}{{ s[-2] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[::2] }}{{ s[5:1:-1] }}{{ s[-3:] }}{{ s[:-3] "
         "}}{{ s[100:] }}{{ s[7] }}{{ s[8:12] }}",
         "Hdell dlröW ,olleHHlo öl ,ollld Hello, WörWörld"},
        {"{{ n + f }} {{ n - 3 }} {{ n * 2 }} {{ n / 2 }} {{ n // 2 }} {{ neg // 2 }} {{ neg % 2 }} {{ n % "
         "-4 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -n }} {{ +n }} {{ f % 2 }} {{ -f // 2 }} {{ 6 / 3 }} {{ "
         "2**3**2 }} {{ -2**2 }}",
         "9.5 4 14 3.5 3 -2 1 -1 1024 0.5 -7 7 0.5 -2.0 2.0 64 4"},
        {"{{ d.b }} {{ d[\"b\"] }} {{ d[\"items\"] }} {{ d.get(\"q\") }} {{ d.get(\"q\", 4) }} {{ "
         "d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d[\"x y\"] }} {{ d.nope }} {{ d.a.1 "
         "}} {{ d.a[0] }}",
         "1 1 5 None 4 ['b', 'a', 'items', 'x y'] [1, [1, 2], 5, None] [('b', 1), ('a', [1, 2]), ('items', "
         "5), ('x y', None)] None  2 1"},
        {"{{ nope|default(\"d\") }} {{ e|default(\"d\") }} {{ e|default(\"d\", true) }} {{ nul|d(\"x\") }} "
         "{{ nope|default }} {{ nope }} {{ nope|length }} {{ nope|list }} {{ nope|string }} {{ nope|upper }} "
         "{{ nope ~ \"a\" }} {{ nope is defined }} {{ nope == nope2 }} {{ nope in [1] }} {{ nope or 3 }}",
         "d  d None   0 []   a False True False 3"},
        {"{{ nope is defined and nope.x }} {{ d.nope is defined }} {{ nul.x is defined }}",
         "False False False"},
        {"{{ \"3\"|int + 1 }} {{ \"x\"|int }} {{ \"x\"|int(5) }} {{ \"3.7\"|int }} {{ 3.9|int }} {{ "
         "\"0x1f\"|int(0,16) }} {{ \" 12 \"|int }} {{ \"1_000\"|int }} {{ \"2.5\"|float }} {{ \"x\"|float }} "
         "{{ 3|float }} {{ t|int }} {{ none|int }} {{ \"1e3\"|int }} {{ \"1e3\"|float }}",
         "4 0 5 3 3 31 12 1000 2.5 0.0 3.0 1 0 1000 1000.0"},
        {"{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 7|round }} {{ 2.1|round(0,\"ceil\") }} {{ "
         "2.9|round(method=\"floor\") }} {{ 2.675|round(2) }} {{ neg|abs }} {{ f|abs }}",
         "2.0 4.0 2.57 7 3.0 2.0 2.67 3 2.5"},
        {"{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5E-2 }} {{ 2.0 }}",
         "31 5 15 1000 1000.0 0.015 2.0"},
        {"{{ [1,2,] }}{{ (1,2,) }}{{ {\"a\":1,} }}{{ 1, 2 }}", "[1, 2](1, 2){'a': 1}(1, 2)"},
        {"{{ \"é\" == \"\\u00e9\" }}{{ \"abc\"[1:][0] }}{{ \"abc\"[-1:] }}{{ "
         "\"\346\227\245\346\234\254\350\252\236\"[1] }}{{ \"\346\227\245\346\234\254\350\252\236\"|length "
         "}}{{ \"\346\227\245\346\234\254\350\252\236\"[::-1] }}",
         "Truebc\346\234\2543\350\252\236\346\234\254\346\227\245"},
        {"{{ none is defined }} {{ none|string }} {{ none ~ \"\" }} {{ [none, undefinedx] }}",
         "True None None [None, Undefined]"},
        {"{{ 9223372036854775807 }} {{ -9223372036854775807 }}", "9223372036854775807 -9223372036854775807"},
        {"{{ loop }}", ""}, {"  {{ x }}", "  "}, {"{{ 5 if 0 else 6 if 0 else 7 }}{{ (1 if t) + 1 }}", "72"},
        {"{{ d.a|length }}{{ d['a']|sum }}{{ d.get('a')[0] }}", "231"},
        {"{{ [1,2] ~ {} }}{{ 1.0 ~ 2 }}{{ true ~ none }}", "[1, 2]{}1.02TrueNone"},
        {"{{ '\342\200\250' }}{{ ['\342\200\250'] }}{{ '\360\237\230\200' }}",
         "\342\200\250['\\u2028']\360\237\230\200"},
        {"{{ 'x' is eq('x') and 1 is lt(2) }}{{ 5 is not divisibleby 2 }}{{ not 5 is even }}{{ 'a' is string "
         "and 'b' }}",
         "TrueTrueTrueb"},
        {"{{ '''a''' }}", "a"}, {"{{ n }}{{- n }}{{ n -}} {{ n }}", "7777"}, {"", ""}, {"{", "{"},
        {"}}", "}}"}, {"%}", "%}"}, {"a{b}c", "a{b}c"}, {"{ {n} }", "{ {n} }"},
        {"{{ {'a': '}}'}['a'] }}", "}}"});
}

static void test_lists(void **state)
{
    CHECK(
        {"{{ s[100] is defined }} {{ l[5] is defined }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} "
         "{{ l[0:10:2] }} {{ l[5:0:-1] }}",
         "False False 2 [1, 2] [2, 1, 3] [1, 2] [3, 2] [2, 1]"},
        {"{{ n ~ s ~ nul ~ t ~ l ~ f }} {{ \"a\" \"b\" 'c' }} {{ s * 2 }} {{ 2 * \"ab\" }} {{ [1] * 3 }} {{ "
         "l + [4] }} {{ (1, 2) + (3,) }}",
         "7Hello, Wörld NoneTrue[3, 1, 2]2.5 abc Hello, Wörld Hello, Wörld  abab [1, 1, 1] [3, 1, 2, 4] (1, "
         "2, 3)"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 1 == 1.0 }} {{ t == 1 }} {{ \"a\" < \"b\" }} {{ l == [3,1,2] }} "
         "{{ d == d }} {{ nul == none }} {{ s != e }} {{ [1,2] < [1,3] }} {{ \"10\" == 10 }}",
         "True False True True True True True True True True False"},
        {"{{ 3 in l }} {{ 9 not in l }} {{ \"ell\" in s }} {{ \"b\" in d }} {{ not t }} {{ t and no }} {{ no "
         "or s }} {{ e or nul }} {{ 1 if t else 2 }} {{ 1 if no }} {{ \"x\" if no else \"y\" if t else \"z\" "
         "}}",
         "True True True True False False Hello, Wörld  None 1  y"},
        {"{{ l }} {{ d }} {{ people }} {{ q }} {{ [q] }} {{ t }} {{ nul }} {{ (1,) }} {{ () }} {{ {} }} {{ "
         "[] }} {{ {1: 2, \"a\": [none, true]} }}",
         "[3, 1, 2] {'b': 1, 'a': [1, 2], 'items': 5, 'x y': None} [{'name': 'Ann', 'age': 3, 'tags': "
         "['x']}, {'name': 'bob', 'age': 1}, {'name': 'Cy', 'age': 2, 'tags': []}] it's \"q\"\n\t\\ "
         "é\342\200\250\001 \360\237\230\200 ['it\\'s \"q\"\\n\\t\\\\ é\\u2028\\x01 \360\237\230\200'] True "
         "None (1,) () {} [] {1: 2, 'a': [None, True]}"},
        {"{{ d|tojson }} {{ q|tojson }} {{ people|tojson(indent=2) }} {{ [1.5, none, true, [], "
         "{}]|tojson(indent=1) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ "
         "q|tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 6}|tojson }} {{ (1,2)|tojson }} {{ "
         "d|tojson(indent=\"--\") }}",
         "{\"b\": 1, \"a\": [1, 2], \"items\": 5, \"x y\": null} \"it's \\\"q\\\"\\n\\t\\\\ "
         "é\342\200\250\\u0001 \360\237\230\200\" [\n  {\n    \"name\": \"Ann\",\n    \"age\": 3,\n    "
         "\"tags\": [\n      \"x\"\n    ]\n  },\n  {\n    \"name\": \"bob\",\n    \"age\": 1\n  },\n  {\n    "
         "\"name\": \"Cy\",\n    \"age\": 2,\n    \"tags\": []\n  }\n] [\n 1.5,\n null,\n true,\n [],\n "
         "{}\n] {\"a\": [1, 2], \"b\": 1, \"items\": 5, \"x y\": null} {\"b\":1,\"a\":[1,2],\"items\":5,\"x "
         "y\":null} \"it's \\\"q\\\"\\n\\t\\\\ \\u00e9\\u2028\\u0001 \\ud83d\\ude00\" {\"1\": 4, \"null\": "
         "3, \"1.5\": 6} [1, 2] {\n--\"b\": 1,\n--\"a\": [\n----1,\n----2\n--],\n--\"items\": 5,\n--\"x y\": "
         "null\n}"},
        {"{{ l|sort }} {{ l|sort(reverse=true) }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ "
         "people|sort(attribute=\"age\")|map(attribute=\"name\")|list }} {{ w|unique|list }} {{ l|max }} {{ "
         "l|min }} {{ w|max }} {{ l|sum }} {{ people|sum(attribute=\"age\") }}",
         "[1, 2, 3] [3, 2, 1] ['A', 'a', 'b', 'c'] ['A', 'a', 'b', 'c'] ['bob', 'Cy', 'Ann'] ['b', 'A', 'c'] "
         "3 1 c 6 6"},
        {"{{ l|first }} {{ l|last }} {{ l|join(\", \") }} {{ people|join(\"-\", attribute=\"name\") }} {{ "
         "l|reverse|list }} {{ s|reverse }} {{ l|length }} {{ d|length }} {{ s|list }} {{ d|list }} {{ [] "
         "|first is defined }}",
         "3 2 3, 1, 2 Ann-bob-Cy [2, 1, 3]  dlröW ,olleH 3 4 ['H', 'e', 'l', 'l', 'o', ',', ' ', 'W', 'ö', "
         "'r', 'l', 'd', ' '] ['b', 'a', 'items', 'x y'] False"},
        {"{{ people|map(attribute=\"name\")|map(\"upper\")|join }} {{ "
         "people|selectattr(\"tags\")|map(attribute=\"name\")|list }} {{ "
         "people|selectattr(\"tags\",\"defined\")|map(attribute=\"name\")|list }} {{ "
         "people|rejectattr(\"age\",\"gt\",1)|map(attribute=\"name\")|list }} {{ l|select(\"odd\")|list }} "
         "{{ l|reject(\"equalto\",1)|list }} {{ l|select|list }} {{ l|select(\">=\", 2)|list }} {{ "
         "people|map(attribute=\"tags\", default=\"-\")|list }}",
         "ANNBOBCY ['Ann'] ['Ann', 'Cy'] ['bob'] [3, 1] [3, 2] [3, 1, 2] [3, 2] [['x'], '-', []]"},
        {"{{ l|batch(2)|list }} {{ l|batch(2,\"-\")|list }} {{ d|dictsort }} {{ {\"b\":1,\"A\":2}|dictsort "
         "}} {{ {\"b\":1,\"a\":2}|dictsort(by=\"value\") }} {{ {\"b\":1,\"a\":2}|dictsort(reverse=true) }}",
         "[[3, 1], [2]] [[3, 1], [2, '-']] [('a', [1, 2]), ('b', 1), ('items', 5), ('x y', None)] [('A', 2), "
         "('b', 1)] [('b', 1), ('a', 2)] [('b', 1), ('a', 2)]"},
        {"{{ 1 is number }} {{ t is number }} {{ t is integer }} {{ f is float }} {{ s is string }} {{ l is "
         "iterable }} {{ s is iterable }} {{ d is mapping }} {{ l is sequence }} {{ d is sequence }} {{ n is "
         "iterable }} {{ nul is none }} {{ t is true }} {{ 1 is true }} {{ t is boolean }} {{ no is false }} "
         "{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ 1 is sameas 1 "
         "}} {{ nul is sameas none }} {{ \"a\" is in \"abc\" }} {{ n is gt 3 }} {{ n is eq 7 }} {{ n is not "
         "lt 3 }} {{ \"abc\" is lower }} {{ range is callable }} {{ n is undefined }} {{ n is equalto 7 }} "
         "{{ nope is iterable }} {{ nope is sequence }} {{ nope is string }} {{ nope is none }}",
         "True True False True True True True True True True False True True False True True True False True "
         "False True True True True True True True True False True True True False False"},
        {"{{ range(3)|list }} {{ range(1,4)|list }} {{ range(5,0,-2)|list }} {{ range(0)|list }} {{ "
         "dict(a=1, b=2) }} {{ dict({\"x\":1}, y=2) }}",
         "[0, 1, 2] [1, 2, 3] [5, 3, 1] [] {'a': 1, 'b': 2} {'x': 1, 'y': 2}"},
        {"{{ l.x }}{{ n.x }}", ""},
        {"{{ people[0].name[0]|lower }} {{ people[-1][\"name\"].lower() }} {{ (people|first).name }} {{ "
         "people[0][\"tags\"][0] }} {{ people|map(attribute=\"age\")|sum }} {{ people|length - 1 }}",
         "a cy Ann x 6 2"},
        {"{{ people|groupby(\"age\")|map(\"first\")|list }} {{ people|map(\"items\")|map(\"list\")|list }} "
         "{{ d|items|list }} {{ l|string }} {{ \"a b\"|wordcount }} {{ s|safe }} {{ l|count }}",
         "[1, 2, 3] [[('name', 'Ann'), ('age', 3), ('tags', ['x'])], [('name', 'bob'), ('age', 1)], "
         "[('name', 'Cy'), ('age', 2), ('tags', [])]] [('b', 1), ('a', [1, 2]), ('items', 5), ('x y', None)] "
         "[3, 1, 2] 2 Hello, Wörld  3"},
        {"{{ \"%s\" | format(l) }}{{ \"a\" ~ (\"b\" if t) }}{{ (\"b\" if no) ~ \"c\" }}{{ (\"b\" if no) is "
         "defined }}",
         "[3, 1, 2]abcFalse"},
        {"{{ l.index(1) }} {{ l.count(3) }} {{ (1,2).index(2) }} {{ d.copy() }} {{ [[1,2],[3]]|sum(start=[]) "
         "}} {{ [1,[2,3]] }} {{ \"abc\" in [\"abc\"] }} {{ 1.0 in [1] }} {{ [1] in [[1]] }} {{ 1 in none }}",
         "1 1 1 {'b': 1, 'a': [1, 2], 'items': 5, 'x y': None} [1, 2, 3] [1, [2, 3]] True True True False"},
        {"{{ \"a\"|attr(\"upper\") is defined }} {{ l|map(\"string\")|join(\"+\") }} {{ "
         "[\"a\",\"b\"]|map(\"replace\",\"a\",\"c\")|list }} {{ [\" a \"]|map(\"trim\")|list }} {{ "
         "[[1,2],[3,4]]|map(\"first\")|list }} {{ [3,none,0]|select(\"none\")|list }} {{ "
         "[1,\"a\"]|select(\"string\")|list }}",
         "True 3+1+2 ['c', 'b'] ['a'] [1, 3] [None] ['a']"},
        {"{{ people[2].tags }}{{ people|selectattr(\"nope\")|list }}", "[][]"},
        {"{{ {} |dictsort }}{{ [] |sort }}{{ []|max is defined }}{{ []|join }}", "[][]False"},
        {"{{ 1|string ~ 2 }}{{ l|sort|join }}{{ [1.5,1,2]|sort }}{{ [[2,1],[1,5]]|sort }}{{ "
         "[true,false]|sort }}",
         "12123[1, 1.5, 2][[1, 5], [2, 1]][False, True]"},
        {"{{ [1,2,3][1:][0] }}{{ (1,2,3)[::2] }}{{ l[:-1] }}{{ l[none:2] }}{{ 'abc'[1:none] }}{{ l[-100:100] "
         "}}{{ l[::-2] }}{{ l[2:0:-1] }}{{ l[-1:-4:-1] }}{{ 'héllo'[-2::-2] }}",
         "2(1, 3)[3, 1][3, 1]bc[3, 1, 2][2, 3][2, 1][2, 1, 3]lé"},
        {"{{ '%s' % d }}{{ '%s' % l }}{{ 'a%sb' % (none,) }}",
         "{'b': 1, 'a': [1, 2], 'items': 5, 'x y': None}[3, 1, 2]aNoneb"},
        {"{{ l|map('float')|list }}{{ ['1','2']|map('int')|sum }}{{ l|map('default', 1)|list }}",
         "[3.0, 1.0, 2.0]3[3, 1, 2]"});
}

static void test_tags(void **state)
{
    CHECK(
        {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
         "loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem "
         "}}{{ loop.cycle(\"a\",\"b\") }}{{ loop.changed(i > 1) }};{% endfor %}",
         "1032TrueFalse311aTrue;2121FalseFalse3132bTrue;3210FalseTrue311aTrue;"},
        {"{% for i in [] %}x{% else %}none{% endfor %}{% for i in l if i > 1 %}{{ loop.index }}{{ i }}{{ "
         "loop.last }}{% else %}no{% endfor %}{% for i in l if i > 9 %}x{% else %}no{% endfor %}",
         "none13False22Trueno"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% "
         "endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in \"aé\" "
         "%}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in nope %}x{% endfor %}",
         "b=1;a=[1, 2];items=5;x y=None;abitemsx y123a.é.baitemsx y"},
        {"{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% for j in l %}{% if j == 1 %}{% "
         "break %}{% endif %}{{ loop.depth }}{{ j }}{% endfor %}{% endfor %}",
         "313213"},
        {"{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}", "3"},
        {"{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if t %}{% set x = 5 "
         "%}{% endif %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
         "3121512(1, 2)"},
        {"{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = i %}{% endfor "
         "%}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns[\"a\"] }}",
         "72False7"},
        {"{% set x %}  blk {{ n }}{% endset %}[{{ x }}]{% set x | trim | upper %}  blk {{ n }}{% endset "
         "%}[{{ x }}]{% filter upper %}abc{{ s }}{% endfilter %}",
         "[  blk 7][BLK 7]ABCHELLO, WÖRLD "},
        {"{% macro m(a, b=2, c=\"x\") %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, "
         "c=9) }}{{ m(b=1, a=2) }}{{ m() }}{{ m(1)|upper }}",
         "12x13x12921x2x12X"},
        {"{% macro m(a) %}{{ a }}[{{ caller() }}]{% endmacro %}{% call m(1) %}in{{ n }}{% endcall %}{% macro "
         "k() %}{{ caller(\"z\") }}{% endmacro %}{% call(x) k() %}<{{ x }}>{% endcall %}",
         "1[in7]<z>"},
        {"{% set y = 1 %}{% macro m() %}{{ y }}{{ z2 }}{% endmacro %}{{ m() }}{% set y = 2 %}{{ m() }}{% "
         "macro r(i) %}{{ i }}{% if i > 0 %}{{ r(i - 1) }}{% endif %}{% endmacro %}{{ r(3) }}",
         "123210"},
        {"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}{% with %}{% set q1 = 1 %}{% endwith %}{{ "
         "q1 }}",
         "12"},
        {"{% if no %}a{% elif t %}b{% else %}c{% endif %}{% if nope %}a{% elif no %}b{% else %}c{% endif "
         "%}{% if not nope and (t or no) %}ok{% endif %}",
         "bcok"},
        {"{{ \"a\\nb\\t\\\"\\'\\\\\\x41\\u00e9\\q\" }}{{ 'a' 'b' }}{{ '}}' }}{{ \"{%\" }}{{ {\"a\": {\"b\": "
         "1}}.a.b }}{{ {'a':{'b':{}}} }}",
         "a\nb\t\"'\\Aé\\qab}}{%1{'a': {'b': {}}}"},
        {"{% generation %}a{% set x = 1 %}{% endgeneration %}{{ x }}", "a"},
        {"{% if x is not defined %}{% set x = 3 %}{% endif %}{{ x }}{% for i in [1,2] %}{{ y }}{% set y = i "
         "%}{% endfor %}",
         "3"},
        {"{% for i in range(3) %}{{ loop.cycle(1,2) }}{{ ',' if not loop.last }}{% endfor %}", "1,2,1"},
        {"{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{{ a }}{{ b }}{% endfor %}{{ loop.index "
         "}}{% endfor %}",
         "11321411232242"},
        {"{% macro a() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ a() }}{{ x is defined }}{{ a is callable "
         "}}{{ a() is string }}",
         "1FalseTrueTrue"},
        {"{% macro a(x) %}{% for i in x %}{{ i }}{% endfor %}{% endmacro %}{% for j in [[1],[2,3]] %}{{ a(j) "
         "}};{% endfor %}",
         "1;23;"},
        {"{% set ns = namespace() %}{% macro a() %}{% set ns.x = 4 %}{% endmacro %}{{ a() }}{{ ns.x }}", "4"},
        {"{% if a is defined and a.b %}x{% else %}y{% endif %}", "y"});
}

static void test_whitespace(void **state)
{
    CHECK(
        {"{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%}  a {{ {%- endraw -%}  b",
         "{{ x }} {% if %}|a {{b"},
        {"{# c #}a{#- c -#} b {#- d #} e", "ab e"},
        {"a {%- if t -%} b {%- endif -%} c {{- n -}} d {{ n }} e", "abc7d 7 e"},
        {"{% for m in people %}{%- set name = m.name -%}{% if loop.first %}{% set first = true %}{% endif "
         "%}{{ name }}{{ first }}{% endfor %}{{ name }}",
         "AnnTruebobCy"},
        {"{%- for x in [1,2] +%}\n  {{ x }}\n{%+ endfor %}", "\n  1\n\n  2\n"},
        {"  {% if t %}\n  a\n  {% endif %}\n  b {% if t %} c {% endif %}\n\n{# x #}\nq\n", "  a\n  b  c \nq"},
        {"a\r\nb\rc\n", "a\nb\nc"}, {"\n\n{{ n }}\n\n", "\n\n7\n"},
        {"{% if t -%}\n\n x \n\n{%- endif %}\n\n y\n", "x\n y"},
        {"  {%+ if t %}\nx\n  {%+ endif %}\ny", "  x\n  y"}, {"{% if t +%}\nx{% endif %}", "\nx"},
        {"x\n   {# c #}\n  {{ n }}\n\t{% set a=1 %}\n  z", "x\n  7\n  z"}, {"{{ n }}\n{{ n }}\n", "7\n7"},
        {"{% raw %}\n  {{ a }}\n{% endraw %}\nx", "\n  {{ a }}\nx"},
        {"   {%- if t %}x{% endif -%}   \n  y", "xy"}, {"a{# c #}\n b", "a b"}, {"{{ n -}}\n\n x", "7x"},
        {"{%- set a = 1 %}\n\n{{ a }}", "\n1"}, {"{{\n n\n }}{%\n if t\n%}x{% endif %}", "7x"},
        {"{{ 'a\nb' }}", "a\nb"}, {"{% if t %}\n\n\nx{% endif %}\n\n", "\n\nx"},
        {"\302\240{%- if t %}x{% endif -%}\302\240y", "xy"},
        {"{% for x in l %}\n- {{ x }}\n{% endfor %}\nend", "- 3\n- 1\n- 2\nend"},
        {"{% set x = '{% raw %}' %}{{ x }}", "{% raw %}"},
        {"{%- macro f(x) -%}\n  {{ x }}\n{%- endmacro -%}\n{{ f(1) }}", "1"});
}

/* What stands in {% generation %} is told, to the byte. */
static void test_spans(void **state)
{
    (void)state;
    static const char template[] = "a{% for x in l %}<{% generation %}{{ x }}!{% endgeneration %}>{% endfor "
                                   "%}{% set y %}{% generation %}z{% endgeneration %}"
                                   "{% endset %}{{ y }}";
    struct chat_text got;
    struct err err;
    const char *text = template_render(template, sizeof template - 1, &got, &err);
    assert_string_equal(text, "a<3!><1!><2!>z");
    assert_int_equal(got.nspans,
                     3); /* none for what a variable holds: it may be written anywhere, or not at all */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(got.spans[i].start, 2 + 4 * i);
        assert_int_equal(got.spans[i].end, 4 + 4 * i);
    }
    chat_text_done(&got);
}

static void test_time(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    static const struct template_case cases[] = {
        {"{{ strftime_now('%d %b %Y %H:%M:%S %A %a %B %y %j %p %I %w %-d %-m %F %%') }}",
         "26 Jul 2024 00:00:00 Friday Fri July 24 208 AM 12 5 26 7 2024-07-26 %"}};
    template_check(cases, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_text),       cmocka_unit_test(test_lists),
        cmocka_unit_test(test_tags),   cmocka_unit_test(test_whitespace), cmocka_unit_test(test_spans),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
