/* SPDX-License-Identifier: MIT
 *
 * Inside of struct weights, shared by weights.c (listing and reading), weights_cache.c (what is
 * kept) and weights_text.c and weights_compare.c (what nodes compare), and by nobody else. */
#ifndef FILE_WEIGHTS_IMPL_H
#define FILE_WEIGHTS_IMPL_H

#include "file/st_impl.h"
#include "file/weights.h"

struct weights_hash {
    uint64_t at[2];
    bool is_known;
};

struct weights {
    char *dir, *cache; /* owned; cache NULL: nothing is kept */
    size_t layers;
    struct st *st;             /* owned: the headers */
    struct weights_hash *hash; /* [st->count] owned: in the order of its entries */
    bool *is_listed;           /* [st->count] owned: wanted; others are known where a cache has them */
    size_t *entry;             /* [st->nnames] owned: of each name its entry, SIZE_MAX: not here */
};

/* In a text: of a unit 128 bits as digits; of a tensor 24 as four letters; "AAAA" means that it is
 * not known. */
enum { WEIGHTS_LETTERS = 4, WEIGHTS_UNIT_DIGITS = 32 };

/* Fills in what is kept of each file. What cannot be read is not known. */
void weights_cache_load(struct weights *w);
/* Keeps what is known of a file, in the place of what was kept before. */
void weights_cache_save(const struct weights *w, size_t file);

#endif
