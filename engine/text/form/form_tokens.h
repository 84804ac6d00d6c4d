/* SPDX-License-Identifier: MIT
 *
 * The texts of a vocabulary as a tree of bytes, so that tokens which begin alike are looked at
 * together. Made once for a model, read-only then; any thread. */
#ifndef TEXT_FORM_TOKENS_H
#define TEXT_FORM_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct form_tokens;
struct tokenizer;

/* What a token adds to the text: raw bytes, at most FORM_TOKEN_MAX. n 0: nothing that a form lets
 * through, such as a special token. */
enum { FORM_TOKEN_MAX = 4096 };
struct form_token {
    const char *text; /* borrowed until form_tokens_new returns */
    size_t n;
};

/* token [vocab], by id; ends [nends]: tokens that end an answer, whatever their text. −EINVAL,
 * −ENOMEM. */
int form_tokens_new(struct form_tokens **ret, const struct form_token *token, size_t vocab,
                    const uint32_t *ends, size_t nends, struct err *err);
/* The same of a tokenizer: special tokens have no text, nor have ids that it lacks. vocab:
 * of the model, whose logits may be more. */
int form_tokens_of(struct form_tokens **ret, const struct tokenizer *tok, size_t vocab, const uint32_t *ends,
                   size_t nends, struct err *err);
void form_tokens_free(struct form_tokens *tokens);
size_t form_tokens_vocab(const struct form_tokens *tokens);

#endif
