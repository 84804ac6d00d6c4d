/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/call_marked.h"

#include <ctype.h>
#include <string.h>

#include "daemon/ringd/openai/call_head.h"
#include "daemon/ringd/openai/call_python.h"

/* What is left to read. */
struct marked_cursor {
    const char *at, *end;
    bool is_open; /* an argument goes on behind the end */
};

struct marked_span {
    const char *text;
    size_t n;
};

static void skip_space(struct marked_cursor *c)
{
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

static bool take(struct marked_cursor *c, const char *what)
{
    const size_t n = strlen(what);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, what, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* What stands before `end`, which is passed. */
static bool take_until(struct marked_cursor *c, const char *end, struct marked_span *ret)
{
    const char *to = memmem(c->at, (size_t)(c->end - c->at), end, strlen(end));
    if (!to)
        return false;
    *ret = (struct marked_span){c->at, (size_t)(to - c->at)};
    c->at = to + strlen(end);
    return true;
}

static struct marked_span trimmed(struct marked_span s)
{
    while (s.n && isspace((unsigned char)*s.text))
        s = (struct marked_span){s.text + 1, s.n - 1};
    while (s.n && isspace((unsigned char)s.text[s.n - 1]))
        s.n--;
    return s;
}

static bool is_name(struct marked_span s)
{
    return s.n && s.n <= CALL_NAME_MAX && !memchr(s.text, '<', s.n) && !memchr(s.text, '\n', s.n);
}

/* --- values ----------------------------------------------------------------------------------- */

const json_t *call_find_tool(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach (tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const char *own = json_string_value(json_object_get(function, "name"));
        if (own && !strcmp(own, name))
            return function;
    }
    return NULL;
}

/* "type" of an argument in the tool's schema, or NULL. */
static const json_t *type_of(const json_t *tools, const char *name, const char *key)
{
    const json_t *all = json_object_get(call_find_tool(tools, name), "parameters");
    return json_object_get(json_object_get(json_object_get(all, "properties"), key), "type");
}

enum value_kind { VALUE_ANY, VALUE_TEXT, VALUE_JSON };

static enum value_kind kind_of(const json_t *tools, const char *name, const char *key)
{
    const char *type = json_string_value(type_of(tools, name, key));
    return !type ? VALUE_ANY : !strcmp(type, "string") ? VALUE_TEXT : VALUE_JSON;
}

/* What reads as no JSON is text, whatever the tool wants: it will say so. */
static json_t *value_of(struct marked_span s, enum value_kind kind)
{
    const struct marked_span own = trimmed(s);
    json_t *json = kind == VALUE_TEXT ? NULL : json_loadb(own.text, own.n, JSON_DECODE_ANY, NULL);
    return json ? json : json_stringn(s.text, s.n);
}

/* --- tags ------------------------------------------------------------------------------------- */

/* An argument: open KEY key_end [then] VALUE close. */
struct tag_form {
    const char *open, *key_end, *then, *close;
    bool has_quotes; /* the key stands in quotes, and attributes may follow */
    bool has_lines;  /* the value stands in lines of its own */
};

static const struct tag_form *forms_of(enum call_style style)
{
    static const struct tag_form glm[] = {{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", 0, 0},
                                          {0}},
                                 function[] = {{"<parameter=", ">", "", "</parameter>", 0, 1}, {0}},
                                 invoke[] = {
                                     {"<parameter name=", ">", "", "</parameter>", 1, 0},
                                     {"<｜DSML｜parameter name=", ">", "", "</｜DSML｜parameter>", 1, 0},
                                     {0}};
    return style == CALL_GLM ? glm : style == CALL_FUNCTION ? function : invoke;
}

/* "name", name, or "name" attribute="…": the name. */
static struct marked_span without_quotes(struct marked_span s)
{
    s = trimmed(s);
    const char quote = s.n ? *s.text : 0;
    const char *end = quote == '"' || quote == '\'' ? memchr(s.text + 1, quote, s.n - 1) : NULL;
    return end ? (struct marked_span){s.text + 1, (size_t)(end - s.text - 1)} : s;
}

static struct marked_span without_lines(struct marked_span s)
{
    if (s.n && *s.text == '\n')
        s = (struct marked_span){s.text + 1, s.n - 1};
    if (s.n && s.text[s.n - 1] == '\n')
        s.n--;
    return s;
}

/* DeepSeek says of each value whether it is text. */
static enum value_kind said_kind(struct marked_span head, enum value_kind kind)
{
    if (memmem(head.text, head.n, "string=\"true\"", strlen("string=\"true\"")))
        return VALUE_TEXT;
    return memmem(head.text, head.n, "string=\"false\"", strlen("string=\"false\"")) ? VALUE_JSON : kind;
}

static bool read_argument(struct marked_cursor *c, const struct tag_form *f, const json_t *tools,
                          const char *name, json_t *into)
{
    struct marked_span head, value;
    char key[CALL_NAME_MAX + 1];
    if (!take_until(c, f->key_end, &head))
        return false;
    if (*f->then) /* else space belongs to the value */
        skip_space(c);
    const struct marked_span own = f->has_quotes ? without_quotes(head) : trimmed(head);
    if (!is_name(own) || !take(c, f->then))
        return false;
    if (!take_until(c, f->close, &value)) {
        c->is_open = true;
        return false;
    }
    memcpy(key, own.text, own.n);
    key[own.n] = '\0';
    value = f->has_lines ? without_lines(value) : value;
    const enum value_kind kind =
        said_kind(f->has_quotes ? head : (struct marked_span){"", 0}, kind_of(tools, name, key));
    return !json_object_set_new(into, key, value_of(value, kind));
}

/* Up to the first argument, or all of it. */
static bool read_name(struct marked_cursor *c, enum call_style style, char ret[CALL_NAME_MAX + 1])
{
    struct marked_span s;
    if (style == CALL_GLM) {
        const char *to = memchr(c->at, '<', (size_t)(c->end - c->at));
        s = (struct marked_span){c->at, (size_t)((to ? to : c->end) - c->at)};
        c->at += s.n;
    } else if (!take_until(c, ">", &s)) {
        return false;
    }
    s = without_quotes(s);
    if (!is_name(s))
        return false;
    memcpy(ret, s.text, s.n);
    ret[s.n] = '\0';
    return true;
}

static bool read_arguments(struct marked_cursor *c, enum call_style style, const json_t *tools,
                           const char *name, json_t *into)
{
    for (skip_space(c); c->at < c->end; skip_space(c)) {
        const struct tag_form *f = forms_of(style);
        while (f->open && !take(c, f->open))
            f++;
        if (!f->open || !read_argument(c, f, tools, name, into))
            return false;
    }
    return true;
}

json_t *call_read_marked(enum call_style style, const char *text, size_t n, const json_t *tools,
                         bool *ret_is_open)
{
    struct marked_cursor c = {text, text + n, false};
    char name[CALL_NAME_MAX + 1];
    *ret_is_open = false;
    if (style == CALL_PYTHON)
        return call_read_lines(text, n, ret_is_open);
    json_t *arguments = json_object();
    if (!read_name(&c, style, name) || !read_arguments(&c, style, tools, name, arguments)) {
        json_decref(arguments);
        *ret_is_open = c.is_open;
        return NULL;
    }
    return json_pack("[{s:s s:o}]", "name", name, "arguments", arguments);
}
