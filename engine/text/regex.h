/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's regular expressions are written for Oniguruma (Ruby syntax). PCRE2 reads nearly
 * the same language; this rewrites what differs and refuses what cannot be expressed. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "err.h"

struct textbuf;

/* Appends the PCRE2 spelling, NUL-terminated beyond its length. −EINVAL with the construct's
 * name. */
int regex_translate(struct textbuf *out, const char *regex, struct err *err);

#endif
