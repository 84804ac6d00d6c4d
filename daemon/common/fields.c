/* SPDX-License-Identifier: MIT */
#include "daemon/common/fields.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int field_is_for(const struct field *f, unsigned use)
{
    return !f->use || (f->use & use);
}

void field_option(char ret[FIELD_OPTION], const struct field *field)
{
    snprintf(ret, FIELD_OPTION, "--%s", field->spelling ? field->spelling : field->name);
    for (char *c = ret; *c; c++)
        if (*c == '_')
            *c = '-';
}

void field_words(char ret[RANGE_TEXT], const struct field *f)
{
    size_t used = 0;
    *ret = '\0';
    for (const struct field_choice *c = f->choices; c->name && used < RANGE_TEXT; c++)
        used += (size_t)snprintf(ret + used, RANGE_TEXT - used, "%s%s", used ? "|" : "", c->name);
}

void field_range(char ret[RANGE_TEXT], const struct field *f)
{
    char words[RANGE_TEXT];
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_OWNED:
        if (f->max > 0)
            snprintf(ret, RANGE_TEXT, "text of at most %.0f bytes", f->max);
        else
            snprintf(ret, RANGE_TEXT, "text");
        break;
    case FIELD_FIXED: snprintf(ret, RANGE_TEXT, "text"); break;
    case FIELD_WHOLE: range_whole(ret, f->min, f->max); break;
    case FIELD_NUMBER: range_number(ret, f->min, f->max); break;
    case FIELD_FLAG: snprintf(ret, RANGE_TEXT, "true or false"); break;
    case FIELD_CHOICE:
        field_words(words, f);
        range_words(ret, words);
        break;
    case FIELD_WHOLES:
        if (f->max >= FIELD_ANY)
            snprintf(ret, RANGE_TEXT, "a list of whole numbers of at least %.0f", f->min);
        else
            snprintf(ret, RANGE_TEXT, "a list of whole numbers from %.0f to %.0f", f->min, f->max);
        break;
    case FIELD_LIST: snprintf(ret, RANGE_TEXT, "a list"); break;
    case FIELD_OBJECT: snprintf(ret, RANGE_TEXT, "an object"); break;
    }
}

static int refuse(const struct field *f, const json_t *given, struct err *err)
{
    char range[RANGE_TEXT], *text = json_dumps(given, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    field_range(range, f);
    err_set(err, -EINVAL, "\"%s\" must be %s, and is %.60s%s", f->name, range, text ? text : "unreadable",
            text && strlen(text) > 60 ? "…" : "");
    free(text);
    return -EINVAL;
}

static void store_whole(void *at, size_t size, uint64_t v)
{
    const uint32_t four = (uint32_t)v;
    const uint8_t one = (uint8_t)v;
    if (size == sizeof v)
        memcpy(at, &v, sizeof v);
    else if (size == sizeof four)
        memcpy(at, &four, sizeof four);
    else if (size == sizeof one)
        memcpy(at, &one, sizeof one);
}

static uint64_t load_whole(const void *at, size_t size)
{
    uint64_t v = 0;
    uint32_t four = 0;
    uint8_t one = 0;
    if (size == sizeof v)
        return memcpy(&v, at, sizeof v), v;
    if (size == sizeof four)
        return memcpy(&four, at, sizeof four), four;
    return memcpy(&one, at, sizeof one), one;
}

static void store_number(void *at, size_t size, double v)
{
    const float single = (float)v;
    if (size == sizeof v)
        memcpy(at, &v, sizeof v);
    else if (size == sizeof single)
        memcpy(at, &single, sizeof single);
}

static double load_number(const void *at, size_t size)
{
    double v = 0;
    float single = 0;
    if (size == sizeof v)
        return memcpy(&v, at, sizeof v), v;
    return memcpy(&single, at, sizeof single), (double)single;
}

/* Integers are compared as such: a double does not hold all of them. A real number without a
 * fraction is a whole number too. */
static bool whole_of(const struct field *f, const json_t *given, uint64_t *ret)
{
    const double x = json_real_value(given);
    json_int_t v = json_integer_value(given);
    if (json_is_real(given)) {
        if (!(x >= 0 && x < 0x1p63) || x != floor(x))
            return false;
        v = (json_int_t)x;
    } else if (!json_is_integer(given))
        return false;
    if (v < (json_int_t)f->min || (f->max < FIELD_ANY && v > (json_int_t)f->max))
        return false;
    *ret = (uint64_t)v;
    return true;
}

static const struct field_choice *choice_named(const struct field *f, const char *name)
{
    const struct field_choice *c = f->choices;
    while (c->name && strcmp(c->name, name) != 0)
        c++;
    return c->name ? c : NULL;
}

static const struct field_choice *choice_of(const struct field *f, uint64_t value)
{
    const struct field_choice *c = f->choices;
    while (c->name && c->value != value)
        c++;
    return c->name ? c : NULL;
}

static void set_default(char *at, const struct field *f)
{
    if (f->type == FIELD_TEXT)
        memcpy(at, &f->text, f->size);
    else if (f->type == FIELD_NUMBER)
        store_number(at, f->size, f->def);
    else if (f->type == FIELD_WHOLE || f->type == FIELD_CHOICE)
        store_whole(at, f->size, (uint64_t)f->def);
    else
        memset(at, 0, f->size);
}

static int read_text(char *at, const struct field *f, const json_t *given, struct err *err)
{
    const char *text = json_string_value(given);
    if (!text || (f->max > 0 && strlen(text) > (size_t)f->max))
        return refuse(f, given, err);
    if (f->type == FIELD_TEXT)
        memcpy(at, &text, f->size);
    else if (f->type == FIELD_FIXED)
        snprintf(at, f->size, "%s", text);
    else if (f->size) {
        char *copy = *text ? strdup(text) : NULL;
        if (*text && !copy)
            return err_set(err, -ENOMEM, "out of memory");
        memcpy(at, &copy, f->size);
    }
    return 0;
}

static int read_number(char *at, const struct field *f, const json_t *given, struct err *err)
{
    const double x = json_number_value(given);
    if (!json_is_number(given) || !(x >= f->min && x <= f->max))
        return refuse(f, given, err);
    store_number(at, f->size, x);
    return 0;
}

static int read_choice(char *at, const struct field *f, const json_t *given, struct err *err)
{
    const char *name = json_string_value(given);
    const struct field_choice *c = name ? choice_named(f, name) : NULL;
    if (!c)
        return refuse(f, given, err);
    store_whole(at, f->size, c->value);
    return 0;
}

static int read_wholes(char *at, const struct field *f, const json_t *given, struct err *err)
{
    const size_t most = f->size / f->item;
    const json_t *one;
    size_t i;
    if (!json_is_array(given) || json_array_size(given) > most)
        return refuse(f, given, err);
    memset(at, 0, f->size);
    json_array_foreach (given, i, one) {
        uint64_t whole;
        if (!whole_of(f, one, &whole))
            return refuse(f, given, err);
        store_whole(at + i * f->item, f->item, whole);
    }
    return 0;
}

static int read_field(char *at, const struct field *f, const json_t *given, struct err *err)
{
    const bool flag = json_is_true(given);
    uint64_t whole;
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_OWNED:
    case FIELD_FIXED: return read_text(at, f, given, err);
    case FIELD_NUMBER: return read_number(at, f, given, err);
    case FIELD_CHOICE: return read_choice(at, f, given, err);
    case FIELD_WHOLES: return read_wholes(at, f, given, err);
    case FIELD_WHOLE:
        if (!whole_of(f, given, &whole))
            return refuse(f, given, err);
        store_whole(at, f->size, whole);
        return 0;
    case FIELD_FLAG:
        if (!json_is_boolean(given))
            return refuse(f, given, err);
        memcpy(at, &flag, f->size);
        return 0;
    case FIELD_LIST:
    case FIELD_OBJECT:
        if (f->type == FIELD_LIST ? !json_is_array(given) : !json_is_object(given))
            return refuse(f, given, err);
        memcpy(at, &given, f->size);
        return 0;
    }
    return 0;
}

static int refuse_missing(const struct field *f, struct err *err)
{
    char range[RANGE_TEXT];
    field_range(range, f);
    return *f->missing ? err_set(err, -EINVAL, "%s", f->missing)
                       : err_set(err, -EINVAL, "\"%s\" is missing: it must be %s", f->name, range);
}

int fields_read(void *ret, const struct field *table, unsigned use, const json_t *object, struct err *err)
{
    for (const struct field *f = table; f->name; f++) {
        const json_t *given = json_object_get(object, f->name);
        char *at = (char *)ret + f->offset;
        int r = 0;
        if (!field_is_for(f, use))
            continue;
        if (given && !json_is_null(given))
            r = read_field(at, f, given, err);
        else if (f->missing)
            r = refuse_missing(f, err);
        else
            set_default(at, f);
        if (r)
            return r;
    }
    return 0;
}

static size_t count_of(const void *from, const struct field *f)
{
    size_t n;
    memcpy(&n, (const char *)from + f->count, sizeof n);
    return n + f->more;
}

int fields_check_counts(const void *of, const struct field *table, unsigned use, const json_t *object,
                        struct err *err)
{
    for (const struct field *f = table; f->name; f++) {
        const size_t given = json_array_size(json_object_get(object, f->name));
        if (f->type == FIELD_WHOLES && field_is_for(f, use) && given != count_of(of, f))
            return err_set(err, -EINVAL, "\"%s\" must have %zu numbers, and has %zu", f->name,
                           count_of(of, f), given);
    }
    return 0;
}

static json_t *write_wholes(const char *at, const struct field *f, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < f->size / f->item; i++)
        json_array_append_new(list, json_integer((json_int_t)load_whole(at + i * f->item, f->item)));
    return list;
}

static json_t *write_field(const char *at, const struct field *f)
{
    const char *text = NULL;
    const struct field_choice *c;
    json_t *json = NULL;
    bool flag;
    switch (f->type) {
    case FIELD_FIXED: return json_string(at);
    case FIELD_TEXT: memcpy(&text, at, sizeof text); return json_string(text);
    case FIELD_OWNED: memcpy(&text, at, sizeof text); return json_string(text ? text : "");
    case FIELD_WHOLE: return json_integer((json_int_t)load_whole(at, f->size));
    case FIELD_NUMBER: return json_real(load_number(at, f->size));
    case FIELD_FLAG: memcpy(&flag, at, sizeof flag); return json_boolean(flag);
    case FIELD_CHOICE: c = choice_of(f, load_whole(at, f->size)); return c ? json_string(c->name) : NULL;
    case FIELD_WHOLES: return NULL; /* write_wholes */
    case FIELD_LIST:
    case FIELD_OBJECT: memcpy(&json, at, sizeof json); return json_incref(json);
    }
    return NULL;
}

static bool is_absent(const char *at, const struct field *f)
{
    const void *p = NULL;
    if (f->type == FIELD_TEXT || f->type == FIELD_LIST || f->type == FIELD_OBJECT)
        return memcpy(&p, at, sizeof p), !p;
    return false;
}

json_t *fields_write(const void *from, const struct field *table, unsigned use)
{
    json_t *object = json_object();
    for (const struct field *f = table; f->name && object; f++) {
        const char *at = (const char *)from + f->offset;
        if (!f->size || !field_is_for(f, use) || is_absent(at, f))
            continue;
        json_t *value = f->type == FIELD_WHOLES ? write_wholes(at, f, count_of(from, f)) : write_field(at, f);
        if (json_object_set_new(object, f->name, value)) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

/* 4096 and not 4096.0. */
static json_t *plain_number(double x)
{
    return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

enum { SCHEMA_TEXT = 512 };

const char *field_path_at(const struct field *f, const json_t *object, size_t i)
{
    const json_t *given = json_object_get(object, f->name);
    const char *key;
    json_t *value;
    if (!f->path)
        return NULL;
    if (f->type != FIELD_OBJECT)
        return i ? NULL : json_string_value(given);
    json_object_foreach ((json_t *)(uintptr_t)given, key, value)
        if (json_is_string(value) && !i--)
            return json_string_value(value);
    return NULL;
}

static const char *schema_type(enum field_type type)
{
    switch (type) {
    case FIELD_WHOLE: return "integer";
    case FIELD_NUMBER: return "number";
    case FIELD_FLAG: return "boolean";
    case FIELD_WHOLES:
    case FIELD_LIST: return "array";
    case FIELD_OBJECT: return "object";
    default: return "string";
    }
}

static json_t *schema_default(const struct field *f)
{
    const struct field_choice *c = f->type == FIELD_CHOICE ? choice_of(f, (uint64_t)f->def) : NULL;
    if (f->missing)
        return NULL;
    if (f->type == FIELD_FLAG)
        return json_false();
    if (f->type == FIELD_WHOLE || f->type == FIELD_NUMBER)
        return f->def >= f->min && f->def <= f->max ? plain_number(f->def) : NULL;
    if (f->type == FIELD_TEXT && f->text)
        return json_string(f->text);
    return c ? json_string(c->name) : NULL;
}

static void add_limits(json_t *to, const struct field *f)
{
    json_object_set_new(to, "minimum", plain_number(f->min));
    if (f->max < FIELD_ANY)
        json_object_set_new(to, "maximum", plain_number(f->max));
}

static json_t *items_schema(const struct field *f)
{
    json_t *items = json_pack("{s:s}", "type", f->type == FIELD_WHOLES ? "integer" : f->items);
    if (f->type == FIELD_WHOLES)
        add_limits(items, f);
    return items;
}

static json_t *choice_names(const struct field *f)
{
    json_t *names = json_array();
    for (const struct field_choice *c = f->choices; c->name; c++)
        json_array_append_new(names, json_string(c->name));
    return names;
}

/* The meaning as a sentence about keys: "--seq-len" becomes "`seq_len`". */
static json_t *schema_text(const struct field *f)
{
    static const char path[] = " (an absolute path)", file[] = " (of a file, its absolute path)",
                      paths[] = " (names with absolute paths)";
    const char *behind = f->path == FIELD_MAY_READ ? file
                         : !f->path                ? ""
                         : f->type == FIELD_OBJECT ? paths
                                                   : path;
    char text[SCHEMA_TEXT];
    size_t n = 0;
    bool in_option = false;
    for (const char *at = f->doc; *at && n + sizeof file + 2 < sizeof text; at++) {
        const bool begins = !strncmp(at, "--", 2);
        const bool goes_on = in_option && (islower((unsigned char)*at) || *at == '-');
        if (begins || (in_option && !goes_on))
            text[n++] = '`';
        in_option = begins || goes_on;
        at += begins;
        if (!begins)
            text[n++] = in_option && *at == '-' ? '_' : *at;
    }
    snprintf(text + n, sizeof text - n, "%s%s", in_option ? "`" : "", behind);
    *text = (char)toupper((unsigned char)*text);
    return json_string(text);
}

static json_t *field_schema(const struct field *f)
{
    json_t *o = f->of ? fields_schema(f->of, 0) : json_pack("{s:s}", "type", schema_type(f->type)),
           *def = schema_default(f);
    if (f->type == FIELD_CHOICE)
        json_object_set_new(o, "enum", choice_names(f));
    if (f->type == FIELD_WHOLES || f->items)
        json_object_set_new(o, "items", items_schema(f));
    if (f->type == FIELD_WHOLE || f->type == FIELD_NUMBER)
        add_limits(o, f);
    else if (schema_type(f->type)[0] == 's' && f->max > 0)
        json_object_set_new(o, "maxLength", plain_number(f->max));
    if (def)
        json_object_set_new(o, "default", def);
    json_object_set_new(o, "description", schema_text(f));
    return o;
}

json_t *fields_schema(const struct field *table, unsigned use)
{
    json_t *required = json_array(), *properties = json_object();
    for (const struct field *f = table; f->name; f++) {
        if (!field_is_for(f, use))
            continue;
        if (f->missing)
            json_array_append_new(required, json_string(f->name));
        json_object_set_new(properties, f->name, field_schema(f));
    }
    return json_pack("{s:s s:o s:o}", "type", "object", "required", required, "properties", properties);
}
