/* SPDX-License-Identifier: MIT
 *
 * UTF-8 decoding with Unicode's recommended replacement, and character classes by general category.
 * Stateless; any thread. */
#include "text/utf8.h"

#include <utf8proc.h>

struct utf8_char utf8_next(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    struct utf8_char bad = {0xFFFD, 1, false};
    if (u[0] < 0x80)
        return (struct utf8_char){u[0], 1, true};
    if (u[0] < 0xC2 || u[0] > 0xF4)
        return bad;
    uint32_t len = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    /* The second byte alone rules out overlong forms, surrogates and what lies beyond U+10FFFF. */
    unsigned low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    uint32_t cp = u[0] & (0x7Fu >> len);
    for (uint32_t i = 1; i < len; i++) {
        if (i >= n || u[i] < low || u[i] > high) {
            bad.len = i;
            return bad;
        }
        cp = cp << 6 | (u[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    return (struct utf8_char){cp, len, true};
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

bool utf8_is_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        struct utf8_char c = utf8_next(s + i, n - i);
        if (!c.valid)
            return false;
        i += c.len;
    }
    return true;
}

size_t utf8_last(const char *s, size_t n)
{
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80)
        i--;
    return i;
}

bool utf8_is_space(uint32_t cp)
{
    if ((cp >= 9 && cp <= 13) || cp == 0x85)
        return true;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

bool utf8_is_word(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return cp == 0x200C || cp == 0x200D; /* the two joiners belong to words */
    }
}
