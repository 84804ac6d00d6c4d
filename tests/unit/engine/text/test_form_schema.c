/* SPDX-License-Identifier: MIT
 *
 * JSON and its schemas as forms. Oracles: jansson for what is JSON, PCRE2 for patterns, a count of
 * days for dates, and for schemas a judge that says of a value whether it is valid. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <pcre2.h>

#include "tests/unit/engine/text/form_world.h"

static struct form *schema_of(const char *text)
{
    struct err err = {""};
    json_error_t why;
    struct form *form = NULL;
    json_t *schema = json_loads(text, JSON_DECODE_ANY, &why);
    if (!schema)
        fail_msg("%s: %s", why.text, text);
    if (form_of_schema(&form, schema, &err))
        fail_msg("%s\n%s", err.text, text);
    json_decref(schema);
    return form;
}

/* --- any object ------------------------------------------------------------------------------- */

struct spelling {
    struct form_world *w;
    const char *alphabet;
    char text[16];
    size_t checked, objects;
};

/* Every text of these characters. Numbers may be too long for a form, but not these. */
static void spell(struct spelling *s, size_t n, size_t most)
{
    json_t *value = json_loadb(s->text, n, JSON_DECODE_ANY, NULL);
    const bool is = json_is_object(value) && s->text[0] == '{' && s->text[n - 1] == '}';
    json_decref(value);
    s->checked++;
    s->objects += is;
    if (accepts_bytes(s->w, s->text, n) != is)
        fail_msg("%.*s is %san object", (int)n, s->text, is ? "" : "no ");
    for (const char *c = s->alphabet; n < most && *c; c++) {
        s->text[n] = *c;
        spell(s, n + 1, most);
    }
}

static void an_object_is_what_jansson_takes(void **state)
{
    static const struct {
        const char *alphabet, *begin;
        size_t most;
    } rounds[] = {{"{}[]:,\"a1", "", 6},
                  {"}:,\"a1-0", "{\"", 9},
                  {"0e1.-+E}", "{\"a\":", 10},
                  {"[]1,}{\"", "{\"a\":", 12},
                  {"u0d8N\"}", "{\"a\":\"\\", 14}};
    (void)state;
    struct err err = {""};
    struct form_world w;
    struct form *form;
    assert_int_equal(form_of_json_object(&form, &err), 0);
    world_open(&w, form, NULL);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct spelling s = {.w = &w, .alphabet = rounds[i].alphabet};
        strcpy(s.text, rounds[i].begin);
        spell(&s, strlen(s.text), rounds[i].most);
        assert_true(s.checked > 10000 && s.objects > 0);
    }
    assert_true(accepts(&w, "{\n  \"a\": [\n    true,\n    null\n  ]\n}"));
    assert_false(accepts(&w, "{\n\n}"));
    assert_true(accepts(&w, "{\"\\uD83D\\ude00\\u00e9\":\"\xc3\xa9\"}"));
    assert_false(accepts(&w, "{\"a\":\"\\uD83Dx\"}"));
    world_close(&w);
}

/* --- schemas by example ----------------------------------------------------------------------- */

#define PERSON                                                                                               \
    "{\"type\":\"object\",\"title\":\"P\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1},"   \
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":130},\"tags\":{\"type\":\"array\",\"items\":"   \
    "{\"enum\":[\"a\",\"b\"]},\"maxItems\":2}},\"required\":[\"name\"],\"additionalProperties\":false}"

static const struct {
    const char *schema, *good[8], *bad[8];
} cases[] = {
    {PERSON,
     {"{\"name\":\"x\"}", "{\"name\": \"\xc3\xa9\", \"age\": 7}", "{\"name\":\"x\",\"tags\":[\"a\",\"b\"]}",
      "{ \"name\":\"x\",\"age\":130,\"tags\":[] }"},
     {"{}", "{\"age\":1}", "{\"name\":\"\"}", "{\"age\":1,\"name\":\"x\"}", "{\"name\":\"x\",\"age\":131}",
      "{\"name\":\"x\",\"tags\":[\"a\",\"b\",\"a\"]}", "{\"name\":\"x\",\"b\":1}", "{\"name\":\"x\",}"}},
    {"{\"properties\":{\"a\":{},\"ab\":{},\"\\u00e9\\n\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{}", "{\"a\":1}", "{\"b\":null}", "{\"ab\":[1],\"abc\":null,\"\":null}", "{\"\\\"\":null,\"x\":null}"},
     {"{\"b\":1}", "{\"c\":null,\"a\":null}", "{\"c\":null,\"ab\":null}", "{\"\\u0061\":null}",
      "{\"x\":null,\"\xc3\xa9\\n\":null}"}},
    {"{\"type\":\"object\"}", {"{}", "{\"a\":{\"b\":[1,2]}}"}, {"[]", "{a:1}", "1"}},
    {"{\"type\":\"object\",\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"k\":true}", "{\"k\":true,\"j\":false}"},
     {"{}", "{\"j\":true}", "{\"k\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1,2,3]", "[-1, 0]", "[ 5 ]"},
     {"[]", "[1,2,3,4]", "[1.5]", "[01]", "[1,]"}},
    {"{\"prefixItems\":[{\"type\":\"null\"},{\"const\":\"x\"}],\"items\":{\"type\":\"boolean\"},\"minItems\":"
     "1}",
     {"[null]", "[null,\"x\"]", "[null,\"x\",true,false]"},
     {"[]", "[\"x\"]", "[null,true]", "[null,\"x\",1]"}},
    {"{\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"null\"}]}",
     {"[]", "[null]", "[null,null]"},
     {"[null,null,null]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}", {"[]", "[null]"}, {"[null,1]"}},
    {"{\"type\":[\"string\",\"null\"],\"maxLength\":2}",
     {"null", "\"\"", "\"a\xc3\xa9\"", "\"\\n\\u00e9\"", "\"\\ud83d\\ude00x\""},
     {"\"abc\"", "1"}},
    {"{\"enum\":[1,\"b\",null,{\"a\":[true]},1.5]}",
     {"1", "\"b\"", "null", "{\"a\":[true]}", "1.5"},
     {"2", "b", "{\"a\":[false]}"}},
    {"{\"type\":\"string\",\"enum\":[1,\"b\"]}", {"\"b\""}, {"1"}},
    {"{\"const\":\"\\\"\\u00e9\\u0001\"}", {"\"\\\"\xc3\xa9\\u0001\""}, {"\"\xc3\xa9\""}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":\"null\"}}]}",
     {"1", "[null]"},
     {"\"a\"", "[1]"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"}"
     ","
     "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
    {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"type\":\"boolean\"}}}", {"true"}, {"1"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"object\",\"properties\":{\"y\":{\"type\":\"null\"}},"
     "\"required\":[\"y\"]}],\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
     "\"integer\"}},"
     "\"required\":[\"x\"]}}}",
     {"{\"x\":1,\"y\":null}"},
     {"{\"x\":1}", "{\"y\":null}", "{}"}},
    {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"arguments\":{\"$id\":\"f\",\"$ref\":\"#/$defs/q\","
     "\"$defs\":{\"q\":{\"type\":\"null\"}}}},\"required\":[\"arguments\"]}],\"$defs\":{\"q\":{\"type\":"
     "\"boolean\"}}}",
     {"{\"arguments\":null}"},
     {"{\"arguments\":true}"}},
    {"{\"type\":\"string\",\"format\":\"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.123+05:30\""},
     {"\"24:00:00Z\"", "\"23:59:59\"", "\"23:59Z\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T10:00:00-08:00\""},
     {"\"2023-02-29T10:00:00Z\"", "\"2024-01-01\""}},
    {"{\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-42661417400F\""},
     {"\"123e4567e89b12d3a45642661417400F\"", "\"\""}},
    {"{\"format\":\"ipv4\"}", {"\"10.0.255.7\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"{\"type\":\"number\"}", {"1", "-0.5", "1e10", "1.25E-7"}, {".5", "1.", "+1", "NaN", "01"}},
    {"true", {"1", "{\"a\":[]}", "\"x\""}, {"", "x"}},
};

static void schemas_let_their_values_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct form_world w;
        world_open(&w, schema_of(cases[i].schema), NULL);
        for (size_t k = 0; k < 8 && cases[i].good[k]; k++)
            if (!accepts(&w, cases[i].good[k]))
                fail_msg("%s: %s is not let through", cases[i].schema, cases[i].good[k]);
        for (size_t k = 0; k < 8 && cases[i].bad[k]; k++)
            if (accepts(&w, cases[i].bad[k]))
                fail_msg("%s: %s is let through", cases[i].schema, cases[i].bad[k]);
        world_close(&w);
    }
}

static const char *const refused[][2] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}",
     "schema, at #/properties/a: \"not\" is not supported"},
    {"{\"if\":{}}", "\"if\""},
    {"{\"patternProperties\":{}}", "\"patternProperties\""},
    {"{\"dependentSchemas\":{}}", "\"dependentSchemas\""},
    {"{\"type\":\"integer\",\"multipleOf\":2}", "\"multipleOf\""},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\""},
    {"{\"type\":\"array\",\"items\":[{}]}", "\"prefixItems\""},
    {"{\"type\":\"number\",\"minimum\":0}", "\"minimum\" is supported for \"type\": \"integer\" alone"},
    {"{\"minimum\":0}", "\"minimum\" needs \"type\""},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no whole number lies between"},
    {"{\"type\":\"integer\",\"minimum\":-1e300}", "from -9e15 to 9e15"},
    {"{\"type\":\"string\",\"format\":\"email\"}", "\"format\" \"email\" is not supported"},
    {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "\"maxLength\" beside \"pattern\""},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}",
     "at #: \"pattern\": character 4 of \"(?=a)\": looking ahead"},
    {"{\"pattern\":\"(a)\\\\1\"}", "references to a group"},
    {"{\"pattern\":\"\\\\bx\"}", "word boundaries"},
    {"{\"pattern\":\"a^\"}", "^ and $ are supported only"},
    {"{\"pattern\":\"(a\"}", "no closing )"},
    {"{\"pattern\":\"a)\"}", "closes nothing"},
    {"{\"pattern\":\"[a\"}", "no closing ]"},
    {"{\"pattern\":\"*a\"}", "nothing is repeated here"},
    {"{\"pattern\":\"a{3,1}\"}", "less than the first"},
    {"{\"minLength\":3,\"maxLength\":2}", "less than \"minLength\""},
    {"{\"minLength\":-1}", "whole number from 0"},
    {"{\"minItems\":3,\"maxItems\":2}", "less than \"minItems\""},
    {"{\"enum\":[]}", "\"enum\" has no value"},
    {"{\"type\":\"string\",\"enum\":[1]}", "no value of that \"type\""},
    {"{\"enum\":[\"a\"],\"minLength\":3}", "\"minLength\" beside \"enum\""},
    {"{\"anyOf\":[{}],\"properties\":{}}", "\"properties\" beside \"anyOf\""},
    {"{\"anyOf\":[]}", "a list of schemas"},
    {"{\"type\":\"thing\"}", "\"thing\" does not exist"},
    {"{\"type\":7}", "a name or a list of names"},
    {"{\"$ref\":\"http://a/b\"}", "only those that begin with #/"},
    {"{\"$ref\":\"#/$defs/a\"}", "there is no \"#/$defs/a\""},
    {"{\"$ref\":\"#\"}", "the rule \"#\" begins with itself"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "never comes to an end"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}",
     "\"a\" is required, and is no property"},
    {"{\"allOf\":[{\"type\":\"object\"},{\"minLength\":2}]}", "objects alone"},
    {"{\"allOf\":[{\"type\":\"object\"},{\"type\":\"object\",\"not\":{}}]}", "\"not\" is not supported"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"a\":{\"type\":\"null\"}}}]}",
     "two schemas that differ"},
    {"{\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", "nested too deep"},
    {"false", "false allows no value"},
    {"[]", "a schema is an object"},
};

static void what_cannot_be_kept_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *schema = json_loads(refused[i][0], JSON_DECODE_ANY, NULL);
        struct form *form = NULL;
        struct err err = {""};
        assert_non_null(schema);
        const int r = form_of_schema(&form, schema, &err);
        if (!r || !strstr(err.text, refused[i][1]))
            fail_msg("%s: \"%s\" is not in \"%s\"", refused[i][0], refused[i][1], err.text);
        json_decref(schema);
    }
}

static void texts_stand_around_one_of_several_values(void **state)
{
    (void)state;
    json_t *nothing = json_pack("{s:s}", "type", "null"),
           *chain =
               json_pack("{s:[{s:s},{s:[{s:s}]}]}", "anyOf", "type", "boolean", "prefixItems", "$ref", "#");
    const struct form_value values[] = {{nothing, "<tool_call>\n", "\n</tool_call>"},
                                        {chain, "<call>", NULL}};
    struct form_world w;
    struct form *form;
    struct err err = {""};
    assert_int_equal(form_of_schemas(&form, values, 2, &err), 0);
    world_open(&w, form, NULL);
    assert_true(accepts(&w, "<tool_call>\nnull\n</tool_call>"));
    assert_true(accepts(&w, "<call>true"));
    assert_true(accepts(&w, "<call>[[false]]")); /* each schema's references are its own */
    assert_false(accepts(&w, "null"));
    assert_false(accepts(&w, "<tool_call>\ntrue\n</tool_call>"));
    assert_false(accepts(&w, "<call>[null]"));
    world_close(&w);
    json_decref(nothing);
    json_decref(chain);
}

/* --- whole numbers ---------------------------------------------------------------------------- */

static void check_number(struct form_world *w, long long n, long long from, long long to)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", n);
    if (accepts(w, text) != (n >= from && n <= to))
        fail_msg("%lld, from %lld to %lld", n, from, to);
}

static void bounds_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    struct rng rng = rng_for(8, "numbers");
    for (int i = 0; i < 300; i++) {
        const uint64_t scale = i % 3 ? 300 : UINT64_C(1000000000000000);
        const long long a = (long long)rng_below(&rng, 2 * scale) - (long long)scale,
                        b = a + (long long)rng_below(&rng, i % 2 ? 30 : scale);
        struct form_world w;
        char schema[160];
        snprintf(schema, sizeof schema,
                 i % 4 ? "{\"type\":\"integer\",\"minimum\":%lld,\"maximum\":%lld}"
                       : "{\"type\":\"integer\",\"exclusiveMinimum\":%lld.5,\"exclusiveMaximum\":%lld}",
                 i % 4   ? a
                 : a < 1 ? a - 1
                         : a - 1,
                 i % 4 ? b : b + 1);
        const long long from = i % 4 ? a : a < 1 ? a - 1 : a; /* −3.5 is between −4 and −3 */
        world_open(&w, schema_of(schema), NULL);
        for (long long n = -650; n <= 650; n++)
            check_number(&w, n, from, b);
        for (int k = -12; k <= 12; k++) {
            check_number(&w, from + k, from, b);
            check_number(&w, b + k, from, b);
            check_number(&w, from + (b - from) / 2 + k, from, b);
            check_number(&w, 10 * b + k, from, b);
        }
        assert_false(accepts(&w, "-0"));
        assert_false(accepts(&w, "00"));
        world_close(&w);
    }
}

/* --- dates ------------------------------------------------------------------------------------ */

static int days_of(int year, int month)
{
    const bool leap = (year % 4 == 0 && year % 100) || year % 400 == 0;
    return month == 2 ? 28 + leap : month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

static void dates_are_those_that_there_are(void **state)
{
    (void)state;
    struct form_world w;
    world_open(&w, schema_of("{\"type\":\"string\",\"format\":\"date\"}"), NULL);
    for (int year = 1590; year < 2410; year++)
        for (int month = 0; month < 14; month++)
            for (int day = 0; day < 33; day++) {
                char text[40];
                snprintf(text, sizeof text, "\"%04d-%02d-%02d\"", year, month, day);
                const bool is = month >= 1 && month <= 12 && day >= 1 && day <= days_of(year, month);
                if (accepts(&w, text) != is)
                    fail_msg("%s", text);
            }
    world_close(&w);
}

/* --- patterns --------------------------------------------------------------------------------- */

static const char *const patterns[] = {
    "^a+b?$",
    "a",
    "^a|b$",
    "^(ab|ba)*$",
    "^[^a]{2,3}$",
    "^\\d+-\\w$",
    "^(?:a|(?<x>b)){2}$",
    "^.a",
    "b\\.$",
    "^a{2,}b*?$",
    "^[a-b\\d]+$",
    "^\\S\\s\\S$",
    "^$",
    "",
    "^(a|)b",
    "[\\]\\\\\"-]",
    "^\\x61\\u0062$",
    "^a{0}b",
    "^\\W+$",
    "^[\\D]$",
};

static void spell_patterns(struct form_world *w, const pcre2_code *re, pcre2_match_data *data, char *text,
                           size_t n, const char *pattern)
{
    static const char alphabet[] = "ab1-. \"\\\n";
    json_t *value = json_stringn(text, n);
    char *json = json_dumps(value, JSON_ENCODE_ANY);
    const bool is = pcre2_match(re, (PCRE2_SPTR)text, n, 0, 0, data, NULL) >= 0;
    if (accepts(w, json) != is)
        fail_msg("%s: %s", pattern, json);
    free(json);
    json_decref(value);
    for (size_t i = 0; n < 4 && alphabet[i]; i++) {
        text[n] = alphabet[i];
        spell_patterns(w, re, data, text, n + 1, pattern);
    }
}

static void patterns_match_what_pcre2_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char text[8] = "";
        int code;
        PCRE2_SIZE at;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &code, &at, NULL);
        assert_non_null(re);
        pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
        json_t *schema = json_pack("{s:s}", "pattern", patterns[i]);
        struct form_world w;
        struct form *form;
        struct err err = {""};
        if (form_of_schema(&form, schema, &err))
            fail_msg("%s", err.text);
        world_open(&w, form, NULL);
        spell_patterns(&w, re, data, text, 0, patterns[i]);
        world_close(&w);
        json_decref(schema);
        pcre2_match_data_free(data);
        pcre2_code_free(re);
    }
}

/* --- whatever comes out is valid -------------------------------------------------------------- */

static bool is_valid(const json_t *schema, const json_t *root, const json_t *value);

static bool has_type(const json_t *type, const json_t *value)
{
    const char *name = json_string_value(type);
    bool is = !type;
    for (size_t i = 0; i < json_array_size(type); i++)
        is |= has_type(json_array_get(type, i), value);
    if (!name)
        return is;
    return !strcmp(name, "object")    ? json_is_object(value)
           : !strcmp(name, "array")   ? json_is_array(value)
           : !strcmp(name, "string")  ? json_is_string(value)
           : !strcmp(name, "integer") ? json_is_integer(value)
           : !strcmp(name, "number")  ? json_is_number(value)
           : !strcmp(name, "null")    ? json_is_null(value)
                                      : json_is_boolean(value);
}

static bool is_valid_object(const json_t *s, const json_t *root, const json_t *value)
{
    const json_t *properties = json_object_get(s, "properties"),
                 *others = json_object_get(s, "additionalProperties"),
                 *required = json_object_get(s, "required");
    const char *key;
    json_t *of;
    json_object_foreach ((json_t *)(uintptr_t)value, key, of) {
        const json_t *is = json_object_get(properties, key);
        if (is ? !is_valid(is, root, of) : others && !is_valid(others, root, of))
            return false;
    }
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(value, json_string_value(json_array_get(required, i))))
            return false;
    return true;
}

static bool is_valid_array(const json_t *s, const json_t *root, const json_t *value)
{
    const json_t *first = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items"),
                 *min = json_object_get(s, "minItems"), *max = json_object_get(s, "maxItems");
    const size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++) {
        const json_t *is = i < json_array_size(first) ? json_array_get(first, i) : items;
        if (is && !is_valid(is, root, json_array_get(value, i)))
            return false;
    }
    return n >= (size_t)json_integer_value(min) && (!max || n <= (size_t)json_integer_value(max));
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += (*text & 0xC0) != 0x80;
    return n;
}

static bool is_valid(const json_t *s, const json_t *root, const json_t *value)
{
    const json_t *any = json_object_get(s, "anyOf"), *list = json_object_get(s, "enum"),
                 *min = json_object_get(s, "minLength"), *max = json_object_get(s, "maxLength");
    bool is = !any;
    if (json_is_boolean(s))
        return json_is_true(s);
    if (json_object_get(s, "$ref"))
        return is_valid(root, root, value); /* none but "#" here */
    for (size_t i = 0; i < json_array_size(any); i++)
        is |= is_valid(json_array_get(any, i), root, value);
    is &= has_type(json_object_get(s, "type"), value);
    bool listed = !list;
    for (size_t i = 0; i < json_array_size(list); i++)
        listed |= json_equal(json_array_get(list, i), value);
    if (json_is_string(value) && min)
        is &= characters(json_string_value(value)) >= (size_t)json_integer_value(min);
    if (json_is_string(value) && max)
        is &= characters(json_string_value(value)) <= (size_t)json_integer_value(max);
    if (json_is_object(value))
        is &= is_valid_object(s, root, value);
    if (json_is_array(value))
        is &= is_valid_array(s, root, value);
    return is && listed;
}

static const char *const drawn[] = {
    PERSON,
    "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":[\"integer\",\"string\"],\"maxLength\":3},\"next\":"
    "{"
    "\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]},\"o\":{\"type\":\"object\"}},\"required\":[\"next\"]}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"number\"}],\"items\":{\"type\":"
    "\"string\","
    "\"minLength\":2,\"maxLength\":4},\"minItems\":2,\"maxItems\":4}",
    "{\"properties\":{\"a\":{\"type\":\"null\"},\"aa\":{\"enum\":[{},[],1]}},\"additionalProperties\":{"
    "\"type\":"
    "\"boolean\"},\"required\":[\"zz\"]}",
    "{}",
};

/* Bytes are drawn from what the mask lets through, towards the end where it takes long. */
static size_t draw_text(struct form_world *w, struct rng *rng, char *text, size_t most)
{
    struct err err = {""};
    form_state at = form_match_start(w->match), to;
    const uint64_t *mask;
    size_t n = 0;
    while (!form_match_may_end(w->match, at) || (n < most / 4 && rng_below(rng, 4))) {
        static const char closing[] = "\"]}01ne:";
        uint32_t id = (uint32_t)rng_below(rng, 128);
        assert_true(n < most);
        assert_int_equal(form_match_mask(w->match, at, &mask, &err), 0);
        if (is_allowed(mask, w->end) && !rng_below(rng, 2))
            break;
        for (size_t k = 0; closing[k]; k++)
            if (is_allowed(mask, (uint8_t)closing[k]) && rng_below(rng, n < most / 4 ? 8 : 1) == 0) {
                id = (uint8_t)closing[k];
                break;
            }
        bool none = true;
        for (uint32_t k = 0; k < 256 && none; k++)
            none = !is_allowed(mask, k);
        if (none)
            break;
        while (!is_allowed(mask, id))
            id = (id + 1) % 256;
        assert_int_equal(form_match_token(w->match, at, id, &to, &err), 0);
        form_match_drop(w->match, at);
        at = to;
        text[n++] = (char)id;
    }
    assert_true(form_match_may_end(w->match, at));
    form_match_drop(w->match, at);
    return n;
}

static void what_comes_out_is_valid(void **state)
{
    (void)state;
    struct rng rng = rng_for(9, "values");
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
        struct form_world w;
        json_t *schema = json_loads(drawn[i], 0, NULL);
        world_open(&w, schema_of(drawn[i]), NULL);
        for (int k = 0; k < 400; k++) {
            char text[4000];
            json_error_t why;
            const size_t n = draw_text(&w, &rng, text, sizeof text);
            json_t *value = json_loadb(text, n, JSON_DECODE_ANY, &why);
            if (!value || !is_valid(schema, schema, value))
                fail_msg("%s: %.*s %s", drawn[i], (int)n, text, value ? "is not valid" : why.text);
            json_decref(value);
        }
        world_close(&w);
        json_decref(schema);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_what_jansson_takes),
        cmocka_unit_test(schemas_let_their_values_through),
        cmocka_unit_test(what_cannot_be_kept_is_refused_by_name),
        cmocka_unit_test(texts_stand_around_one_of_several_values),
        cmocka_unit_test(bounds_of_whole_numbers_are_exact),
        cmocka_unit_test(dates_are_those_that_there_are),
        cmocka_unit_test(patterns_match_what_pcre2_matches),
        cmocka_unit_test(what_comes_out_is_valid),
    };
    return cmocka_run_group_tests_name("form_schema", tests, NULL, NULL);
}
