/* SPDX-License-Identifier: MIT
 *
 * JSON schema (draft 2020-12, as far as docs/FORMS.md says). What would let a value through that is
 * not valid is refused by its name: an answer in this form is valid, or there is none. */
#include "text/form/form_schema.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/textbuf.h"

/* Steps: so that references that are merged into others cannot double without end. */
enum { NEST_MAX = 64, STEPS_MAX = 1 << 16, ENUM_MAX = 2000, DIGITS_OF_INTEGER = 16 };

/* --- places and complaints -------------------------------------------------------------------- */

void schema_complain(struct schema_reader *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    form_draft_fail(r->d, -EINVAL, "schema, at %s: %s", r->path, text);
}

size_t schema_enter(struct schema_reader *r, const char *key)
{
    const size_t length = strlen(r->path);
    snprintf(r->path + length, sizeof r->path - length, "/%.60s", key);
    return length;
}

void schema_leave(struct schema_reader *r, size_t length)
{
    r->path[length] = '\0';
}

bool schema_refuses(struct schema_reader *r, const json_t *schema, const char *const *keys, const char *why)
{
    for (; *keys; keys++)
        if (json_object_get(schema, *keys)) {
            schema_complain(r, "\"%s\" %s", *keys, why);
            return true;
        }
    return false;
}

uint32_t schema_count(struct schema_reader *r, const json_t *schema, const char *key, uint32_t missing)
{
    const json_t *v = json_object_get(schema, key);
    const double n = json_number_value(v);
    if (!v)
        return missing;
    if (!json_is_number(v) || n < 0 || n != floor(n) || n >= FORM_OPS_MAX)
        schema_complain(r, "\"%s\" must be a whole number from 0 to %d", key, FORM_OPS_MAX - 1);
    return n >= 0 && n < FORM_OPS_MAX ? (uint32_t)n : 0;
}

/* --- references ------------------------------------------------------------------------------- */

/* One part of a pointer (RFC 6901): up to the next slash, unescaped. */
static const char *part_of(const char *at, char *ret, size_t size)
{
    size_t n = 0;
    for (; *at && *at != '/'; at++) {
        char c = *at;
        unsigned hex;
        if (c == '~' && (at[1] == '0' || at[1] == '1'))
            c = *++at == '0' ? '~' : '/';
        else if (c == '%' && at[1] && at[2] && sscanf(at + 1, "%2x", &hex) == 1) {
            c = (char)hex;
            at += 2;
        }
        if (n + 1 < size)
            ret[n++] = c;
    }
    ret[n] = '\0';
    return at;
}

static const json_t *child_of(const json_t *at, const char *part)
{
    char *end;
    if (!json_is_array(at))
        return json_object_get(at, part);
    const unsigned long i = strtoul(part, &end, 10);
    return *part && !*end ? json_array_get(at, i) : NULL;
}

struct schema_at schema_find(struct schema_reader *r, struct schema_at at, const char *ref)
{
    struct schema_at to = {at.document, at.document};
    char part[256];
    if (*ref != '#' || (ref[1] && ref[1] != '/')) {
        schema_complain(r, "\"$ref\": \"%.80s\" is not supported: only those that begin with #/ are", ref);
        return (struct schema_at){NULL, at.document};
    }
    for (const char *p = ref + 1; *p && to.schema;) {
        p = part_of(p + 1, part, sizeof part);
        to.schema = child_of(to.schema, part);
        if (json_object_get(to.schema, "$id")) /* a document of its own */
            to.document = to.schema;
    }
    if (!to.schema)
        schema_complain(r, "\"$ref\": there is no \"%.80s\" in the schema", ref);
    return to;
}

/* The rule of a schema that is referred to; it is read later, for it may refer to itself. */
static struct form_expr *call_of(struct schema_reader *r, struct schema_at at, const char *ref)
{
    void *refs = r->refs;
    for (size_t i = 0; i < r->nrefs; i++)
        if (r->refs[i].at.schema == at.schema)
            return form_call(r->d, r->refs[i].rule);
    char *path = arena_copy(&r->d->arena, ref, strlen(ref) + 1);
    if (!path || array_reserve(&refs, &r->refs_cap, r->nrefs + 1, sizeof *r->refs)) {
        form_draft_fail(r->d, -E2BIG, "the schema is too large");
        return &r->d->nothing;
    }
    r->refs = refs;
    r->refs[r->nrefs] = (struct schema_ref){at, form_rule_new(r->d, ref), path};
    return form_call(r->d, r->refs[r->nrefs++].rule);
}

/* --- types ------------------------------------------------------------------------------------ */

static bool is_type(const json_t *value, const char *type)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return !strcmp(type, "object");
    case JSON_ARRAY: return !strcmp(type, "array");
    case JSON_STRING: return !strcmp(type, "string");
    case JSON_INTEGER: return !strcmp(type, "integer") || !strcmp(type, "number");
    case JSON_REAL:
        return !strcmp(type, "number") ||
               (!strcmp(type, "integer") && json_real_value(value) == floor(json_real_value(value)));
    case JSON_NULL: return !strcmp(type, "null");
    default: return !strcmp(type, "boolean");
    }
}

/* "type": a name or a list of names; where there is none, any. */
static bool may_be(const json_t *schema, const json_t *value)
{
    const json_t *type = json_object_get(schema, "type");
    bool may = !type || (json_is_string(type) && is_type(value, json_string_value(type)));
    for (size_t i = 0; i < json_array_size(type) && !may; i++) {
        const char *name = json_string_value(json_array_get(type, i));
        may = name && is_type(value, name);
    }
    return may;
}

static const char *const of_text[] = {"pattern", "minLength", "maxLength", NULL},
                         *const of_integers[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                 NULL},
                         *const of_objects[] = {"properties", "required", "additionalProperties", NULL},
                         *const of_arrays[] = {"items", "prefixItems", "minItems", "maxItems", NULL},
                         *const of_choices[] = {"anyOf", "oneOf", "allOf", "$ref", NULL};

static struct form_expr *read_text(struct schema_reader *r, const json_t *schema)
{
    static const char *const formats[][2] = {{"date", "json-date"},
                                             {"time", "json-time"},
                                             {"date-time", "json-date-time"},
                                             {"uuid", "json-uuid"},
                                             {"ipv4", "json-ipv4"}};
    const json_t *format = json_object_get(schema, "format"), *pattern = json_object_get(schema, "pattern");
    struct form_expr *seq = form_seq(r->d), *inside = NULL;
    const uint32_t min = schema_count(r, schema, "minLength", 0),
                   max = schema_count(r, schema, "maxLength", FORM_ENDLESS);
    if (format && schema_refuses(r, schema, of_text, "beside \"format\" is not supported"))
        return seq;
    if (pattern &&
        schema_refuses(r, schema, of_text + 1, "beside \"pattern\" is not supported: write it there"))
        return seq;
    if (pattern && json_is_string(pattern)) {
        struct form_expr *e = form_pattern(r->d, json_string_value(pattern));
        if (r->d->failed)
            err_prefix(r->d->err, r->d->failed, "schema, at %s", r->path);
        return e;
    }
    if (pattern || max < min)
        schema_complain(r,
                        pattern ? "\"pattern\" must be a text" : "\"maxLength\" is less than \"minLength\"");
    for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (json_is_string(format) && !strcmp(json_string_value(format), formats[i][0]))
            inside = form_json(r->d, formats[i][1]);
    if (format && !inside)
        schema_complain(r, "\"format\" \"%.40s\" is not supported: date, time, date-time, uuid and ipv4 are",
                        json_is_string(format) ? json_string_value(format) : "");
    form_add(seq, form_text(r->d, "\""));
    form_add(seq, inside ? inside : form_repeat(r->d, form_json(r->d, "json-char"), min, max));
    form_add(seq, form_text(r->d, "\""));
    return seq;
}

/* A bound of whole numbers, or `missing`. `step`: what is added to an exclusive one. */
static double bound(struct schema_reader *r, const json_t *schema, const char *key, const char *exclusive,
                    int step, double missing)
{
    const json_t *v = json_object_get(schema, key), *x = json_object_get(schema, exclusive);
    const double inside = json_number_value(v), outside = json_number_value(x),
                 at = step > 0 ? ceil(inside) : floor(inside),
                 beside = step > 0 ? floor(outside) + 1 : ceil(outside) - 1;
    if ((v && !json_is_number(v)) || (x && !json_is_number(x)))
        schema_complain(r, "\"%s\" must be a number", v && !json_is_number(v) ? key : exclusive);
    if (v && x)
        return (step > 0) == (at > beside) ? at : beside;
    return v ? at : x ? beside : missing;
}

static struct form_expr *read_integer(struct schema_reader *r, const json_t *schema)
{
    const double far = 9e15; /* what doubles, and so most readers of JSON, hold exactly */
    bool is_bound = false;
    for (size_t i = 0; of_integers[i]; i++)
        is_bound |= json_object_get(schema, of_integers[i]) != NULL;
    if (!is_bound)
        return form_json(r->d, "json-integer");
    const double from = bound(r, schema, "minimum", "exclusiveMinimum", 1, -far),
                 to = bound(r, schema, "maximum", "exclusiveMaximum", -1, far);
    if (fabs(from) > far || fabs(to) > far)
        schema_complain(r, "bounds of whole numbers go from -9e15 to 9e15");
    else if (from > to)
        schema_complain(r, "no whole number lies between \"minimum\" and \"maximum\"");
    return r->d->failed ? &r->d->nothing : form_json_integers(r->d, (int64_t)from, (int64_t)to);
}

static struct form_expr *read_type(struct schema_reader *r, struct schema_at at, const char *type)
{
    struct form_expr *alt;
    if (!strcmp(type, "object"))
        return schema_read_object(r, at);
    if (!strcmp(type, "array"))
        return schema_read_array(r, at);
    if (!strcmp(type, "string"))
        return read_text(r, at.schema);
    if (!strcmp(type, "integer"))
        return read_integer(r, at.schema);
    if (!strcmp(type, "null"))
        return form_text(r->d, "null");
    if (!strcmp(type, "number")) {
        schema_refuses(r, at.schema, of_integers, "is supported for \"type\": \"integer\" alone");
        return form_json(r->d, "json-number");
    }
    alt = form_alt(r->d);
    form_add(alt, form_text(r->d, "true"));
    form_add(alt, form_text(r->d, "false"));
    if (strcmp(type, "boolean") != 0)
        schema_complain(r, "\"type\" \"%.40s\" does not exist", type);
    return alt;
}

static bool has_any(const json_t *schema, const char *const *keys)
{
    for (; *keys; keys++)
        if (json_object_get(schema, *keys))
            return true;
    return false;
}

/* Without "type" its keywords say what it is about. */
static struct form_expr *read_untyped(struct schema_reader *r, struct schema_at at)
{
    if (has_any(at.schema, of_objects))
        return schema_read_object(r, at);
    if (has_any(at.schema, of_arrays))
        return schema_read_array(r, at);
    if (has_any(at.schema, of_text) || json_object_get(at.schema, "format"))
        return read_text(r, at.schema);
    schema_refuses(r, at.schema, of_integers, "needs \"type\": \"integer\"");
    return form_json(r->d, "json-value");
}

static struct form_expr *read_types(struct schema_reader *r, struct schema_at at)
{
    const json_t *type = json_object_get(at.schema, "type");
    if (!type)
        return read_untyped(r, at);
    if (json_is_string(type))
        return read_type(r, at, json_string_value(type));
    struct form_expr *alt = form_alt(r->d);
    for (size_t i = 0; i < json_array_size(type) && !r->d->failed; i++) {
        const char *name = json_string_value(json_array_get(type, i));
        if (name)
            form_add(alt, read_type(r, at, name));
        else
            schema_complain(r, "\"type\" must be a name or a list of names");
    }
    if (!json_array_size(type))
        schema_complain(r, "\"type\" must be a name or a list of names");
    return alt;
}

/* --- choices ---------------------------------------------------------------------------------- */

static struct form_expr *read_values(struct schema_reader *r, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    struct form_expr *alt = form_alt(r->d);
    size_t n = 0;
    const char *const *const others[] = {of_text, of_integers, of_objects, of_arrays, of_choices};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        schema_refuses(r, schema, others[i],
                       one ? "beside \"const\" is not supported" : "beside \"enum\" is not supported");
    if (one && list)
        schema_complain(r, "\"const\" beside \"enum\" is not supported");
    if (list && json_array_size(list) > ENUM_MAX)
        schema_complain(r, "\"enum\" has %zu values: at most %d are allowed", json_array_size(list),
                        ENUM_MAX);
    for (size_t i = 0; i < (one ? 1 : json_array_size(list)) && !r->d->failed; i++) {
        const json_t *value = one ? one : json_array_get(list, i);
        if (!may_be(schema, value))
            continue;
        form_add(alt, form_json_literal(r->d, value));
        n++;
    }
    if (!n)
        schema_complain(r, "\"%s\" has no value%s", one ? "const" : "enum",
                        json_object_get(schema, "type") ? " of that \"type\"" : "");
    return alt;
}

/* anyOf, and oneOf: what fits several of them is let through as well, as other servers do. */
static struct form_expr *read_alternatives(struct schema_reader *r, struct schema_at at, const char *key)
{
    static const char *const others[] = {"allOf", "$ref", NULL};
    const json_t *list = json_object_get(at.schema, key);
    struct form_expr *alt = form_alt(r->d);
    const size_t length = schema_enter(r, key);
    const char *const *const all[] = {of_text, of_integers, of_objects, of_arrays, others};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        schema_refuses(r, at.schema, all[i],
                       "beside \"anyOf\" or \"oneOf\" is not supported: put it into each");
    if (!strcmp(key, "anyOf") && json_object_get(at.schema, "oneOf"))
        schema_complain(r, "\"oneOf\" beside \"anyOf\" is not supported");
    if (!json_array_size(list))
        schema_complain(r, "a list of schemas is expected");
    for (size_t i = 0; i < json_array_size(list) && !r->d->failed; i++) {
        char number[24];
        const struct schema_at below = {json_array_get(list, i), at.document};
        const json_t *type = json_object_get(at.schema, "type");
        snprintf(number, sizeof number, "%zu", i);
        if (type && !json_equal(type, json_object_get(below.schema, "type")))
            schema_complain(r, "\"type\" beside \"%s\" is not supported: put it into each", key);
        form_add(alt, schema_read_below(r, below, number));
    }
    schema_leave(r, length);
    return alt;
}

/* --- one schema ------------------------------------------------------------------------------- */

static const char *const unsupported[] = {"not",
                                          "if",
                                          "then",
                                          "else",
                                          "dependentSchemas",
                                          "dependentRequired",
                                          "dependencies",
                                          "patternProperties",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "multipleOf",
                                          "divisibleBy",
                                          "disallow",
                                          "extends",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "unevaluatedItems",
                                          "unevaluatedProperties",
                                          "additionalItems",
                                          "$dynamicRef",
                                          "$recursiveRef",
                                          NULL};

bool schema_is_supported(struct schema_reader *r, const json_t *schema)
{
    if (schema_refuses(r, schema, unsupported, "is not supported"))
        return false;
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        schema_complain(r, "\"uniqueItems\" is not supported");
    return !r->d->failed;
}

bool schema_is_about_others(const json_t *schema)
{
    return !json_object_get(schema, "type") && !has_any(schema, of_objects) &&
           (has_any(schema, of_text) || has_any(schema, of_integers) || has_any(schema, of_arrays) ||
            json_object_get(schema, "format"));
}

/* What a reference stands beside must hold as well, unless it only describes. */
static bool has_more(const json_t *schema)
{
    const char *const *const all[] = {of_text, of_integers, of_objects, of_arrays};
    bool has = json_object_get(schema, "enum") || json_object_get(schema, "const") ||
               json_object_get(schema, "type") || json_object_get(schema, "format") ||
               json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        has |= has_any(schema, all[i]);
    return has;
}

/* allOf of one, and a reference, stand for what they hold; more are objects that are merged. */
static struct form_expr *read_merged(struct schema_reader *r, struct schema_at at)
{
    const json_t *all = json_object_get(at.schema, "allOf"), *ref = json_object_get(at.schema, "$ref");
    const size_t n = json_array_size(all);
    if (ref && !json_is_string(ref))
        schema_complain(r, "\"$ref\" must be a text");
    else if (all && !n)
        schema_complain(r, "\"allOf\" must be a list of schemas");
    else if (ref && !all && !has_more(at.schema)) {
        const struct schema_at to = schema_find(r, at, json_string_value(ref));
        return to.schema ? call_of(r, to, json_string_value(ref)) : &r->d->nothing;
    } else if (n == 1 && !ref && !has_more(at.schema)) {
        const struct schema_at below = {json_array_get(all, 0), at.document};
        return schema_read_below(r, below, "allOf/0");
    }
    return r->d->failed ? &r->d->nothing : schema_read_object(r, at);
}

static struct form_expr *read_schema(struct schema_reader *r, struct schema_at at)
{
    const json_t *s = at.schema;
    if (json_is_true(s))
        return form_json(r->d, "json-value");
    if (!json_is_object(s)) {
        schema_complain(r,
                        json_is_false(s) ? "false allows no value" : "a schema is an object, true or false");
        return &r->d->nothing;
    }
    if (json_object_get(s, "$id"))
        at.document = s;
    if (!schema_is_supported(r, s))
        return &r->d->nothing;
    if (json_object_get(s, "enum") || json_object_get(s, "const"))
        return read_values(r, s);
    if (json_object_get(s, "anyOf") || json_object_get(s, "oneOf"))
        return read_alternatives(r, at, json_object_get(s, "anyOf") ? "anyOf" : "oneOf");
    if (json_object_get(s, "allOf") || json_object_get(s, "$ref"))
        return read_merged(r, at);
    return read_types(r, at);
}

struct form_expr *schema_read(struct schema_reader *r, struct schema_at at)
{
    if (r->nest == NEST_MAX || ++r->steps > STEPS_MAX)
        schema_complain(r,
                        r->nest == NEST_MAX ? "schemas are nested deeper than %d" : "the schema is too large",
                        NEST_MAX);
    if (r->d->failed)
        return &r->d->nothing;
    r->nest++;
    struct form_expr *e = read_schema(r, at);
    r->nest--;
    return e;
}

struct form_expr *schema_read_below(struct schema_reader *r, struct schema_at at, const char *key)
{
    const size_t length = schema_enter(r, key);
    struct form_expr *e = schema_read(r, at);
    schema_leave(r, length);
    return e;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void read_refs(struct schema_reader *r)
{
    for (; r->done < r->nrefs && !r->d->failed; r->done++) {
        const struct schema_ref ref = r->refs[r->done];
        snprintf(r->path, sizeof r->path, "%s", ref.path);
        form_rule_is(r->d, ref.rule, schema_read(r, ref.at));
    }
}

static struct form_expr *read_value(struct schema_reader *r, const struct form_value *v)
{
    struct form_expr *seq = form_seq(r->d);
    form_add(seq, form_text(r->d, v->before ? v->before : ""));
    form_add(seq, call_of(r, (struct schema_at){v->schema, v->schema}, "#"));
    form_add(seq, form_text(r->d, v->after ? v->after : ""));
    return seq;
}

int form_of_schemas(struct form **ret, const struct form_value *values, size_t n, struct err *err)
{
    struct form_draft d;
    struct schema_reader r = {.d = &d, .path = "#"};
    form_draft_init(&d, err);
    form_json_rules(&d, false);
    const uint32_t root = form_rule_new(&d, "#");
    struct form_expr *alt = form_alt(&d);
    for (size_t i = 0; i < n; i++)
        form_add(alt, read_value(&r, &values[i]));
    form_rule_is(&d, root, alt);
    read_refs(&r);
    const int result = d.failed ? d.failed : form_draft_compile(ret, &d, root, err);
    free(r.refs);
    form_draft_done(&d);
    return result;
}

int form_of_schema(struct form **ret, const json_t *schema, struct err *err)
{
    return form_of_schemas(ret, &(struct form_value){.schema = schema}, 1, err);
}
