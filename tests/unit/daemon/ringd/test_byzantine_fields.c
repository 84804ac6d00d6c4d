/* SPDX-License-Identifier: MIT
 *
 * Every kind of message by who may send it, with fields that are missing, doubled, of other types
 * and out of range. Nothing of the node changes by any of it, and it answers. */
#include "tests/unit/daemon/ringd/byzantine_try.h"

/* Who may say it, were it whole. */
static void say_rightly(struct byz *w, enum message_kind kind, const char *text)
{
    const enum byz_mate who = message_row(kind)->sender == MESSAGE_FROM_AUTHORITY ? AUTHOR : PEER;
    byz_give(w, who, FRAME_MESSAGE, text, strlen(text));
}

/* With that value, or without the field where it is NULL. */
static void say_with(struct byz *w, enum message_kind kind, const struct field *f, json_t *value)
{
    json_t *body = byz_body(w, kind, byz_rank(w, PEER));
    if (value)
        json_object_set_new(body, f->name, value);
    else
        json_object_del(body, f->name);
    char *text = json_dumps(body, JSON_COMPACT);
    say_rightly(w, kind, text);
    free(text);
    json_decref(body);
}

static void try_other_types(struct byz *w, enum message_kind kind)
{
    for (const struct field *f = message_row(kind)->fields; f->name; f++) {
        const struct {
            bool fits;
            json_t *value;
        } all[] = {{f->type == FIELD_TEXT, json_string("x")},
                   {f->type == FIELD_WHOLE, json_integer(1)},
                   {false, json_real(1.5)},
                   {f->type == FIELD_FLAG, json_false()},
                   {f->type == FIELD_LIST, json_array()},
                   {f->type == FIELD_OBJECT, json_object()},
                   {!f->missing, json_null()}};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            if (!all[i].fits)
                say_with(w, kind, f, json_incref(all[i].value));
            json_decref(all[i].value);
        }
        if (f->missing)
            say_with(w, kind, f, NULL);
    }
}

static void try_out_of_range(struct byz *w, enum message_kind kind)
{
    for (const struct field *f = message_row(kind)->fields; f->name; f++) {
        if (f->type == FIELD_TEXT && f->max > 0)
            say_with(w, kind, f, json_sprintf("%*s", (int)f->max + 1, ""));
        if (f->type != FIELD_WHOLE)
            continue;
        say_with(w, kind, f, json_integer(-1));
        say_with(w, kind, f, json_integer(INT64_MIN));
        say_with(w, kind, f, json_real(1e300));
        if (f->max < FIELD_ANY)
            say_with(w, kind, f, json_integer((json_int_t)f->max + 1));
        if (f->min > 0)
            say_with(w, kind, f, json_integer((json_int_t)f->min - 1));
    }
}

/* What one reader would take for the first and another for the second. */
static void try_twice(struct byz *w, enum message_kind kind)
{
    json_t *body = byz_body(w, kind, byz_rank(w, PEER));
    char *text = json_dumps(body, JSON_COMPACT);
    const char *key;
    json_t *value;
    json_object_foreach (body, key, value) {
        char *one = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), *twice;
        assert_true(asprintf(&twice, "{\"%s\":%s,%s", key, one, text + 1) > 0);
        say_rightly(w, kind, twice);
        free(twice);
        free(one);
    }
    free(text);
    json_decref(body);
}

static void try_no_object(struct byz *w, enum message_kind kind)
{
    static char deep[100001];
    static const char *const all[] = {"",  "[]", "null", "1",           "\"job-stop\"",
                                      "{", "{}", "{}{}", "{\"kind\":1}"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        say_rightly(w, kind, all[i]);
    memset(deep, '[', sizeof deep - 1);
    say_rightly(w, kind, deep);
}

/* A message that would be heard, but for a list beside its fields: a short text that takes a
 * hundred times its length. A long one of numbers is read. */
static void what_takes_too_much_memory_is_not_read(void **state)
{
    static const struct {
        const char *item;
        size_t n;
        bool is_read;
    } lists[] = {{"{},", 300000, false}, {"[],", 300000, false}, {"1234567,", 120000, true}};
    static char text[1 << 20];
    static const char begin[] = "{\"kind\":\"tokens\",\"tokens\":[{\"id\":\"01020304\",\"psk\":\"%064d\","
                                "\"question\":\"%032d\",\"answer\":\"%032d\",\"claim\":\"%064d\",\"ttl\":9}],"
                                "\"more\":[";
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct byz *w = byz_open(IDLE, JOB_QUEUED);
        json_t *before = byz_state(w);
        size_t n = (size_t)snprintf(text, sizeof text, begin, 1, 1, 1, 1);
        for (size_t k = 0; k < lists[i].n; k++, n += strlen(lists[i].item))
            memcpy(text + n, lists[i].item, strlen(lists[i].item));
        memcpy(text + n - 1, "]}", 2);
        byz_give(w, AUTHOR, FRAME_MESSAGE, text, n + 1);
        json_t *after = byz_state(w);
        assert_int_equal(json_equal(before, after), !lists[i].is_read);
        json_decref(before);
        json_decref(after);
        byz_close(w);
    }
}

static void fields_are_what_they_may_be(void **state)
{
    static const struct {
        const char *name;
        byz_attempt *try;
    } ways[] = {{"with other types", try_other_types},
                {"out of range", try_out_of_range},
                {"with a field twice", try_twice},
                {"without an object", try_no_object}};
    static const size_t at[] = {0, 1, 5};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        size_t cases = 0;
        for (size_t m = 0; m < sizeof at / sizeof *at; m++)
            cases += byz_try_at(&byz_moments[at[m]], ways[i].name, ways[i].try);
        print_message("%s: %zu cases\n", ways[i].name, cases);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_takes_too_much_memory_is_not_read),
        cmocka_unit_test(fields_are_what_they_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
