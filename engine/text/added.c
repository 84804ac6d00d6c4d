/* SPDX-License-Identifier: MIT
 *
 * Added tokens: parsing, and finding them in text. Owned by a tokenizer; filled on one thread while
 * it opens, then only read. */
#include "text/added.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/tok_json.h"
#include "text/utf8.h"

enum { ADDED_LIMIT = 1024 }; /* bytes: bounds the search, which is text × longest token */

static int parse_flags(struct added_token *token, const json_t *json, const char *where, struct err *err)
{
    int r = tok_json_id(json_object_get(json, "id"), where, &token->id, err);
    if (r == 0)
        r = tok_json_bool(json, where, "special", false, &token->special, err);
    if (r == 0)
        r = tok_json_bool(json, where, "normalized", !token->special, &token->normalized, err);
    if (r == 0)
        r = tok_json_bool(json, where, "single_word", false, &token->single_word, err);
    if (r == 0)
        r = tok_json_bool(json, where, "lstrip", false, &token->takes_left, err);
    if (r == 0)
        r = tok_json_bool(json, where, "rstrip", false, &token->takes_right, err);
    return r;
}

/* The text as encode will meet it. */
static int pattern_text(struct textbuf *text, const struct normalizer *norm, struct err *err)
{
    struct textbuf spare = {0};
    struct pattern_scratch *scratch = NULL;
    int r = pattern_scratch_new(&scratch, err);
    if (r == 0)
        r = normalizer_apply(norm, scratch, text, &spare, err);
    pattern_scratch_free(scratch);
    textbuf_done(&spare);
    return r;
}

static int add_to_trie(struct added *added, const char *content, uint32_t index,
                       const struct normalizer *norm, struct err *err)
{
    bool normalized = added->tokens[index].normalized;
    struct textbuf text = {0};
    textbuf_append(&text, content, strlen(content));
    int r = text.failed ? err_set(err, -ENOMEM, "no memory for the added tokens") : 0;
    if (r == 0 && normalized)
        r = pattern_text(&text, norm, err);
    if (r == 0 && text.len > 0 &&
        trie_add(normalized ? &added->normalized : &added->raw, text.data, text.len, index))
        r = err_set(err, -ENOMEM, "no memory for the added tokens");
    textbuf_done(&text);
    return r;
}

static int parse_token(struct added *added, const json_t *json, const struct normalizer *norm,
                       struct err *err)
{
    const char *content;
    struct added_token token;
    int r = tok_json_string(json, "added_tokens", "content", &content, err);
    if (r == 0 && strlen(content) > ADDED_LIMIT)
        r = err_set(err, -EINVAL, "added_tokens: '%.32s…' is longer than %d bytes; shorten it", content,
                    ADDED_LIMIT);
    if (r)
        return r;
    char where[128];
    snprintf(where, sizeof where, "added token '%.64s'", content);
    r = parse_flags(&token, json, where, err);
    if (r == 0)
        r = vocab_add(&added->vocab, content, strlen(content), token.id, err);
    if (r)
        return r;
    void *tokens = added->tokens;
    if (array_reserve(&tokens, &added->cap, added->n + 1, sizeof *added->tokens))
        return err_set(err, -ENOMEM, "no memory for the added tokens");
    added->tokens = tokens;
    added->tokens[added->n++] = token;
    return add_to_trie(added, content, (uint32_t)(added->n - 1), norm, err);
}

int added_parse(struct added *added, const json_t *json, const struct normalizer *norm, struct err *err)
{
    *added = (struct added){0};
    trie_init(&added->raw);
    trie_init(&added->normalized);
    int r = vocab_init(&added->vocab, err);
    if (r)
        return r;
    if (json && !json_is_null(json) && !json_is_array(json))
        return err_set(err, -EINVAL, "\"added_tokens\" must be a list");
    for (size_t i = 0; r == 0 && i < json_array_size(json); i++)
        r = parse_token(added, json_array_get(json, i), norm, err);
    return r;
}

void added_done(struct added *added)
{
    vocab_done(&added->vocab);
    free(added->tokens);
    trie_done(&added->raw);
    trie_done(&added->normalized);
    *added = (struct added){0};
}

bool added_is_special(const struct added *added, uint32_t id)
{
    if (id >= added->vocab.ids || !added->vocab.by_id[id])
        return false;
    /* Tokens and vocabulary entries are added together, so they share an index. */
    return added->tokens[added->vocab.by_id[id] - 1].special;
}

static bool is_single_word(const char *s, size_t n, const struct trie_hit *hit)
{
    if (hit->start > 0) {
        size_t last = utf8_last(s, hit->start);
        if (utf8_is_word(utf8_next(s + last, hit->start - last).cp))
            return false;
    }
    return hit->end == n || !utf8_is_word(utf8_next(s + hit->end, n - hit->end).cp);
}

static size_t spaces_before(const char *s, size_t start, size_t stop_at)
{
    while (start > stop_at) {
        size_t last = utf8_last(s, start);
        if (!utf8_is_space(utf8_next(s + last, start - last).cp))
            break;
        start = last;
    }
    return start > stop_at ? start : stop_at;
}

static size_t spaces_behind(const char *s, size_t n, size_t end)
{
    while (end < n) {
        struct utf8_char c = utf8_next(s + end, n - end);
        if (!utf8_is_space(c.cp))
            break;
        end += c.len;
    }
    return end;
}

int added_next(const struct added *added, bool normalized, const char *s, size_t n, struct added_walk *walk,
               struct added_hit *ret)
{
    const struct trie *trie = normalized ? &added->normalized : &added->raw;
    struct trie_hit hit;
    while (trie_find(trie, s, n, walk->from, &hit)) {
        const struct added_token *token = &added->tokens[hit.value];
        walk->from = hit.end;
        if (token->single_word && !is_single_word(s, n, &hit))
            continue;
        ret->start = token->takes_left ? spaces_before(s, hit.start, walk->covered) : hit.start;
        ret->end = token->takes_right ? spaces_behind(s, n, hit.end) : hit.end;
        ret->id = token->id;
        walk->covered = ret->end;
        return 1;
    }
    return 0;
}
