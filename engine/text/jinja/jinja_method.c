/* SPDX-License-Identifier: MIT
 *
 * Methods of texts, dicts and lists, as Python's. Those that change something are not among them.
 * Owns nothing; called by the interpreter, on its thread. */
#include <errno.h>
#include <string.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"
#include "text/utf8.h"

/* --- cutting --- */

enum { LEFT = 1, RIGHT = 2 };

static struct jinja_value strip_sides(struct jinja_run *run, const struct jinja_call *call, unsigned sides)
{
    struct jinja_text t = jinja_self_text(run, call);
    bool is_space = call->arg[0].kind == JINJA_ABSENT || call->arg[0].kind == JINJA_NONE;
    struct jinja_text set = is_space ? (struct jinja_text){"", 0} : jinja_arg_text(run, call, 0, NULL);
    jinja_step(run, t.n / 64 * (1 + set.n));
    if (sides & LEFT) {
        size_t n = is_space ? pytext_lspace(t.s, t.n) : pytext_lset(t.s, t.n, set.s, set.n);
        t.s += n;
        t.n -= n;
    }
    if (sides & RIGHT)
        t.n = is_space ? pytext_rspace(t.s, t.n) : pytext_rset(t.s, t.n, set.s, set.n);
    return jinja_text(t.s, t.n);
}

static struct jinja_value strip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip_sides(run, call, LEFT | RIGHT);
}

static struct jinja_value lstrip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip_sides(run, call, LEFT);
}

static struct jinja_value rstrip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip_sides(run, call, RIGHT);
}

static bool has_prefix(struct jinja_text t, struct jinja_text p)
{
    return p.n <= t.n && !memcmp(t.s, p.s, p.n);
}

static bool has_suffix(struct jinja_text t, struct jinja_text p)
{
    return p.n <= t.n && !memcmp(t.s + t.n - p.n, p.s, p.n);
}

/* One text, or a tuple of which any will do. */
static struct jinja_value has_end(struct jinja_run *run, const struct jinja_call *call,
                                  bool (*has)(struct jinja_text t, struct jinja_text p))
{
    struct jinja_text t = jinja_self_text(run, call);
    if (call->arg[0].kind != JINJA_TUPLE)
        return jinja_bool(has(t, jinja_arg_text(run, call, 0, NULL)));
    const struct jinja_list *any = call->arg[0].list;
    for (size_t i = 0; i < any->n && jinja_step(run, 1); i++)
        if (any->at[i].kind == JINJA_TEXT && has(t, any->at[i].text))
            return jinja_bool(true);
    return jinja_bool(false);
}

static struct jinja_value startswith(struct jinja_run *run, const struct jinja_call *call)
{
    return has_end(run, call, has_prefix);
}

static struct jinja_value endswith(struct jinja_run *run, const struct jinja_call *call)
{
    return has_end(run, call, has_suffix);
}

static struct jinja_value removeprefix(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), p = jinja_arg_text(run, call, 0, NULL);
    return has_prefix(t, p) ? jinja_text(t.s + p.n, t.n - p.n) : call->self;
}

static struct jinja_value removesuffix(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), p = jinja_arg_text(run, call, 0, NULL);
    return has_suffix(t, p) ? jinja_text(t.s, t.n - p.n) : call->self;
}

/* --- splitting --- */

static void split_at(struct jinja_run *run, struct jinja_list *parts, struct jinja_text t,
                     struct jinja_text sep, int64_t most)
{
    size_t from = 0;
    for (size_t at;
         most-- != 0 && (at = pytext_find(t.s, t.n, from, sep.s, sep.n)) <= t.n && jinja_step(run, 1);
         from = at + sep.n)
        jinja_list_add(run, parts, jinja_text(t.s + from, at - from));
    jinja_list_add(run, parts, jinja_text(t.s + from, t.n - from));
}

static void split_space(struct jinja_run *run, struct jinja_list *parts, struct jinja_text t, int64_t most)
{
    size_t at = pytext_lspace(t.s, t.n);
    while (at < t.n && jinja_step(run, 1)) {
        size_t end = at;
        if (most-- == 0) {
            jinja_list_add(run, parts, jinja_text(t.s + at, t.n - at)); /* with the blanks at its end */
            return;
        }
        for (struct utf8_char c; end < t.n; end += c.len) {
            c = utf8_next(t.s + end, t.n - end);
            if (pytext_is_space(c.cp))
                break;
        }
        jinja_list_add(run, parts, jinja_text(t.s + at, end - at));
        at = end + pytext_lspace(t.s + end, t.n - end);
    }
}

static struct jinja_text separator(struct jinja_run *run, const struct jinja_call *call)
{
    if (call->arg[0].kind == JINJA_ABSENT || call->arg[0].kind == JINJA_NONE)
        return (struct jinja_text){NULL, 0};
    struct jinja_text sep = jinja_arg_text(run, call, 0, NULL);
    if (!sep.n)
        jinja_fail(run, -EINVAL, "%s: the separator is empty", call->name);
    return sep;
}

static struct jinja_value split(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), sep = separator(run, call);
    struct jinja_value parts = jinja_list_new(run, JINJA_LIST, 0);
    int64_t most = jinja_arg_int(run, call, 1, -1);
    jinja_step(run, t.n / 64);
    if (run->code)
        return parts;
    if (sep.s)
        split_at(run, parts.list, t, sep, most);
    else
        split_space(run, parts.list, t, most);
    return parts;
}

/* Where it is last found, or n + 1. Places that begin and end like it cost steps: there may be many
 * of them, and each is compared. */
static size_t find_last(struct jinja_run *run, struct jinja_text t, struct jinja_text what)
{
    if (!what.n)
        return t.n;
    for (size_t end = t.n; end >= what.n; end--) {
        const char *at = t.s + end - what.n;
        if (*at != *what.s || t.s[end - 1] != what.s[what.n - 1])
            continue;
        if (!jinja_step(run, 1 + what.n / 64))
            break;
        if (!memcmp(at, what.s, what.n))
            return end - what.n;
    }
    return t.n + 1;
}

/* The last part of t, which is cut to what is left of it: false when that was all of it. */
static bool cut_last(struct jinja_run *run, struct jinja_text *t, struct jinja_text sep, bool is_last,
                     struct jinja_text *ret)
{
    size_t at = is_last ? t->n + 1 : find_last(run, *t, sep);
    if (at > t->n) {
        *ret = *t;
        return false;
    }
    *ret = (struct jinja_text){t->s + at + sep.n, t->n - at - sep.n};
    t->n = at;
    return true;
}

/* The same for words; the last part keeps the blanks it begins with. */
static bool cut_last_word(struct jinja_text *t, bool is_last, struct jinja_text *ret)
{
    size_t start = t->n;
    while (start > 0) {
        size_t last = utf8_last(t->s, start);
        if (!is_last && pytext_is_space(utf8_next(t->s + last, start - last).cp))
            break;
        start = last;
    }
    *ret = (struct jinja_text){t->s + start, t->n - start};
    t->n = pytext_rspace(t->s, start);
    return t->n > 0;
}

static struct jinja_value rsplit(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), sep = separator(run, call), part;
    struct jinja_value reversed = jinja_list_new(run, JINJA_LIST, 0),
                       parts = jinja_list_new(run, JINJA_LIST, 0);
    int64_t most = jinja_arg_int(run, call, 1, -1);
    jinja_step(run, t.n / 8);
    if (!sep.s)
        t.n = pytext_rspace(t.s, t.n);
    for (bool more = !run->code && (sep.s || t.n > 0); more && jinja_step(run, 1);) {
        bool is_last = most-- == 0;
        more = sep.s ? cut_last(run, &t, sep, is_last, &part) : cut_last_word(&t, is_last, &part);
        jinja_list_add(run, reversed.list, jinja_text(part.s, part.n));
    }
    for (size_t i = run->code ? 0 : reversed.list->n; i > 0; i--)
        jinja_list_add(run, parts.list, reversed.list->at[i - 1]);
    return parts;
}

static struct jinja_value splitlines(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call);
    struct jinja_value parts = jinja_list_new(run, JINJA_LIST, 0);
    bool keep = jinja_arg_bool(call, 0, false);
    for (size_t at = 0, whole; at < t.n && jinja_step(run, 1); at += whole) {
        size_t n = pytext_line(t.s + at, t.n - at, &whole);
        jinja_list_add(run, parts.list, jinja_text(t.s + at, keep ? whole : n));
    }
    return parts;
}

static struct jinja_value three(struct jinja_run *run, struct jinja_text t, size_t at, size_t nsep)
{
    struct jinja_value parts = jinja_list_new(run, JINJA_TUPLE, 3);
    if (run->code)
        return parts;
    jinja_list_add(run, parts.list, jinja_text(t.s, at));
    jinja_list_add(run, parts.list, jinja_text(t.s + at, nsep));
    jinja_list_add(run, parts.list, jinja_text(t.s + at + nsep, t.n - at - nsep));
    return parts;
}

static struct jinja_value partition(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), sep = separator(run, call);
    size_t at = sep.n ? pytext_find(t.s, t.n, 0, sep.s, sep.n) : t.n + 1;
    return at <= t.n ? three(run, t, at, sep.n) : three(run, t, t.n, 0);
}

static struct jinja_value rpartition(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), sep = separator(run, call);
    size_t at = sep.n ? find_last(run, t, sep) : t.n + 1;
    jinja_step(run, t.n / 8);
    return at <= t.n ? three(run, t, at, sep.n) : three(run, t, 0, 0);
}

/* --- finding --- */

static struct jinja_value found_at(struct jinja_text t, size_t at)
{
    return jinja_int(at <= t.n ? (int64_t)pytext_length(t.s, at) : -1);
}

static struct jinja_value find(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), what = jinja_arg_text(run, call, 0, NULL);
    int64_t from = jinja_arg_int(run, call, 1, 0), n = (int64_t)pytext_length(t.s, t.n);
    jinja_step(run, t.n / 64);
    from = from < -n ? 0 : from < 0 ? from + n : from;
    if (from > n)
        return jinja_int(-1);
    return found_at(t, pytext_find(t.s, t.n, pytext_offset(t.s, t.n, (size_t)from), what.s, what.n));
}

static struct jinja_value rfind(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), what = jinja_arg_text(run, call, 0, NULL);
    jinja_step(run, t.n / 8);
    return found_at(t, find_last(run, t, what));
}

static struct jinja_value index_of(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value at = find(run, call);
    return run->code || at.integer >= 0 ? at : jinja_fail(run, -EINVAL, "index: the text is not in there");
}

static struct jinja_value count(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), what = jinja_arg_text(run, call, 0, NULL);
    int64_t n = 0;
    if (!what.n)
        return jinja_int((int64_t)pytext_length(t.s, t.n) + 1);
    jinja_step(run, t.n / 64);
    for (size_t at = 0; (at = pytext_find(t.s, t.n, at, what.s, what.n)) <= t.n; at += what.n)
        n++;
    return jinja_int(n);
}

static struct jinja_value replace(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call), old = jinja_arg_text(run, call, 0, NULL),
                      new = jinja_arg_text(run, call, 1, NULL);
    bool all = call->arg[2].kind == JINJA_NONE;
    int64_t most = all ? -1 : jinja_arg_int(run, call, 2, -1);
    struct textbuf buf = {0};
    size_t from = 0;
    for (size_t at; most-- != 0 && (at = pytext_find(t.s, t.n, from, old.s, old.n)) <= t.n;) {
        size_t kept = old.n || at == t.n ? 0 : utf8_next(t.s + at, t.n - at).len; /* between all characters */
        if (!jinja_step(run, 1 + new.n / 64) || buf.len > JINJA_OUTPUT_MAX)
            break;
        textbuf_append(&buf, t.s + from, at - from);
        textbuf_append(&buf, new.s, new.n);
        textbuf_append(&buf, t.s + at, kept);
        from = at + old.n + kept;
        if (!old.n && !kept)
            break;
    }
    if (buf.len > JINJA_OUTPUT_MAX)
        jinja_fail(run, -EFBIG, "a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
    textbuf_append(&buf, t.s + from, t.n - from);
    return jinja_take_text(run, &buf);
}

/* --- case, classes, padding --- */

static struct jinja_value with_case(struct jinja_run *run, const struct jinja_call *call, enum pytext_case to)
{
    struct jinja_text t = jinja_self_text(run, call);
    struct textbuf buf = {0};
    jinja_step(run, t.n / 8);
    pytext_append_case(&buf, t.s, t.n, to);
    return jinja_take_text(run, &buf);
}

#define WITH_CASE(name, to)                                                                                  \
    static struct jinja_value name(struct jinja_run *run, const struct jinja_call *call)                     \
    {                                                                                                        \
        return with_case(run, call, to);                                                                     \
    }
WITH_CASE(upper, PYTEXT_UPPER)
WITH_CASE(lower, PYTEXT_LOWER)
WITH_CASE(title, PYTEXT_TITLE)
WITH_CASE(capitalize, PYTEXT_CAPITALIZE)
WITH_CASE(swapcase, PYTEXT_SWAP)

#define IS_CLASS(name, what)                                                                                 \
    static struct jinja_value name(struct jinja_run *run, const struct jinja_call *call)                     \
    {                                                                                                        \
        struct jinja_text t = jinja_self_text(run, call);                                                    \
        jinja_step(run, t.n / 8);                                                                            \
        return jinja_bool(pytext_is(t.s, t.n, what));                                                        \
    }
IS_CLASS(is_alpha, PYTEXT_ALPHA)
IS_CLASS(is_digit, PYTEXT_DIGIT)
IS_CLASS(is_alnum, PYTEXT_ALNUM)
IS_CLASS(is_space, PYTEXT_SPACE)
IS_CLASS(is_upper, PYTEXT_IS_UPPER)
IS_CLASS(is_lower, PYTEXT_IS_LOWER)

static struct jinja_value pad(struct jinja_run *run, const struct jinja_call *call, unsigned sides)
{
    struct jinja_text t = jinja_self_text(run, call), fill = jinja_arg_text(run, call, 1, " ");
    int64_t width = jinja_arg_int(run, call, 0, 0), n = (int64_t)pytext_length(t.s, t.n);
    if (width > JINJA_RANGE_MAX)
        jinja_fail(run, -EFBIG, "%s: a width of more than %d", call->name, JINJA_RANGE_MAX);
    if (pytext_length(fill.s, fill.n) != 1)
        jinja_fail(run, -EINVAL, "%s: the fill must be one character", call->name);
    int64_t room = run->code || width < n ? 0 : width - n;
    /* Python's center leans to the left where the width is even. */
    int64_t left = sides == LEFT ? room : sides == RIGHT ? 0 : room / 2 + (room & width & 1);
    struct textbuf buf = {0};
    for (int64_t i = 0; i < left; i++)
        textbuf_append(&buf, fill.s, fill.n);
    textbuf_append(&buf, t.s, t.n);
    for (int64_t i = left; i < room; i++)
        textbuf_append(&buf, fill.s, fill.n);
    return jinja_take_text(run, &buf);
}

static struct jinja_value ljust(struct jinja_run *run, const struct jinja_call *call)
{
    return pad(run, call, RIGHT);
}

static struct jinja_value rjust(struct jinja_run *run, const struct jinja_call *call)
{
    return pad(run, call, LEFT);
}

static struct jinja_value center(struct jinja_run *run, const struct jinja_call *call)
{
    return pad(run, call, LEFT | RIGHT);
}

static struct jinja_value join(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_list *items = jinja_items(run, call->arg[0]);
    struct jinja_text sep = jinja_self_text(run, call);
    struct textbuf buf = {0};
    for (size_t i = 0; !run->code && i < items->n && jinja_step(run, 1 + sep.n / 64); i++) {
        if (items->at[i].kind != JINJA_TEXT)
            jinja_fail(run, -EINVAL, "join: item %zu is %s, not a text", i, jinja_kind_name(items->at[i]));
        else if (buf.len > JINJA_OUTPUT_MAX)
            jinja_fail(run, -EFBIG, "join: a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
        else
            textbuf_append(&buf, sep.s, i ? sep.n : 0);
        jinja_append_str(run, &buf, items->at[i]);
    }
    return jinja_take_text(run, &buf);
}

const struct jinja_builtin *jinja_find_text_method(struct jinja_text name)
{
    static const struct jinja_builtin methods[] = {
        {"strip", "chars", 0, strip},
        {"lstrip", "chars", 0, lstrip},
        {"rstrip", "chars", 0, rstrip},
        {"startswith", "prefix", 1, startswith},
        {"endswith", "suffix", 1, endswith},
        {"removeprefix", "prefix", 1, removeprefix},
        {"removesuffix", "suffix", 1, removesuffix},
        {"split", "sep maxsplit", 0, split},
        {"rsplit", "sep maxsplit", 0, rsplit},
        {"splitlines", "keepends", 0, splitlines},
        {"partition", "sep", 1, partition},
        {"rpartition", "sep", 1, rpartition},
        {"find", "sub start", 1, find},
        {"rfind", "sub", 1, rfind},
        {"index", "sub start", 1, index_of},
        {"count", "sub", 1, count},
        {"replace", "old new count", 2, replace},
        {"upper", "", 0, upper},
        {"lower", "", 0, lower},
        {"title", "", 0, title},
        {"capitalize", "", 0, capitalize},
        {"swapcase", "", 0, swapcase},
        {"isalpha", "", 0, is_alpha},
        {"isdigit", "", 0, is_digit},
        {"isdecimal", "", 0, is_digit},
        {"isnumeric", "", 0, is_digit},
        {"isalnum", "", 0, is_alnum},
        {"isspace", "", 0, is_space},
        {"isupper", "", 0, is_upper},
        {"islower", "", 0, is_lower},
        {"ljust", "width fillchar", 1, ljust},
        {"rjust", "width fillchar", 1, rjust},
        {"center", "width fillchar", 1, center},
        {"join", "iterable", 1, join},
        {.name = NULL},
    };
    return jinja_find_in(methods, name);
}

/* --- dicts --- */

static struct jinja_value get(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_value *found = jinja_dict_find(run, call->self.dict, call->arg[0]);
    return found ? *found : call->arg[1].kind == JINJA_ABSENT ? jinja_none() : call->arg[1];
}

enum { KEYS = 1, VALUES = 2 };

static struct jinja_value parts_of(struct jinja_run *run, const struct jinja_call *call, unsigned which)
{
    const struct jinja_dict *dict = call->self.dict;
    struct jinja_value list = jinja_list_new(run, JINJA_LIST, dict->n);
    for (size_t i = 0; i < dict->n && jinja_step(run, 1); i++)
        jinja_list_add(run, list.list,
                       which == KEYS     ? dict->at[i].key
                       : which == VALUES ? dict->at[i].value
                                         : jinja_pair_new(run, dict->at[i].key, dict->at[i].value));
    return list;
}

static struct jinja_value items(struct jinja_run *run, const struct jinja_call *call)
{
    return parts_of(run, call, KEYS | VALUES);
}

static struct jinja_value keys(struct jinja_run *run, const struct jinja_call *call)
{
    return parts_of(run, call, KEYS);
}

static struct jinja_value values(struct jinja_run *run, const struct jinja_call *call)
{
    return parts_of(run, call, VALUES);
}

static struct jinja_value copy(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return call->self; /* which nothing changes */
}

const struct jinja_builtin *jinja_find_dict_method(struct jinja_text name)
{
    static const struct jinja_builtin methods[] = {
        {"get", "key default", 1, get}, {"items", "", 0, items}, {"keys", "", 0, keys},
        {"values", "", 0, values},      {"copy", "", 0, copy},   {.name = NULL},
    };
    return jinja_find_in(methods, name);
}

/* --- lists --- */

static struct jinja_value list_index(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_list *list = call->self.list;
    for (size_t i = 0; i < list->n && jinja_step(run, 1); i++)
        if (jinja_equal(run, list->at[i], call->arg[0]))
            return jinja_int((int64_t)i);
    return jinja_fail(run, -EINVAL, "index: that is not in the list");
}

static struct jinja_value list_count(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_list *list = call->self.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n && jinja_step(run, 1); i++)
        n += jinja_equal(run, list->at[i], call->arg[0]);
    return jinja_int(n);
}

const struct jinja_builtin *jinja_find_list_method(struct jinja_text name)
{
    static const struct jinja_builtin methods[] = {{"index", "value", 1, list_index},
                                                   {"count", "value", 1, list_count},
                                                   {"copy", "", 0, copy},
                                                   {.name = NULL}};
    return jinja_find_in(methods, name);
}
