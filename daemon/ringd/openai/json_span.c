/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/json_span.h"

#include <string.h>

static bool push_in_string(struct json_span *s, char byte)
{
    if ((unsigned char)byte < 0x20)
        return false;
    if (s->is_escaped)
        s->is_escaped = false;
    else if (byte == '\\')
        s->is_escaped = true;
    else if (byte == '"')
        s->in_string = false;
    return true;
}

bool json_span_push(struct json_span *s, char byte)
{
    if (s->in_string)
        return push_in_string(s, byte);
    switch (byte) {
    case '{':
    case '[': s->depth++; return true;
    case '}':
    case ']':
        if (!s->depth)
            return false;
        s->depth--;
        return true;
    case '"': s->in_string = true; return true;
    default: return byte && strchr(" \t\r\n:,0123456789+-.eEtrufalsn", byte);
    }
}
