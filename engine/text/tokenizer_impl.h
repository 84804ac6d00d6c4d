/* SPDX-License-Identifier: MIT
 *
 * What a tokenizer is made of: for tokenizer.c, tok_stream.c and form/form_vocab.c only. */
#ifndef TEXT_TOKENIZER_IMPL_H
#define TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/postproc.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

struct tokenizer {
    struct bpe bpe;
    struct normalizer norm;
    struct added added;
    struct pretok pre;
    struct postproc post;
    struct decoder dec;
};

/* Working space of decoding; one per thread. */
struct tok_work {
    struct pattern_scratch *scratch; /* owned */
    struct pieces tokens, spare;
};
int tok_work_init(struct tok_work *work, struct err *err);
void tok_work_done(struct tok_work *work);

/* Decodes into work->tokens.text. */
int tok_decode(const struct tokenizer *tok, struct tok_work *work, const uint32_t *ids, size_t n,
               bool skip_special, struct err *err);
/* Does the id show in decoded text at all? */
bool tok_shows(const struct tokenizer *tok, uint32_t id, bool skip_special);

#endif
