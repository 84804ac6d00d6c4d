/* SPDX-License-Identifier: MIT
 *
 * Which sequence has which block of keys and values: one numbering for the pools of all ranks
 * (engine/model/stage.h: STAGE_KV_BLOCK positions each). A full block is known by the tokens up to
 * its end, so sequences that begin alike share it, and it stays, unused, until the pool needs it:
 * the one that was let go of longest ago goes first (as vLLM's prefix caching). Knows no stage.
 * Main thread of rank 0. */
#ifndef DAEMON_KV_POOL_H
#define DAEMON_KV_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_pool;

/* The blocks of a sequence. All zero at the beginning, but for its root. */
struct kv_table {
    uint32_t *blocks; /* owned [n] */
    size_t n, cap;
    size_t known;  /* of them: full ones that others may share, */
    uint64_t hash; /* and the hash of their tokens */
    uint32_t root; /* what all of it was computed with, beside its tokens: only tables of the same share */
};

/* NULL: no memory. `salt` keeps others from choosing texts whose hashes meet. */
struct kv_pool *kv_pool_new(size_t blocks, uint64_t salt);
void kv_pool_free(struct kv_pool *p);

/* The table is empty: takes the blocks there are of the beginning of ids [n], always less than all
 * of it. Returns for how many positions. −ENOMEM. */
int64_t kv_pool_share(struct kv_pool *p, struct kv_table *t, const uint32_t *ids, size_t n);
/* The hash of its first `blocks` blocks, which were shared; no two texts have the same. */
uint64_t kv_pool_hash(const struct kv_pool *p, const struct kv_table *t, size_t blocks);
/* Lets go of what was shared but for these. */
void kv_pool_cut(struct kv_pool *p, struct kv_table *t, size_t blocks);
/* Room for positions 0 … n−1. −ENOSPC: no block is free, and the table is as before; −ENOMEM. */
int kv_pool_grow(struct kv_pool *p, struct kv_table *t, size_t n);
/* The first n positions, of these ids, are computed, or will be before anything that is asked for
 * later. */
void kv_pool_note(struct kv_pool *p, struct kv_table *t, const uint32_t *ids, size_t n);
/* Lets go of all its blocks; its root stays. */
void kv_pool_drop(struct kv_pool *p, struct kv_table *t);

size_t kv_pool_used(const struct kv_pool *p); /* blocks that sequences hold */
size_t kv_pool_left(const struct kv_pool *p); /* blocks that they could have */

#endif
