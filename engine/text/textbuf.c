/* SPDX-License-Identifier: MIT
 *
 * Growing buffers with a sticky failure. Owned by whoever embeds them; no state of their own.
 * Called by every file of engine/text, on the caller's thread. */
#include "text/textbuf.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

int array_reserve(void **array, size_t *cap, size_t need, size_t element_bytes)
{
    if (need <= *cap)
        return 0;
    size_t grown = *cap < 16 ? 16 : *cap + *cap / 2;
    if (grown < need)
        grown = need;
    if (grown > SIZE_MAX / 2 / element_bytes)
        return -ENOMEM;
    void *moved = realloc(*array, grown * element_bytes);
    if (!moved)
        return -ENOMEM;
    *array = moved;
    *cap = grown;
    return 0;
}

void textbuf_append(struct textbuf *buf, const char *data, size_t n)
{
    if (buf->failed)
        return;
    void *bytes = buf->data;
    /* At least one byte: text that is empty has an address too, which may be added to. */
    if (n > SIZE_MAX / 4 - buf->len || array_reserve(&bytes, &buf->cap, buf->len + n + 1, 1)) {
        buf->failed = true;
        return;
    }
    buf->data = bytes;
    if (n > 0)
        memcpy(buf->data + buf->len, data, n);
    buf->len += n;
}

void textbuf_append_char(struct textbuf *buf, unsigned cp)
{
    char utf8[4];
    textbuf_append(buf, utf8, utf8_encode(cp, utf8));
}

void textbuf_append_lossy(struct textbuf *buf, const char *s, size_t n)
{
    if (n == 0) { /* s may be NULL, which nothing may be added to */
        textbuf_append(buf, "", 0);
        return;
    }
    size_t clean = 0; /* start of the valid run not yet copied */
    for (size_t i = 0; i < n;) {
        struct utf8_char c = utf8_next(s + i, n - i);
        if (!c.valid) {
            textbuf_append(buf, s + clean, i - clean);
            textbuf_append(buf, UTF8_REPLACEMENT, 3);
            clean = i + c.len;
        }
        i += c.len;
    }
    textbuf_append(buf, s + clean, n - clean);
}

void textbuf_clear(struct textbuf *buf)
{
    buf->len = 0;
}

void textbuf_done(struct textbuf *buf)
{
    free(buf->data);
    *buf = (struct textbuf){0};
}

void pieces_add(struct pieces *p, size_t start, size_t len, bool at_start)
{
    void *at = p->at;
    if (p->text.failed || array_reserve(&at, &p->cap, p->n + 1, sizeof *p->at)) {
        p->text.failed = true;
        return;
    }
    p->at = at;
    p->at[p->n++] = (struct piece){start, len, at_start};
}

void pieces_append(struct pieces *p, const char *data, size_t n, bool at_start)
{
    size_t start = p->text.len;
    textbuf_append(&p->text, data, n);
    pieces_add(p, start, n, at_start);
}

void pieces_clear(struct pieces *p)
{
    p->n = 0;
    textbuf_clear(&p->text);
}

void pieces_done(struct pieces *p)
{
    free(p->at);
    textbuf_done(&p->text);
    *p = (struct pieces){0};
}

void pieces_swap(struct pieces *a, struct pieces *b)
{
    struct pieces c = *a;
    *a = *b;
    *b = c;
}
