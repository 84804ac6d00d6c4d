/* SPDX-License-Identifier: MIT
 *
 * What a model wrote, taken apart while it writes: text, reasoning, calls of tools. Bytes of tokens
 * go in, parts come out through a callback. No part ends inside a character, and none has text that
 * may turn out to belong to a stop string or a marker; such text waits for what follows. However
 * the bytes are divided among calls of text_parts_push, the joined parts are the same.
 *
 * - Stop strings are looked for in all that the model writes, before anything else, as llama-server
 *   and vLLM do.
 * - Reasoning is what stands at the beginning between <think> and </think>, or before </think>
 *   where the prompt has opened it. Space around it is dropped, and so is space between text and a
 *   call.
 * - What begins as a call and is none is given out as text, markers included. With `whole_calls`
 *   that is certain of each call, because none is given out before its arguments are a whole JSON
 *   object. Without it a call is given out as soon as its name is known, and its arguments as they
 *   come; if the model breaks off, or writes no JSON, the call ends there.
 * - Messages in channels (chat_format.in_channels) have heads, which are no text: see
 *   text_channels.c. Reasoning may then come more than once.
 *
 * Bounds: SPACE_HELD bytes of space, STOP_BYTES, CALL_BYTES_MAX of one call. Pure: any thread. */
#ifndef DAEMON_OPENAI_TEXT_PARTS_H
#define DAEMON_OPENAI_TEXT_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/openai/chat_format.h"

enum text_part_kind {
    TEXT_PART_TEXT,
    TEXT_PART_REASONING,
    TEXT_PART_CALL,      /* a call begins: the name of its tool, always in one part */
    TEXT_PART_ARGUMENTS, /* JSON of its arguments goes on */
};

struct text_part {
    enum text_part_kind kind;
    size_t call; /* of the last two: which, from 0 */
    const char *text;
    size_t n; /* bytes, at least 1 */
};

struct text_parts_setup {
    struct chat_format format; /* without `calls` no calls are looked for, without `reasons` no reasoning */
    bool in_reasoning;         /* the prompt has opened it (chat_format_opens_reasoning) */
    bool whole_calls;
    size_t most_calls;        /* the answer ends after so many; 0: CALLS_MAX */
    const char *const *stops; /* borrowed [nstops]: see stop_scan.h */
    size_t nstops;
    /* borrowed: [{"function": {"name": …}}, …]; bare calls must name one. Or NULL: any */
    const json_t *tools;
    void (*take)(void *owner, const struct text_part *part);
    void *owner;
};

enum { CALLS_MAX = 128 };

struct text_parts;

struct text_parts *text_parts_new(const struct text_parts_setup *setup);
void text_parts_free(struct text_parts *parts);

/* Bytes of the next token. False: the answer is at its end, by a stop string or by its last call.
 * Later bytes are dropped. */
bool text_parts_push(struct text_parts *parts, const char *bytes, size_t n);
/* The model has ended its answer, or was ended: gives out what was held back. */
void text_parts_end(struct text_parts *parts);

/* The stop string that ended the answer, or NULL. */
const char *text_parts_stop(const struct text_parts *parts);
size_t text_parts_calls(const struct text_parts *parts);
bool text_parts_is_reasoning(const struct text_parts *parts);

#endif
