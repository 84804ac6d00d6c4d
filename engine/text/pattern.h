/* SPDX-License-Identifier: MIT
 *
 * What Split and Replace look for: a fixed string, or a regular expression in tokenizer.json's
 * dialect (Oniguruma's Ruby syntax) run by PCRE2. Read-only once made. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct pattern;
struct textbuf;
struct pattern_scratch; /* what a search needs beside the pattern; one per thread */

int pattern_new_literal(struct pattern **ret, const char *text, size_t n, struct err *err);
int pattern_new_regex(struct pattern **ret, const char *regex, struct err *err);
/* From {"String": "…"} or {"Regex": "…"}. */
int pattern_from_json(struct pattern **ret, const json_t *obj, const char *where, struct err *err);
void pattern_free(struct pattern *p);

int pattern_scratch_new(struct pattern_scratch **ret, struct err *err);
/* Searches with it are given up after so many steps: for texts that are short, and many. */
void pattern_scratch_limit(struct pattern_scratch *s, uint32_t steps);
void pattern_scratch_free(struct pattern_scratch *s);

struct pattern_hit {
    size_t start, end;
};
/* A walk over the matches in one text, from the left: start with PATTERN_WALK. */
struct pattern_walk {
    size_t from, last; /* where to look on; end of the match before */
};
#define PATTERN_WALK ((struct pattern_walk){0, SIZE_MAX})
/* The next match in s[0, n), which is valid UTF-8; never an empty one right behind the match
 * before. 1 found, 0 none, −errno when the search had to be given up. */
int pattern_next(const struct pattern *p, struct pattern_scratch *scratch, const char *s, size_t n,
                 struct pattern_walk *walk, struct pattern_hit *ret, struct err *err);
/* Appends s to out with every match replaced. */
int pattern_replace(const struct pattern *p, struct pattern_scratch *scratch, const char *s, size_t n,
                    const struct textbuf *with, struct textbuf *out, struct err *err);

#endif
