/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's "added_tokens": tokens found in the text before anything else looks at it.
 * Read-only once parsed. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/trie.h"
#include "text/vocab.h"

struct normalizer;

struct added_token {
    uint32_t id;
    bool special, normalized; /* normalized: looked for in the normalized text, else in the text as written */
    bool single_word;         /* only where no word character touches it */
    bool takes_left, takes_right; /* swallows the white space on that side */
};

struct added {
    struct vocab vocab;         /* text ↔ id; tokens of the model's vocabulary may be here too */
    struct added_token *tokens; /* owned, n of them, in the file's order */
    size_t n, cap;
    struct trie raw, normalized; /* values: indices into tokens */
};

int added_parse(struct added *added, const json_t *json, const struct normalizer *norm, struct err *err);
void added_done(struct added *added);
bool added_is_special(const struct added *added, uint32_t id);

struct added_walk {
    size_t from;    /* where to look on */
    size_t covered; /* end of the token before: white space is not swallowed twice, nor looked at twice */
};
struct added_hit {
    size_t start, end; /* bytes of the text the token stands for, white space it swallows included */
    uint32_t id;
};
/* The next added token in s[0, n), from the left: 1 or 0. Begin with a zeroed walk; walk->covered
 * is then the token's end. `normalized` says which kind of text s is. */
int added_next(const struct added *added, bool normalized, const char *s, size_t n, struct added_walk *walk,
               struct added_hit *ret);

#endif
