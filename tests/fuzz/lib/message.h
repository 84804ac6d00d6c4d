/* SPDX-License-Identifier: MIT
 *
 * A message as it passes the checks of messages.c: each field of its row with any value it may
 * have, or left out where it may be missing. */
#ifndef TESTS_FUZZ_MESSAGE_H
#define TESTS_FUZZ_MESSAGE_H

#include "daemon/ringd/message_table.h"
#include "tests/fuzz/lib/input.h"

static inline json_t *message_whole(struct input *in, const struct field *f)
{
    int64_t v = 0;
    if (input_u8(in) & 1)
        v = input_u8(in);
    else
        input_bytes(in, &v, sizeof v);
    const uint64_t least = (uint64_t)f->min, most = f->max < FIELD_ANY ? (uint64_t)f->max : INT64_MAX;
    return json_integer((json_int_t)(least + (uint64_t)v % (most - least + 1)));
}

static inline json_t *message_value(struct input *in, const struct field *f, const struct input_words *words)
{
    switch (f->type) {
    case FIELD_WHOLE: return message_whole(in, f);
    case FIELD_FLAG: return json_boolean(input_u8(in) & 1);
    case FIELD_LIST: return input_array(in, words, 0);
    case FIELD_OBJECT: return input_object(in, words, 0);
    default: return input_u8(in) & 1 ? input_text(in) : json_string(input_word(in, words->texts));
    }
}

/* NULL: a text was too long for its field. */
static inline json_t *message_of(struct input *in, enum message_kind kind, const struct input_words *words)
{
    const struct message_row *row = message_row(kind);
    json_t *body = json_pack("{s:s}", "kind", row->name);
    enum message_kind is;
    struct err err;
    const uint8_t missing = input_u8(in);
    size_t i = 0;
    for (const struct field *f = row->fields; f->name; f++, i++)
        if (f->missing || !(missing >> i % 8 & 1))
            json_object_set_new(body, f->name, message_value(in, f, words));
    if (!message_check(&is, body, &err)) {
        expect(is == kind);
        return body;
    }
    json_decref(body);
    return NULL;
}

#endif
