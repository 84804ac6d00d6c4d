/* SPDX-License-Identifier: MIT
 *
 * Values as Python prints them: str and repr. Owns nothing; called by the interpreter, on its
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_run.h"
#include "text/utf8.h"

static void append(struct textbuf *buf, const char *s)
{
    textbuf_append(buf, s, strlen(s));
}

/* The shortest digits that give x again, in Python's layout. */
void jinja_append_float(struct textbuf *buf, double x)
{
    char text[40], digits[40];
    if (!isfinite(x)) {
        append(buf, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, x);
    while (strtod(text, NULL) != x && ++precision < 17);
    char *e = strchr(text, 'e');
    int exponent = atoi(e + 1);
    if (exponent >= -4 && exponent < 16) {
        int after = precision - exponent;
        snprintf(digits, sizeof digits, "%.*f", after > 1 ? after : 1, x);
        append(buf, digits);
        return;
    }
    textbuf_append(buf, text, (size_t)(e - text));
    snprintf(digits, sizeof digits, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    append(buf, digits);
}

static bool is_printable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
    }
}

static void repr_char(struct textbuf *buf, const char *s, struct utf8_char c, char quote)
{
    char escape[16];
    const char *named = c.cp == '\n' ? "\\n" : c.cp == '\r' ? "\\r" : c.cp == '\t' ? "\\t" : NULL;
    if (named)
        append(buf, named);
    else if (c.cp == (uint32_t)quote || c.cp == '\\') {
        append(buf, "\\");
        textbuf_append(buf, s, 1);
    } else if (is_printable(c.cp)) {
        textbuf_append(buf, s, c.len);
    } else {
        snprintf(escape, sizeof escape,
                 c.cp < 0x100     ? "\\x%02x"
                 : c.cp < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 c.cp);
        append(buf, escape);
    }
}

static void repr_text(struct textbuf *buf, struct jinja_text t)
{
    char quote = memchr(t.s, '\'', t.n) && !memchr(t.s, '"', t.n) ? '"' : '\'';
    textbuf_append(buf, &quote, 1);
    for (size_t at = 0; at < t.n;) {
        struct utf8_char c = utf8_next(t.s + at, t.n - at);
        repr_char(buf, t.s + at, c, quote);
        at += c.len;
    }
    textbuf_append(buf, &quote, 1);
}

static void repr_list(struct jinja_run *run, struct textbuf *buf, struct jinja_value v)
{
    bool is_tuple = v.kind == JINJA_TUPLE;
    append(buf, is_tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->n && jinja_step(run, 1); i++) {
        append(buf, i ? ", " : "");
        jinja_append_repr(run, buf, v.list->at[i]);
    }
    append(buf, is_tuple && v.list->n == 1 ? ",)" : is_tuple ? ")" : "]");
}

static void repr_dict(struct jinja_run *run, struct textbuf *buf, const struct jinja_dict *dict)
{
    append(buf, "{");
    for (size_t i = 0; i < dict->n && jinja_step(run, 1); i++) {
        append(buf, i ? ", " : "");
        jinja_append_repr(run, buf, dict->at[i].key);
        append(buf, ": ");
        jinja_append_repr(run, buf, dict->at[i].value);
    }
    append(buf, "}");
}

static void repr(struct jinja_run *run, struct textbuf *buf, struct jinja_value v)
{
    char digits[32];
    switch (v.kind) {
    case JINJA_UNDEFINED: append(buf, "Undefined"); break;
    case JINJA_NONE: append(buf, "None"); break;
    case JINJA_BOOL: append(buf, v.truth ? "True" : "False"); break;
    case JINJA_INT:
        snprintf(digits, sizeof digits, "%" PRId64, v.integer);
        append(buf, digits);
        break;
    case JINJA_FLOAT: jinja_append_float(buf, v.real); break;
    case JINJA_TEXT: repr_text(buf, v.text); break;
    case JINJA_LIST:
    case JINJA_TUPLE: repr_list(run, buf, v); break;
    case JINJA_DICT: repr_dict(run, buf, v.dict); break;
    default: jinja_fail(run, -ENOTSUP, "%s cannot be printed", jinja_kind_name(v));
    }
}

/* A failed run still builds what it was building: a value that grows from itself must stop
 * growing. */
void jinja_append_repr(struct jinja_run *run, struct textbuf *buf, struct jinja_value v)
{
    if (buf->len > JINJA_OUTPUT_MAX) {
        jinja_fail(run, -EFBIG, "a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
    } else if (jinja_step(run, 1) && jinja_enter(run)) {
        repr(run, buf, v);
        jinja_leave(run);
    }
}

void jinja_append_str(struct jinja_run *run, struct textbuf *buf, struct jinja_value v)
{
    if (v.kind == JINJA_TEXT)
        textbuf_append(buf, v.text.s, v.text.n);
    else if (v.kind != JINJA_UNDEFINED)
        jinja_append_repr(run, buf, v);
}

struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value v)
{
    if (v.kind == JINJA_TEXT)
        return v;
    struct textbuf buf = {0};
    jinja_append_str(run, &buf, v);
    return jinja_take_text(run, &buf);
}
