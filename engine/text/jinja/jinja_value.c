/* SPDX-License-Identifier: MIT
 *
 * Owns how values are made, compared and counted; their text is jinja_print.c's. Called by the
 * interpreter, on its thread. */
#include "text/jinja/jinja_value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"
#include "text/utf8.h"

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}

struct jinja_value jinja_int(int64_t n)
{
    return (struct jinja_value){.kind = JINJA_INT, .integer = n};
}

struct jinja_value jinja_float(double x)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .real = x};
}

struct jinja_value jinja_text(const char *s, size_t n)
{
    return (struct jinja_value){.kind = JINJA_TEXT, .text = {n ? s : "", n}};
}

struct jinja_value jinja_word(const char *s)
{
    return jinja_text(s, strlen(s));
}

struct jinja_value jinja_undefined(struct jinja_text name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .text = name};
}

static struct jinja_value no_memory(struct jinja_run *run)
{
    return jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
}

struct jinja_value jinja_copy_text(struct jinja_run *run, const char *s, size_t n)
{
    char *copy = arena_copy(&run->arena, s, n);
    return copy ? jinja_text(copy, n) : no_memory(run);
}

struct jinja_value jinja_take_text(struct jinja_run *run, struct textbuf *buf)
{
    struct jinja_value v = buf->failed ? no_memory(run) : jinja_copy_text(run, buf->data, buf->len);
    textbuf_done(buf);
    return v;
}

/* --- lists and dicts --- */

struct jinja_value jinja_list_new(struct jinja_run *run, enum jinja_kind kind, size_t room)
{
    struct jinja_list *list = arena_alloc(&run->arena, sizeof *list);
    if (!list)
        return no_memory(run);
    if (room > 0 && room <= JINJA_MEMORY_MAX / sizeof *list->at)
        list->at = arena_alloc(&run->arena, room * sizeof *list->at);
    list->cap = list->at ? room : 0;
    return (struct jinja_value){.kind = kind, .list = list};
}

void jinja_list_add(struct jinja_run *run, struct jinja_list *list, struct jinja_value item)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 4;
        struct jinja_value *at = arena_alloc(&run->arena, cap * sizeof *at);
        if (!at) {
            no_memory(run);
            return;
        }
        if (list->n > 0)
            memcpy(at, list->at, list->n * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = item;
}

struct jinja_value jinja_pair_new(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value pair = jinja_list_new(run, JINJA_TUPLE, 2);
    if (pair.kind == JINJA_TUPLE) {
        jinja_list_add(run, pair.list, a);
        jinja_list_add(run, pair.list, b);
    }
    return pair;
}

struct jinja_value jinja_dict_new(struct jinja_run *run, enum jinja_kind kind)
{
    struct jinja_dict *dict = arena_alloc(&run->arena, sizeof *dict);
    return dict ? (struct jinja_value){.kind = kind, .dict = dict} : no_memory(run);
}

const struct jinja_value *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                          struct jinja_value key)
{
    jinja_step(run, dict->n / 8);
    for (size_t i = 0; i < dict->n; i++) {
        const struct jinja_value *have = &dict->at[i].key;
        if (have->kind == JINJA_TEXT && key.kind == JINJA_TEXT) {
            if (have->text.n == key.text.n && !memcmp(have->text.s, key.text.s, key.text.n))
                return &dict->at[i].value;
        } else if (jinja_equal(run, *have, key)) {
            return &dict->at[i].value;
        }
    }
    return NULL;
}

void jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value)
{
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT) {
        jinja_fail(run, -EINVAL, "%s cannot be a key", jinja_kind_name(key));
        return;
    }
    struct jinja_value *have = (struct jinja_value *)jinja_dict_find(run, dict, key);
    if (have) {
        *have = value;
        return;
    }
    if (dict->n == dict->cap) {
        size_t cap = dict->cap ? 2 * dict->cap : 4;
        struct jinja_pair *at = arena_alloc(&run->arena, cap * sizeof *at);
        if (!at) {
            no_memory(run);
            return;
        }
        if (dict->n > 0)
            memcpy(at, dict->at, dict->n * sizeof *at);
        dict->at = at;
        dict->cap = cap;
    }
    dict->at[dict->n++] = (struct jinja_pair){key, value};
}

/* --- asking --- */

bool jinja_is_word(struct jinja_text text, const char *word)
{
    return text.n == strlen(word) && !memcmp(text.s, word, text.n);
}

bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

bool jinja_is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

int64_t jinja_integer_of(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? v.truth : v.integer;
}

double jinja_real_of(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT ? v.real : (double)jinja_integer_of(v);
}

bool jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v.truth;
    case JINJA_INT: return v.integer != 0;
    case JINJA_FLOAT: return v.real != 0;
    case JINJA_TEXT: return v.text.n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v.list->n > 0;
    case JINJA_DICT: return v.dict->n > 0;
    default: return true;
    }
}

const char *jinja_kind_name(struct jinja_value v)
{
    static const char *const names[] = {
        [JINJA_ABSENT] = "nothing",  [JINJA_UNDEFINED] = "something undefined",
        [JINJA_NONE] = "none",       [JINJA_BOOL] = "true or false",
        [JINJA_INT] = "a number",    [JINJA_FLOAT] = "a number",
        [JINJA_TEXT] = "a text",     [JINJA_LIST] = "a list",
        [JINJA_TUPLE] = "a tuple",   [JINJA_DICT] = "a dict",
        [JINJA_LOOP] = "a loop",     [JINJA_NAMESPACE] = "a namespace",
        [JINJA_MACRO] = "a macro",   [JINJA_FUNCTION] = "a function",
        [JINJA_METHOD] = "a method",
    };
    return names[v.kind];
}

static bool equal_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = jinja_equal(run, a->at[i], b->at[i]);
    return same;
}

static bool equal_dicts(struct jinja_run *run, const struct jinja_dict *a, const struct jinja_dict *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct jinja_value *other = jinja_dict_find(run, b, a->at[i].key);
        same = other && jinja_equal(run, a->at[i].value, *other);
    }
    return same;
}

static bool equal_kinds(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    switch (a.kind) {
    case JINJA_TEXT:
        return jinja_step(run, a.text.n / 64) && a.text.n == b.text.n &&
               !memcmp(a.text.s, b.text.s, a.text.n);
    case JINJA_LIST:
    case JINJA_TUPLE: return equal_lists(run, a.list, b.list);
    case JINJA_DICT: return equal_dicts(run, a.dict, b.dict);
    case JINJA_NAMESPACE: return a.dict == b.dict;
    case JINJA_LOOP: return a.loop == b.loop;
    case JINJA_MACRO: return a.macro == b.macro;
    case JINJA_FUNCTION: return a.function == b.function;
    case JINJA_METHOD:
        return a.method->builtin == b.method->builtin && jinja_equal(run, a.method->self, b.method->self);
    default: return true; /* none is none */
    }
}

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
            return jinja_real_of(a) == jinja_real_of(b);
        return jinja_integer_of(a) == jinja_integer_of(b);
    }
    if (a.kind != b.kind || !jinja_step(run, 1) || !jinja_enter(run))
        return false;
    bool same = equal_kinds(run, a, b);
    jinja_leave(run);
    return same;
}

static int order_texts(struct jinja_text a, struct jinja_text b)
{
    int order = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int order_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jinja_equal(run, a->at[i], b->at[i]))
            return jinja_order(run, a->at[i], b->at[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jinja_order(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    int order = 0;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
            return (jinja_real_of(a) > jinja_real_of(b)) - (jinja_real_of(a) < jinja_real_of(b));
        return (jinja_integer_of(a) > jinja_integer_of(b)) - (jinja_integer_of(a) < jinja_integer_of(b));
    }
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT && jinja_step(run, a.text.n / 64))
        return order_texts(a.text, b.text);
    if (!jinja_is_sequence(a) || a.kind != b.kind) {
        jinja_fail(run, -EINVAL, "%s and %s have no order", jinja_kind_name(a), jinja_kind_name(b));
    } else if (jinja_enter(run)) {
        order = order_lists(run, a.list, b.list);
        jinja_leave(run);
    }
    return order;
}

size_t jinja_length(struct jinja_run *run, struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_TEXT: jinja_step(run, v.text.n / 64); return pytext_length(v.text.s, v.text.n);
    case JINJA_LIST:
    case JINJA_TUPLE: return v.list->n;
    case JINJA_DICT: return v.dict->n;
    case JINJA_LOOP: return v.loop->list->n;
    default: jinja_fail(run, -EINVAL, "%s has no length", jinja_kind_name(v)); return 0;
    }
}

static void add_characters(struct jinja_run *run, struct jinja_list *list, struct jinja_text text)
{
    for (size_t at = 0; at < text.n && jinja_step(run, 1);) {
        size_t len = utf8_next(text.s + at, text.n - at).len;
        jinja_list_add(run, list, jinja_text(text.s + at, len));
        at += len;
    }
}

/* NULL only without memory. */
struct jinja_list *jinja_items(struct jinja_run *run, struct jinja_value v)
{
    if (jinja_is_sequence(v))
        return v.list;
    struct jinja_value made = jinja_list_new(run, JINJA_LIST, 0);
    if (made.kind != JINJA_LIST)
        return NULL;
    if (v.kind == JINJA_TEXT)
        add_characters(run, made.list, v.text);
    else if (v.kind == JINJA_DICT)
        for (size_t i = 0; i < v.dict->n && jinja_step(run, 1); i++)
            jinja_list_add(run, made.list, v.dict->at[i].key);
    else if (v.kind != JINJA_UNDEFINED)
        jinja_fail(run, -EINVAL, "%s is nothing to loop over", jinja_kind_name(v));
    return made.list;
}

bool jinja_contains(struct jinja_run *run, struct jinja_value where, struct jinja_value what)
{
    if (where.kind == JINJA_DICT)
        return jinja_dict_find(run, where.dict, what) != NULL;
    if (where.kind == JINJA_TEXT) {
        if (what.kind != JINJA_TEXT) {
            jinja_fail(run, -EINVAL, "%s cannot be looked for in a text", jinja_kind_name(what));
            return false;
        }
        jinja_step(run, where.text.n / 64);
        return pytext_find(where.text.s, where.text.n, 0, what.text.s, what.text.n) <= where.text.n;
    }
    if (where.kind == JINJA_NONE) /* gpt-oss's template looks into a content that may be none */
        return false;
    const struct jinja_list *items = jinja_items(run, where);
    for (size_t i = 0; items && i < items->n && jinja_step(run, 1); i++)
        if (jinja_equal(run, items->at[i], what))
            return true;
    return false;
}
