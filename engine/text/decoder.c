/* SPDX-License-Identifier: MIT
 *
 * The decoders of tokenizer.json as a list of steps over pieces, one piece a token at first. Owned
 * by a tokenizer; parsed when it opens, applied by decode and by streams on any thread. */
#include "text/decoder.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/bytelevel.h"
#include "text/metaspace.h"
#include "text/pattern.h"
#include "text/tok_json.h"
#include "text/utf8.h"

enum decoder_kind { DEC_BYTE_LEVEL, DEC_BYTE_FALLBACK, DEC_FUSE, DEC_REPLACE, DEC_STRIP, DEC_METASPACE };

enum { STRIP_LIMIT = 1 << 20 };

struct decoder_step {
    enum decoder_kind kind;
    struct pattern *pattern;     /* DEC_REPLACE; owned */
    struct textbuf content;      /* DEC_REPLACE, DEC_STRIP, DEC_METASPACE's mark */
    size_t start, stop;          /* DEC_STRIP: how many at most, at each end */
    enum prepend_scheme prepend; /* DEC_METASPACE */
};

static int parse_fields(struct decoder_step *step, const json_t *json, struct err *err)
{
    const char *content = NULL;
    int r = 0;
    switch (step->kind) {
    case DEC_REPLACE:
        r = tok_json_string(json, "decoder Replace", "content", &content, err);
        if (r == 0)
            r = pattern_from_json(&step->pattern, json_object_get(json, "pattern"), "decoder Replace", err);
        break;
    case DEC_STRIP:
        r = tok_json_string(json, "decoder Strip", "content", &content, err);
        if (r == 0)
            r = tok_json_count(json, "decoder Strip", "start", STRIP_LIMIT, &step->start, err);
        if (r == 0)
            r = tok_json_count(json, "decoder Strip", "stop", STRIP_LIMIT, &step->stop, err);
        if (r == 0 && !*content)
            r = err_set(err, -EINVAL, "decoder Strip: \"content\" must be one character");
        break;
    case DEC_METASPACE: r = metaspace_parse(json, "decoder Metaspace", &content, &step->prepend, err); break;
    case DEC_BYTE_LEVEL:
    case DEC_BYTE_FALLBACK:
    case DEC_FUSE: break;
    }
    if (r == 0 && content)
        textbuf_append(&step->content, content, strlen(content));
    if (r == 0 && step->content.failed)
        r = err_set(err, -ENOMEM, "no memory for the decoder");
    return r;
}

static int parse_step(void *owner, const char *type, const json_t *json, struct err *err)
{
    static const struct {
        const char *type;
        enum decoder_kind kind;
    } kinds[] = {
        {"ByteLevel", DEC_BYTE_LEVEL},
        {"ByteFallback", DEC_BYTE_FALLBACK},
        {"Fuse", DEC_FUSE},
        {"Replace", DEC_REPLACE},
        {"Strip", DEC_STRIP},
        {"Metaspace", DEC_METASPACE},
    };
    struct decoder *dec = owner;
    size_t k = 0;
    while (k < sizeof kinds / sizeof *kinds && strcmp(type, kinds[k].type) != 0)
        k++;
    if (k == sizeof kinds / sizeof *kinds)
        return err_set(
            err, -ENOTSUP,
            "the decoder '%.64s' is not supported; use a model whose tokenizer has ByteLevel, ByteFallback, "
            "Fuse, Replace, Strip, Metaspace, a Sequence of them, or none",
            type);
    void *steps = dec->steps;
    if (array_reserve(&steps, &dec->cap, dec->n + 1, sizeof *dec->steps))
        return err_set(err, -ENOMEM, "no memory for the decoder");
    dec->steps = steps;
    dec->steps[dec->n] = (struct decoder_step){.kind = kinds[k].kind};
    return parse_fields(&dec->steps[dec->n++], json, err);
}

int decoder_parse(struct decoder *dec, const json_t *json, struct err *err)
{
    *dec = (struct decoder){.is_absent = !json || json_is_null(json)};
    return tok_json_each(json, "decoder", "decoders", 0, parse_step, dec, err);
}

void decoder_done(struct decoder *dec)
{
    for (size_t i = 0; i < dec->n; i++) {
        pattern_free(dec->steps[i].pattern);
        textbuf_done(&dec->steps[i].content);
    }
    free(dec->steps);
    *dec = (struct decoder){0};
}

/* <0x41> → 0x41; −1 for any other token. */
static int byte_of(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || !isxdigit((unsigned char)s[3]) ||
        !isxdigit((unsigned char)s[4]))
        return -1;
    char digits[3] = {s[3], s[4], '\0'};
    return (int)strtol(digits, NULL, 16);
}

/* A run of byte tokens is a text of its own if it is valid, else one U+FFFD for each byte: either
 * way one piece. */
static void end_run(struct textbuf *run, struct pieces *out)
{
    if (run->len == 0)
        return;
    if (utf8_is_valid(run->data, run->len)) {
        pieces_append(out, run->data, run->len, false);
    } else {
        for (size_t i = 0; i < run->len; i++)
            pieces_append(out, UTF8_REPLACEMENT, 3, false);
    }
    textbuf_clear(run);
}

static void byte_fallback(const struct pieces *in, struct pieces *out)
{
    struct textbuf run = {0};
    for (size_t i = 0; i < in->n; i++) {
        const char *s = in->text.data + in->at[i].start;
        int byte = byte_of(s, in->at[i].len);
        if (byte >= 0) {
            textbuf_append(&run, &(char){(char)byte}, 1);
            continue;
        }
        end_run(&run, out);
        pieces_append(out, s, in->at[i].len, false);
    }
    end_run(&run, out);
    out->text.failed |= run.failed;
    textbuf_done(&run);
}

static void byte_level(const struct pieces *in, struct pieces *out)
{
    struct textbuf bytes = {0};
    for (size_t i = 0; i < in->n; i++)
        bytelevel_decode(&bytes, in->text.data + in->at[i].start, in->at[i].len);
    textbuf_append_lossy(&out->text, bytes.data, bytes.len);
    pieces_add(out, 0, out->text.len, false);
    out->text.failed |= bytes.failed;
    textbuf_done(&bytes);
}

static void strip(const struct decoder_step *step, const char *s, size_t n, struct pieces *out)
{
    const struct textbuf *mark = &step->content;
    size_t start = 0, end = n;
    for (size_t i = 0; i < step->start && end - start >= mark->len; i++, start += mark->len)
        if (memcmp(s + start, mark->data, mark->len) != 0)
            break;
    for (size_t i = 0; i < step->stop && end - start >= mark->len; i++, end -= mark->len)
        if (memcmp(s + end - mark->len, mark->data, mark->len) != 0)
            break;
    pieces_append(out, s + start, end - start, false);
}

/* Marks become spaces; those of the very first token were put there by encode. */
static void unmark(const struct decoder_step *step, const char *s, size_t n, bool first, struct pieces *out)
{
    const struct textbuf *mark = &step->content;
    size_t start = out->text.len;
    for (size_t i = 0; i < n;) {
        if (n - i >= mark->len && memcmp(s + i, mark->data, mark->len) == 0) {
            if (!first || step->prepend == PREPEND_NEVER)
                textbuf_append(&out->text, " ", 1);
            i += mark->len;
        } else {
            textbuf_append(&out->text, s + i++, 1);
        }
    }
    pieces_add(out, start, out->text.len - start, false);
}

static int each_piece(const struct decoder_step *step, struct pattern_scratch *scratch,
                      const struct pieces *in, struct pieces *out, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < in->n; i++) {
        const char *s = in->text.data + in->at[i].start;
        size_t n = in->at[i].len, start = out->text.len;
        if (n == 0) {
            pieces_add(out, start, 0, false);
        } else if (step->kind == DEC_STRIP) {
            strip(step, s, n, out);
        } else if (step->kind == DEC_METASPACE) {
            unmark(step, s, n, i == 0, out);
        } else {
            r = pattern_replace(step->pattern, scratch, s, n, &step->content, &out->text, err);
            pieces_add(out, start, out->text.len - start, false);
        }
    }
    return r;
}

static void join_with_spaces(const struct pieces *in, struct pieces *out)
{
    for (size_t i = 0; i < in->n; i++) {
        if (i)
            textbuf_append(&out->text, " ", 1);
        textbuf_append(&out->text, in->text.data + in->at[i].start, in->at[i].len);
    }
}

int decoder_apply(const struct decoder *dec, struct pattern_scratch *scratch, struct pieces *tokens,
                  struct pieces *spare, struct err *err)
{
    int r = 0;
    if (dec->is_absent) {
        pieces_clear(spare);
        join_with_spaces(tokens, spare);
        pieces_swap(tokens, spare);
    }
    for (size_t i = 0; r == 0 && i < dec->n && tokens->n > 0; i++) {
        const struct decoder_step *step = &dec->steps[i];
        pieces_clear(spare);
        switch (step->kind) {
        case DEC_BYTE_LEVEL: byte_level(tokens, spare); break;
        case DEC_BYTE_FALLBACK: byte_fallback(tokens, spare); break;
        case DEC_FUSE: pieces_append(spare, tokens->text.data, tokens->text.len, false); break;
        case DEC_REPLACE:
        case DEC_STRIP:
        case DEC_METASPACE: r = each_piece(step, scratch, tokens, spare, err); break;
        }
        pieces_swap(tokens, spare);
    }
    if (r == 0 && (tokens->text.failed || spare->text.failed))
        r = err_set(err, -ENOMEM, "no memory to decode the tokens");
    return r;
}

int decoder_token_bytes(const struct decoder *dec, struct pattern_scratch *scratch, const char *token,
                        size_t n, struct textbuf *ret, struct err *err)
{
    struct pieces in = {0}, out = {0};
    const int byte = byte_of(token, n);
    int r = 0;
    pieces_append(&in, token, n, false);
    for (size_t i = 0; r == 0 && i < dec->n && in.n; i++) {
        const struct decoder_step *step = &dec->steps[i];
        pieces_clear(&out);
        if (step->kind == DEC_BYTE_FALLBACK && byte >= 0) {
            pieces_clear(&in);
            pieces_append(&in, &(char){(char)byte}, 1, false);
            break;
        }
        if (step->kind == DEC_BYTE_LEVEL)
            bytelevel_decode(&out.text, in.text.data, in.text.len);
        else if (step->kind == DEC_METASPACE)
            unmark(step, in.text.data, in.text.len, false, &out);
        else if (step->kind == DEC_REPLACE)
            r = pattern_replace(step->pattern, scratch, in.text.data, in.text.len, &step->content, &out.text,
                                err);
        else /* of a whole text, not of a token */
            continue;
        pieces_swap(&in, &out);
        in.n = in.text.len > 0;
    }
    if (in.text.len)
        textbuf_append(ret, in.text.data, in.text.len);
    if (r == 0 && (in.text.failed || out.text.failed || ret->failed))
        r = err_set(err, -ENOMEM, "no memory to decode a token");
    pieces_done(&in);
    pieces_done(&out);
    return r;
}
