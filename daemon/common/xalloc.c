/* SPDX-License-Identifier: MIT
 *
 * Owns nothing; called everywhere in daemon/, from any thread. */
#include "daemon/common/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_abort(void *p, size_t n)
{
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes of bookkeeping\n", n);
        abort();
    }
    return p;
}

void *xmalloc(size_t n)
{
    return or_abort(malloc(n ? n : 1), n);
}

void *xcalloc(size_t count, size_t size)
{
    return or_abort(calloc(count ? count : 1, size ? size : 1), count * size);
}

void *xrealloc(void *p, size_t n)
{
    return or_abort(realloc(p, n ? n : 1), n);
}

void *xreallocarray(void *p, size_t count, size_t size)
{
    return or_abort(reallocarray(p, count ? count : 1, size ? size : 1), count * size);
}

char *xstrdup(const char *s)
{
    return s ? xmemdup(s, strlen(s) + 1) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
    return or_abort(strndup(s, n), n);
}

void *xmemdup(const void *p, size_t n)
{
    void *copy = xmalloc(n);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return or_abort(n < 0 ? NULL : text, 0);
}
