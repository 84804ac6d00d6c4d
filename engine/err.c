/* SPDX-License-Identifier: MIT
 *
 * Sentences about what went wrong. Called by all of the engine and by its programs, on any thread;
 * no state. */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

/* Names in a sentence come from anybody's files, and are cut at so many bytes: nothing in it may
 * steer a terminal, and what is not UTF-8 could not be told in JSON, and so nobody would be
 * told. */
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

/* "Too many open files" says neither how many are allowed nor how to allow more. */
static void name_limit(struct err *err)
{
    const struct err was = *err;
    struct rlimit files;
    const char *reason = strstr(was.text, strerror(EMFILE));
    if (getrlimit(RLIMIT_NOFILE, &files) || !reason)
        return;
    snprintf(err->text, sizeof err->text,
             "%.*sout of file descriptors: %llu allowed (ulimit -n / LimitNOFILE=)%s",
             (int)(reason - was.text), was.text, (unsigned long long)files.rlim_cur,
             reason + strlen(strerror(EMFILE)));
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (code == -EMFILE)
        name_limit(err);
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

struct err_amounts err_amounts(size_t need, size_t have)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct err_amounts a = {"", ""};
    size_t u = 0;
    double scale = 1.0;
    for (; (double)(need > have ? need : have) >= 1024.0 * scale; scale *= 1024.0)
        u++;
    for (int digits = u > 0; digits <= 3; digits++) {
        snprintf(a.need, sizeof a.need, "%.*f %s", digits, (double)need / scale, unit[u]);
        snprintf(a.have, sizeof a.have, "%.*f %s", digits, (double)have / scale, unit[u]);
        bool is_seen = !have || strtod(a.have, NULL) > 0.0;
        if (need == have || (is_seen && strcmp(a.need, a.have) != 0))
            break;
    }
    return a;
}
