/* SPDX-License-Identifier: MIT
 *
 * The states inside a call. */
#include "daemon/ringd/openai/text_parts_impl.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/call_marked.h"

static const struct call_format *format_of(const struct text_parts *p)
{
    return p->setup.format.calls;
}

/* The call as JSON, without the bracket of a list before it; or NULL. */
static const char *json_of(const struct text_parts *p)
{
    const enum call_style style = format_of(p)->style;
    const char *at = p->raw.data + p->body, *end = p->raw.data + p->raw.len;
    while (at < end && ((strchr(" \t\r\n", *at) && *at) || (style == CALL_MISTRAL && *at == '[')))
        at++;
    return at < end && *at == '{' && (style == CALL_JSON || style == CALL_MISTRAL) ? at : NULL;
}

/* Brackets that are open around the arguments. */
static size_t outside(const struct text_parts *p)
{
    return json_of(p) ? 1 : 0;
}

/* A bracket at the beginning of an answer may be an answer in JSON. */
static bool may_call(const struct text_parts *p)
{
    return !p->is_bare || !p->setup.tools || call_find_tool(p->setup.tools, p->name);
}

static void emit_name(struct text_parts *p)
{
    p->calls++;
    p->nspace = 0;
    parts_emit(p, TEXT_PART_CALL, p->name, strlen(p->name));
}

static void finish_call(struct text_parts *p)
{
    p->state = PARTS_AFTER_CALL;
    p->is_ended = p->calls >= p->setup.most_calls;
    out_text_clear(&p->raw);
}

void parts_begin_call(struct text_parts *p, const char *text, size_t n, bool is_bare)
{
    out_text_clear(&p->raw);
    out_text_add(&p->raw, text, n);
    p->body = is_bare ? 0 : n;
    p->is_bare = is_bare;
    p->span = (struct json_span){.depth = 0};
    p->state = format_of(p)->closes ? PARTS_MARKED : PARTS_HEAD;
}

/* The head was read: the arguments begin with the last byte of `raw`. */
static void begin_arguments(struct text_parts *p)
{
    p->arguments = p->raw.len - 1;
    p->span = (struct json_span){.depth = outside(p) + 1};
    p->state = PARTS_ARGUMENTS;
    if (p->setup.whole_calls)
        return;
    emit_name(p);
    parts_emit(p, TEXT_PART_ARGUMENTS, "{", 1);
}

/* All brackets of the call are closed. */
static void read_whole(struct text_parts *p)
{
    char *arguments = NULL;
    const char *call = json_of(p);
    const size_t n = call ? (size_t)(p->raw.data + p->raw.len - call) : 0;
    if (!call || !call_read_whole(call, n, p->name, &arguments) || !may_call(p)) {
        parts_hand_back(p, 0);
    } else {
        emit_name(p);
        parts_emit(p, TEXT_PART_ARGUMENTS, arguments, strlen(arguments));
        finish_call(p);
    }
    free(arguments);
}

/* What is no head may be a call in another order, or code; else it is text. */
static void no_head(struct text_parts *p)
{
    const char *body = p->raw.data + p->body, *end = p->raw.data + p->raw.len, *json = json_of(p);
    while (body < end && strchr(" \t\r\n", *body) && *body)
        body++;
    bool is_json = json;
    p->span = (struct json_span){.depth = 0};
    for (const char *c = json; is_json && c < end; c++)
        is_json = json_span_push(&p->span, *c) && (p->span.depth || c + 1 == end);
    if (is_json && p->span.depth)
        p->state = PARTS_WHOLE;
    else if (is_json)
        read_whole(p);
    else if (format_of(p)->takes_code && body < end && *body != '{' && !p->is_bare)
        p->state = PARTS_CODE;
    else
        parts_hand_back(p, 1);
}

static void step_head(struct text_parts *p)
{
    const enum call_head_state head =
        call_head_read(format_of(p)->style, p->raw.data + p->body, p->raw.len - p->body, p->name);
    if (head == CALL_HEAD_NONE)
        no_head(p);
    else if (head == CALL_HEAD_FOUND && !may_call(p))
        parts_hand_back(p, 0);
    else if (head == CALL_HEAD_FOUND)
        begin_arguments(p);
}

/* The arguments are whole. */
static void end_arguments(struct text_parts *p)
{
    const char *text = p->raw.data + p->arguments;
    const size_t n = p->raw.len - p->arguments;
    if (p->setup.whole_calls && !call_is_object(text, n)) {
        parts_hand_back(p, 0);
        return;
    }
    if (p->setup.whole_calls) {
        emit_name(p);
        parts_emit(p, TEXT_PART_ARGUMENTS, text, n);
    }
    if (outside(p))
        p->state = PARTS_REST;
    else
        finish_call(p);
}

static void step_arguments(struct text_parts *p, char c)
{
    const bool fits = json_span_push(&p->span, c);
    if (!fits && p->setup.whole_calls) {
        parts_hand_back(p, 1);
        return;
    }
    if (!fits) { /* the call ends here; the byte may begin its end marker */
        finish_call(p);
        parts_step(p, c);
        return;
    }
    if (!p->setup.whole_calls)
        parts_emit(p, TEXT_PART_ARGUMENTS, &c, 1);
    if (p->span.depth == outside(p) && !p->span.in_string)
        end_arguments(p);
}

/* Other members may follow; a bracket is often forgotten. */
static void step_rest(struct text_parts *p, char c)
{
    const bool fits = json_span_push(&p->span, c);
    if (fits && p->span.depth)
        return;
    finish_call(p);
    if (!fits)
        parts_step(p, c);
}

static void step_whole(struct text_parts *p, char c)
{
    if (!json_span_push(&p->span, c))
        parts_hand_back(p, 1);
    else if (!p->span.depth)
        read_whole(p);
}

/* A call in tags, or several in lines, once the last tag has come; what looks like it may stand in
 * an argument. */
static void step_marked(struct text_parts *p)
{
    const struct call_format *f = format_of(p);
    const size_t closes = strlen(f->closes), n = p->raw.len - p->body;
    if (n < closes || memcmp(p->raw.data + p->raw.len - closes, f->closes, closes) != 0)
        return;
    bool is_open;
    json_t *calls = call_read_marked(f->style, p->raw.data + p->body, n - closes, p->setup.tools, &is_open),
           *call;
    size_t i;
    if (!calls && is_open)
        return;
    if (!calls) {
        parts_hand_back(p, 0);
        return;
    }
    json_array_foreach (calls, i, call) {
        char *arguments = json_dumps(json_object_get(call, "arguments"), JSON_COMPACT);
        if (arguments && p->calls < p->setup.most_calls) {
            strcpy(p->name, json_string_value(json_object_get(call, "name")));
            emit_name(p);
            parts_emit(p, TEXT_PART_ARGUMENTS, arguments, strlen(arguments));
        }
        free(arguments);
    }
    json_decref(calls);
    finish_call(p);
}

void parts_step_call(struct text_parts *p, char c)
{
    out_text_add(&p->raw, &c, 1);
    if (p->raw.len > CALL_BYTES_MAX) {
        if (p->state == PARTS_REST || (p->state == PARTS_ARGUMENTS && !p->setup.whole_calls))
            finish_call(p);
        else
            parts_hand_back(p, 0);
        return;
    }
    switch (p->state) {
    case PARTS_ARGUMENTS: step_arguments(p, c); break;
    case PARTS_REST: step_rest(p, c); break;
    case PARTS_WHOLE: step_whole(p, c); break;
    case PARTS_MARKED: step_marked(p); break;
    case PARTS_CODE: break;
    default: step_head(p);
    }
}

/* Code is a call of the tool that runs code, if the client has brought one. */
static bool read_code(struct text_parts *p, char **ret_arguments)
{
    static const char *const tools[] = {"code_interpreter", "python", "ipython"};
    const char *code = p->raw.data + p->body;
    const size_t n = p->raw.len - p->body;
    if (call_read_python(code, n, p->name, ret_arguments))
        return true;
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        if (!call_find_tool(p->setup.tools, tools[i]))
            continue;
        json_t *arguments = json_object();
        json_object_set_new(arguments, "code", json_stringn(code, n));
        strcpy(p->name, tools[i]);
        *ret_arguments = json_dumps(arguments, JSON_COMPACT);
        json_decref(arguments);
        return *ret_arguments != NULL;
    }
    return false;
}

void parts_end_call(struct text_parts *p)
{
    char *arguments = NULL;
    if (p->state == PARTS_REST || (p->state == PARTS_ARGUMENTS && !p->setup.whole_calls))
        return; /* it was given out, as far as it went */
    if (p->state == PARTS_CODE && read_code(p, &arguments)) {
        emit_name(p);
        parts_emit(p, TEXT_PART_ARGUMENTS, arguments, strlen(arguments));
    } else {
        parts_hand_back(p, 0);
    }
    free(arguments);
}
