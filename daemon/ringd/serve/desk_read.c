/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/serve/desk_read.h"

/* A token's bytes: a text, or numbers where they are none. */
static bool read_likely(struct likely_text *ret, char room[DESK_BYTES_MAX], const json_t *token)
{
    const json_t *text = json_object_get(token, "text"), *bytes = json_object_get(token, "bytes");
    const size_t n = json_array_size(bytes);
    *ret = (struct likely_text){.text = json_string_value(text),
                                .n = json_string_length(text),
                                .logprob = json_number_value(json_object_get(token, "logprob"))};
    if (ret->text)
        return true;
    if (!json_is_array(bytes) || n > DESK_BYTES_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        room[i] = (char)json_integer_value(json_array_get(bytes, i));
    ret->text = room;
    ret->n = n;
    return true;
}

bool desk_read_token(struct desk_read *ret, const json_t *said)
{
    const json_t *top = json_object_get(said, "top");
    size_t n = 0;
    if (!read_likely(&ret->token.self, ret->rooms[DESK_TOP_MAX], said))
        return false;
    while (n < DESK_TOP_MAX && n < json_array_size(top) &&
           read_likely(&ret->top[n], ret->rooms[n], json_array_get(top, n)))
        n++;
    ret->token.top = ret->top;
    ret->token.ntop = n;
    return true;
}
