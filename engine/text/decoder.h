/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's "decoder": the texts of tokens → the text they stand for. Read-only once
 * parsed. */
#ifndef TEXT_DECODER_H
#define TEXT_DECODER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "text/textbuf.h"

struct pattern_scratch;
struct decoder_step;

struct decoder {
    struct decoder_step *steps; /* owned, n of them */
    size_t n, cap;
    bool is_absent; /* then tokens are words: spaces between them */
};

int decoder_parse(struct decoder *dec, const json_t *json,
                  struct err *err); /* null: tokens with spaces between */
void decoder_done(struct decoder *dec);

/* Turns the token texts into the decoded text, all of tokens->text; `spare` is working space. */
int decoder_apply(const struct decoder *dec, struct pattern_scratch *scratch, struct pieces *tokens,
                  struct pieces *spare, struct err *err);

/* Appends the bytes that a token stands for behind others: also where they are part of a character.
 * */
int decoder_token_bytes(const struct decoder *dec, struct pattern_scratch *scratch, const char *token,
                        size_t n, struct textbuf *ret, struct err *err);

#endif
