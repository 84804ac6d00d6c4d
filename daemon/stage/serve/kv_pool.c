/* SPDX-License-Identifier: MIT
 *
 * Owns the blocks' records. Blocks without a sequence are in a ring, from the one that was let go
 * of longest ago; known blocks are in lists by hash as well. */
#include "daemon/stage/serve/kv_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/stage.h"
#include "engine/num/rng.h"

#define NOBODY UINT32_MAX

struct kv_block {
    uint32_t refs;
    uint32_t before, after; /* in the ring of those without a sequence */
    bool is_known;
    uint64_t hash, of; /* of the tokens up to its end, and up to its beginning */
    uint32_t same;     /* the next one of its list */
    uint32_t ids[STAGE_KV_BLOCK];
};

struct kv_pool {
    struct kv_block *blocks; /* owned [n + 1]: the last is the ring's own */
    uint32_t *lists;         /* owned [n] */
    size_t n, left;
    uint64_t salt;
};

/* --- the ring --------------------------------------------------------------------------------- */

static void ring_add(struct kv_pool *p, uint32_t b)
{
    struct kv_block *all = p->blocks, *end = &all[p->n];
    all[b].before = end->before;
    all[b].after = (uint32_t)p->n;
    all[end->before].after = b;
    end->before = b;
    p->left++;
}

static void ring_remove(struct kv_pool *p, uint32_t b)
{
    struct kv_block *all = p->blocks;
    all[all[b].before].after = all[b].after;
    all[all[b].after].before = all[b].before;
    p->left--;
}

/* --- hashes ----------------------------------------------------------------------------------- */

static uint64_t hash_on(uint64_t of, const uint32_t *ids)
{
    for (size_t i = 0; i < STAGE_KV_BLOCK; i++)
        of = rng_mix(of + UINT64_C(0x9e3779b97f4a7c15) + ids[i]);
    return of;
}

/* The chain of hashes begins with the root. */
static uint64_t start_of(const struct kv_pool *p, const struct kv_table *t)
{
    return t->known ? t->hash : rng_mix(p->salt + t->root);
}

static uint32_t *list_of(struct kv_pool *p, uint64_t hash)
{
    return &p->lists[hash % p->n];
}

/* The block behind tokens of hash `of` that has these ids. */
static uint32_t find(struct kv_pool *p, uint64_t of, const uint32_t *ids)
{
    const uint64_t hash = hash_on(of, ids);
    for (uint32_t b = *list_of(p, hash); b != NOBODY; b = p->blocks[b].same) {
        const struct kv_block *it = &p->blocks[b];
        if (it->hash == hash && it->of == of && !memcmp(it->ids, ids, sizeof it->ids))
            return b;
    }
    return NOBODY;
}

static void forget(struct kv_pool *p, uint32_t b)
{
    struct kv_block *it = &p->blocks[b];
    if (!it->is_known)
        return;
    uint32_t *at = list_of(p, it->hash);
    while (*at != b)
        at = &p->blocks[*at].same;
    *at = it->same;
    it->is_known = false;
}

/* --- tables ----------------------------------------------------------------------------------- */

static int add(struct kv_table *t, uint32_t b)
{
    if (t->n == t->cap) {
        const size_t cap = 2 * t->cap + 8;
        uint32_t *more = realloc(t->blocks, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        t->blocks = more;
        t->cap = cap;
    }
    t->blocks[t->n++] = b;
    return 0;
}

static void hold(struct kv_pool *p, uint32_t b)
{
    if (!p->blocks[b].refs++)
        ring_remove(p, b);
}

static void release(struct kv_pool *p, uint32_t b)
{
    if (!--p->blocks[b].refs)
        ring_add(p, b);
}

int64_t kv_pool_share(struct kv_pool *p, struct kv_table *t, const uint32_t *ids, size_t n)
{
    for (size_t at = 0; at + STAGE_KV_BLOCK < n; at += STAGE_KV_BLOCK) {
        const uint64_t of = start_of(p, t);
        const uint32_t b = find(p, of, ids + at);
        if (b == NOBODY)
            break;
        if (add(t, b)) {
            kv_pool_drop(p, t);
            return -ENOMEM;
        }
        hold(p, b);
        t->hash = p->blocks[b].hash;
        t->known++;
    }
    return (int64_t)(t->known * STAGE_KV_BLOCK);
}

uint64_t kv_pool_hash(const struct kv_pool *p, const struct kv_table *t, size_t blocks)
{
    return p->blocks[t->blocks[blocks - 1]].hash;
}

void kv_pool_cut(struct kv_pool *p, struct kv_table *t, size_t blocks)
{
    while (t->n > blocks)
        release(p, t->blocks[--t->n]);
    t->known = blocks;
    t->hash = blocks ? kv_pool_hash(p, t, blocks) : 0;
}

int kv_pool_grow(struct kv_pool *p, struct kv_table *t, size_t n)
{
    const size_t needs = (n + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK, had = t->n;
    if (needs > had && needs - had > p->left)
        return -ENOSPC;
    while (t->n < needs) {
        const uint32_t b = p->blocks[p->n].after; /* the oldest */
        if (add(t, b)) {
            while (t->n > had)
                release(p, t->blocks[--t->n]);
            return -ENOMEM;
        }
        forget(p, b);
        hold(p, b);
    }
    return 0;
}

void kv_pool_note(struct kv_pool *p, struct kv_table *t, const uint32_t *ids, size_t n)
{
    while ((t->known + 1) * STAGE_KV_BLOCK <= n) {
        const uint32_t b = t->blocks[t->known];
        const uint32_t *of_block = ids + t->known * STAGE_KV_BLOCK;
        const uint64_t of = start_of(p, t);
        struct kv_block *it = &p->blocks[b];
        t->hash = hash_on(of, of_block);
        t->known++;
        if (find(p, of, of_block) != NOBODY) /* another sequence has computed the same */
            continue;
        it->is_known = true;
        it->hash = t->hash;
        it->of = of;
        memcpy(it->ids, of_block, sizeof it->ids);
        it->same = *list_of(p, it->hash);
        *list_of(p, it->hash) = b;
    }
}

void kv_pool_drop(struct kv_pool *p, struct kv_table *t)
{
    /* From the end: the beginning of a text is what others are the likeliest to share. */
    while (t->n)
        release(p, t->blocks[--t->n]);
    free(t->blocks);
    *t = (struct kv_table){.root = t->root};
}

struct kv_pool *kv_pool_new(size_t blocks, uint64_t salt)
{
    struct kv_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n = blocks;
    p->salt = salt;
    p->blocks = calloc(blocks + 1, sizeof *p->blocks);
    p->lists = malloc((blocks + 1) * sizeof *p->lists);
    if (!p->blocks || !p->lists) {
        kv_pool_free(p);
        return NULL;
    }
    memset(p->lists, 0xff, (blocks + 1) * sizeof *p->lists);
    p->blocks[blocks].before = p->blocks[blocks].after = (uint32_t)blocks;
    for (uint32_t b = 0; b < blocks; b++)
        ring_add(p, b);
    return p;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p)
        return;
    free(p->blocks);
    free(p->lists);
    free(p);
}

size_t kv_pool_used(const struct kv_pool *p)
{
    return p->n - p->left;
}

size_t kv_pool_left(const struct kv_pool *p)
{
    return p->left;
}
