/* SPDX-License-Identifier: MIT
 *
 * A table of fields reads what its rows allow, at both ends of each range, refuses the rest in a
 * sentence with name, range and value, and writes and describes the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/fields.h"

enum color { RED = 3, BLUE = 8 };

struct thing {
    const char *name, *word;
    char *note;
    char label[6];
    size_t count;
    uint64_t id;
    enum color color;
    bool painted, is_on;
    double ratio;
    float weight;
    const json_t *parts, *more;
    size_t many;
    uint32_t bits[3];
    int untouched;
};

#define AT(member) FIELD_AT(struct thing, member)
enum { HERE = 1, THERE = 2 };

static const struct field_choice colors[] = {{"red", RED}, {"blue", BLUE}, {NULL, 0}};
static const struct field_choice paints[] = {{"plain", false}, {"painted", true}, {NULL, 0}};
static const struct field fields[] = {
    {"name", FIELD_TEXT, 0, AT(name), .missing = "", .doc = "What it is called"},
    {"word", FIELD_TEXT, 0, AT(word), .max = 4, .text = "def", .doc = "A word"},
    {"note", FIELD_OWNED, HERE, AT(note), .max = 3, .doc = "A note"},
    {"label", FIELD_FIXED, 0, AT(label), .doc = "A label"},
    {"count", FIELD_WHOLE, HERE, AT(count), 1, 64, 5, .doc = "How many"},
    {"count", FIELD_WHOLE, THERE, AT(count), 2, 64, 0, .missing = "say how many", .doc = "How many"},
    {"id", FIELD_WHOLE, 0, AT(id), 0, FIELD_ANY, 0, .doc = "A number of its own"},
    {"color", FIELD_CHOICE, 0, AT(color), .choices = colors, .def = BLUE, .doc = "Its color"},
    {"painted", FIELD_CHOICE, 0, AT(painted), .choices = paints, .doc = "Whether it has one"},
    {"is_on", FIELD_FLAG, 0, AT(is_on), .doc = "Whether it runs"},
    {"ratio", FIELD_NUMBER, 0, AT(ratio), -0.5, 100, 1.5, .doc = "A ratio"},
    {"weight", FIELD_NUMBER, 0, AT(weight), 0, FLT_MAX, 2, .doc = "In grams"},
    {"parts", FIELD_LIST, 0, AT(parts), .items = "string", .doc = "Its parts"},
    {"more", FIELD_OBJECT, 0, AT(more), .doc = "What else"},
    {"bits", FIELD_WHOLES, HERE, AT(bits), 0, 8, .item = sizeof(uint32_t),
     .count = offsetof(struct thing, many), .more = 1, .doc = "Its bits"},
    {"checked", FIELD_LIST, HERE, 0, 0, .doc = "Read elsewhere"},
    {.name = NULL},
};

/* Takes the reference. With `ret` NULL it must be refused, with `says` in the sentence. */
static void read_thing(struct thing *ret, unsigned use, json_t *json, const char *says)
{
    struct thing t = {.untouched = 77};
    struct err err = {""};
    assert_non_null(json);
    const int r = fields_read(&t, fields, use, json, &err);
    if (ret && r)
        fail_msg("refused: %s", err.text);
    assert_int_equal(t.untouched, 77);
    if (ret)
        *ret = t;
    else {
        assert_int_equal(r, -EINVAL);
        if (!strstr(err.text, says))
            fail_msg("\"%s\" has no \"%s\"", err.text, says);
        free(t.note);
    }
    json_decref(json);
}

static json_t *with(const char *key, json_t *value)
{
    json_t *json = json_pack("{s:s}", "name", "n");
    assert_int_equal(json_object_set_new(json, key, value), 0);
    return json;
}

static void refuse(const char *key, json_t *value, const char *says)
{
    read_thing(NULL, HERE, with(key, value), says);
}

static void missing_fields_have_defaults(void **state)
{
    (void)state;
    struct thing t;
    read_thing(&t, HERE, json_pack("{s:s s:n s:i}", "name", "n", "count", "stranger", 1), NULL);
    assert_string_equal(t.word, "def");
    assert_null(t.note);
    assert_string_equal(t.label, "");
    assert_true(t.count == 5 && t.id == 0 && t.color == BLUE && !t.painted && !t.is_on);
    assert_true(t.ratio == 1.5 && t.weight == 2 && !t.parts && !t.more);
    read_thing(NULL, HERE, json_object(), "\"name\" is missing: it must be text");
    read_thing(NULL, HERE, json_array(), "\"name\" is missing");
    read_thing(NULL, THERE, with("note", json_integer(1)), "say how many");
}

static void rows_belong_to_uses(void **state)
{
    (void)state;
    struct thing t;
    read_thing(&t, THERE, json_pack("{s:s s:i s:i}", "name", "n", "count", 2, "note", 7), NULL);
    assert_true(t.count == 2 && !t.note);
    read_thing(NULL, THERE, json_pack("{s:s s:i}", "name", "n", "count", 1), "from 2 to 64");
    read_thing(&t, HERE, with("count", json_integer(1)), NULL);
    assert_true(t.count == 1);
}

static void numbers_end_where_the_table_says(void **state)
{
    (void)state;
    static const char sentence[] = "\"count\" must be a whole number from 1 to 64, and is ";
    struct thing t;
    read_thing(&t, HERE, with("count", json_integer(64)), NULL);
    assert_true(t.count == 64);
    read_thing(&t, HERE, with("count", json_real(64)), NULL);
    assert_true(t.count == 64);
    refuse("count", json_integer(0), sentence);
    refuse("count", json_integer(65), "and is 65");
    refuse("count", json_integer(INT64_MIN), sentence);
    refuse("count", json_integer(INT64_MAX), sentence);
    refuse("count", json_real(1.5), "and is 1.5");
    refuse("count", json_real(-1), sentence);
    refuse("count", json_real(1e308), sentence);
    read_thing(&t, HERE, with("ratio", json_real(-0.5)), NULL);
    assert_true(t.ratio == -0.5);
    read_thing(&t, HERE, with("ratio", json_integer(100)), NULL);
    assert_true(t.ratio == 100);
    refuse("ratio", json_real(-0.5000001), "\"ratio\" must be a number from -0.5 to 100, and is ");
    refuse("ratio", json_real(100.00001), "\"ratio\" must be a number");
    refuse("ratio", json_real(1e308), "\"ratio\" must be a number");
    refuse("weight", json_real(1e39), "\"weight\" must be a number");
    refuse("weight", json_string("heavy"), "and is \"heavy\"");
    assert_null(json_loads("{\"ratio\":NaN}", 0, NULL)); /* JSON has no such number */
    assert_null(json_loads("{\"ratio\":1e999}", 0, NULL));
}

static void whole_numbers_beyond_doubles_are_exact(void **state)
{
    (void)state;
    static const json_int_t numbers[] = {(INT64_C(1) << 53) + 1, INT64_MAX, 0};
    struct thing t;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_t *given = with("id", json_integer(numbers[i]));
        read_thing(&t, HERE, json_incref(given), NULL);
        assert_true(t.id == (uint64_t)numbers[i]);
        json_t *back = fields_write(&t, fields, HERE);
        json_decref(given);
        assert_true(json_integer_value(json_object_get(back, "id")) == numbers[i]);
        json_decref(back);
    }
    refuse("id", json_integer(-1), "\"id\" must be a whole number of at least 0, and is -1");
    refuse("id", json_real(0x1p63), "\"id\" must be a whole number");
}

static void other_types_are_refused(void **state)
{
    (void)state;
    refuse("name", json_integer(1), "\"name\" must be text, and is 1");
    refuse("word", json_string("longer"), "\"word\" must be text of at most 4 bytes, and is \"longer\"");
    refuse("note", json_true(), "\"note\" must be text of at most 3 bytes, and is true");
    refuse("count", json_string("5"), "and is \"5\"");
    refuse("count", json_true(), "and is true");
    refuse("color", json_string("green"), "\"color\" must be red or blue, and is \"green\"");
    refuse("color", json_integer(3), "\"color\" must be red or blue, and is 3");
    refuse("is_on", json_integer(1), "\"is_on\" must be true or false, and is 1");
}

static void lists_and_objects_are_told_apart(void **state)
{
    (void)state;
    struct thing t;
    json_t *json = json_pack("{s:s s:[s] s:{s:i}}", "name", "n", "parts", "a", "more", "k", 1);
    read_thing(&t, HERE, json_incref(json), NULL);
    assert_ptr_equal(t.parts, json_object_get(json, "parts"));
    assert_ptr_equal(t.more, json_object_get(json, "more"));
    json_decref(json);
    refuse("parts", json_object(), "\"parts\" must be a list, and is {}");
    refuse("more", json_array(), "\"more\" must be an object, and is []");
    refuse("checked", json_integer(1), "\"checked\" must be a list, and is 1");
    read_thing(&t, HERE, with("checked", json_array()), NULL);
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    struct thing t, again;
    json_t *given =
        json_pack("{s:s s:s s:s s:i s:s s:s s:b s:f s:[]}", "name", "n", "note", "abc", "label", "overlong",
                  "count", 9, "color", "red", "painted", "painted", "is_on", 1, "weight", 0.1, "parts");
    read_thing(&t, HERE, json_incref(given), NULL);
    assert_string_equal(t.note, "abc");
    assert_string_equal(t.label, "overl");
    assert_true(t.count == 9 && t.color == RED && t.painted && t.is_on && t.weight == 0.1f);
    json_t *json = fields_write(&t, fields, HERE);
    assert_string_equal(json_string_value(json_object_get(json, "color")), "red");
    assert_null(json_object_get(json, "more"));
    assert_null(json_object_get(json, "checked"));
    read_thing(&again, HERE, json_incref(json), NULL);
    json_t *twice = fields_write(&again, fields, HERE);
    assert_true(json_equal(json, twice));
    again.color = 99;
    assert_null(fields_write(&again, fields, HERE)); /* a choice that has no name */
    free(again.note);
    free(t.note);
    json_decref(given);
    json_decref(json);
    json_decref(twice);
}

/* As many as another member says, less one. */
static void numbers_are_as_many_as_are_counted(void **state)
{
    (void)state;
    struct thing t;
    struct err err;
    json_t *given = json_pack("{s:s s:[i,i]}", "name", "n", "bits", 1, 8);
    read_thing(&t, HERE, json_incref(given), NULL);
    assert_true(t.bits[0] == 1 && t.bits[1] == 8 && t.bits[2] == 0);
    t.many = 1;
    assert_int_equal(fields_check_counts(&t, fields, HERE, given, &err), 0);
    json_t *json = fields_write(&t, fields, HERE);
    assert_true(json_equal(json_object_get(json, "bits"), json_object_get(given, "bits")));
    t.many = 2;
    assert_int_equal(fields_check_counts(&t, fields, HERE, given, &err), -EINVAL);
    assert_string_equal(err.text, "\"bits\" must have 3 numbers, and has 2");
    json_decref(json);
    json_decref(given);
    read_thing(NULL, HERE, json_pack("{s:s s:[i,i,i,i]}", "name", "n", "bits", 1, 2, 3, 4),
               "\"bits\" must be a list of whole numbers from 0 to 8, and is [1,2,3,4]");
    read_thing(NULL, HERE, json_pack("{s:s s:[i,i]}", "name", "n", "bits", 1, 9), "and is [1,9]");
    read_thing(NULL, HERE, json_pack("{s:s s:[i,s]}", "name", "n", "bits", 1, "2"), "and is [1,\"2\"]");
    read_thing(NULL, HERE, json_pack("{s:s s:i}", "name", "n", "bits", 1), "and is 1");
}

static void the_schema_says_the_same(void **state)
{
    (void)state;
    json_t *schema = fields_schema(fields, HERE), *p = json_object_get(schema, "properties");
    static const struct {
        const char *key, *text;
    } wanted[] = {
        {"name", "{\"type\":\"string\",\"description\":\"What it is called\"}"},
        {"word", "{\"type\":\"string\",\"maxLength\":4,\"default\":\"def\",\"description\":\"A word\"}"},
        {"count",
         "{\"type\":\"integer\",\"minimum\":1,\"maximum\":64,\"default\":5,\"description\":\"How many\"}"},
        {"id", "{\"type\":\"integer\",\"minimum\":0,\"default\":0,\"description\":\"A number of its own\"}"},
        {"color", "{\"type\":\"string\",\"enum\":[\"red\",\"blue\"],\"default\":\"blue\",\"description\":"
                  "\"Its color\"}"},
        {"is_on", "{\"type\":\"boolean\",\"default\":false,\"description\":\"Whether it runs\"}"},
        {"ratio", "{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":100,\"default\":1.5,\"description\":\"A "
                  "ratio\"}"},
        {"bits", "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":8},"
                 "\"description\":\"Its bits\"}"},
        {"parts", "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"Its parts\"}"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char *text = json_dumps(json_object_get(p, wanted[i].key), JSON_COMPACT);
        assert_string_equal(text, wanted[i].text);
        free(text);
    }
    char *required = json_dumps(json_object_get(schema, "required"), JSON_COMPACT);
    assert_string_equal(required, "[\"name\"]");
    free(required);
    json_decref(schema);
    schema = fields_schema(fields, THERE);
    assert_int_equal(json_array_size(json_object_get(schema, "required")), 2);
    assert_null(json_object_get(json_object_get(schema, "properties"), "note"));
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_fields_have_defaults),
        cmocka_unit_test(rows_belong_to_uses),
        cmocka_unit_test(numbers_are_as_many_as_are_counted),
        cmocka_unit_test(numbers_end_where_the_table_says),
        cmocka_unit_test(whole_numbers_beyond_doubles_are_exact),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(lists_and_objects_are_told_apart),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(the_schema_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
