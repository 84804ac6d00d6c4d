/* SPDX-License-Identifier: MIT
 *
 * Reading tokenizer.json's "model" into a struct bpe: vocabulary, merges, options. Called once when
 * a tokenizer opens; what it fills is read-only afterwards. */
#include "text/bpe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_json.h"

enum {
    TOKEN_LIMIT = 64 * 1024, /* bytes of one token; real ones stay below a thousand */
    SPLIT_LIMIT = 1 << 29, /* bytes looked at where tokens are split everywhere: the squares of their lengths.
                              Qwen3's 151643 tokens would take 19 million */
};

static int parse_vocab(struct bpe *bpe, const json_t *json, struct err *err)
{
    if (!json_is_object(json))
        return err_set(err, -EINVAL, "model: \"vocab\" must be an object of token: id");
    const char *token;
    json_t *value;
    json_object_foreach ((json_t *)json, token, value) {
        uint32_t id;
        size_t n = strlen(token);
        if (n > TOKEN_LIMIT)
            return err_set(err, -EINVAL, "model: the token '%.32s…' is longer than %d bytes", token,
                           TOKEN_LIMIT);
        int r = tok_json_id(value, "model.vocab", &id, err);
        if (r == 0)
            r = vocab_add(&bpe->vocab, token, n, id, err);
        if (r)
            return r;
    }
    return 0;
}

static struct bpe_merge *slot_of(const struct bpe *bpe, uint64_t pair)
{
    size_t mask = bpe->merge_slots - 1;
    uint64_t h = (pair ^ bpe->vocab.salt) * 0x9E3779B97F4A7C15u;
    size_t i = (h ^ h >> 32) & mask;
    while (bpe->merges[i].id != VOCAB_NONE && bpe->merges[i].pair != pair)
        i = (i + 1) & mask;
    return &bpe->merges[i];
}

const struct bpe_merge *bpe_find_merge(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    const struct bpe_merge *m = slot_of(bpe, (uint64_t)left << 32 | right);
    return m->id == VOCAB_NONE ? NULL : m;
}

struct merge_text {
    const char *left, *right;
    size_t left_n, right_n;
};

/* "left right" or ["left", "right"]. */
static bool read_merge(const json_t *json, struct merge_text *ret)
{
    if (json_is_array(json) && json_array_size(json) == 2) {
        const json_t *left = json_array_get(json, 0), *right = json_array_get(json, 1);
        if (!json_is_string(left) || !json_is_string(right))
            return false;
        *ret = (struct merge_text){json_string_value(left), json_string_value(right),
                                   json_string_length(left), json_string_length(right)};
        return true;
    }
    if (!json_is_string(json))
        return false;
    const char *text = json_string_value(json), *space = strchr(text, ' ');
    if (!space || strchr(space + 1, ' '))
        return false;
    *ret = (struct merge_text){text, space + 1, (size_t)(space - text), strlen(space + 1)};
    return true;
}

static int add_merge(struct bpe *bpe, const struct merge_text *m, uint32_t rank, struct textbuf *joined,
                     struct err *err)
{
    uint32_t left = vocab_find(&bpe->vocab, m->left, m->left_n);
    uint32_t right = vocab_find(&bpe->vocab, m->right, m->right_n);
    if (left == VOCAB_NONE || right == VOCAB_NONE)
        return err_set(err, -EINVAL, "model: merge %u joins '%.64s', which is not in the vocabulary", rank,
                       left == VOCAB_NONE ? m->left : m->right);
    /* Inside a word the right part carries the prefix, which the joined token has only once, at its
     * front. */
    if (m->left_n == 0 || m->right_n <= bpe->prefix.len)
        return err_set(err, -EINVAL, "model: merge %u joins nothing; remove it", rank);
    textbuf_clear(joined);
    textbuf_append(joined, m->left, m->left_n);
    textbuf_append(joined, m->right + bpe->prefix.len, m->right_n - bpe->prefix.len);
    if (joined->failed)
        return err_set(err, -ENOMEM, "no memory for the merges");
    uint32_t id = vocab_find(&bpe->vocab, joined->data, joined->len);
    if (id == VOCAB_NONE)
        return err_set(err, -EINVAL, "model: merge %u makes '%.*s', which is not in the vocabulary", rank,
                       (int)(joined->len < 64 ? joined->len : 64), joined->data);
    uint64_t pair = (uint64_t)left << 32 | right;
    *slot_of(bpe, pair) = (struct bpe_merge){pair, rank, id};
    return 0;
}

/* Merges of one rank are alike, and the leftmost is made first: "ranks" says them where the
 * place in the list does not, as with SentencePiece's scores. */
static int parse_rank(const json_t *ranks, size_t i, uint32_t *ret, struct err *err)
{
    const json_t *rank = json_array_get(ranks, i);
    if (!json_is_integer(rank) || json_integer_value(rank) < 0 || json_integer_value(rank) > INT32_MAX)
        return err_set(err, -EINVAL, "model: \"ranks\" has no rank for merge %zu", i);
    *ret = (uint32_t)json_integer_value(rank);
    return 0;
}

static int make_slots(struct bpe *bpe, size_t merges, struct err *err)
{
    bpe->merge_slots = 16;
    while (bpe->merge_slots < merges * 2)
        bpe->merge_slots *= 2;
    bpe->merges = malloc(bpe->merge_slots * sizeof *bpe->merges);
    if (!bpe->merges)
        return err_set(err, -ENOMEM, "no memory for %zu merges", merges);
    for (size_t i = 0; i < bpe->merge_slots; i++)
        bpe->merges[i].id = VOCAB_NONE;
    return 0;
}

static int parse_merges(struct bpe *bpe, const json_t *json, const json_t *ranks, struct err *err)
{
    if (!json_is_array(json))
        return err_set(err, -EINVAL, "model: \"merges\" must be a list of pairs");
    size_t n = json_array_size(json);
    struct textbuf joined = {0};
    int r = make_slots(bpe, n, err);
    uint32_t rank = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        const json_t *item = json_array_get(json, i);
        const char *line = json_string_value(item);
        if (line && strncmp(line, "#version", 8) == 0)
            continue;
        struct merge_text m;
        if (ranks)
            r = parse_rank(ranks, i, &rank, err);
        if (r == 0 && read_merge(item, &m))
            r = add_merge(bpe, &m, rank++, &joined, err);
        else if (r == 0)
            r = err_set(err, -EINVAL, "model: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", i);
    }
    textbuf_done(&joined);
    return r;
}

/* A split of a token: what its two parts become, if they are tokens too. */
static bool is_made_of(const struct vocab *v, const struct vocab_entry *whole, size_t left,
                       struct bpe_merge *ret)
{
    const char *text = v->arena.data + whole->text;
    if (((unsigned char)text[left] & 0xc0) == 0x80) /* within a character */
        return false;
    const uint32_t a = vocab_find(v, text, left), b = vocab_find(v, text + left, whole->len - left);
    *ret = (struct bpe_merge){(uint64_t)a << 32 | b, whole->id, whole->id};
    return a != VOCAB_NONE && b != VOCAB_NONE;
}

/* tiktoken's merges: any two tokens that make a third, the one with the lowest id first. */
static int make_merges(struct bpe *bpe, struct err *err)
{
    const struct vocab *v = &bpe->vocab;
    struct bpe_merge m;
    size_t n = 0, work = 0;
    for (size_t i = 0; i < v->n; i++)
        if ((work += (size_t)v->entries[i].len * v->entries[i].len) > SPLIT_LIMIT)
            return err_set(err, -EINVAL,
                           "model: its first %zu tokens are too long to look at each way to split them; "
                           "the file is damaged",
                           i + 1);
    for (size_t i = 0; i < v->n; i++)
        for (size_t left = 1; left < v->entries[i].len; left++)
            n += is_made_of(v, &v->entries[i], left, &m);
    int r = make_slots(bpe, n, err);
    for (size_t i = 0; i < v->n && !r; i++)
        for (size_t left = 1; left < v->entries[i].len; left++)
            if (is_made_of(v, &v->entries[i], left, &m))
                *slot_of(bpe, m.pair) = m;
    return r;
}

static void find_bytes(struct bpe *bpe)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", b);
        bpe->bytes[b] = vocab_find(&bpe->vocab, name, (size_t)n);
    }
}

static int parse_options(struct bpe *bpe, const json_t *model, const char **ret_unk, struct err *err)
{
    const char *prefix, *suffix;
    int r = tok_json_bool(model, "model", "byte_fallback", false, &bpe->byte_fallback, err);
    if (r == 0)
        r = tok_json_bool(model, "model", "fuse_unk", false, &bpe->fuse_unk, err);
    if (r == 0)
        r = tok_json_bool(model, "model", "ignore_merges", false, &bpe->ignore_merges, err);
    if (r == 0)
        r = tok_json_optional(model, "model", "continuing_subword_prefix", &prefix, err);
    if (r == 0)
        r = tok_json_optional(model, "model", "end_of_word_suffix", &suffix, err);
    if (r == 0)
        r = tok_json_optional(model, "model", "unk_token", ret_unk, err);
    if (r)
        return r;
    textbuf_append(&bpe->prefix, prefix ? prefix : "", prefix ? strlen(prefix) : 0);
    textbuf_append(&bpe->suffix, suffix ? suffix : "", suffix ? strlen(suffix) : 0);
    if (bpe->prefix.failed || bpe->suffix.failed)
        return err_set(err, -ENOMEM, "no memory for the model");
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return err_set(err, -ENOTSUP,
                       "model: \"dropout\" makes encoding random, which is not supported; set it to null");
    return 0;
}

int bpe_parse(struct bpe *bpe, const json_t *model, struct err *err)
{
    *bpe = (struct bpe){.unk = VOCAB_NONE};
    int r = vocab_init(&bpe->vocab, err);
    if (r)
        return r;
    if (!json_is_object(model))
        return err_set(err, -EINVAL, "\"model\" is missing; is this a tokenizer.json?");
    const json_t *type =
        json_object_get(model, "type"); /* absent in old files, which are BPE when they have merges */
    if (json_is_string(type) && strcmp(json_string_value(type), "BPE") != 0)
        return err_set(err, -ENOTSUP,
                       "the tokenizer model '%.64s' is not supported; use a model with a BPE tokenizer",
                       json_string_value(type));
    const char *unk = NULL, *ranks = json_string_value(json_object_get(model, "ranks"));
    r = parse_options(bpe, model, &unk, err);
    if (r == 0)
        r = parse_vocab(bpe, json_object_get(model, "vocab"), err);
    if (r == 0)
        r = ranks && !strcmp(ranks, "ids")
                ? make_merges(bpe, err)
                : parse_merges(bpe, json_object_get(model, "merges"), json_object_get(model, "ranks"), err);
    if (r)
        return r;
    find_bytes(bpe);
    if (unk)
        bpe->unk = vocab_find(&bpe->vocab, unk, strlen(unk));
    bpe->unk_missing = unk && bpe->unk == VOCAB_NONE;
    return 0;
}

void bpe_done(struct bpe *bpe)
{
    vocab_done(&bpe->vocab);
    free(bpe->merges);
    textbuf_done(&bpe->prefix);
    textbuf_done(&bpe->suffix);
    *bpe = (struct bpe){0};
}
