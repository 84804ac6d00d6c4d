/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's "normalizer": text → text, before anything is split. Read-only once parsed. */
#ifndef TEXT_NORMALIZER_H
#define TEXT_NORMALIZER_H

#include <jansson.h>
#include <stddef.h>

#include "err.h"
#include "text/textbuf.h"

struct pattern_scratch;
struct normalizer_step;

struct normalizer {
    struct normalizer_step *steps; /* owned, n of them */
    size_t n, cap;
};

int normalizer_parse(struct normalizer *norm, const json_t *json, struct err *err); /* null: none */
void normalizer_done(struct normalizer *norm);

/* Replaces the valid UTF-8 in `text` by its normal form; `spare` is working space. */
int normalizer_apply(const struct normalizer *norm, struct pattern_scratch *scratch, struct textbuf *text,
                     struct textbuf *spare, struct err *err);

#endif
