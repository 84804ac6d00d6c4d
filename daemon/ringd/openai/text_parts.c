/* SPDX-License-Identifier: MIT
 *
 * Bytes pass three gates: characters (char_gate.c), stop strings (stop_scan.c), and the states here
 * and in text_calls.c, or those in text_channels.c, one byte at a time. So a cut between tokens
 * cannot matter. What a push releases is joined before it is given out. */
#include "daemon/ringd/openai/text_parts_impl.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/openai/markers.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void flush(struct text_parts *p)
{
    const struct text_part part = {p->out_kind, p->out_call, p->out.data, p->out.len};
    if (part.n)
        p->setup.take(p->setup.owner, &part);
    out_text_clear(&p->out);
}

void parts_emit(struct text_parts *p, enum text_part_kind kind, const char *text, size_t n)
{
    const size_t call = p->calls ? p->calls - 1 : 0;
    if (kind != p->out_kind || call != p->out_call)
        flush(p);
    p->out_kind = kind;
    p->out_call = call;
    out_text_add(&p->out, text, n);
}

/* Text or reasoning, behind the space that was held before it. */
static void emit_plain(struct text_parts *p, enum text_part_kind kind, const char *text, size_t n)
{
    if (p->nspace)
        parts_emit(p, kind, p->space, p->nspace);
    p->nspace = 0;
    parts_emit(p, kind, text, n);
    p->has_text = p->has_text || kind == TEXT_PART_TEXT;
}

static void hold_space(struct text_parts *p, char c)
{
    const bool thinks = p->state == PARTS_REASONING;
    p->space[p->nspace++] = c;
    if (p->nspace < SPACE_HELD)
        return;
    /* So much space is content. */
    emit_plain(p, thinks ? TEXT_PART_REASONING : TEXT_PART_TEXT, "", 0);
    if (!thinks)
        p->state = PARTS_TEXT;
}

/* Space between reasoning or a call and the first text belongs to neither. */
static void drop_space(struct text_parts *p)
{
    if ((p->has_thought || p->calls) && !p->has_text)
        p->nspace = 0;
}

void parts_hand_back(struct text_parts *p, size_t keep)
{
    const size_t n = p->raw.len - keep;
    char *last = xmemdup(p->raw.data + n, keep + 1);
    p->state = PARTS_TEXT;
    drop_space(p);
    emit_plain(p, TEXT_PART_TEXT, p->raw.data, n);
    out_text_clear(&p->raw);
    for (size_t i = 0; i < keep; i++)
        parts_step(p, last[i]);
    free(last);
}

/* --- markers --- */

enum marker_kind { MARKER_THINK, MARKER_THINK_END, MARKER_OPEN, MARKER_BEGIN, MARKER_END };
enum marker_fit { FIT_NONE, FIT_PART, FIT_WHOLE };

static enum marker_fit fit(const struct text_parts *p, const char *marker)
{
    const size_t n = strlen(marker);
    if (p->nheld > n || memcmp(p->held, marker, p->nheld) != 0)
        return FIT_NONE;
    return p->nheld == n ? FIT_WHOLE : FIT_PART;
}

/* Tries a list of markers; keeps the best fit. No marker begins another one. */
static void try_markers(const struct text_parts *p, const char *const *list, enum marker_kind kind,
                        enum marker_fit *best, enum marker_kind *ret_kind)
{
    for (; *list; list++) {
        const enum marker_fit f = fit(p, *list);
        if (f > *best) {
            *best = f;
            *ret_kind = kind;
        }
    }
}

/* The marker that the held bytes are, or may become, in this state. */
static enum marker_fit find_marker(const struct text_parts *p, enum marker_kind *ret)
{
    static const char *const think[] = {MARK_THINK, NULL}, *const think_end[] = {MARK_THINK_END, NULL};
    const struct call_format *calls = p->setup.format.calls;
    enum marker_fit best = FIT_NONE;
    if (p->state == PARTS_REASONING)
        try_markers(p, think_end, MARKER_THINK_END, &best, ret);
    /* Some models open again what the prompt has opened. */
    if (p->state == PARTS_REASONING ? !p->has_reasoning
                                    : p->state == PARTS_START && p->setup.format.reasons && !p->has_thought)
        try_markers(p, think, MARKER_THINK, &best, ret);
    if (p->state == PARTS_REASONING || !calls)
        return best;
    try_markers(p, calls->opens, MARKER_OPEN, &best, ret);
    try_markers(p, calls->begins, MARKER_BEGIN, &best, ret);
    if (p->state == PARTS_AFTER_CALL)
        try_markers(p, calls->ends, MARKER_END, &best, ret);
    return best;
}

static void take_marker(struct text_parts *p, enum marker_kind kind)
{
    const size_t n = p->nheld;
    p->nheld = 0;
    switch (kind) {
    case MARKER_THINK:
        p->nspace = 0;
        p->state = PARTS_REASONING;
        break;
    case MARKER_THINK_END:
        p->nspace = 0;
        p->has_thought = true;
        p->state = PARTS_START;
        break;
    case MARKER_OPEN: p->state = PARTS_AFTER_CALL; break;
    case MARKER_BEGIN: parts_begin_call(p, p->held, n, false); break;
    case MARKER_END: break;
    }
}

/* --- one byte at a time --- */

/* A byte that belongs to no marker. */
static void step_plain(struct text_parts *p, char c)
{
    const struct call_format *calls = p->setup.format.calls;
    const bool may_begin = p->state == PARTS_START || p->state == PARTS_AFTER_CALL;
    if (p->state == PARTS_REASONING) {
        if (!is_space(c))
            emit_plain(p, TEXT_PART_REASONING, &c, 1);
        else if (p->has_reasoning)
            hold_space(p, c);
        p->has_reasoning = p->has_reasoning || !is_space(c);
        return;
    }
    if (is_space(c) && (may_begin || calls)) {
        hold_space(p, c);
        return;
    }
    if (may_begin && calls && calls->is_bare && c == '{' && !p->has_text) {
        parts_begin_call(p, &c, 1, true);
        return;
    }
    if (p->state == PARTS_AFTER_CALL && calls->is_list && c == '{') {
        parts_begin_call(p, &c, 1, true);
        p->is_bare = false;
        return;
    }
    if (p->state == PARTS_AFTER_CALL && calls->skips && strchr(calls->skips, c) && c)
        return;
    drop_space(p);
    p->state = PARTS_TEXT;
    emit_plain(p, TEXT_PART_TEXT, &c, 1);
}

void parts_step(struct text_parts *p, char c)
{
    if (p->is_ended)
        return;
    if (p->setup.format.in_channels) {
        parts_step_channel(p, c);
        return;
    }
    if (p->state > PARTS_LAST_PLAIN) {
        parts_step_call(p, c);
        return;
    }
    p->held[p->nheld++] = c;
    while (p->nheld) {
        enum marker_kind kind = MARKER_END;
        const enum marker_fit best = find_marker(p, &kind);
        if (best == FIT_WHOLE)
            take_marker(p, kind);
        if (best != FIT_NONE)
            return;
        const char first = p->held[0];
        memmove(p->held, p->held + 1, --p->nheld);
        step_plain(p, first);
    }
}

static void push_char(struct text_parts *p, const char *bytes, size_t n)
{
    char ready[STOP_BYTES];
    for (size_t i = 0; i < n && !p->is_ended; i++) {
        size_t nready;
        const char *stop = stop_scan_push(&p->stops, bytes[i], ready, &nready);
        for (size_t k = 0; k < nready; k++)
            parts_step(p, ready[k]);
        if (stop && !p->is_ended) {
            p->stop = stop;
            p->is_ended = true;
        }
    }
}

bool text_parts_push(struct text_parts *p, const char *bytes, size_t n)
{
    char ready[CHAR_GATE_OUT];
    for (size_t i = 0; i < n && !p->is_ended; i++)
        push_char(p, ready, char_gate_push(&p->utf8, (unsigned char)bytes[i], ready));
    flush(p);
    return !p->is_ended;
}

/* What is held in a state for text. Space at the end of an answer is part of it, but for space that
 * stands beside reasoning and calls. */
static void end_plain(struct text_parts *p)
{
    const enum text_part_kind kind = p->state == PARTS_REASONING ? TEXT_PART_REASONING : TEXT_PART_TEXT;
    if (p->nheld && p->state != PARTS_AFTER_CALL)
        emit_plain(p, kind, p->held, p->nheld);
    else if (p->nspace && !p->calls && p->state != PARTS_REASONING && !(p->has_thought && !p->has_text))
        parts_emit(p, kind, p->space, p->nspace);
    p->nheld = p->nspace = 0;
}

void text_parts_end(struct text_parts *p)
{
    char ready[STOP_BYTES], last[CHAR_GATE_OUT];
    /* A stop string ends the text before it: what is held of calls and markers still counts. */
    if (!p->is_ended) {
        push_char(p, last, char_gate_end(&p->utf8, last));
        const size_t n = p->is_ended ? 0 : stop_scan_end(&p->stops, ready);
        for (size_t i = 0; i < n; i++)
            parts_step(p, ready[i]);
    }
    p->is_ended = true;
    if (p->setup.format.in_channels)
        parts_end_channel(p);
    else if (p->state > PARTS_LAST_PLAIN)
        parts_end_call(p);
    else
        end_plain(p);
    flush(p);
}

struct text_parts *text_parts_new(const struct text_parts_setup *setup)
{
    struct text_parts *p = xcalloc(1, sizeof *p);
    p->setup = *setup;
    if (!setup->most_calls || setup->most_calls > CALLS_MAX)
        p->setup.most_calls = CALLS_MAX;
    p->stops = (struct stop_scan){.texts = setup->stops, .n = setup->nstops};
    p->state = setup->in_reasoning && setup->format.reasons ? PARTS_REASONING : PARTS_START;
    return p;
}

void text_parts_free(struct text_parts *p)
{
    if (!p)
        return;
    out_text_done(&p->out);
    out_text_done(&p->raw);
    free(p);
}

const char *text_parts_stop(const struct text_parts *p)
{
    return p->stop;
}

size_t text_parts_calls(const struct text_parts *p)
{
    return p->calls;
}

bool text_parts_is_reasoning(const struct text_parts *p)
{
    return p->state == PARTS_REASONING;
}
