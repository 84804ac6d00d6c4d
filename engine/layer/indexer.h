/* SPDX-License-Identifier: MIT
 *
 * The indexer of sparse attention (DeepSeek-V3.2, 2025): for each query it chooses the keys that
 * the query sees. A key's score is Σ_h w_h·relu(q_h·k) over heads of its own, which share one key;
 * factors that are the same for all keys of a query change no choice, so there are none here. The
 * choice has no gradient. Conventions as in layer.h. */
#ifndef LAYER_INDEXER_H
#define LAYER_INDEXER_H

#include "layer/paged.h"

struct indexer_dims {
    size_t heads, head;
    size_t top; /* keys that a query sees; all before it where there are no more */
};

/* y = (x − mean) / √(variance + eps) · w + b, for each row of x [rows, dim]; w, b [dim]; y may be
 * x. */
void layernorm_forward(struct num *num, float *y, const float *x, const float *w, const float *b,
                       struct rmsnorm_dims dims);

/* Rows that are scored together, and what their scores need. */
enum { INDEXER_ROWS = 32 };
/* chosen [n, top]: the positions, ascending, of the keys of n ≤ INDEXER_ROWS rows. Of keys with the
 * same score the first ones are chosen. Each row is a span of its own, at position `top` or behind
 * it: `at` + 1 keys lie in the pool. q [T, heads·head], w [T, heads]; scores [n, stride] is
 * scratch, stride > every `at`. A row's choice depends on its own sequence alone. */
void indexer_choose(struct num *num, uint32_t *chosen, const float *q, const float *w,
                    const struct paged_pool *keys, const struct paged_span *rows, size_t n,
                    struct indexer_dims dims, float *scores, size_t stride);

#endif
