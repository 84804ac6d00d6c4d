/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/call_python.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/ringd/openai/call_head.h"
#include "daemon/ringd/openai/out_text.h"

enum { DEEPEST = 32, NUMBER = 64 };

struct python_cursor {
    const char *at, *end;
    size_t depth; /* of lists and dicts around */
    bool is_open; /* a text has no end yet */
};

static void skip_space(struct python_cursor *c)
{
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

static bool take(struct python_cursor *c, char what)
{
    skip_space(c);
    if (c->at == c->end || *c->at != what)
        return false;
    c->at++;
    return true;
}

static bool take_name(struct python_cursor *c, char ret[CALL_NAME_MAX + 1])
{
    size_t n = 0;
    skip_space(c);
    while (c->at + n < c->end && (isalnum((unsigned char)c->at[n]) || strchr("_.-", c->at[n])) && c->at[n])
        n++;
    if (!n || n > CALL_NAME_MAX || isdigit((unsigned char)*c->at))
        return false;
    memcpy(ret, c->at, n);
    ret[n] = '\0';
    c->at += n;
    return true;
}

/* --- values ----------------------------------------------------------------------------------- */

static json_t *read_value(struct python_cursor *c);

/* The byte that \x stands for; of what is no escape both bytes stay. */
static void add_escape(struct out_text *text, char c)
{
    static const char from[] = "ntr0\\'\"", to[] = "\n\t\r\0\\'\"";
    const char *at = c ? strchr(from, c) : NULL;
    if (!at)
        out_text_add(text, "\\", 1);
    out_text_add(text, at ? &to[at - from] : &c, 1);
}

static json_t *read_text(struct python_cursor *c)
{
    const char quote = *c->at++;
    struct out_text text = {0};
    json_t *ret = NULL;
    for (; c->at < c->end && *c->at != quote; c->at++)
        if (*c->at == '\\' && c->at + 1 < c->end)
            add_escape(&text, *++c->at);
        else
            out_text_add(&text, c->at, 1);
    out_text_add(&text, "", 0);
    if (c->at < c->end) {
        c->at++;
        ret = json_stringn(text.data, text.len);
    } else {
        c->is_open = true;
    }
    out_text_done(&text);
    return ret;
}

/* A number, or a word. */
static json_t *read_word(struct python_cursor *c)
{
    static const struct {
        const char *text;
        int value; /* −1: none */
    } words[] = {{"True", 1}, {"False", 0}, {"None", -1}, {"true", 1}, {"false", 0}, {"null", -1}};
    char word[NUMBER];
    size_t n = 0;
    while (c->at + n < c->end && n + 1 < sizeof word &&
           (isalnum((unsigned char)c->at[n]) || strchr("+-.", c->at[n])))
        n++;
    memcpy(word, c->at, n);
    word[n] = '\0';
    c->at += n;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i].text))
            return words[i].value < 0 ? json_null() : json_boolean(words[i].value);
    return json_loads(word, JSON_DECODE_ANY, NULL);
}

static json_t *read_list(struct python_cursor *c)
{
    json_t *list = json_array();
    const char end = *c->at++ == '(' ? ')' : ']';
    while (!take(c, end)) {
        json_t *value = read_value(c);
        if (!value || json_array_append_new(list, value) ||
            (!take(c, ',') && (c->at == c->end || *c->at != end))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *read_dict(struct python_cursor *c)
{
    json_t *dict = json_object();
    c->at++;
    while (!take(c, '}')) {
        json_t *key = read_value(c), *value = key && take(c, ':') ? read_value(c) : NULL;
        const bool is_one = json_is_string(key) && value &&
                            !json_object_set(dict, json_string_value(key), value) &&
                            (take(c, ',') || (c->at < c->end && *c->at == '}'));
        json_decref(key);
        json_decref(value);
        if (!is_one) {
            json_decref(dict);
            return NULL;
        }
    }
    return dict;
}

static json_t *read_value(struct python_cursor *c)
{
    skip_space(c);
    if (c->at == c->end || c->depth >= DEEPEST)
        return NULL;
    c->depth++;
    json_t *ret = *c->at == '"' || *c->at == '\''  ? read_text(c)
                  : *c->at == '[' || *c->at == '(' ? read_list(c)
                  : *c->at == '{'                  ? read_dict(c)
                                                   : read_word(c);
    c->depth--;
    return ret;
}

/* --- calls ------------------------------------------------------------------------------------ */

static bool read_arguments(struct python_cursor *c, json_t *into)
{
    char key[CALL_NAME_MAX + 1];
    while (!take(c, ')')) {
        if (!take_name(c, key) || !take(c, '='))
            return false;
        json_t *value = read_value(c);
        if (!value || json_object_set_new(into, key, value))
            return false;
        skip_space(c);
        if (!take(c, ',') && (c->at == c->end || *c->at != ')'))
            return false;
    }
    return true;
}

static json_t *read_call(struct python_cursor *c)
{
    char name[CALL_NAME_MAX + 1];
    if (!take_name(c, name) || !take(c, '('))
        return NULL;
    json_t *arguments = json_object();
    if (!read_arguments(c, arguments)) {
        json_decref(arguments);
        return NULL;
    }
    return json_pack("{s:s s:o}", "name", name, "arguments", arguments);
}

json_t *call_read_lines(const char *text, size_t n, bool *ret_is_open)
{
    struct python_cursor c = {text, text + n, 0, false};
    json_t *calls = json_array();
    bool is_whole = true;
    for (skip_space(&c); is_whole && c.at < c.end; skip_space(&c)) {
        json_t *call = read_call(&c);
        is_whole = call && !json_array_append_new(calls, call);
    }
    *ret_is_open = c.is_open;
    if (is_whole && json_array_size(calls))
        return calls;
    json_decref(calls);
    return NULL;
}
