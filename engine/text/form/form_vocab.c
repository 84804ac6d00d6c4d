/* SPDX-License-Identifier: MIT
 *
 * The texts of a tokenizer's tokens, as bytes. */
#include <errno.h>
#include <stdlib.h>

#include "text/form/form_tokens.h"
#include "text/pattern.h"
#include "text/tokenizer_impl.h"

/* Special tokens mark the parts of a conversation: none belongs into what a form describes. */
static bool has_text(const struct tokenizer *tok, uint32_t id)
{
    return tokenizer_has(tok, id) && !tokenizer_is_special(tok, id);
}

static int read_texts(struct textbuf *bytes, size_t *at, const struct tokenizer *tok, size_t vocab,
                      struct err *err)
{
    struct pattern_scratch *scratch = NULL;
    int r = pattern_scratch_new(&scratch, err);
    for (size_t id = 0; id < vocab && !r; id++) {
        size_t n;
        at[id] = bytes->len;
        const char *text = has_text(tok, (uint32_t)id) ? tokenizer_text(tok, (uint32_t)id, &n) : NULL;
        if (text)
            r = decoder_token_bytes(&tok->dec, scratch, text, n, bytes, err);
    }
    at[vocab] = bytes->len;
    pattern_scratch_free(scratch);
    return r;
}

int form_tokens_of(struct form_tokens **ret, const struct tokenizer *tok, size_t vocab, const uint32_t *ends,
                   size_t nends, struct err *err)
{
    struct textbuf bytes = {0};
    size_t *at = calloc(vocab + 1, sizeof *at);
    struct form_token *token = calloc(vocab + 1, sizeof *token);
    int r = at && token ? read_texts(&bytes, at, tok, vocab, err)
                        : err_set(err, -ENOMEM, "no memory for the texts of %zu tokens", vocab);
    for (size_t id = 0; id < vocab && !r; id++) {
        const size_t n = at[id + 1] - at[id]; /* one that is longer than any answer is left out */
        token[id] = (struct form_token){bytes.data + at[id], n <= FORM_TOKEN_MAX ? n : 0};
    }
    if (!r)
        r = form_tokens_new(ret, token, vocab, ends, nends, err);
    textbuf_done(&bytes);
    free(at);
    free(token);
    return r;
}
