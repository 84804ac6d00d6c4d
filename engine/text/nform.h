/* SPDX-License-Identifier: MIT
 *
 * Unicode normalization forms (Unicode Standard Annex 15). */
#ifndef TEXT_NFORM_H
#define TEXT_NFORM_H

#include <stddef.h>

struct textbuf;

enum nform { NFORM_C, NFORM_D, NFORM_KC, NFORM_KD };

/* Appends the normal form of valid UTF-8. O(n log n), also for a text of nothing but combining
 * marks. */
void nform_append(struct textbuf *out, const char *s, size_t n, enum nform form);

#endif
