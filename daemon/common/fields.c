/* SPDX-License-Identifier: MIT */
#include "daemon/common/fields.h"

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

static void choice_range(char ret[FIELD_RANGE], const struct field_choice *choices)
{
    size_t used = 0;
    for (size_t i = 0; choices[i].name && used < FIELD_RANGE; i++)
        used += (size_t)snprintf(ret + used, FIELD_RANGE - used, "%s%s",
                                 !i                    ? ""
                                 : choices[i + 1].name ? ", "
                                                       : " or ",
                                 choices[i].name);
}

void field_range(char ret[FIELD_RANGE], const struct field *f)
{
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_OWNED:
        if (f->max > 0)
            snprintf(ret, FIELD_RANGE, "text of at most %.0f bytes", f->max);
        else
            snprintf(ret, FIELD_RANGE, "text");
        break;
    case FIELD_FIXED: snprintf(ret, FIELD_RANGE, "text"); break;
    case FIELD_WHOLE:
        if (f->max >= FIELD_ANY)
            snprintf(ret, FIELD_RANGE, "a whole number of at least %.0f", f->min);
        else
            snprintf(ret, FIELD_RANGE, "a whole number from %.0f to %.0f", f->min, f->max);
        break;
    case FIELD_NUMBER: snprintf(ret, FIELD_RANGE, "a number from %g to %g", f->min, f->max); break;
    case FIELD_FLAG: snprintf(ret, FIELD_RANGE, "true or false"); break;
    case FIELD_CHOICE: choice_range(ret, f->choices); break;
    case FIELD_LIST: snprintf(ret, FIELD_RANGE, "a list"); break;
    case FIELD_OBJECT: snprintf(ret, FIELD_RANGE, "an object"); break;
    }
}

static int refuse(const struct field *f, const json_t *given, struct err *err)
{
    char range[FIELD_RANGE], *text = json_dumps(given, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
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
    char range[FIELD_RANGE];
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
        if (json_object_set_new(object, f->name, write_field(at, f))) {
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

static const char *schema_type(enum field_type type)
{
    switch (type) {
    case FIELD_WHOLE: return "integer";
    case FIELD_NUMBER: return "number";
    case FIELD_FLAG: return "boolean";
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

static json_t *field_schema(const struct field *f)
{
    json_t *o = json_pack("{s:s}", "type", schema_type(f->type)), *names, *def = schema_default(f);
    if (f->type == FIELD_CHOICE) {
        json_object_set_new(o, "enum", names = json_array());
        for (const struct field_choice *c = f->choices; c->name; c++)
            json_array_append_new(names, json_string(c->name));
    }
    if (f->type == FIELD_LIST && f->items)
        json_object_set_new(o, "items", json_pack("{s:s}", "type", f->items));
    if (f->type == FIELD_WHOLE || f->type == FIELD_NUMBER) {
        json_object_set_new(o, "minimum", plain_number(f->min));
        if (f->max < FIELD_ANY)
            json_object_set_new(o, "maximum", plain_number(f->max));
    } else if (schema_type(f->type)[0] == 's' && f->max > 0)
        json_object_set_new(o, "maxLength", plain_number(f->max));
    if (def)
        json_object_set_new(o, "default", def);
    json_object_set_new(o, "description", json_string(f->doc));
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
