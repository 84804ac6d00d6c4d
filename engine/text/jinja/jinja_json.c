/* SPDX-License-Identifier: MIT
 *
 * JSON in and out. Owns nothing; called by the interpreter, on its thread. */
#include "text/jinja/jinja_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

static struct jinja_value from_array(struct jinja_run *run, const json_t *json)
{
    size_t n = json_array_size(json);
    struct jinja_value v = jinja_list_new(run, JINJA_LIST, n);
    for (size_t i = 0; i < n && jinja_step(run, 1); i++)
        jinja_list_add(run, v.list, jinja_from_json(run, json_array_get(json, i)));
    return v;
}

static struct jinja_value from_object(struct jinja_run *run, const json_t *json)
{
    struct jinja_value v = jinja_dict_new(run, JINJA_DICT);
    json_t *object = (json_t *)json; /* iterating asks for it, and changes nothing */
    for (void *at = json_object_iter(object); at && jinja_step(run, 1);
         at = json_object_iter_next(object, at)) {
        struct jinja_value key = jinja_text(json_object_iter_key(at), json_object_iter_key_len(at));
        jinja_dict_set(run, v.dict, key, jinja_from_json(run, json_object_iter_value(at)));
    }
    return v;
}

struct jinja_value jinja_from_json(struct jinja_run *run, const json_t *json)
{
    struct jinja_value v = jinja_none();
    if (!json || !jinja_step(run, 1) || !jinja_enter(run))
        return v;
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = from_object(run, json); break;
    case JSON_ARRAY: v = from_array(run, json); break;
    case JSON_STRING: v = jinja_text(json_string_value(json), json_string_length(json)); break;
    case JSON_INTEGER: v = jinja_int(json_integer_value(json)); break;
    case JSON_REAL: v = jinja_float(json_real_value(json)); break;
    case JSON_TRUE: v = jinja_bool(true); break;
    case JSON_FALSE: v = jinja_bool(false); break;
    case JSON_NULL: break;
    }
    jinja_leave(run);
    return v;
}

/* --- tojson --- */

struct writer {
    struct jinja_run *run;
    struct textbuf buf;
    struct jinja_text indent; /* of one level */
    struct jinja_text comma, colon;
    bool has_indent, sort_keys, ascii;
    size_t level;
};

static void put(struct writer *w, const char *s)
{
    textbuf_append(&w->buf, s, strlen(s));
}

static void put_text(struct writer *w, struct jinja_text t)
{
    textbuf_append(&w->buf, t.s, t.n);
}

static void put_newline(struct writer *w)
{
    if (!w->has_indent)
        return;
    put(w, "\n");
    for (size_t i = 0; i < w->level; i++)
        put_text(w, w->indent);
}

static void put_unit(struct writer *w, unsigned unit)
{
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", unit);
    put(w, escape);
}

static void put_char(struct writer *w, const char *s, struct utf8_char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *short_form = c.cp ? strchr(from, (int)(c.cp < 0x80 ? c.cp : 1)) : NULL;
    if (short_form) {
        put(w, "\\");
        textbuf_append(&w->buf, &to[short_form - from], 1);
    } else if (c.cp < 0x20 || (w->ascii && c.cp >= 0x80 && c.cp < 0x10000)) {
        put_unit(w, c.cp);
    } else if (w->ascii && c.cp >= 0x10000) {
        put_unit(w, 0xD800 + ((c.cp - 0x10000) >> 10));
        put_unit(w, 0xDC00 + (c.cp & 0x3FF));
    } else {
        textbuf_append(&w->buf, s, c.len);
    }
}

static void put_string(struct writer *w, struct jinja_text t)
{
    put(w, "\"");
    for (size_t at = 0; at < t.n;) {
        struct utf8_char c = utf8_next(t.s + at, t.n - at);
        put_char(w, t.s + at, c);
        at += c.len;
    }
    put(w, "\"");
}

static void put_value(struct writer *w, struct jinja_value v);

static void put_number(struct writer *w, struct jinja_value v)
{
    if (v.kind == JINJA_FLOAT && !isfinite(v.real))
        put(w, isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
    else if (v.kind == JINJA_BOOL)
        put(w, v.truth ? "true" : "false");
    else
        jinja_append_repr(w->run, &w->buf, v);
}

static void put_list(struct writer *w, const struct jinja_list *list)
{
    put(w, "[");
    w->level++;
    for (size_t i = 0; i < list->n && jinja_step(w->run, 1); i++) {
        if (i > 0)
            put_text(w, w->comma);
        put_newline(w);
        put_value(w, list->at[i]);
    }
    w->level--;
    if (list->n > 0)
        put_newline(w);
    put(w, "]");
}

static void put_key(struct writer *w, struct jinja_value key)
{
    if (key.kind == JINJA_TEXT) {
        put_string(w, key.text);
    } else if (jinja_is_number(key) || key.kind == JINJA_NONE) {
        put(w, "\"");
        put_value(w, key);
        put(w, "\"");
    } else {
        jinja_fail(w->run, -EINVAL, "tojson: %s cannot be a key", jinja_kind_name(key));
    }
}

/* The index of the i-th pair to write: by key where they are sorted. */
static void sort_pairs(struct writer *w, struct jinja_pair *at, size_t n)
{
    for (size_t i = 1; i < n && jinja_step(w->run, i); i++) {
        struct jinja_pair pair = at[i];
        size_t k = i;
        for (; k > 0 && jinja_order(w->run, at[k - 1].key, pair.key) > 0; k--)
            at[k] = at[k - 1];
        at[k] = pair;
    }
}

static void put_dict(struct writer *w, const struct jinja_dict *dict)
{
    struct jinja_pair *at = dict->at;
    if (w->sort_keys && dict->n > 1) {
        at = arena_copy(&w->run->arena, dict->at, dict->n * sizeof *at);
        if (!at) {
            jinja_fail(w->run, -ENOMEM, "no memory for tojson");
            return;
        }
        sort_pairs(w, at, dict->n);
    }
    put(w, "{");
    w->level++;
    for (size_t i = 0; i < dict->n && jinja_step(w->run, 1); i++) {
        if (i > 0)
            put_text(w, w->comma);
        put_newline(w);
        put_key(w, at[i].key);
        put_text(w, w->colon);
        put_value(w, at[i].value);
    }
    w->level--;
    if (dict->n > 0)
        put_newline(w);
    put(w, "}");
}

static void put_value(struct writer *w, struct jinja_value v)
{
    if (w->buf.len > JINJA_OUTPUT_MAX) {
        jinja_fail(w->run, -EFBIG, "tojson makes more than %d MiB", JINJA_OUTPUT_MAX >> 20);
        return;
    }
    if (!jinja_step(w->run, 1) || !jinja_enter(w->run))
        return;
    if (v.kind == JINJA_NONE)
        put(w, "null");
    else if (jinja_is_number(v))
        put_number(w, v);
    else if (v.kind == JINJA_TEXT)
        put_string(w, v.text);
    else if (jinja_is_sequence(v))
        put_list(w, v.list);
    else if (v.kind == JINJA_DICT)
        put_dict(w, v.dict);
    else
        jinja_fail(w->run, -EINVAL, "tojson: %s is nothing JSON knows", jinja_kind_name(v));
    jinja_leave(w->run);
}

static void read_indent(struct writer *w, struct jinja_value v)
{
    static const char spaces[] = "                                ";
    w->has_indent = v.kind != JINJA_ABSENT && v.kind != JINJA_NONE;
    if (v.kind == JINJA_TEXT)
        w->indent = v.text;
    else if (v.kind == JINJA_INT && v.integer <= (int64_t)sizeof spaces - 1)
        w->indent = (struct jinja_text){spaces, v.integer > 0 ? (size_t)v.integer : 0};
    else if (w->has_indent)
        jinja_fail(w->run, -EINVAL, "tojson: indent must be a text or a number up to %zu", sizeof spaces - 1);
}

static void read_separators(struct writer *w, struct jinja_value v)
{
    w->comma = w->has_indent ? (struct jinja_text){",", 1} : (struct jinja_text){", ", 2};
    w->colon = (struct jinja_text){": ", 2};
    if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
        return;
    if (!jinja_is_sequence(v) || v.list->n != 2 || v.list->at[0].kind != JINJA_TEXT ||
        v.list->at[1].kind != JINJA_TEXT) {
        jinja_fail(w->run, -EINVAL, "tojson: separators must be two texts");
        return;
    }
    w->comma = v.list->at[0].text;
    w->colon = v.list->at[1].text;
}

struct jinja_value jinja_tojson(struct jinja_run *run, const struct jinja_call *call)
{
    struct writer w = {
        .run = run, .sort_keys = jinja_arg_bool(call, 3, false), .ascii = jinja_arg_bool(call, 0, false)};
    read_indent(&w, call->arg[1]);
    read_separators(&w, call->arg[2]);
    put_value(&w, call->self);
    return jinja_take_text(run, &w.buf);
}
