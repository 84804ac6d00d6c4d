/* SPDX-License-Identifier: MIT
 *
 * Filters that look into lists: choosing, mapping, sorting, joining. Owns nothing; called by the
 * interpreter, on its thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"
#include "text/utf8.h"

static struct jinja_value new_list(struct jinja_run *run, size_t room)
{
    return jinja_list_new(run, JINJA_LIST, room);
}

/* A list of what there is, or an empty one after a failure. */
static struct jinja_list items_of(struct jinja_run *run, struct jinja_value v)
{
    const struct jinja_list *items = jinja_items(run, v), none = {.n = 0};
    return run->code ? none : *items;
}

/* "a.b.0" of a value; itself without a path. */
static struct jinja_value follow(struct jinja_run *run, struct jinja_value v, struct jinja_value path)
{
    if (path.kind == JINJA_ABSENT || path.kind == JINJA_NONE)
        return v;
    if (path.kind != JINJA_TEXT)
        return jinja_item(run, v, path);
    for (struct jinja_text rest = path.text; !run->code;) {
        size_t n = pytext_find(rest.s, rest.n, 0, ".", 1);
        bool is_last = n > rest.n;
        struct jinja_text part = {rest.s, is_last ? rest.n : n};
        char digits[20] = "";
        if (part.n > 0 && part.n < 18 && pytext_is(part.s, part.n, PYTEXT_DIGIT))
            memcpy(digits, part.s, part.n);
        v = jinja_item(run, v, *digits ? jinja_int(atoll(digits)) : jinja_text(part.s, part.n));
        if (is_last)
            break;
        rest = (struct jinja_text){rest.s + n + 1, rest.n - n - 1};
    }
    return v;
}

static const struct jinja_value *keyword(const struct jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->nkeys; i++)
        if (jinja_is_word(args->key[i].name, name))
            return &args->key[i].value;
    return NULL;
}

/* The arguments behind the first `n`. */
static struct jinja_args args_after(const struct jinja_args *args, size_t n)
{
    struct jinja_args rest = {.n = args->n > n ? args->n - n : 0};
    memcpy(rest.at, args->at + n, rest.n * sizeof *rest.at);
    return rest;
}

/* --- choosing and mapping --- */

struct choice {
    bool by_attribute, wanted;
};

static struct jinja_value choose(struct jinja_run *run, const struct jinja_call *call, struct choice how)
{
    const struct jinja_args *args = call->all;
    struct jinja_list items = items_of(run, call->self);
    struct jinja_value some = new_list(run, 0), path = {.kind = JINJA_ABSENT};
    size_t named = how.by_attribute; /* which argument is the test */
    const struct jinja_builtin *test = NULL;
    if (args->nkeys || args->n < named)
        return jinja_fail(run, -EINVAL, "%s: these arguments are not known", call->name);
    if (named)
        path = args->at[0];
    if (args->n > named) {
        struct jinja_text name =
            args->at[named].kind == JINJA_TEXT ? args->at[named].text : jinja_word("?").text;
        test = jinja_find_test(name);
        if (!test)
            return jinja_fail(run, -ENOTSUP, "%s: the test \"%.*s\" is not known", call->name, (int)name.n,
                              name.s);
    }
    struct jinja_args rest = args_after(args, named + 1);
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++) {
        struct jinja_value v = follow(run, items.at[i], path);
        if (test)
            v = jinja_call_builtin(run, test, v, &rest);
        if (!run->code && jinja_truth(v) == how.wanted)
            jinja_list_add(run, some.list, items.at[i]);
    }
    return some;
}

static struct jinja_value select_some(struct jinja_run *run, const struct jinja_call *call)
{
    return choose(run, call, (struct choice){false, true});
}

static struct jinja_value reject(struct jinja_run *run, const struct jinja_call *call)
{
    return choose(run, call, (struct choice){false, false});
}

static struct jinja_value selectattr(struct jinja_run *run, const struct jinja_call *call)
{
    return choose(run, call, (struct choice){true, true});
}

static struct jinja_value rejectattr(struct jinja_run *run, const struct jinja_call *call)
{
    return choose(run, call, (struct choice){true, false});
}

/* map('filter', …) or map(attribute='path', default=…). */
static struct jinja_value map(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_args *args = call->all;
    const struct jinja_value *path = keyword(args, "attribute"), *other = keyword(args, "default");
    struct jinja_list items = items_of(run, call->self);
    struct jinja_value list = new_list(run, items.n);
    const struct jinja_builtin *filter = NULL;
    struct jinja_args rest = args_after(args, 1);
    if (!path && args->n && args->at[0].kind == JINJA_TEXT)
        filter = jinja_find_filter(args->at[0].text);
    if (!path && !filter)
        return jinja_fail(run, -ENOTSUP, "map: an attribute or a known filter is needed");
    if (filter) {
        memcpy(rest.key, args->key, args->nkeys * sizeof *rest.key);
        rest.nkeys = args->nkeys;
    }
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++) {
        struct jinja_value v =
            filter ? jinja_call_builtin(run, filter, items.at[i], &rest) : follow(run, items.at[i], *path);
        if (!filter && other && v.kind == JINJA_UNDEFINED)
            v = *other;
        jinja_list_add(run, list.list, v);
    }
    return list;
}

/* --- ends, joining, counting --- */

static struct jinja_value end_of(struct jinja_run *run, const struct jinja_call *call, bool is_first)
{
    struct jinja_list items = items_of(run, call->self);
    if (!items.n)
        return jinja_undefined(
            jinja_word(is_first ? "first: the list is empty" : "last: the list is empty").text);
    return items.at[is_first ? 0 : items.n - 1];
}

static struct jinja_value first(struct jinja_run *run, const struct jinja_call *call)
{
    return end_of(run, call, true);
}

static struct jinja_value last(struct jinja_run *run, const struct jinja_call *call)
{
    return end_of(run, call, false);
}

static struct jinja_value join(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    struct jinja_value sep =
        call->arg[0].kind == JINJA_ABSENT ? jinja_text("", 0) : jinja_str(run, call->arg[0]);
    struct textbuf buf = {0};
    for (size_t i = 0; i < items.n && jinja_step(run, 1 + sep.text.n / 64); i++) {
        if (buf.len > JINJA_OUTPUT_MAX)
            jinja_fail(run, -EFBIG, "join: a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
        textbuf_append(&buf, sep.text.s, i ? sep.text.n : 0);
        jinja_append_str(run, &buf, follow(run, items.at[i], call->arg[1]));
    }
    return jinja_take_text(run, &buf);
}

static struct jinja_value list(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_list items = items_of(run, call->self);
    struct jinja_value made = new_list(run, items.n);
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++)
        jinja_list_add(run, made.list, items.at[i]);
    return made;
}

static struct jinja_value reverse(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value bounds[3] = {{.kind = JINJA_ABSENT}, {.kind = JINJA_ABSENT}, jinja_int(-1)};
    if (call->self.kind == JINJA_TEXT)
        return jinja_slice(run, call->self, bounds);
    struct jinja_value all = list(run, call);
    return run->code ? all : jinja_slice(run, all, bounds);
}

static struct jinja_value sum(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    struct jinja_value total = call->arg[1].kind == JINJA_ABSENT ? jinja_int(0) : call->arg[1];
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++)
        total = jinja_binary(run, OP_ADD, total, follow(run, items.at[i], call->arg[0]));
    return total;
}

/* --- order --- */

/* What items are compared by: an attribute, and texts without their case unless that is wanted. */
static struct jinja_value sort_key(struct jinja_run *run, struct jinja_value item, struct jinja_value path,
                                   bool with_case)
{
    struct jinja_value v = follow(run, item, path);
    struct jinja_call call = {.name = "lower", .self = v};
    if (with_case || v.kind != JINJA_TEXT || run->code)
        return v;
    return jinja_find_text_method(jinja_word("lower").text)->run(run, &call);
}

/* Keys with their items, merged in order; items that compare equal keep theirs. */
static void merge_sort(struct jinja_run *run, struct jinja_pair *at, struct jinja_pair *other, size_t n,
                       int direction)
{
    if (n < 2 || !jinja_step(run, n))
        return;
    size_t half = n / 2, a = 0, b = half;
    merge_sort(run, at, other, half, direction);
    merge_sort(run, at + half, other, n - half, direction);
    memcpy(other, at, n * sizeof *at);
    for (size_t i = 0; i < n; i++) {
        bool take_b = a == half || (b < n && direction * jinja_order(run, other[a].key, other[b].key) > 0);
        at[i] = take_b ? other[b++] : other[a++];
    }
}

/* Pairs of key and item, in order; NULL after a failure. */
static struct jinja_pair *sorted(struct jinja_run *run, struct jinja_list items, struct jinja_value path,
                                 bool with_case, int direction)
{
    struct jinja_pair *at = arena_alloc(&run->arena, items.n * sizeof *at),
                      *other = arena_alloc(&run->arena, items.n * sizeof *at);
    if (!at || !other) {
        jinja_fail(run, -ENOMEM, "no memory to sort");
        return NULL;
    }
    for (size_t i = 0; i < items.n; i++)
        at[i] = (struct jinja_pair){sort_key(run, items.at[i], path, with_case), items.at[i]};
    merge_sort(run, at, other, items.n, direction);
    return run->code ? NULL : at;
}

static struct jinja_value sort(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    int direction = jinja_arg_bool(call, 0, false) ? -1 : 1;
    struct jinja_pair *at = sorted(run, items, call->arg[2], jinja_arg_bool(call, 1, false), direction);
    struct jinja_value made = new_list(run, items.n);
    for (size_t i = 0; at && i < items.n; i++)
        jinja_list_add(run, made.list, at[i].value);
    return made;
}

static struct jinja_value dictsort(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text by = jinja_arg_text(run, call, 1, "key");
    if (run->code || call->self.kind != JINJA_DICT)
        return jinja_fail(run, -EINVAL, "dictsort: %s is no dict", jinja_kind_name(call->self));
    struct jinja_value pairs = jinja_find_dict_method(jinja_word("items").text)->run(run, call);
    struct jinja_value which = jinja_int(jinja_is_word(by, "value"));
    int direction = jinja_arg_bool(call, 2, false) ? -1 : 1;
    if (run->code)
        return pairs;
    struct jinja_pair *at = sorted(run, *pairs.list, which, jinja_arg_bool(call, 0, false), direction);
    for (size_t i = 0; at && i < pairs.list->n; i++)
        pairs.list->at[i] = at[i].value;
    return pairs;
}

static struct jinja_value extreme(struct jinja_run *run, const struct jinja_call *call, int direction)
{
    struct jinja_list items = items_of(run, call->self);
    bool with_case = jinja_arg_bool(call, 0, false);
    struct jinja_value best = jinja_undefined(jinja_word("the most of nothing").text), best_key = best;
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++) {
        struct jinja_value key = sort_key(run, items.at[i], call->arg[1], with_case);
        if (i > 0 && direction * jinja_order(run, key, best_key) <= 0)
            continue;
        best = items.at[i];
        best_key = key;
    }
    return best;
}

static struct jinja_value max(struct jinja_run *run, const struct jinja_call *call)
{
    return extreme(run, call, 1);
}

static struct jinja_value min(struct jinja_run *run, const struct jinja_call *call)
{
    return extreme(run, call, -1);
}

static struct jinja_value unique(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    bool with_case = jinja_arg_bool(call, 0, false);
    struct jinja_value made = new_list(run, 0), keys = new_list(run, 0);
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++) {
        struct jinja_value key = sort_key(run, items.at[i], call->arg[1], with_case);
        if (run->code || jinja_contains(run, keys, key))
            continue;
        jinja_list_add(run, keys.list, key);
        jinja_list_add(run, made.list, items.at[i]);
    }
    return made;
}

/* --- groups --- */

/* Tuples of key and items; templates may also say .grouper and .list, which are not known. */
static struct jinja_value groupby(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    struct jinja_value groups = new_list(run, 0), group = groups;
    struct jinja_pair *at = sorted(run, items, call->arg[0], false, 1);
    for (size_t i = 0; at && i < items.n && jinja_step(run, 1); i++) {
        if (i == 0 || !jinja_equal(run, at[i - 1].key, at[i].key)) {
            group = new_list(run, 0);
            struct jinja_value key = follow(run, at[i].value, call->arg[0]);
            jinja_list_add(run, groups.list, jinja_pair_new(run, key, group));
        }
        if (!run->code)
            jinja_list_add(run, group.list, at[i].value);
    }
    return groups;
}

static struct jinja_value batch(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list items = items_of(run, call->self);
    int64_t n = jinja_arg_int(run, call, 0, 1);
    struct jinja_value rows = new_list(run, 0), row = rows;
    bool fills = call->arg[1].kind != JINJA_ABSENT && call->arg[1].kind != JINJA_NONE;
    if (n < 1 || n > JINJA_RANGE_MAX)
        return jinja_fail(run, -EINVAL, "batch: rows of 1 to %d", JINJA_RANGE_MAX);
    for (size_t i = 0; i < items.n && jinja_step(run, 1); i++) {
        if (i % (size_t)n == 0) {
            row = new_list(run, 0);
            jinja_list_add(run, rows.list, row);
        }
        if (!run->code)
            jinja_list_add(run, row.list, items.at[i]);
    }
    while (fills && items.n && jinja_step(run, 1) && (int64_t)row.list->n < n)
        jinja_list_add(run, row.list, call->arg[1]);
    return rows;
}

const struct jinja_builtin *jinja_find_list_filter(struct jinja_text name)
{
    static const struct jinja_builtin filters[] = {
        {"select", "*", 0, select_some},
        {"reject", "*", 0, reject},
        {"selectattr", "*", 0, selectattr},
        {"rejectattr", "*", 0, rejectattr},
        {"map", "*", 0, map},
        {"first", "", 0, first},
        {"last", "", 0, last},
        {"join", "d attribute", 0, join},
        {"list", "", 0, list},
        {"reverse", "", 0, reverse},
        {"sum", "attribute start", 0, sum},
        {"sort", "reverse case_sensitive attribute", 0, sort},
        {"dictsort", "case_sensitive by reverse", 0, dictsort},
        {"max", "case_sensitive attribute", 0, max},
        {"min", "case_sensitive attribute", 0, min},
        {"unique", "case_sensitive attribute", 0, unique},
        {"groupby", "attribute", 1, groupby},
        {"batch", "linecount fill_with", 1, batch},
        {.name = NULL},
    };
    return jinja_find_in(filters, name);
}
