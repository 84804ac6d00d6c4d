/* SPDX-License-Identifier: MIT
 *
 * Merging one word with a heap of candidate pairs. The symbols are a doubly linked list in an
 * array; a merge makes at most two new candidates, so a word of n characters costs O(n log n)
 * whatever the merges say. Called by encode on any thread, each with its scratch. */
#include "text/bpe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

#define NOBODY UINT32_MAX

struct bpe_symbol {
    uint32_t id; /* VOCAB_NONE: merged into its left neighbour */
    uint32_t prev, next;
};

struct bpe_candidate {
    uint32_t rank, at;    /* at: index of the left symbol */
    uint32_t left, right; /* ids when it was made; it is stale once either symbol has changed */
    uint32_t id;
};

static bool is_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(struct bpe_scratch *s, struct bpe_candidate c)
{
    void *heap = s->heap;
    if (array_reserve(&heap, &s->heap_cap, s->heap_n + 1, sizeof *s->heap))
        return -ENOMEM;
    s->heap = heap;
    size_t i = s->heap_n++;
    for (; i > 0 && is_before(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
    return 0;
}

static struct bpe_candidate heap_pop(struct bpe_scratch *s)
{
    struct bpe_candidate top = s->heap[0], last = s->heap[--s->heap_n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_n)
            break;
        if (child + 1 < s->heap_n && is_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!is_before(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static int symbol_add(struct bpe_scratch *s, uint32_t id)
{
    void *symbols = s->symbols;
    if (array_reserve(&symbols, &s->symbols_cap, s->n + 1, sizeof *s->symbols))
        return -ENOMEM;
    s->symbols = symbols;
    uint32_t at = (uint32_t)s->n;
    s->symbols[s->n++] = (struct bpe_symbol){id, at ? at - 1 : NOBODY, NOBODY};
    if (at)
        s->symbols[at - 1].next = at;
    return 0;
}

/* Is the pair that begins at symbol `at` one that merges? Then it is a candidate. */
static int consider(const struct bpe *bpe, struct bpe_scratch *s, uint32_t at)
{
    const struct bpe_symbol *left = &s->symbols[at];
    if (left->next == NOBODY)
        return 0;
    uint32_t right = s->symbols[left->next].id;
    const struct bpe_merge *m = bpe_find_merge(bpe, left->id, right);
    return m ? heap_push(s, (struct bpe_candidate){m->rank, at, left->id, right, m->id}) : 0;
}

static int merge_all(const struct bpe *bpe, struct bpe_scratch *s)
{
    int r = 0;
    s->heap_n = 0;
    for (size_t i = 0; r == 0 && i + 1 < s->n; i++)
        r = consider(bpe, s, (uint32_t)i);
    while (r == 0 && s->heap_n > 0) {
        struct bpe_candidate c = heap_pop(s);
        struct bpe_symbol *left = &s->symbols[c.at];
        if (left->id != c.left || left->next == NOBODY || s->symbols[left->next].id != c.right)
            continue;
        struct bpe_symbol *right = &s->symbols[left->next];
        left->id = c.id;
        left->next = right->next;
        if (right->next != NOBODY)
            s->symbols[right->next].prev = c.at;
        right->id = VOCAB_NONE;
        right->next = NOBODY;
        r = left->prev == NOBODY ? 0 : consider(bpe, s, left->prev);
        if (r == 0)
            r = consider(bpe, s, c.at);
    }
    return r;
}

/* The character with what the model glues to the inside and the end of words. */
static int glue(const struct bpe *bpe, struct bpe_scratch *s, const char *ch, size_t n, bool first, bool last)
{
    textbuf_clear(&s->word);
    if (!first)
        textbuf_append(&s->word, bpe->prefix.data, bpe->prefix.len);
    textbuf_append(&s->word, ch, n);
    if (last)
        textbuf_append(&s->word, bpe->suffix.data, bpe->suffix.len);
    return s->word.failed ? -ENOMEM : 0;
}

/* All its bytes as <0xNN>, if the vocabulary has every one of them. 1 done, 0 not possible. */
static int add_bytes(const struct bpe *bpe, struct bpe_scratch *s, const char *ch, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bpe->bytes[(unsigned char)ch[i]] == VOCAB_NONE)
            return 0;
    for (size_t i = 0; i < n; i++)
        if (symbol_add(s, bpe->bytes[(unsigned char)ch[i]]))
            return -ENOMEM;
    return 1;
}

/* An unknown character. Runs of them are one symbol when the model fuses; the symbol is written
 * once something known follows, behind bytes that came between (the order the reference
 * implementation has). */
static int add_unknown(const struct bpe *bpe, struct bpe_scratch *s, size_t *pending)
{
    if (bpe->unk_missing)
        return -ENOKEY;
    if (bpe->unk == VOCAB_NONE)
        return 0;
    int r = *pending && !bpe->fuse_unk ? symbol_add(s, bpe->unk) : 0;
    *pending = 1;
    return r;
}

static int split_characters(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t n)
{
    size_t pending = 0; /* unknown symbols not yet written: 0 or 1 */
    int r = 0;
    s->n = 0;
    for (size_t i = 0; r == 0 && i < n;) {
        const char *ch = word + i;
        size_t len = utf8_next(ch, n - i).len;
        bool first = i == 0, last = i + len >= n;
        i += len;
        if (bpe->prefix.len || bpe->suffix.len) {
            r = glue(bpe, s, ch, len, first, last);
            ch = s->word.data;
            len = s->word.len;
        }
        uint32_t id = r ? VOCAB_NONE : vocab_find(&bpe->vocab, ch, len);
        if (id != VOCAB_NONE) {
            r = pending ? symbol_add(s, bpe->unk) : 0;
            pending = 0;
            if (r == 0)
                r = symbol_add(s, id);
            continue;
        }
        if (r == 0 && bpe->byte_fallback)
            r = add_bytes(bpe, s, ch, len);
        if (r == 0)
            r = add_unknown(bpe, s, &pending);
        if (r > 0)
            r = 0;
    }
    return r == 0 && pending ? symbol_add(s, bpe->unk) : r;
}

int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t n,
               struct idbuf *ids, struct err *err)
{
    if (bpe->ignore_merges && n > 0) {
        uint32_t whole = vocab_find(&bpe->vocab, word, n);
        if (whole != VOCAB_NONE)
            return idbuf_add(ids, whole, err);
    }
    int r = split_characters(bpe, scratch, word, n);
    if (r == -ENOKEY)
        return err_set(err, -EINVAL,
                       "the text has a character the vocabulary does not know, and the model's unk_token is "
                       "not in the vocabulary either; add it to tokenizer.json's model.vocab");
    if (r == 0)
        r = merge_all(bpe, scratch);
    if (r)
        return err_set(err, r, "no memory to encode a word of %zu bytes", n);
    for (size_t i = 0; r == 0 && i < scratch->n; i++)
        if (scratch->symbols[i].id != VOCAB_NONE)
            r = idbuf_add(ids, scratch->symbols[i].id, err);
    return r;
}

void bpe_scratch_done(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    textbuf_done(&s->word);
    *s = (struct bpe_scratch){0};
}

int idbuf_add(struct idbuf *ids, uint32_t id, struct err *err)
{
    void *at = ids->at;
    if (array_reserve(&at, &ids->cap, ids->n + 1, sizeof *ids->at))
        return err_set(err, -ENOMEM, "no memory for more than %zu ids", ids->n);
    ids->at = at;
    ids->at[ids->n++] = id;
    return 0;
}
