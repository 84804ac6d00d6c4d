/* SPDX-License-Identifier: MIT
 *
 * Stateless; any thread. Case is Unicode's simple mapping, character by character, with the one
 * double that is common: the upper case of ß is SS. */
#include "text/pytext.h"

#include <string.h>
#include <utf8proc.h>

#include "text/textbuf.h"
#include "text/utf8.h"

bool pytext_is_space(uint32_t cp)
{
    return (cp >= 0x1C && cp <= 0x1F) || utf8_is_space(cp);
}

size_t pytext_lspace(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        struct utf8_char c = utf8_next(s + at, n - at);
        if (!pytext_is_space(c.cp))
            break;
        at += c.len;
    }
    return at;
}

size_t pytext_rspace(const char *s, size_t n)
{
    while (n > 0) {
        size_t last = utf8_last(s, n);
        if (!pytext_is_space(utf8_next(s + last, n - last).cp))
            break;
        n = last;
    }
    return n;
}

static bool in_set(const char *c, size_t nc, const char *set, size_t nset)
{
    for (size_t at = 0; at < nset;) {
        size_t len = utf8_next(set + at, nset - at).len;
        if (len == nc && !memcmp(set + at, c, nc))
            return true;
        at += len;
    }
    return false;
}

size_t pytext_lset(const char *s, size_t n, const char *set, size_t nset)
{
    size_t at = 0;
    while (at < n) {
        size_t len = utf8_next(s + at, n - at).len;
        if (!in_set(s + at, len, set, nset))
            break;
        at += len;
    }
    return at;
}

size_t pytext_rset(const char *s, size_t n, const char *set, size_t nset)
{
    while (n > 0) {
        size_t last = utf8_last(s, n);
        if (!in_set(s + last, n - last, set, nset))
            break;
        n = last;
    }
    return n;
}

size_t pytext_length(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

size_t pytext_offset(const char *s, size_t n, size_t i)
{
    size_t at = 0;
    for (; at < n; at++)
        if (((unsigned char)s[at] & 0xC0) != 0x80 && i-- == 0)
            break;
    return at;
}

size_t pytext_find(const char *s, size_t n, size_t from, const char *what, size_t nwhat)
{
    if (from > n)
        return n + 1;
    if (nwhat == 0)
        return from;
    const char *at = memmem(s + from, n - from, what, nwhat);
    return at ? (size_t)(at - s) : n + 1;
}

size_t pytext_line(const char *s, size_t n, size_t *ret_whole)
{
    size_t at = 0;
    while (at < n) {
        struct utf8_char c = utf8_next(s + at, n - at);
        bool is_end = (c.cp >= 0x0A && c.cp <= 0x0D) || (c.cp >= 0x1C && c.cp <= 0x1E) || c.cp == 0x85 ||
                      c.cp == 0x2028 || c.cp == 0x2029;
        if (is_end) {
            bool is_crlf = c.cp == '\r' && at + 1 < n && s[at + 1] == '\n';
            *ret_whole = at + c.len + is_crlf;
            return at;
        }
        at += c.len;
    }
    *ret_whole = n;
    return n;
}

/* 1 upper, −1 lower, 2 title, 0 for what has no case. */
static int case_of(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU: return 1;
    case UTF8PROC_CATEGORY_LL: return -1;
    case UTF8PROC_CATEGORY_LT: return 2;
    default: return 0;
    }
}

void pytext_append_case(struct textbuf *buf, const char *s, size_t n, enum pytext_case to)
{
    bool in_word = false;
    for (size_t at = 0; at < n;) {
        struct utf8_char c = utf8_next(s + at, n - at);
        utf8proc_int32_t cp = (utf8proc_int32_t)c.cp;
        enum pytext_case now = to;
        if (to == PYTEXT_TITLE || to == PYTEXT_CAPITALIZE)
            now = in_word ? PYTEXT_LOWER : PYTEXT_TITLE;
        else if (to == PYTEXT_SWAP)
            now = case_of(c.cp) == 1 ? PYTEXT_LOWER : PYTEXT_UPPER;
        if (c.cp == 0xDF && now != PYTEXT_LOWER)
            textbuf_append(buf, now == PYTEXT_UPPER ? "SS" : "Ss", 2);
        else
            textbuf_append_char(buf, (unsigned)(now == PYTEXT_UPPER   ? utf8proc_toupper(cp)
                                                : now == PYTEXT_LOWER ? utf8proc_tolower(cp)
                                                                      : utf8proc_totitle(cp)));
        in_word = to == PYTEXT_CAPITALIZE || case_of(c.cp) != 0;
        at += c.len;
    }
}

static bool is_class(uint32_t cp, enum pytext_class what)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    bool is_alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO,
         is_digit = k == UTF8PROC_CATEGORY_ND;
    switch (what) {
    case PYTEXT_ALPHA: return is_alpha;
    case PYTEXT_DIGIT: return is_digit;
    case PYTEXT_ALNUM: return is_alpha || is_digit;
    case PYTEXT_SPACE: return pytext_is_space(cp);
    case PYTEXT_IS_UPPER: return case_of(cp) >= 0 && case_of(cp) < 2;
    case PYTEXT_IS_LOWER: return case_of(cp) <= 0;
    }
    return false;
}

bool pytext_is(const char *s, size_t n, enum pytext_class what)
{
    bool has_case = what != PYTEXT_IS_UPPER && what != PYTEXT_IS_LOWER;
    for (size_t at = 0; at < n;) {
        struct utf8_char c = utf8_next(s + at, n - at);
        if (!is_class(c.cp, what))
            return false;
        has_case = has_case || case_of(c.cp) != 0;
        at += c.len;
    }
    return n > 0 && has_case;
}
