/* SPDX-License-Identifier: MIT
 *
 * Sentences about what went wrong. Called by all of the engine and by its programs, on any thread; no state. */
#include "err.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the printable character at s; 0 where there is none, or a part of one. */
static size_t char_bytes(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (*s < 0x80)
        return *s >= 0x20 && *s != 0x7f;
    const size_t n = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
    uint32_t cp = *s & (0x7fu >> n);
    if (*s < 0xc2 || *s > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (s[i] & 0x3fu);
    }
    return cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) ? 0 : n;
}

/* Names in a sentence come from anybody's files, and are cut at so many bytes: nothing in it may steer a terminal, and what is not UTF-8
 * could not be told in JSON, and so nobody would be told. */
static void disarm(char *text)
{
    for (size_t n; *text; text += n) {
        n = char_bytes((const unsigned char *)text);
        if (n)
            continue;
        *text = strchr("\n\t", *text) ? ' ' : '?';
        n = 1;
    }
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    disarm(err->text);
    return code;
}

int err_prefix(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    struct err was = *err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof err->text - 2)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %.*s",
                 (int)(sizeof err->text - (size_t)n - 3), was.text);
    disarm(err->text);
    return code;
}
