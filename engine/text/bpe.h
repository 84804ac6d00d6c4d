/* SPDX-License-Identifier: MIT
 *
 * Byte-pair encoding (Sennrich et al. 2016): a word starts as its characters; the neighbours that
 * were merged first in training are merged first. Read-only once parsed. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/textbuf.h"
#include "text/vocab.h"

struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* place in the list of merges, or what "ranks" says; "ids": the id it makes */
    uint32_t id;   /* what the pair becomes; VOCAB_NONE marks a free slot */
};

struct bpe {
    struct vocab vocab;
    struct bpe_merge *merges; /* owned: open addressing, a power of two */
    size_t merge_slots;
    struct textbuf prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix; mostly empty */
    uint32_t bytes[256];           /* ids of <0x00> … <0xFF>, VOCAB_NONE where missing */
    uint32_t unk;                  /* VOCAB_NONE: unknown characters vanish */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool unk_missing; /* unk_token is set but not in the vocabulary: an error once it is needed */
};

struct bpe_scratch {
    struct bpe_symbol *symbols; /* owned */
    size_t n, symbols_cap;
    struct bpe_candidate *heap; /* owned */
    size_t heap_n, heap_cap;
    struct textbuf word; /* one character with prefix or suffix */
};

struct idbuf {
    uint32_t *at; /* owned */
    size_t n, cap;
};

int idbuf_add(struct idbuf *ids, uint32_t id, struct err *err);

int bpe_parse(struct bpe *bpe, const json_t *model, struct err *err);
void bpe_done(struct bpe *bpe);
void bpe_scratch_done(struct bpe_scratch *s);

/* What two neighbours become, or NULL. */
const struct bpe_merge *bpe_find_merge(const struct bpe *bpe, uint32_t left, uint32_t right);

/* Appends the ids of one word of valid UTF-8. O(n log n). */
int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t n,
               struct idbuf *ids, struct err *err);

#endif
