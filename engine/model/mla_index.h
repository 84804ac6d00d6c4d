/* SPDX-License-Identifier: MIT
 *
 * The indexer of latent attention (DeepSeek-V3.2): a query sees the config's index_top keys that
 * score best, and all where there are no more. Its keys have a cache of their own. It is frozen:
 * the choice has no gradient. Used by mla.c alone; see layer/indexer.h. */
#ifndef MODEL_MLA_INDEX_H
#define MODEL_MLA_INDEX_H

#include "model/part.h"

void mla_index_tensors(struct tensor_list *list, const struct config *c); /* none where it has no indexer */

/* Can a text of this layout be longer than what a query sees? If not, nothing is carved. */
bool mla_index_matters(const struct part_layout *l);
/* What is done with once keys are chosen lies behind, where the slab that is returned ends: others
 * may lie there too, and are joined with it. */
struct slab mla_index_carve(struct mla_index_work *ret, struct slab *slab, const struct part_layout *l);

/* What the choice is made from: the input of the attention and the normalised latent of its
 * queries, [T, dim] and [T, q_rank]; the part's weights from the indexer's first tensor on. */
struct mla_index_in {
    const float *h, *qa;
    struct unit_weights w;
    struct mla_index_work *work;
};

/* Training: is a sequence of this microbatch longer than what a query sees? */
bool mla_index_hides(const struct block_ctx *ctx);
/* Then the keys that each token's query sees, as in struct attn_dims; seen [T, words]. */
void mla_index_mask(const struct block_ctx *ctx, uint64_t *seen, size_t words, const struct mla_index_in *in);

/* Generation and serving: keys [T, index_head] of the call's rows into work->k. */
void mla_index_keys(const struct block_ctx *ctx, const struct mla_index_in *in);
/* The table of a cache of `len` positions that lies in one piece, as if it were a pool. */
const uint32_t *mla_index_blocks(const struct mla_index_work *work, size_t len);
/* After that, with these keys in the pool: spans of all rows in work->spans, where each row that
 * does not see everything has a span of its own with its choice. Returns how many. */
size_t mla_index_spans(const struct block_ctx *ctx, const struct paged_pool *keys,
                       const struct paged_span *spans, size_t n, const struct mla_index_in *in);

#endif
