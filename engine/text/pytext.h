/* SPDX-License-Identifier: MIT
 *
 * What Python does to text, on valid UTF-8: whitespace, characters counted, case. Pure
 * functions. */
#ifndef TEXT_PYTEXT_H
#define TEXT_PYTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct textbuf;

bool pytext_is_space(uint32_t cp); /* str.isspace */
/* Bytes of whitespace s begins with; what is left without those at its end. */
size_t pytext_lspace(const char *s, size_t n);
size_t pytext_rspace(const char *s, size_t n);
/* The same with the characters of a set, as strip("…") takes it. */
size_t pytext_lset(const char *s, size_t n, const char *set, size_t nset);
size_t pytext_rset(const char *s, size_t n, const char *set, size_t nset);

size_t pytext_length(const char *s, size_t n); /* characters */
/* Where character i begins; n where there are no more than i. */
size_t pytext_offset(const char *s, size_t n, size_t i);
/* The first `what` at or after `from`, or n + 1; an empty one is found at `from`. */
size_t pytext_find(const char *s, size_t n, size_t from, const char *what, size_t nwhat);
/* str.splitlines: bytes of the first line, and of it with what ends it; n > 0. */
size_t pytext_line(const char *s, size_t n, size_t *ret_whole);

enum pytext_case { PYTEXT_UPPER, PYTEXT_LOWER, PYTEXT_TITLE, PYTEXT_CAPITALIZE, PYTEXT_SWAP };
void pytext_append_case(struct textbuf *buf, const char *s, size_t n, enum pytext_case to);

enum pytext_class {
    PYTEXT_ALPHA,
    PYTEXT_DIGIT,
    PYTEXT_ALNUM,
    PYTEXT_SPACE,
    PYTEXT_IS_UPPER,
    PYTEXT_IS_LOWER
};
/* str.isalpha and its like: not empty, and all of that class; for case, one that has case and none
 * of the other. */
bool pytext_is(const char *s, size_t n, enum pytext_class what);

#endif
