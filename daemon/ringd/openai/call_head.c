/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/call_head.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/markers.h"

/* Reads forward until something does not fit; then `state` says whether more text could fit. */
struct head_cursor {
    const char *text;
    size_t n, at;
    enum call_head_state state; /* CALL_HEAD_FOUND: all fitted so far */
};

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_space(struct head_cursor *c)
{
    while (c->at < c->n && is_space(c->text[c->at]))
        c->at++;
}

/* Does the text go on with `what`? CALL_HEAD_MORE: as far as there is any. */
static enum call_head_state look(const struct head_cursor *c, const char *what)
{
    const size_t left = c->n - c->at, len = strlen(what);
    if (memcmp(c->text + c->at, what, left < len ? left : len) != 0)
        return CALL_HEAD_NONE;
    return left < len ? CALL_HEAD_MORE : CALL_HEAD_FOUND;
}

static void want(struct head_cursor *c, const char *what)
{
    if (c->state != CALL_HEAD_FOUND)
        return;
    c->state = look(c, what);
    if (c->state == CALL_HEAD_FOUND)
        c->at += strlen(what);
}

static void want_after_space(struct head_cursor *c, const char *what)
{
    if (c->state == CALL_HEAD_FOUND)
        skip_space(c);
    want(c, what);
}

/* One of two words; neither begins the other. */
static void want_either(struct head_cursor *c, const char *a, const char *b)
{
    if (c->state != CALL_HEAD_FOUND)
        return;
    skip_space(c);
    want(c, look(c, a) == CALL_HEAD_NONE ? b : a);
}

/* The text up to `end`, which is read too, as a name. */
static void want_name(struct head_cursor *c, const char *end, char ret[CALL_NAME_MAX + 1])
{
    if (c->state != CALL_HEAD_FOUND)
        return;
    const char *from = c->text + c->at, *to = memmem(from, c->n - c->at, end, strlen(end));
    size_t len = to ? (size_t)(to - from) : c->n - c->at;
    c->state = to ? CALL_HEAD_FOUND : CALL_HEAD_MORE;
    c->at += to ? len + strlen(end) : len;
    if (to)
        while (len > 0 && is_space(from[len - 1]))
            len--;
    if (len > CALL_NAME_MAX + strlen(end) || (to && (!len || len > CALL_NAME_MAX))) {
        c->state = CALL_HEAD_NONE;
        return;
    }
    if (to) {
        memcpy(ret, from, len);
        ret[len] = '\0';
    }
}

/* An escape in a name is rare enough to wait for the whole call. */
static void want_plain(struct head_cursor *c, const char *name)
{
    if (c->state != CALL_HEAD_FOUND)
        return;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == '\\' || *p == '<')
            c->state = CALL_HEAD_NONE;
}

static enum call_head_state read_json(struct head_cursor *c, char name[CALL_NAME_MAX + 1])
{
    want_after_space(c, "{");
    want_after_space(c, "\"name\"");
    want_after_space(c, ":");
    want_after_space(c, "\"");
    want_name(c, "\"", name);
    want_plain(c, name);
    want_after_space(c, ",");
    want_either(c, "\"arguments\"", "\"parameters\"");
    want_after_space(c, ":");
    want_after_space(c, "{");
    return c->state;
}

static enum call_head_state read_deepseek(struct head_cursor *c, char name[CALL_NAME_MAX + 1])
{
    if (c->state == CALL_HEAD_FOUND)
        skip_space(c);
    want_name(c, MARK_DEEPSEEK_SEP, name);
    if (c->state != CALL_HEAD_FOUND)
        return c->state;
    skip_space(c);
    if (look(c, "{") == CALL_HEAD_NONE) { /* what was read was the type of the call */
        want_name(c, "\n", name);
        if (c->state == CALL_HEAD_FOUND)
            skip_space(c);
        if (c->state == CALL_HEAD_FOUND && look(c, "{") == CALL_HEAD_NONE)
            want(c, "```json");
    }
    want_after_space(c, "{");
    want_plain(c, name);
    return c->state;
}

/* A name without what goes before it, or without its number, is taken as it is. */
static enum call_head_state read_kimi(struct head_cursor *c, char name[CALL_NAME_MAX + 1])
{
    static const char before[] = "functions.";
    if (c->state == CALL_HEAD_FOUND)
        skip_space(c);
    want_name(c, MARK_KIMI_SEP, name);
    want_after_space(c, "{");
    want_plain(c, name);
    if (c->state != CALL_HEAD_FOUND)
        return c->state;
    char *number = strrchr(name, ':');
    if (number && number > name && number[1] && !number[1 + strspn(number + 1, "0123456789")])
        *number = '\0';
    if (!strncmp(name, before, strlen(before)) && name[strlen(before)])
        memmove(name, name + strlen(before), strlen(name + strlen(before)) + 1);
    return c->state;
}

/* Older models write a list in JSON, newer ones each call behind a marker of its own. */
static enum call_head_state read_mistral(struct head_cursor *c, char name[CALL_NAME_MAX + 1])
{
    skip_space(c);
    const enum call_head_state list = look(c, "["), args = look(c, MARK_MISTRAL_ARGS);
    if (list != CALL_HEAD_NONE && args == CALL_HEAD_NONE) {
        c->at++;
        return read_json(c, name);
    }
    if (look(c, "{") == CALL_HEAD_FOUND)
        return read_json(c, name);
    want_name(c, MARK_MISTRAL_ARGS, name);
    want_after_space(c, "{");
    want_plain(c, name);
    char *id = c->state == CALL_HEAD_FOUND ? strstr(name, MARK_MISTRAL_ID) : NULL;
    if (id)
        *id = '\0';
    return c->state == CALL_HEAD_FOUND && !*name ? CALL_HEAD_NONE : c->state;
}

enum call_head_state call_head_read(enum call_style style, const char *text, size_t n,
                                    char ret_name[CALL_NAME_MAX + 1])
{
    struct head_cursor c = {.text = text, .n = n, .state = CALL_HEAD_FOUND};
    if (n > CALL_HEAD_MAX)
        return CALL_HEAD_NONE;
    switch (style) {
    case CALL_DEEPSEEK: return read_deepseek(&c, ret_name);
    case CALL_KIMI: return read_kimi(&c, ret_name);
    case CALL_MISTRAL: return read_mistral(&c, ret_name);
    default: return read_json(&c, ret_name);
    }
}

static bool keep_name(const char *name, size_t n, char ret[CALL_NAME_MAX + 1])
{
    if (!name || !n || n > CALL_NAME_MAX)
        return false;
    memcpy(ret, name, n);
    ret[n] = '\0';
    return true;
}

/* A new reference, or NULL: they are no object, and no text of one. */
static json_t *arguments_object(json_t *given)
{
    if (!given || json_is_null(given))
        return json_object();
    if (json_is_object(given))
        return json_incref(given);
    if (!json_is_string(given))
        return NULL;
    json_t *inner = json_loadb(json_string_value(given), json_string_length(given), 0, NULL);
    if (json_is_object(inner))
        return inner;
    json_decref(inner);
    return NULL;
}

bool call_read_whole(const char *text, size_t n, char ret_name[CALL_NAME_MAX + 1], char **ret_arguments)
{
    json_t *all = json_loadb(text, n, 0, NULL), *call = json_object_get(all, "function");
    if (!json_is_object(call))
        call = all;
    json_t *given = json_object_get(call, "arguments");
    if (!given)
        given = json_object_get(call, "parameters");
    const json_t *name = json_object_get(call, "name");
    json_t *arguments = arguments_object(given);
    char *dumped = arguments ? json_dumps(arguments, JSON_COMPACT) : NULL;
    const bool ok = dumped && keep_name(json_string_value(name), json_string_length(name), ret_name);
    if (ok)
        *ret_arguments = dumped;
    else
        free(dumped);
    json_decref(arguments);
    json_decref(all);
    return ok;
}

bool call_is_object(const char *text, size_t n)
{
    json_t *json = json_loadb(text, n, 0, NULL);
    const bool is = json_is_object(json);
    json_decref(json);
    return is;
}

/* One `key="value"`; the cursor is behind it then. Values have no escapes, as the template writes
 * them. */
static bool read_keyword(struct head_cursor *c, json_t *into)
{
    char key[CALL_NAME_MAX + 1];
    want_name(c, "=", key);
    want_after_space(c, "\"");
    if (c->state != CALL_HEAD_FOUND)
        return false;
    const char *from = c->text + c->at, *to = memchr(from, '"', c->n - c->at);
    if (!to)
        return false;
    c->at += (size_t)(to - from) + 1;
    json_object_set_new(into, key, json_stringn(from, (size_t)(to - from)));
    skip_space(c);
    return true;
}

bool call_read_python(const char *text, size_t n, char ret_name[CALL_NAME_MAX + 1], char **ret_arguments)
{
    struct head_cursor c = {.text = text, .n = n, .state = CALL_HEAD_FOUND};
    json_t *arguments = json_object();
    skip_space(&c);
    want_name(&c, ".call(", ret_name);
    bool ok = c.state == CALL_HEAD_FOUND;
    for (const char *p = ret_name; ok && *p; p++)
        ok = isalnum((unsigned char)*p) || *p == '_';
    skip_space(&c);
    while (ok && look(&c, ")") != CALL_HEAD_FOUND) {
        ok = read_keyword(&c, arguments);
        if (ok && look(&c, ",") == CALL_HEAD_FOUND)
            c.at++;
        skip_space(&c);
    }
    c.at++;
    skip_space(&c);
    ok = ok && c.at >= c.n;
    if (ok)
        *ret_arguments = json_dumps(arguments, JSON_COMPACT);
    json_decref(arguments);
    return ok;
}
