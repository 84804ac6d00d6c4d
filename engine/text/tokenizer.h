/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json (Hugging Face tokenizers' format) → ids and back: byte-level BPE and
 * sentencepiece-style BPE with byte fallback. An unknown normalizer, pre-tokenizer, decoder or
 * model is refused by name. Thread-safe once opened. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct tokenizer;

/* DIR/tokenizer.json, or where there is none Kimi's DIR/tiktoken.model. */
int tokenizer_open(struct tokenizer **ret, const char *dir, struct err *err);
/* The former from the file's contents in memory. */
int tokenizer_parse(struct tokenizer **ret, const char *text, size_t n, struct err *err);
void tokenizer_close(struct tokenizer *tok);

int tokenizer_id(const struct tokenizer *tok, const char *token,
                 uint32_t *ret);                              /* exact token text; −ENOENT */
bool tokenizer_has(const struct tokenizer *tok, uint32_t id); /* is there such a token? */
bool tokenizer_is_special(const struct tokenizer *tok, uint32_t id);
/* How a token is written in tokenizer.json, borrowed; NULL: there is none with this id. ret_n
 * may be NULL. */
const char *tokenizer_text(const struct tokenizer *tok, uint32_t id, size_t *ret_n);

/* UTF-8 text (invalid bytes become U+FFFD) → ids, a fresh array the caller frees. `special` adds
 * what the post-processor adds (BOS and the like). Special tokens written in the text are
 * recognised either way, as Hugging Face does. Time is O(n log n) even for a megabyte without a
 * space. */
int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t n, bool special,
                     uint32_t **ret_ids, size_t *ret_n, struct err *err);
/* ids → text, NUL-terminated, a fresh string the caller frees. Unknown ids decode to nothing. */
int tokenizer_decode(const struct tokenizer *tok, const uint32_t *ids, size_t n, bool skip_special,
                     char **ret_text, size_t *ret_n, struct err *err);

/* Streaming: what each new id adds to the text, never half a UTF-8 character; the concatenation of
 * all pieces equals the decoded whole but for an incomplete end. */
struct tokenizer_stream;
int tokenizer_stream_new(struct tokenizer_stream **ret, const struct tokenizer *tok, bool skip_special,
                         struct err *err);
/* ret_text: "" while a character is incomplete; valid until the next call. */
int tokenizer_stream_push(struct tokenizer_stream *s, uint32_t id, const char **ret_text, size_t *ret_n);
void tokenizer_stream_free(struct tokenizer_stream *s);

#endif
