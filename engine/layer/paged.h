/* SPDX-License-Identifier: MIT
 *
 * Attention on keys and values in blocks (PagedAttention, Kwon et al. 2023). A pool has blocks of
 * PAGED_BLOCK positions; which of them hold a sequence its table says, and sequences may share
 * some. Conventions as in layer.h. The bits of a row depend on its own sequence up to its position
 * alone: on no other row, on no cut of a prompt, and on no place in the pool. They are those of
 * attn_cached for few rows. */
#ifndef LAYER_PAGED_H
#define LAYER_PAGED_H

#include "layer/kv_type.h"
#include "layer/layer.h"

enum {
    PAGED_BLOCK = 16, /* positions */
    PAGED_ROWS = 16,  /* most rows of a span */
    PAGED_RING = 64,  /* in a ring: most rows of a sequence that are stored before they attend */
};

/* Block b is [kv_heads, PAGED_BLOCK, width] from byte b·paged_block_bytes on. */
struct paged_pool {
    void *data;        /* borrowed: the stage's slab */
    enum kv_type type; /* what is stored is rounded to it */
    size_t kv_heads, width;
    size_t ring; /* blocks of each state, which keep its newest positions: block i of a text is its block
                    i mod ring; 0: the spans' tables say which block it is */
};

/* Rows row … row+n−1 of a call are positions at … at+n−1 of one sequence; n ≤ PAGED_ROWS. */
struct paged_span {
    const uint32_t *blocks; /* borrowed: positions 16i … 16i+15 lie in blocks[i] */
    size_t row, at, n;
    const uint32_t *chosen; /* [nchosen] borrowed: its one row (n = 1) sees these positions alone, */
    size_t nchosen;         /* ascending; NULL: rows see all up to their own */
    size_t state;           /* of the sequence in layers that have no blocks of the table's */
};

size_t paged_block_bytes(const struct paged_pool *pool);

/* x [T, kv_heads·width] of all spans into the pool. */
void paged_store(struct num *num, const struct paged_pool *pool, const float *x,
                 const struct paged_span *spans, size_t n);

/* The first n rows of a block of a pool with one head, as f32 [n, width]: the pool's own, or in
 * `wide` [PAGED_BLOCK, width]. */
const float *paged_block(struct num *num, const struct paged_pool *pool, size_t block, size_t n, float *wide);

/* o [T, heads·value] from q [T, heads·head]; keys and values of the spans' own positions are in the
 * pools already. v may be k, and wider than `value`. */
void attn_paged(struct num *num, float *o, const float *q, const struct paged_pool *k,
                const struct paged_pool *v, const struct paged_span *spans, size_t n, struct attn_dims dims);

#endif
