/* SPDX-License-Identifier: MIT
 *
 * Streaming decode: what each new id adds to the text. A stream keeps the ids of the last piece it
 * gave out (decoders look at neighbours: leading spaces, runs of bytes) and those not given out
 * yet, and gives out the difference of two decodings. Owned by whoever made it; one thread at a
 * time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

enum {
    /* Ids held back at most: no character needs more, so what is beyond it is not UTF-8 and may as
     * well be seen. */
    PENDING_LIMIT = 32,
    /* Of these the last may belong to a character still to come: 3 bytes, and one to be sure. */
    UNFINISHED = 4,
};

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

static bool begins_with(const struct textbuf *text, const struct textbuf *start)
{
    return text->len >= start->len && (!start->len || memcmp(text->data, start->data, start->len) == 0);
}

/* Decodes ids[from, end) into `into`. */
static int decode_range(struct tokenizer_stream *s, size_t from, size_t end, struct textbuf *into)
{
    int r = tok_decode(s->tok, &s->work, s->ids.at + from, end - from, s->skip_special, NULL);
    if (r)
        return r;
    textbuf_clear(into);
    textbuf_append(into, s->work.tokens.text.data, s->work.tokens.text.len);
    return into->failed ? -ENOMEM : 0;
}

/* How many of the ids to give out although `piece`, their text, ends in U+FFFD: all but the last
 * few, cut where the text before the cut is settled. */
static int cut_garbage(struct tokenizer_stream *s, size_t *ret_end)
{
    struct textbuf head = {0};
    size_t end = s->ids.n;
    int r = 0;
    for (size_t keep = UNFINISHED; r == 0 && end == s->ids.n && keep < 2 * UNFINISHED; keep++) {
        r = decode_range(s, 0, s->ids.n - keep, &head);
        if (r == 0 && begins_with(&s->piece, &head))
            end = s->ids.n - keep;
    }
    textbuf_done(&head);
    if (r == 0)
        *ret_end = end;
    return r;
}

/* Leaves in `piece` what ids[shown, end) add to the text. */
static int cut_piece(struct tokenizer_stream *s, size_t end)
{
    struct textbuf *text = &s->piece, *before = &s->before;
    int r = decode_range(s, 0, end, text);
    if (r)
        return r;
    /* Bad bytes behind good ones can change how the good ones decode as a whole. They have been
     * given out: only the new ids count. */
    if (!begins_with(text, before))
        return decode_range(s, s->shown, end, text);
    if (before->len) {
        memmove(text->data, text->data + before->len, text->len - before->len);
        text->len -= before->len;
    }
    return 0;
}

/* The ids up to `end` have been given out; those of the piece before are not needed any more. */
static int advance(struct tokenizer_stream *s, size_t end)
{
    memmove(s->ids.at, s->ids.at + s->shown, (s->ids.n - s->shown) * sizeof *s->ids.at);
    s->ids.n -= s->shown;
    s->shown = end - s->shown;
    return decode_range(s, 0, s->shown, &s->before);
}

static int push_id(struct tokenizer_stream *s, uint32_t id)
{
    int r = idbuf_add(&s->ids, id, NULL);
    if (r == 0)
        r = decode_range(s, 0, s->ids.n, &s->piece);
    if (r)
        return r;
    size_t end = s->ids.n;
    bool full = end - s->shown >= PENDING_LIMIT;
    if (ends_in_replacement(&s->piece)) {
        if (!full) {
            textbuf_clear(&s->piece);
            return 0;
        }
        r = cut_garbage(s, &end);
    }
    if (r == 0)
        r = cut_piece(s, end);
    if (r == 0 && s->piece.len > 0)
        return advance(s, end);
    if (r == 0 && full)
        s->ids.n = s->shown; /* ids that say nothing, however many */
    return r;
}

int tokenizer_stream_push(struct tokenizer_stream *s, uint32_t id, const char **ret_text, size_t *ret_n)
{
    textbuf_clear(&s->piece);
    int r = tok_shows(s->tok, id, s->skip_special) ? push_id(s, id) : 0;
    if (r)
        return r;
    textbuf_append(&s->piece, "", 1);
    if (s->piece.failed)
        return -ENOMEM;
    *ret_n = --s->piece.len;
    *ret_text = s->piece.data;
    return 0;
}
