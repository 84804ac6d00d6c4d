/* SPDX-License-Identifier: MIT
 *
 * Streaming decode: what each new id adds to the text. A stream keeps the ids of the last piece it gave out
 * (decoders look at neighbours: leading spaces, runs of bytes) and those not given out yet, and gives out the
 * difference of two decodings. Owned by whoever made it; one thread at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

enum {
    PENDING_LIMIT = 32
}; /* ids held back; no character needs more, so beyond it is not UTF-8 and may as well be seen */

struct tokenizer_stream {
    const struct tokenizer *tok; /* borrowed: the caller */
    bool skip_special;
    struct tok_work work;
    struct idbuf ids;      /* of the last piece (`shown` of them), then of the next */
    size_t shown;          /* ids whose text has been given out */
    struct textbuf before; /* decoding of the shown ids */
    struct textbuf piece;  /* what push returned last */
};

int tokenizer_stream_new(struct tokenizer_stream **ret, const struct tokenizer *tok, bool skip_special,
                         struct err *err)
{
    struct tokenizer_stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "no memory for a stream of text");
    s->tok = tok;
    s->skip_special = skip_special;
    int r = tok_work_init(&s->work, err);
    if (r) {
        tokenizer_stream_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void tokenizer_stream_free(struct tokenizer_stream *s)
{
    if (!s)
        return;
    tok_work_done(&s->work);
    free(s->ids.at);
    textbuf_done(&s->before);
    textbuf_done(&s->piece);
    free(s);
}

static bool ends_in_replacement(const struct textbuf *text)
{
    return text->len >= 3 && memcmp(text->data + text->len - 3, UTF8_REPLACEMENT, 3) == 0;
}

/* Decodes ids[from, n) into `into`. */
static int decode_from(struct tokenizer_stream *s, size_t from, struct textbuf *into)
{
    int r = tok_decode(s->tok, &s->work, s->ids.at + from, s->ids.n - from, s->skip_special, NULL);
    if (r)
        return r;
    textbuf_clear(into);
    textbuf_append(into, s->work.tokens.text.data, s->work.tokens.text.len);
    return into->failed ? -ENOMEM : 0;
}

/* Puts what the held-back ids add into `piece`; empty if a character is not whole yet. */
static int next_piece(struct tokenizer_stream *s)
{
    int r = decode_from(s, 0, &s->piece);
    if (r)
        return r;
    struct textbuf *text = &s->piece, *before = &s->before;
    bool follows =
        text->len >= before->len && (!before->len || memcmp(text->data, before->data, before->len) == 0);
    if (ends_in_replacement(text) && s->ids.n - s->shown < PENDING_LIMIT) {
        textbuf_clear(text);
        return 0;
    }
    /* Bad bytes behind good ones can change how the good ones decode as a whole. They have been given out:
     * only the new ids count. */
    if (!follows)
        return decode_from(s, s->shown, text);
    if (before->len) {
        memmove(text->data, text->data + before->len, text->len - before->len);
        text->len -= before->len;
    }
    return 0;
}

int tokenizer_stream_push(struct tokenizer_stream *s, uint32_t id, const char **ret_text, size_t *ret_n)
{
    textbuf_clear(&s->piece);
    int r = 0;
    if (tok_shows(s->tok, id, s->skip_special)) {
        r = idbuf_add(&s->ids, id, NULL);
        if (r == 0)
            r = next_piece(s);
        if (r == 0 && s->piece.len > 0) {
            memmove(s->ids.at, s->ids.at + s->shown, (s->ids.n - s->shown) * sizeof *s->ids.at);
            s->ids.n -= s->shown;
            s->shown = s->ids.n;
            r = decode_from(s, 0, &s->before);
        } else if (r == 0 && s->ids.n - s->shown >= PENDING_LIMIT) {
            s->ids.n = s->shown; /* ids that say nothing, however many */
        }
    }
    if (r)
        return r;
    textbuf_append(&s->piece, "", 1);
    if (s->piece.failed)
        return -ENOMEM;
    *ret_n = --s->piece.len;
    *ret_text = s->piece.data;
    return 0;
}
