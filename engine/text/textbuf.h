/* SPDX-License-Identifier: MIT
 *
 * Growing buffers of the text modules: bytes, and pieces (bytes cut into spans). An append that
 * finds no memory marks the buffer failed and does nothing from then on, so a long run of appends
 * is checked once, at its end. */
#ifndef TEXT_TEXTBUF_H
#define TEXT_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>

struct textbuf {
    char *data; /* owned */
    size_t len, cap;
    bool failed; /* an append found no memory */
};

void textbuf_append(struct textbuf *buf, const char *data, size_t n);
void textbuf_clear(struct textbuf *buf); /* empty, memory kept */
void textbuf_done(struct textbuf *buf);
/* Appends the character U+cp. */
void textbuf_append_char(struct textbuf *buf, unsigned cp);
/* Appends s with every maximal ill-formed part replaced by one U+FFFD. */
void textbuf_append_lossy(struct textbuf *buf, const char *s, size_t n);

/* A run of text.data. Consecutive pieces need not touch: a removed separator leaves a gap. */
struct piece {
    size_t start, len;
    bool at_start; /* begins where the caller's text began: Metaspace's prepend_scheme "first" asks */
};

struct pieces {
    struct textbuf text;
    struct piece *at; /* owned, n of them */
    size_t n, cap;
};

void pieces_add(struct pieces *p, size_t start, size_t len, bool at_start);
/* Appends the bytes as a piece of their own. */
void pieces_append(struct pieces *p, const char *data, size_t n, bool at_start);
void pieces_clear(struct pieces *p);
void pieces_done(struct pieces *p);
void pieces_swap(struct pieces *a, struct pieces *b);

/* Room for `need` elements in *array, whose capacity is *cap: −ENOMEM, or 0 with both updated. */
int array_reserve(void **array, size_t *cap, size_t need, size_t element_bytes);

#endif
