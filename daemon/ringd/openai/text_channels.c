/* SPDX-License-Identifier: MIT
 *
 * Answers that are messages in channels, as gpt-oss writes them (OpenAI's "harmony response
 * format"): `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
 * What is said in the channel "analysis" is reasoning. A message with `to=functions.NAME` in its
 * head is a call, ended by `<|call|>`; its text is the arguments. All else is text. The prompt ends
 * within the first head. Called by text_parts.c, byte by byte. */
#include "daemon/ringd/openai/text_parts_impl.h"

#include <string.h>

enum { CHANNEL_HEAD_MAX = 512 /* bytes; a longer head is text */ };

/* --- heads --- */

static bool ends_with(const struct out_text *t, const char *what)
{
    const size_t n = strlen(what);
    return t->len >= n && !memcmp(t->data + t->len - n, what, n);
}

/* The word behind `key` in a head, up to a space or a marker. */
static size_t word_behind(const char *head, const char *key, const char **ret)
{
    const char *at = strstr(head, key);
    if (!at)
        return 0;
    *ret = at + strlen(key);
    return strcspn(*ret, " \t\r\n<");
}

/* The tool that a head calls. */
static bool reads_tool(struct text_parts *p, const char *head)
{
    static const char names[] = "functions.";
    const char *to = NULL;
    size_t n = word_behind(head, " to=", &to);
    if (!p->setup.format.calls || !n)
        return false;
    if (n > strlen(names) && !strncmp(to, names, strlen(names))) {
        to += strlen(names);
        n -= strlen(names);
    }
    if (n > CALL_NAME_MAX)
        return false;
    memcpy(p->name, to, n);
    p->name[n] = '\0';
    return true;
}

static void begin_head(struct text_parts *p)
{
    out_text_clear(&p->raw);
    p->state = PARTS_HEAD;
}

/* Texts of two messages do not run into each other. */
static void begin_text(struct text_parts *p)
{
    if (p->has_text)
        parts_emit(p, TEXT_PART_TEXT, "\n\n", 2);
    p->has_text = false;
    p->state = PARTS_TEXT;
}

static void end_head(struct text_parts *p)
{
    const char *channel = NULL;
    out_text_add(&p->raw, "", 1); /* a text for strstr */
    const size_t n = word_behind(p->raw.data, MARK_CHANNEL, &channel);
    if (reads_tool(p, p->raw.data)) {
        p->span = (struct json_span){.depth = 0};
        p->state = PARTS_ARGUMENTS;
        p->is_bare = true; /* nothing of the call was given out */
    } else if (n == strlen("analysis") && !memcmp(channel, "analysis", n)) {
        p->state = PARTS_REASONING;
    } else {
        begin_text(p);
    }
    out_text_clear(&p->raw);
}

static void step_head(struct text_parts *p, char c)
{
    const bool is_first = p->state == PARTS_START;
    out_text_add(&p->raw, &c, 1);
    p->state = PARTS_HEAD;
    if (ends_with(&p->raw, MARK_MESSAGE)) {
        end_head(p);
    } else if (p->raw.len > CHANNEL_HEAD_MAX || (is_first && c != '<' && c != ' ')) { /* it is none */
        begin_text(p);
        parts_emit(p, TEXT_PART_TEXT, p->raw.data, p->raw.len);
        p->has_text = true;
        out_text_clear(&p->raw);
    }
}

/* --- what a message says --- */

static void give_name(struct text_parts *p)
{
    p->calls++;
    p->is_bare = false;
    parts_emit(p, TEXT_PART_CALL, p->name, strlen(p->name));
}

/* The arguments so far are none: what was held of them is text. */
static void no_arguments(struct text_parts *p)
{
    begin_text(p);
    if (p->raw.len)
        parts_emit(p, TEXT_PART_TEXT, p->raw.data, p->raw.len);
    p->has_text = p->has_text || p->raw.len;
    out_text_clear(&p->raw);
}

static void step_arguments(struct text_parts *p, char c)
{
    const bool is_open = p->span.depth || p->span.in_string, is_over = p->raw.len && !is_open;
    if (is_over || (!p->raw.len && strchr(" \t\r\n", c))) /* space before, or anything behind them */
        return;
    const bool fits = json_span_push(&p->span, c) && (p->raw.len || c == '{');
    out_text_add(&p->raw, &c, 1);
    if (!p->setup.whole_calls && !p->is_bare && !fits) {
        p->span = (struct json_span){.depth = 0}; /* the call ends here */
        return;
    }
    if (!fits || p->raw.len > CALL_BYTES_MAX) {
        no_arguments(p);
        return;
    }
    if (p->setup.whole_calls)
        return;
    if (p->is_bare)
        give_name(p);
    parts_emit(p, TEXT_PART_ARGUMENTS, &c, 1);
}

static void end_arguments(struct text_parts *p)
{
    if (p->is_bare && p->raw.len && call_is_object(p->raw.data, p->raw.len)) {
        give_name(p);
        parts_emit(p, TEXT_PART_ARGUMENTS, p->raw.data, p->raw.len);
    } else if (p->is_bare) {
        no_arguments(p);
    }
    p->is_ended = p->calls >= p->setup.most_calls;
}

static void step_message(struct text_parts *p, char c)
{
    switch (p->state) {
    case PARTS_REASONING: parts_emit(p, TEXT_PART_REASONING, &c, 1); return;
    case PARTS_ARGUMENTS: step_arguments(p, c); return;
    default: break;
    }
    parts_emit(p, TEXT_PART_TEXT, &c, 1);
    p->has_text = true;
}

/* --- markers --- */

static const char *const ends[] = {MARK_END, MARK_CALL, MARK_RETURN, MARK_START, MARK_CHANNEL};

/* The end that the held bytes are; NULL: none. *ret_may: they may become one. */
static const char *find_end(const struct text_parts *p, bool *ret_may)
{
    *ret_may = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (p->nheld <= n && !memcmp(p->held, ends[i], p->nheld)) {
            *ret_may = true;
            if (p->nheld == n)
                return ends[i];
        }
    }
    return NULL;
}

static void end_message(struct text_parts *p, const char *end)
{
    if (p->state == PARTS_ARGUMENTS)
        end_arguments(p);
    begin_head(p);
    out_text_add(&p->raw, end, strlen(end)); /* it may be a part of the head */
}

void parts_step_channel(struct text_parts *p, char c)
{
    if (p->state == PARTS_START || p->state == PARTS_HEAD) {
        step_head(p, c);
        return;
    }
    p->held[p->nheld++] = c;
    while (p->nheld) {
        bool may;
        const char *end = find_end(p, &may);
        if (end) {
            p->nheld = 0;
            end_message(p, end);
        }
        if (may)
            return;
        const char first = p->held[0];
        memmove(p->held, p->held + 1, --p->nheld);
        step_message(p, first);
    }
}

void parts_end_channel(struct text_parts *p)
{
    for (size_t i = 0; i < p->nheld; i++)
        step_message(p, p->held[i]);
    p->nheld = 0;
    if (p->state == PARTS_ARGUMENTS)
        end_arguments(p);
}
