/* SPDX-License-Identifier: MIT
 *
 * See tiktoken.h. Called once when a tokenizer opens. */
#include "text/tiktoken.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "file/model_file.h"
#include "text/bytelevel.h"
#include "text/textbuf.h"

enum {
    FILE_LIMIT = 64 << 20, /* bytes of tiktoken.model */
    CONFIG_LIMIT = 16 << 20,
    TOKEN_LIMIT = 1 << 22, /* tokens, as in vocab.h */
    SPECIAL = 256,         /* behind the others */
};

/* A word of the class, of letters that are not Han, with what English appends to words. */
#define NOT_HAN(classes) "(?:(?!\\p{sc:Han})[" classes "])"
#define UPPER NOT_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define LOWER NOT_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define WORD(letters) "[^\\r\\n\\p{L}\\p{N}]?" letters "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
static const char cutting[] = "\\p{sc:Han}+|" WORD(UPPER "*" LOWER "+")
    WORD(UPPER "+" LOWER "*") "\\p{N}{1,3}| "
                              "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* --- tokens ----------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Appends the bytes; false: this is no base64. */
static bool put_base64(struct textbuf *out, const char *s, size_t n)
{
    unsigned bits = 0, have = 0;
    while (n && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const int digit = digit_of(s[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (unsigned)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            const char byte = (char)(bits >> have & 0xff);
            textbuf_append(out, &byte, 1);
        }
    }
    return n > 0;
}

struct rank_lines {
    json_t *vocab; /* borrowed */
    struct textbuf bytes, text;
    size_t line;
    struct err *err;
};

static int read_line(struct rank_lines *r, const char *line, size_t n)
{
    char number[16] = "";
    const char *space = memchr(line, ' ', n);
    const size_t behind = space ? n - (size_t)(space + 1 - line) : 0;
    textbuf_clear(&r->bytes);
    textbuf_clear(&r->text);
    if (behind < sizeof number && space)
        memcpy(number, space + 1, behind);
    const size_t digits = strspn(number, "0123456789");
    if (!digits || digits != behind || !put_base64(&r->bytes, line, (size_t)(space - line)))
        return err_set(r->err, -EBADMSG, "line %zu is not a token in base64, a blank and its rank", r->line);
    const long long rank = atoll(number);
    bytelevel_encode(&r->text, r->bytes.data, r->bytes.len);
    textbuf_append(&r->text, "", 1);
    if (r->bytes.failed || r->text.failed)
        return err_set(r->err, -ENOMEM, "no memory for %zu tokens", r->line);
    if (rank >= TOKEN_LIMIT)
        return err_set(r->err, -EBADMSG, "line %zu: rank %lld is too large", r->line, rank);
    if (json_object_get(r->vocab, r->text.data))
        return err_set(r->err, -EBADMSG, "line %zu: this token was there before", r->line);
    return json_object_set_new(r->vocab, r->text.data, json_integer(rank))
               ? err_set(r->err, -ENOMEM, "no memory for %zu tokens", r->line)
               : 0;
}

static int read_tokens(json_t *vocab, const char *s, size_t n, struct err *err)
{
    struct rank_lines r = {.vocab = vocab, .err = err};
    int e = vocab ? 0 : err_set(err, -ENOMEM, "no memory for a tokenizer");
    for (size_t at = 0, len; at < n && !e; at += len + 1) {
        const char *end = memchr(s + at, '\n', n - at);
        len = end ? (size_t)(end - s) - at : n - at;
        r.line++;
        e = len ? read_line(&r, s + at, len) : 0;
    }
    textbuf_done(&r.bytes);
    textbuf_done(&r.text);
    return e;
}

/* --- what stands beside them ------------------------------------------------------------------ */

/* Ids behind the tokens' are special, also those that have no name. */
static json_t *added_tokens(const json_t *config, size_t first)
{
    const json_t *named = json_object_get(config, "added_tokens_decoder");
    json_t *list = json_array();
    for (size_t id = first; id < first + SPECIAL; id++) {
        char key[24], usual[48];
        snprintf(key, sizeof key, "%zu", id);
        snprintf(usual, sizeof usual, "<|reserved_token_%zu|>", id);
        const json_t *own = json_object_get(named, key);
        const char *text = json_string_value(json_object_get(own, "content"));
        json_array_append_new(list, json_pack("{s:I s:s s:b s:b s:b s:b s:b}", "id", (json_int_t)id,
                                              "content", text ? text : usual, "single_word", 0, "lstrip", 0,
                                              "rstrip", 0, "normalized", 0, "special",
                                              !json_is_false(json_object_get(own, "special"))));
    }
    return list;
}

static bool is_kimi(const json_t *config)
{
    const json_t *classes = json_object_get(json_object_get(config, "auto_map"), "AutoTokenizer");
    const char *name = json_string_value(json_is_array(classes) ? json_array_get(classes, 0) : classes);
    return name && strstr(name, "tokenization_kimi.");
}

int tiktoken_parse(json_t **ret, const char *ranks, size_t n, const json_t *config, struct err *err)
{
    json_t *vocab = json_object();
    int r = is_kimi(config)
                ? read_tokens(vocab, ranks, n, err)
                : err_set(err, -ENOTSUP,
                          "how it cuts texts is known of Kimi's alone, which tokenizer_config.json does not "
                          "name; put a tokenizer.json beside it");
    json_t *bytes = json_pack("{s:s s:b s:b s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
                              0, "use_regex", 0);
    json_t *split = json_pack("{s:s s:{s:s} s:s s:b}", "type", "Split", "pattern", "Regex", cutting,
                              "behavior", "Isolated", "invert", 0);
    json_t *root = json_pack("{s:{s:s s:O s:s s:b} s:o s:n s:{s:s s:[O O]} s:O}", "model", "type", "BPE",
                             "vocab", vocab, "ranks", "ids", "ignore_merges", 1, "added_tokens",
                             added_tokens(config, json_object_size(vocab)), "normalizer", "pre_tokenizer",
                             "type", "Sequence", "pretokenizers", split, bytes, "decoder", bytes);
    json_decref(split);
    json_decref(bytes);
    json_decref(vocab);
    if (!r && !root)
        r = err_set(err, -ENOMEM, "no memory for a tokenizer");
    if (r)
        json_decref(root);
    else
        *ret = root;
    return r;
}

int tiktoken_read(json_t **ret, const char *dir, struct err *err)
{
    char *ranks = NULL, *text = NULL;
    size_t n = 0, len = 0;
    int r = model_file_read(dir, "tiktoken.model", FILE_LIMIT, &ranks, &n, err);
    if (r)
        return r;
    r = model_file_read(dir, "tokenizer_config.json", CONFIG_LIMIT, &text, &len, err);
    json_t *config = r ? NULL : json_loadb(text, len, 0, NULL); /* what is none names no tokenizer */
    r = r == -ENOENT ? 0 : r;
    if (!r)
        r = tiktoken_parse(ret, ranks, n, config, err);
    json_decref(config);
    free(text);
    free(ranks);
    return r ? err_prefix(err, r, "%s/tiktoken.model", dir) : 0;
}
