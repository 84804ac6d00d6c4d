/* SPDX-License-Identifier: MIT
 *
 * The tokenizer: opens tokenizer.json, and runs its parts in order. Encoding: added tokens in the
 * text as written → normalizer → added tokens in the normal form → pre-tokenizer → BPE →
 * post-processor. Owned by whoever opened it; any number of threads may encode and decode with one,
 * each call has working space of its own. */
#include "text/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/model_file.h"
#include "text/pattern.h"
#include "text/tiktoken.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

enum { FILE_LIMIT = 512 << 20 }; /* bytes of tokenizer.json */
#define TEXT_LIMIT                                                                                           \
    ((size_t)256 << 20) /* bytes in one call: offsets of symbols are 32-bit, and memory is 40 times this */

static int parse_parts(struct tokenizer *tok, const json_t *json, struct err *err)
{
    if (!json_is_object(json))
        return err_set(err, -EINVAL, "it holds no JSON object; is this a tokenizer.json?");
    int r = bpe_parse(&tok->bpe, json_object_get(json, "model"), err);
    if (r == 0)
        r = normalizer_parse(&tok->norm, json_object_get(json, "normalizer"), err);
    if (r == 0)
        r = added_parse(&tok->added, json_object_get(json, "added_tokens"), &tok->norm, err);
    if (r == 0)
        r = pretok_parse(&tok->pre, json_object_get(json, "pre_tokenizer"), err);
    if (r == 0)
        r = postproc_parse(&tok->post, json_object_get(json, "post_processor"), err);
    if (r == 0)
        r = decoder_parse(&tok->dec, json_object_get(json, "decoder"), err);
    return r;
}

/* Takes json. */
static int from_json(struct tokenizer **ret, json_t *json, struct err *err)
{
    struct tokenizer *tok = calloc(1, sizeof *tok);
    int r = tok ? parse_parts(tok, json, err) : err_set(err, -ENOMEM, "no memory for a tokenizer");
    json_decref(json);
    if (r) {
        tokenizer_close(tok);
        return r;
    }
    *ret = tok;
    return 0;
}

int tokenizer_parse(struct tokenizer **ret, const char *text, size_t n, struct err *err)
{
    json_error_t fault;
    json_t *json = json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &fault);
    if (!json)
        return err_set(err, -EBADMSG,
                       "line %d, column %d: %s; the file is damaged or was not downloaded whole", fault.line,
                       fault.column, fault.text);
    return from_json(ret, json, err);
}

/* Where there is no tokenizer.json; −ENOENT: nor is there anything else. */
static int open_tiktoken(struct tokenizer **ret, const char *dir, struct err *err)
{
    json_t *json = NULL;
    const int r = tiktoken_read(&json, dir, err);
    return r ? r : from_json(ret, json, err);
}

int tokenizer_open(struct tokenizer **ret, const char *dir, struct err *err)
{
    char *path = model_file_name(dir, "tokenizer.json"), *text;
    if (!path)
        return err_set(err, -ENOMEM, "no memory to open the tokenizer");
    size_t n;
    int r = model_file_read(dir, "tokenizer.json", FILE_LIMIT, &text, &n, err);
    if (r == 0) {
        r = tokenizer_parse(ret, text, n, err);
        if (r)
            err_prefix(err, r, "%s", path);
        free(text);
    } else if (r == -ENOENT && (r = open_tiktoken(ret, dir, err)) == -ENOENT) {
        err_set(err, r, "%s: %s; a model must have its tokenizer beside it", path, strerror(-r));
    }
    free(path);
    return r;
}

void tokenizer_close(struct tokenizer *tok)
{
    if (!tok)
        return;
    bpe_done(&tok->bpe);
    normalizer_done(&tok->norm);
    added_done(&tok->added);
    pretok_done(&tok->pre);
    postproc_done(&tok->post);
    decoder_done(&tok->dec);
    free(tok);
}

int tokenizer_id(const struct tokenizer *tok, const char *token, uint32_t *ret)
{
    size_t n = strlen(token);
    uint32_t id = vocab_find(&tok->added.vocab, token, n);
    if (id == VOCAB_NONE)
        id = vocab_find(&tok->bpe.vocab, token, n);
    if (id == VOCAB_NONE)
        return -ENOENT;
    *ret = id;
    return 0;
}

const char *tokenizer_text(const struct tokenizer *tok, uint32_t id, size_t *ret_n)
{
    const char *text = vocab_text(&tok->added.vocab, id, ret_n);
    return text ? text : vocab_text(&tok->bpe.vocab, id, ret_n);
}

bool tokenizer_has(const struct tokenizer *tok, uint32_t id)
{
    return tokenizer_text(tok, id, NULL) != NULL;
}

bool tokenizer_is_special(const struct tokenizer *tok, uint32_t id)
{
    return added_is_special(&tok->added, id);
}

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct tokenizer *tok;     /* borrowed: the caller */
    struct pattern_scratch *scratch; /* owned */
    struct bpe_scratch bpe;
    struct textbuf text, spare; /* the stretch between two added tokens, normalized */
    struct pieces words, spare_words;
    struct idbuf ids; /* owned until handed out */
};

/* A stretch of normalized text without added tokens. */
static int encode_words(struct encoder *e, const char *s, size_t n, bool at_start, struct err *err)
{
    if (n == 0)
        return 0;
    pieces_clear(&e->words);
    pieces_append(&e->words, s, n, at_start);
    int r = pretok_apply(&e->tok->pre, e->scratch, &e->words, &e->spare_words, err);
    for (size_t i = 0; r == 0 && i < e->words.n; i++)
        r = bpe_encode(&e->tok->bpe, &e->bpe, e->words.text.data + e->words.at[i].start, e->words.at[i].len,
                       &e->ids, err);
    return r;
}

/* A stretch of the text as written, between two added tokens. */
static int encode_stretch(struct encoder *e, const char *s, size_t n, bool at_start, struct err *err)
{
    if (n == 0)
        return 0;
    textbuf_clear(&e->text);
    textbuf_append(&e->text, s, n);
    int r = normalizer_apply(&e->tok->norm, e->scratch, &e->text, &e->spare, err);
    struct added_walk walk = {0};
    struct added_hit hit;
    size_t done = 0;
    while (r == 0 && added_next(&e->tok->added, true, e->text.data, e->text.len, &walk, &hit)) {
        if (hit.start > done)
            r = encode_words(e, e->text.data + done, hit.start - done, at_start && done == 0, err);
        if (r == 0)
            r = idbuf_add(&e->ids, hit.id, err);
        done = hit.end;
    }
    return r ? r : encode_words(e, e->text.data + done, e->text.len - done, at_start && done == 0, err);
}

static int encode_text(struct encoder *e, const char *s, size_t n, struct err *err)
{
    struct added_walk walk = {0};
    struct added_hit hit;
    size_t done = 0;
    int r = 0;
    while (r == 0 && added_next(&e->tok->added, false, s, n, &walk, &hit)) {
        if (hit.start > done)
            r = encode_stretch(e, s + done, hit.start - done, done == 0, err);
        if (r == 0)
            r = idbuf_add(&e->ids, hit.id, err);
        done = hit.end;
    }
    return r ? r : encode_stretch(e, s + done, n - done, done == 0, err);
}

static int add_all(struct encoder *e, const struct idbuf *ids, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < ids->n; i++)
        r = idbuf_add(&e->ids, ids->at[i], err);
    return r;
}

static void encoder_done(struct encoder *e)
{
    pattern_scratch_free(e->scratch);
    bpe_scratch_done(&e->bpe);
    textbuf_done(&e->text);
    textbuf_done(&e->spare);
    pieces_done(&e->words);
    pieces_done(&e->spare_words);
    free(e->ids.at);
}

int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t n, bool special,
                     uint32_t **ret_ids, size_t *ret_n, struct err *err)
{
    if (n > TEXT_LIMIT)
        return err_set(err, -EFBIG, "a text of %zu bytes is too long to encode at once; cut it below %zu", n,
                       TEXT_LIMIT);
    struct textbuf clean = {0};
    struct encoder e = {.tok = tok};
    int r = pattern_scratch_new(&e.scratch, err);
    textbuf_append_lossy(&clean, text, n);
    if (r == 0 && clean.failed)
        r = err_set(err, -ENOMEM, "no memory to encode a text of %zu bytes", n);
    if (r == 0 && special)
        r = add_all(&e, &tok->post.before, err);
    if (r == 0)
        r = encode_text(&e, clean.data, clean.len, err);
    if (r == 0 && special)
        r = add_all(&e, &tok->post.behind, err);
    void *ids = e.ids.at;
    if (r == 0 && array_reserve(&ids, &e.ids.cap, 1, sizeof *e.ids.at)) /* never NULL, also for no ids */
        r = err_set(err, -ENOMEM, "no memory for the ids");
    e.ids.at = ids;
    if (r == 0) {
        *ret_ids = e.ids.at;
        *ret_n = e.ids.n;
        e.ids = (struct idbuf){0};
    }
    textbuf_done(&clean);
    encoder_done(&e);
    return r;
}

/* --- decoding --------------------------------------------------------------------------------- */

int tok_work_init(struct tok_work *work, struct err *err)
{
    *work = (struct tok_work){0};
    return pattern_scratch_new(&work->scratch, err);
}

void tok_work_done(struct tok_work *work)
{
    pattern_scratch_free(work->scratch);
    pieces_done(&work->tokens);
    pieces_done(&work->spare);
    *work = (struct tok_work){0};
}

bool tok_shows(const struct tokenizer *tok, uint32_t id, bool skip_special)
{
    return tokenizer_has(tok, id) && !(skip_special && tokenizer_is_special(tok, id));
}

int tok_decode(const struct tokenizer *tok, struct tok_work *work, const uint32_t *ids, size_t n,
               bool skip_special, struct err *err)
{
    pieces_clear(&work->tokens);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = tokenizer_text(tok, ids[i], &len);
        if (text && tok_shows(tok, ids[i], skip_special))
            pieces_append(&work->tokens, text, len, false);
    }
    return decoder_apply(&tok->dec, work->scratch, &work->tokens, &work->spare, err);
}

int tokenizer_decode(const struct tokenizer *tok, const uint32_t *ids, size_t n, bool skip_special,
                     char **ret_text, size_t *ret_n, struct err *err)
{
    struct tok_work work;
    int r = tok_work_init(&work, err);
    if (r == 0)
        r = tok_decode(tok, &work, ids, n, skip_special, err);
    if (r == 0) {
        size_t len = work.tokens.text.len;
        textbuf_append(&work.tokens.text, "", 1);
        if (work.tokens.text.failed)
            r = err_set(err, -ENOMEM, "no memory for the decoded text");
        if (r == 0) {
            *ret_text = work.tokens.text.data;
            *ret_n = len;
            work.tokens.text = (struct textbuf){0};
        }
    }
    tok_work_done(&work);
    return r;
}
