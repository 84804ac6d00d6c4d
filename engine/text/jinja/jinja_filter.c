/* SPDX-License-Identifier: MIT
 *
 * Filters of single values: text, numbers, JSON. Those that look into lists are in jinja_list.c.
 * Owns nothing; called by the interpreter, on its thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_json.h"
#include "text/jinja/jinja_run.h"
#include "text/pytext.h"
#include "text/utf8.h"

/* A filter that does what the method of a text does to str() of the value. */
static struct jinja_value as_method(struct jinja_run *run, const struct jinja_call *call, const char *method)
{
    struct jinja_call of = *call;
    of.self = jinja_str(run, call->self);
    return run->code ? of.self : jinja_find_text_method(jinja_word(method).text)->run(run, &of);
}

#define LIKE_METHOD(name, method)                                                                            \
    static struct jinja_value name(struct jinja_run *run, const struct jinja_call *call)                     \
    {                                                                                                        \
        return as_method(run, call, method);                                                                 \
    }
LIKE_METHOD(trim, "strip")
LIKE_METHOD(upper, "upper")
LIKE_METHOD(lower, "lower")
LIKE_METHOD(capitalize, "capitalize")

static struct jinja_value replace(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_call of = *call;
    of.arg[0] = jinja_str(run, call->arg[0]);
    of.arg[1] = jinja_str(run, call->arg[1]);
    return as_method(run, &of, "replace");
}

static struct jinja_value center(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_call of = *call;
    if (call->arg[0].kind == JINJA_ABSENT)
        of.arg[0] = jinja_int(80);
    return as_method(run, &of, "center");
}

/* Jinja's, other than Python's: words begin after blanks, hyphens and opening brackets only. */
static struct jinja_value title(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call);
    struct textbuf buf = {0};
    bool starts = true;
    for (size_t at = 0; at < t.n && jinja_step(run, 1);) {
        struct utf8_char c = utf8_next(t.s + at, t.n - at);
        pytext_append_case(&buf, t.s + at, c.len, starts ? PYTEXT_UPPER : PYTEXT_LOWER);
        starts = pytext_is_space(c.cp) || (c.cp < 0x80 && strchr("-({[<", (int)c.cp));
        at += c.len;
    }
    return jinja_take_text(run, &buf);
}

static struct jinja_value wordcount(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text t = jinja_self_text(run, call);
    int64_t n = 0;
    bool in_word = false;
    for (size_t at = 0; at < t.n && jinja_step(run, 1);) {
        struct utf8_char c = utf8_next(t.s + at, t.n - at);
        bool is_word = utf8_is_word(c.cp) && c.cp != 0x200C && c.cp != 0x200D;
        n += is_word && !in_word;
        in_word = is_word;
        at += c.len;
    }
    return jinja_int(n);
}

static struct jinja_value indent(struct jinja_run *run, const struct jinja_call *call)
{
    static const char spaces[] = "                                ";
    struct jinja_text t = jinja_self_text(run, call), by;
    bool first = jinja_arg_bool(call, 1, false), blank = jinja_arg_bool(call, 2, false);
    struct textbuf buf = {0};
    if (call->arg[0].kind == JINJA_TEXT) {
        by = call->arg[0].text;
    } else {
        int64_t width = jinja_arg_int(run, call, 0, 4);
        if (width > (int64_t)sizeof spaces - 1)
            jinja_fail(run, -ERANGE, "indent: more than %zu spaces", sizeof spaces - 1);
        by = (struct jinja_text){spaces, width > 0 && !run->code ? (size_t)width : 0};
    }
    bool is_first = true;
    for (size_t at = 0, whole; at < t.n && jinja_step(run, 1 + by.n / 64); at += whole, is_first = false) {
        size_t n = pytext_line(t.s + at, t.n - at, &whole);
        if (buf.len > JINJA_OUTPUT_MAX)
            jinja_fail(run, -EFBIG, "indent: a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
        textbuf_append(&buf, "\n", !is_first);
        if (is_first ? first : blank || n > 0)
            textbuf_append(&buf, by.s, by.n);
        textbuf_append(&buf, t.s + at, n);
        /* A newline at the end is one more line, and an empty one. */
        if (at + whole == t.n && whole > n) {
            textbuf_append(&buf, "\n", 1);
            textbuf_append(&buf, by.s, blank ? by.n : 0);
        }
    }
    if (!t.n && first)
        textbuf_append(&buf, by.s, by.n);
    return jinja_take_text(run, &buf);
}

static struct jinja_value format(struct jinja_run *run, const struct jinja_call *call)
{
    if (call->all->nkeys)
        return jinja_fail(run, -ENOTSUP, "format: values by name are not known");
    return jinja_format_text(run, jinja_self_text(run, call), call->all->at, call->all->n);
}

/* --- any value --- */

static struct jinja_value defaults(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    bool is_missing =
        call->self.kind == JINJA_UNDEFINED || (jinja_arg_bool(call, 1, false) && !jinja_truth(call->self));
    return !is_missing ? call->self : call->arg[0].kind == JINJA_ABSENT ? jinja_text("", 0) : call->arg[0];
}

static struct jinja_value length(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_int((int64_t)jinja_length(run, call->self));
}

static struct jinja_value string(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_str(run, call->self);
}

static struct jinja_value safe(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_str(run, call->self); /* nothing is escaped, so there is nothing to be kept from it */
}

static struct jinja_value attr(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text name = jinja_arg_text(run, call, 0, NULL);
    if (run->code || call->self.kind == JINJA_DICT) /* Jinja's attr sees no items */
        return jinja_undefined(name);
    return jinja_attribute(run, call->self, name);
}

static struct jinja_value items(struct jinja_run *run, const struct jinja_call *call)
{
    if (call->self.kind == JINJA_UNDEFINED)
        return jinja_list_new(run, JINJA_LIST, 0);
    if (call->self.kind != JINJA_DICT)
        return jinja_fail(run, -EINVAL, "items: %s has none", jinja_kind_name(call->self));
    return jinja_find_dict_method(jinja_word("items").text)->run(run, call);
}

/* --- numbers --- */

static struct jinja_value absolute(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value v = call->self;
    if (!jinja_is_number(v))
        return jinja_fail(run, -EINVAL, "abs: %s is no number", jinja_kind_name(v));
    if (v.kind == JINJA_FLOAT)
        return jinja_float(fabs(v.real));
    return jinja_integer_of(v) < 0 ? jinja_binary(run, OP_SUB, jinja_int(0), v)
                                   : jinja_int(jinja_integer_of(v));
}

/* The text of a number without blanks around it and underscores in it, as Python's int and float
 * read it. */
static bool number_text(struct jinja_value v, char *text, size_t room)
{
    size_t blanks = v.kind == JINJA_TEXT ? pytext_lspace(v.text.s, v.text.n) : 0, len = 0;
    if (v.kind != JINJA_TEXT)
        return false;
    const char *s = v.text.s + blanks;
    size_t n = pytext_rspace(s, v.text.n - blanks);
    for (size_t i = 0; i < n; i++) {
        bool is_between = i > 0 && i + 1 < n && s[i - 1] != '_' && s[i + 1] != '_';
        if (s[i] == '_' ? !is_between : len + 1 >= room || !s[i])
            return false;
        if (s[i] != '_')
            text[len++] = s[i];
    }
    text[len] = '\0';
    return len > 0;
}

static bool real_of(struct jinja_value v, double *ret)
{
    char text[128], *end;
    if (jinja_is_number(v)) {
        *ret = jinja_real_of(v);
        return true;
    }
    if (!number_text(v, text, sizeof text) || strpbrk(text, "xXpP("))
        return false;
    *ret = strtod(text, &end);
    return !*end;
}

/* What is undefined has no number, not even the default. */
static bool is_given(struct jinja_run *run, const struct jinja_call *call)
{
    if (call->self.kind == JINJA_UNDEFINED)
        jinja_fail(run, -EINVAL, "%s: \"%.*s\" is undefined", call->name, (int)call->self.text.n,
                   call->self.text.s);
    return call->self.kind != JINJA_UNDEFINED;
}

static struct jinja_value to_int(struct jinja_run *run, const struct jinja_call *call)
{
    char text[128], *end;
    double x;
    int64_t base = jinja_arg_int(run, call, 1, 10);
    struct jinja_value other = call->arg[0].kind == JINJA_ABSENT ? jinja_int(0) : call->arg[0];
    if (call->self.kind == JINJA_INT || call->self.kind == JINJA_BOOL)
        return jinja_int(jinja_integer_of(call->self));
    if (base < 2 || base > 36)
        return jinja_fail(run, -ENOTSUP, "int: numbers to the base of %lld are not known", (long long)base);
    errno = 0;
    if (number_text(call->self, text, sizeof text)) {
        long long n = strtoll(text, &end, (int)base);
        if (!*end && !errno)
            return jinja_int(n);
    }
    if (!is_given(run, call) || !real_of(call->self, &x) || !isfinite(x))
        return other;
    return fabs(x) < 9.2e18 ? jinja_int((int64_t)x) : jinja_fail(run, -ERANGE, "int: more than 64 bits");
}

static struct jinja_value to_float(struct jinja_run *run, const struct jinja_call *call)
{
    double x;
    if (is_given(run, call) && real_of(call->self, &x))
        return jinja_float(x);
    return call->arg[0].kind == JINJA_ABSENT ? jinja_float(0) : call->arg[0];
}

static struct jinja_value rounded(struct jinja_run *run, const struct jinja_call *call)
{
    int64_t precision = jinja_arg_int(run, call, 0, 0);
    struct jinja_text method = jinja_arg_text(run, call, 1, "common");
    char text[512];
    if (!jinja_is_number(call->self) || precision < 0 || precision > 100)
        return jinja_fail(run, -ENOTSUP, "round: only numbers, to 0 to 100 places");
    double x = jinja_real_of(call->self), scale = pow(10, (double)precision);
    if (jinja_is_word(method, "common") && call->self.kind != JINJA_FLOAT)
        return jinja_int(jinja_integer_of(call->self));
    if (jinja_is_word(method, "common")) { /* printf rounds what the number really is, halves to even */
        snprintf(text, sizeof text, "%.*f", (int)precision, x);
        return jinja_float(strtod(text, NULL));
    }
    if (jinja_is_word(method, "ceil"))
        return jinja_float(ceil(x * scale) / scale);
    if (jinja_is_word(method, "floor"))
        return jinja_float(floor(x * scale) / scale);
    return jinja_fail(run, -ENOTSUP, "round: the method \"%.*s\" is not known", (int)method.n, method.s);
}

const struct jinja_builtin *jinja_find_filter(struct jinja_text name)
{
    static const struct jinja_builtin filters[] = {
        {"tojson", "ensure_ascii indent separators sort_keys", 0, jinja_tojson},
        {"trim", "chars", 0, trim},
        {"upper", "", 0, upper},
        {"lower", "", 0, lower},
        {"capitalize", "", 0, capitalize},
        {"title", "", 0, title},
        {"replace", "old new count", 2, replace},
        {"center", "width", 0, center},
        {"wordcount", "", 0, wordcount},
        {"indent", "width first blank", 0, indent},
        {"format", "*", 0, format},
        {"default", "default_value boolean", 0, defaults},
        {"d", "default_value boolean", 0, defaults},
        {"length", "", 0, length},
        {"count", "", 0, length},
        {"string", "", 0, string},
        {"safe", "", 0, safe},
        {"attr", "name", 1, attr},
        {"items", "", 0, items},
        {"abs", "", 0, absolute},
        {"int", "default base", 0, to_int},
        {"float", "default", 0, to_float},
        {"round", "precision method", 0, rounded},
        {.name = NULL},
    };
    const struct jinja_builtin *found = jinja_find_in(filters, name);
    return found ? found : jinja_find_list_filter(name);
}
