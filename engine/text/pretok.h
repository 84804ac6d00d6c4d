/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's "pre_tokenizer": cuts text into the words the model merges within. Read-only
 * once parsed.
 */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include <jansson.h>
#include <stddef.h>

#include "err.h"
#include "text/textbuf.h"

struct pattern_scratch;
struct pretok_step;

struct pretok {
    struct pretok_step *steps; /* owned, n of them */
    size_t n, cap;
};

int pretok_parse(struct pretok *pre, const json_t *json, struct err *err); /* null: the text is one word */
void pretok_done(struct pretok *pre);

/* Cuts (and rewrites) the words in place; `spare` is working space. */
int pretok_apply(const struct pretok *pre, struct pattern_scratch *scratch, struct pieces *words,
                 struct pieces *spare, struct err *err);

#endif
