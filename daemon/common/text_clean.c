/* SPDX-License-Identifier: MIT */
#include "daemon/common/text_clean.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* The character at the beginning of a text, and its bytes. −1: it is no UTF-8, step over one byte.
 * RFC 3629, section 4. (The engine's decoder brings the tables of Unicode with it.) */
static int32_t next_char(const char *s, size_t *ret_len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)s;
    const size_t len = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    uint32_t cp = len > 1 ? *p & (0xFFU >> (len + 1)) : *p;
    *ret_len = 1;
    for (size_t i = 1; i < len; i++) {
        if (p[i] >> 6 != 2) /* the NUL at the end, too */
            return -1;
        cp = cp << 6 | (p[i] & 0x3F);
    }
    if (!len || cp < least[len] || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return -1;
    *ret_len = len;
    return (int32_t)cp;
}

static bool is_control(int32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
}

/* Embeddings, overrides and isolates of UAX #9, and separators that end a line. */
static bool is_layout(int32_t cp)
{
    return (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

size_t text_clean(char *to, size_t size, const char *from, bool lines)
{
    size_t n = 0;
    while (*from) {
        size_t step;
        const int32_t cp = next_char(from, &step);
        const char *piece = from;
        size_t len = step;
        if (cp == '\n' || cp == '\t') {
            piece = lines ? from : " ";
        } else if (cp < 0 || is_control(cp) || is_layout(cp)) {
            piece = replacement;
            len = sizeof replacement - 1;
        }
        if (len > size - 1 - n)
            break;
        memcpy(to + n, piece, len);
        n += len;
        from += step;
    }
    to[n] = '\0';
    return n;
}

static void clean_string(json_t *string)
{
    const size_t size = TEXT_CLEAN_GROWTH * json_string_length(string) + 1;
    char *clean = xmalloc(size);
    text_clean(clean, size, json_string_value(string), true);
    json_string_set(string, clean);
    free(clean);
}

void text_clean_json(json_t *value, const char *except)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(value))
        clean_string(value);
    json_array_foreach (value, i, item)
        text_clean_json(item, except);
    json_object_foreach (value, key, item)
        if (!except || strcmp(key, except) != 0)
            text_clean_json(item, except);
}
