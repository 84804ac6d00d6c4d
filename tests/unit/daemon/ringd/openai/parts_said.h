/* SPDX-License-Identifier: MIT
 *
 * What a reader of a model's text gave out, as one line: text as it is, reasoning in {}, a call as
 * [name arguments]. */
#ifndef TESTS_PARTS_SAID_H
#define TESTS_PARTS_SAID_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/out_text.h"
#include "daemon/ringd/openai/text_parts.h"

struct parts_said {
    struct out_text text; /* owned */
    int kind;             /* of the last part; −1: none */
    size_t call;
    bool is_cut; /* a part ended inside a character */
};

static inline void said_close(struct parts_said *s)
{
    if (s->kind == TEXT_PART_REASONING)
        out_text_add(&s->text, "}", 1);
    if (s->kind == TEXT_PART_CALL || s->kind == TEXT_PART_ARGUMENTS)
        out_text_add(&s->text, "]", 1);
}

static inline void said_take(void *owner, const struct text_part *part)
{
    struct parts_said *s = owner;
    const bool goes_on = s->kind == (int)part->kind && part->kind != TEXT_PART_CALL;
    const bool is_first = s->kind == TEXT_PART_CALL && part->kind == TEXT_PART_ARGUMENTS;
    if (!goes_on && !is_first)
        said_close(s);
    if (is_first)
        out_text_add(&s->text, " ", 1);
    else if (!goes_on && part->kind != TEXT_PART_TEXT)
        out_text_add(&s->text, part->kind == TEXT_PART_REASONING ? "{" : "[", 1);
    json_t *whole = json_stringn(part->text, part->n);
    s->is_cut = s->is_cut || !whole || !part->n;
    json_decref(whole);
    out_text_add(&s->text, part->text, part->n);
    s->kind = (int)part->kind;
}

/* Reads `text` in pieces of `step` bytes; the caller frees what is returned. */
static inline char *parts_read(struct text_parts_setup setup, const char *text, size_t n, size_t step,
                               bool *ret_is_cut, const char **ret_stop)
{
    struct parts_said said = {.kind = -1};
    setup.take = said_take;
    setup.owner = &said;
    struct text_parts *p = text_parts_new(&setup);
    for (size_t at = 0; at < n && text_parts_push(p, text + at, at + step < n ? step : n - at);)
        at += step;
    text_parts_end(p);
    said_close(&said);
    *ret_stop = text_parts_stop(p);
    *ret_is_cut = said.is_cut;
    text_parts_free(p);
    out_text_add(&said.text, "", 0);
    return said.text.data;
}

#endif
