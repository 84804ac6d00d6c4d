/* SPDX-License-Identifier: MIT
 *
 * Inside the reader of what a model wrote (text_parts.c, text_calls.c, text_channels.c). */
#ifndef DAEMON_OPENAI_TEXT_PARTS_IMPL_H
#define DAEMON_OPENAI_TEXT_PARTS_IMPL_H

#include "daemon/ringd/openai/call_head.h"
#include "daemon/ringd/openai/json_span.h"
#include "daemon/ringd/openai/markers.h"
#include "daemon/ringd/openai/out_text.h"
#include "daemon/ringd/openai/stop_scan.h"
#include "daemon/ringd/openai/text_parts.h"
#include "daemon/ringd/openai/char_gate.h"

enum { SPACE_HELD = 64 };

enum parts_state {
    PARTS_START, /* nothing but space came yet, or nothing since the end of the reasoning */
    PARTS_REASONING,
    PARTS_TEXT,
    PARTS_AFTER_CALL, /* markers and space between calls */
    PARTS_LAST_PLAIN = PARTS_AFTER_CALL,
    /* inside a call: all bytes since its marker are in `raw` */
    PARTS_HEAD,      /* before its arguments */
    PARTS_ARGUMENTS, /* inside of them */
    PARTS_REST,      /* behind them, before the bracket that closes the call */
    PARTS_WHOLE,     /* a call in JSON that is read once it is whole, */
    PARTS_MARKED,    /* or in tags */
    PARTS_CODE,      /* what follows Llama's marker and is no JSON, to the end of the answer */
};

struct text_parts {
    struct text_parts_setup setup;
    struct char_gate utf8;
    struct stop_scan stops;
    const char *stop; /* borrowed: setup.stops */
    enum parts_state state;
    bool is_ended;    /* what comes is dropped */
    bool has_thought; /* reasoning has ended */
    bool has_reasoning, has_text;
    size_t calls;            /* that began */
    char held[MARKER_BYTES]; /* what may become a marker */
    size_t nheld;
    char space[SPACE_HELD]; /* what is dropped if a marker follows */
    size_t nspace;
    /* of the call that is being read */
    struct out_text raw;
    size_t body, arguments; /* offsets in `raw`: behind the marker; at the first bracket */
    struct json_span span;
    bool is_bare; /* it had no marker; of a message: nothing of it was given out */
    char name[CALL_NAME_MAX + 1];
    /* what this push gives out */
    struct out_text out;
    enum text_part_kind out_kind;
    size_t out_call;
};

/* Adds to what is given out. n > 0. */
void parts_emit(struct text_parts *p, enum text_part_kind kind, const char *text, size_t n);
/* The call was none: `raw` is text, but for its last `keep` bytes, which are read again. */
void parts_hand_back(struct text_parts *p, size_t keep);
void parts_step(struct text_parts *p, char c);

/* A call begins with these n bytes: its marker, or a bracket without one. */
void parts_begin_call(struct text_parts *p, const char *text, size_t n, bool is_bare);
void parts_step_call(struct text_parts *p, char c);
void parts_end_call(struct text_parts *p);

/* Of a format whose answers are messages in channels. */
void parts_step_channel(struct text_parts *p, char c);
void parts_end_channel(struct text_parts *p);

#endif
