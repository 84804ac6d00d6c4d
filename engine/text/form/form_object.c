/* SPDX-License-Identifier: MIT
 *
 * Objects and arrays of a schema. Properties come in its order: so each has a rule that says what
 * may follow it, and there are as many rules as properties, not as orders. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/form/form_schema.h"
#include "text/utf8.h"

enum { PROPERTIES_MAX = 1024, NAME_MAX_BYTES = 256, MERGED_MAX = 16 };

struct property {
    const char *name;
    struct schema_at is;
    bool is_required;
    uint32_t rule; /* name, colon and value */
};

struct object {
    struct property at[PROPERTIES_MAX];
    size_t n;
    struct schema_at others; /* what further properties are; schema NULL: nobody has said */
    bool is_closed, has_properties;
};

/* --- what an object has ----------------------------------------------------------------------- */

static struct property *property_of(struct object *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (!strcmp(o->at[i].name, name))
            return &o->at[i];
    return NULL;
}

static void add_property(struct schema_reader *r, struct object *o, const char *name, struct schema_at is,
                         bool is_required)
{
    struct property *known = property_of(o, name);
    if (known && is.schema && known->is.schema && !json_equal(known->is.schema, is.schema))
        schema_complain(r, "\"%.60s\" has two schemas that differ: merging them is not supported", name);
    else if (known) {
        known->is_required |= is_required;
        known->is = known->is.schema ? known->is : is;
    } else if (o->n == PROPERTIES_MAX)
        schema_complain(r, "an object has more than %d properties", PROPERTIES_MAX);
    else
        o->at[o->n++] = (struct property){name, is, is_required, 0};
}

static void gather_here(struct schema_reader *r, struct object *o, struct schema_at at)
{
    const json_t *all = json_object_get(at.schema, "properties"),
                 *required = json_object_get(at.schema, "required"),
                 *others = json_object_get(at.schema, "additionalProperties");
    const char *name;
    json_t *is;
    if ((all && !json_is_object(all)) || (required && !json_is_array(required)))
        schema_complain(r, all && !json_is_object(all) ? "\"properties\" must be an object"
                                                       : "\"required\" must be a list of names");
    o->has_properties |= json_object_size(all) > 0;
    json_object_foreach ((json_t *)(uintptr_t)all, name, is)
        add_property(r, o, name, (struct schema_at){is, at.document}, false);
    for (size_t i = 0; i < json_array_size(required) && !r->d->failed; i++) {
        name = json_string_value(json_array_get(required, i));
        if (name)
            add_property(r, o, name, (struct schema_at){NULL, NULL}, true);
        else
            schema_complain(r, "\"required\" must be a list of names");
    }
    if (json_is_false(others))
        o->is_closed = true;
    else if (others && o->others.schema && !json_equal(others, o->others.schema))
        schema_complain(r, "\"additionalProperties\" is there twice, and differs: merging is not supported");
    else if (others)
        o->others = (struct schema_at){others, at.document};
}

/* An object, and those that it is merged with. */
static void gather(struct schema_reader *r, struct object *o, struct schema_at at, size_t nest)
{
    static const char *const alone[] = {"enum", "const", "anyOf", "oneOf", NULL};
    const json_t *type = json_object_get(at.schema, "type"), *all = json_object_get(at.schema, "allOf"),
                 *ref = json_object_get(at.schema, "$ref");
    if (nest == MERGED_MAX || ++r->steps > 1 << 16)
        schema_complain(r, "\"allOf\" and \"$ref\" are nested too deep");
    if (r->d->failed || !json_is_object(at.schema)) {
        schema_complain(r, "only objects can be merged: this is none");
        return;
    }
    if (json_object_get(at.schema, "$id"))
        at.document = at.schema;
    if (!schema_is_supported(r, at.schema) ||
        schema_refuses(r, at.schema, alone, "cannot be merged with \"allOf\" or \"$ref\""))
        return;
    const bool is_object = (json_is_string(type) && !strcmp(json_string_value(type), "object")) ||
                           json_is_array(type) /* then one of its types is this one */ || !type;
    if (!is_object || schema_is_about_others(at.schema))
        schema_complain(r, "\"allOf\" and what stands beside \"$ref\" are supported for objects alone");
    gather_here(r, o, at);
    for (size_t i = 0; i < json_array_size(all) && !r->d->failed; i++)
        gather(r, o, (struct schema_at){json_array_get(all, i), at.document}, nest + 1);
    const struct schema_at to = ref && json_is_string(ref) && !r->d->failed
                                    ? schema_find(r, at, json_string_value(ref))
                                    : (struct schema_at){NULL, NULL};
    if (to.schema)
        gather(r, o, to, nest + 1);
}

/* --- names that are not in the schema --------------------------------------------------------- */

struct object_names {
    const char *at[PROPERTIES_MAX]; /* in order */
    size_t n;
    uint32_t any; /* rule: any characters, and the quote */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A rule for what stands behind `depth` bytes that the names from `low` to `high` have in common,
 * up to the quote, and is none of them. Every character has one spelling, or another one could
 * hide a name. */
static uint32_t other_name(struct schema_reader *r, const struct object_names *names, size_t low, size_t high,
                           size_t depth)
{
    struct form_range taken[FORM_RANGES_MAX / 2];
    struct form_expr *alt = form_alt(r->d), *seq;
    size_t ntaken = 0;
    const uint32_t rule = form_rule_new(r->d, "additionalProperties");
    bool is_name = false;
    for (size_t i = low; i < high && !names->at[i][depth]; i++, low++)
        is_name = true;
    for (size_t i = low, same; i < high && !r->d->failed; i += same) {
        const char *text = names->at[i] + depth;
        const struct utf8_char c = utf8_next(text, strlen(text));
        for (same = 1; i + same < high && !strncmp(names->at[i + same] + depth, text, c.len);)
            same++;
        if (ntaken == sizeof taken / sizeof *taken) {
            schema_complain(r, "too many properties to allow others beside them");
            break;
        }
        taken[ntaken++] = (struct form_range){c.cp, c.cp};
        seq = form_seq(r->d);
        form_add(seq, form_json_chars(r->d, &taken[ntaken - 1], 1, false));
        form_add(seq, form_call(r->d, other_name(r, names, i, i + same, depth + c.len)));
        form_add(alt, seq);
    }
    seq = form_seq(r->d);
    form_add(seq, form_json_chars(r->d, taken, ntaken, true));
    form_add(seq, form_call(r->d, names->any));
    form_add(alt, seq);
    if (!is_name)
        form_add(alt, form_text(r->d, "\""));
    form_rule_is(r->d, rule, alt);
    return rule;
}

static struct form_expr *others_name(struct schema_reader *r, const struct object *o)
{
    struct object_names names = {.n = o->n};
    struct form_expr *seq = form_seq(r->d), *rest = form_seq(r->d);
    for (size_t i = 0; i < o->n; i++) {
        names.at[i] = o->at[i].name;
        if (strlen(names.at[i]) > NAME_MAX_BYTES)
            schema_complain(r, "beside \"additionalProperties\" names have at most %d bytes", NAME_MAX_BYTES);
    }
    if (!o->n)
        return form_json(r->d, "json-string");
    qsort(names.at, names.n, sizeof *names.at, by_name);
    names.any = form_rule_new(r->d, "additionalProperties");
    form_add(rest, form_repeat(r->d, form_json_chars(r->d, NULL, 0, true), 0, FORM_ENDLESS));
    form_add(rest, form_text(r->d, "\""));
    form_rule_is(r->d, names.any, rest);
    form_add(seq, form_text(r->d, "\""));
    form_add(seq, form_call(r->d, r->d->failed ? 0 : other_name(r, &names, 0, names.n, 0)));
    return seq;
}

/* --- objects ---------------------------------------------------------------------------------- */

static void define_property(struct schema_reader *r, struct object *o, struct property *p)
{
    const size_t length = schema_enter(r, "properties");
    struct form_expr *seq = form_seq(r->d);
    json_t *name = json_string(p->name);
    const struct schema_at any = {json_true(), NULL};
    const struct schema_at is = p->is.schema ? p->is : o->others.schema ? o->others : any;
    if (!p->is.schema && o->is_closed)
        schema_complain(r, "\"%.60s\" is required, and is no property", p->name);
    p->rule = form_rule_new(r->d, p->name);
    form_add(seq, form_json_literal(r->d, name));
    form_add(seq, form_text(r->d, ":"));
    form_add(seq, form_json(r->d, "json-space"));
    form_add(seq, schema_read_below(r, is, p->name));
    form_rule_is(r->d, p->rule, seq);
    json_decref(name);
    schema_leave(r, length);
}

/* A rule of one further property; it is needed twice. */
static uint32_t define_other(struct schema_reader *r, const struct object *o)
{
    const uint32_t rule = form_rule_new(r->d, "additionalProperties");
    struct form_expr *seq = form_seq(r->d);
    const struct schema_at any = {json_true(), NULL};
    form_add(seq, others_name(r, o));
    form_add(seq, form_text(r->d, ":"));
    form_add(seq, form_json(r->d, "json-space"));
    form_add(seq, schema_read_below(r, o->others.schema ? o->others : any, "additionalProperties"));
    form_rule_is(r->d, rule, seq);
    return rule;
}

static struct form_expr *comma(struct form_draft *d)
{
    struct form_expr *seq = form_seq(d);
    form_add(seq, form_text(d, ","));
    form_add(seq, form_json(d, "json-space"));
    return seq;
}

/* What follows a part: `then`, where it is a rule. */
static struct form_expr *followed(struct form_draft *d, struct form_expr *before, struct form_expr *part,
                                  uint32_t then)
{
    struct form_expr *seq = form_seq(d);
    if (before)
        form_add(seq, before);
    form_add(seq, part);
    form_add(seq, form_call(d, then));
    return seq;
}

/* The ends of an object: behind a property, and where there is none yet. */
static void define_ends(struct schema_reader *r, const struct object *o, bool is_open, uint32_t behind,
                        uint32_t empty)
{
    struct form_draft *d = r->d;
    struct form_expr *seq = form_seq(d), *again = comma(d), *first = form_alt(d);
    const uint32_t other = is_open ? define_other(r, o) : 0;
    if (is_open) {
        form_add(again, form_call(d, other));
        form_add(seq, form_repeat(d, again, 0, FORM_ENDLESS));
        form_add(first, followed(d, NULL, form_call(d, other), behind));
    }
    form_add(seq, form_json(d, "json-space"));
    form_add(first, form_text(d, ""));
    form_rule_is(d, behind, seq);
    form_rule_is(d, empty, first);
}

/* From the last property to the first: what may follow when those before it are written, or
 * none is. Returns the rule of all of them. */
static uint32_t define_order(struct schema_reader *r, struct object *o, bool is_open)
{
    struct form_draft *d = r->d;
    uint32_t behind = form_rule_new(d, "properties"), empty = form_rule_new(d, "properties");
    define_ends(r, o, is_open, behind, empty);
    for (size_t i = o->n; i-- && !d->failed;) {
        struct property *p = &o->at[i];
        const uint32_t next_behind = behind, next_empty = empty;
        struct form_expr *more = form_alt(d), *first = form_alt(d);
        define_property(r, o, p);
        form_add(more, followed(d, comma(d), form_call(d, p->rule), next_behind));
        form_add(first, followed(d, NULL, form_call(d, p->rule), next_behind));
        if (!p->is_required) {
            form_add(more, form_call(d, next_behind));
            form_add(first, form_call(d, next_empty));
        }
        behind = form_rule_new(d, p->name);
        empty = form_rule_new(d, p->name);
        form_rule_is(d, behind, more);
        form_rule_is(d, empty, first);
    }
    return empty;
}

struct form_expr *schema_read_object(struct schema_reader *r, struct schema_at at)
{
    struct form_draft *d = r->d;
    struct object *o = calloc(1, sizeof *o);
    struct form_expr *seq = form_seq(d);
    if (!o) {
        form_draft_fail(d, -ENOMEM, "no memory for the schema");
        return seq;
    }
    gather(r, o, at, 0);
    const bool is_open = !o->is_closed && (o->others.schema || !o->has_properties);
    form_add(seq, form_text(d, "{"));
    form_add(seq, form_json(d, "json-space"));
    form_add(seq, form_call(d, define_order(r, o, is_open)));
    form_add(seq, form_text(d, "}"));
    free(o);
    return seq;
}

/* --- arrays ----------------------------------------------------------------------------------- */

/* Items behind the first `n`, each after a comma, so that there are from min to max in all; then
 * the space before the bracket. */
static struct form_expr *items_behind(struct schema_reader *r, struct schema_at items, uint32_t n,
                                      uint32_t min, uint32_t max)
{
    struct form_expr *seq = form_seq(r->d), *one = comma(r->d);
    const uint32_t more = max == FORM_ENDLESS ? max : max - n;
    if (more && items.schema) {
        form_add(one, schema_read_below(r, items, "items"));
        form_add(seq, form_repeat(r->d, one, min > n ? min - n : 0, more));
    }
    form_add(seq, form_json(r->d, "json-space"));
    return seq;
}

/* The rule of all items, from the last one to the first. */
static uint32_t define_items(struct schema_reader *r, struct schema_at at, struct schema_at items,
                             uint32_t min, uint32_t max)
{
    struct form_draft *d = r->d;
    const json_t *first = json_object_get(at.schema, "prefixItems");
    const size_t n = json_array_size(first) < max ? json_array_size(first) : max;
    const size_t known = n ? n : 1;
    uint32_t rule = form_rule_new(d, "items");
    form_rule_is(d, rule, max ? items_behind(r, items, (uint32_t)known, min, max) : form_text(d, ""));
    for (size_t i = max ? known : 0; i-- && !d->failed;) {
        char key[40];
        const uint32_t behind = rule;
        struct form_expr *alt = form_alt(d);
        snprintf(key, sizeof key, n ? "prefixItems/%zu" : "items", i);
        const struct schema_at is = n ? (struct schema_at){json_array_get(first, i), at.document} : items;
        struct form_expr *item = schema_read_below(r, is, key);
        form_add(alt, followed(d, i ? comma(d) : NULL, item, behind));
        if (i >= min)
            form_add(alt, i ? form_json(d, "json-space") : form_text(d, ""));
        rule = form_rule_new(d, "items");
        form_rule_is(d, rule, alt);
    }
    return rule;
}

struct form_expr *schema_read_array(struct schema_reader *r, struct schema_at at)
{
    struct form_draft *d = r->d;
    const json_t *items = json_object_get(at.schema, "items"),
                 *first = json_object_get(at.schema, "prefixItems");
    const uint32_t min = schema_count(r, at.schema, "minItems", 0), n = (uint32_t)json_array_size(first);
    uint32_t max = schema_count(r, at.schema, "maxItems", FORM_ENDLESS);
    struct form_expr *seq = form_seq(d);
    if (json_is_array(items) || (first && !json_is_array(first)))
        schema_complain(r, json_is_array(items)
                               ? "\"items\" must be one schema: a list is called \"prefixItems\""
                               : "\"prefixItems\" must be a list of schemas");
    if (max < min)
        schema_complain(r, "\"maxItems\" is less than \"minItems\"");
    if (json_is_false(items) && n < min)
        schema_complain(r, "\"items\" is false, and \"minItems\" asks for more");
    /* Items that nobody speaks of are any, where some must come, or none is described. */
    const bool is_closed = json_is_false(items) || (!items && n && min <= n);
    const struct schema_at all = {items ? items : json_true(), at.document};
    if (is_closed)
        max = max < n ? max : n;
    form_add(seq, form_text(d, "["));
    form_add(seq, form_json(d, "json-space"));
    form_add(seq, form_call(d, r->d->failed ? 0 : define_items(r, at, all, min, max)));
    form_add(seq, form_text(d, "]"));
    return seq;
}
