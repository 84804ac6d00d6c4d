/* SPDX-License-Identifier: MIT
 *
 * Owns its blocks. Called by the template interpreter, on the caller's thread. */
#include "text/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 10 };

struct arena_block {
    struct arena_block *next;
    size_t used, room;
    alignas(max_align_t) char data[];
};

static struct arena_block *add_block(struct arena *arena, size_t room)
{
    struct arena_block *block = calloc(1, sizeof *block + room);
    if (!block)
        return NULL;
    block->room = room;
    /* A large piece gets a block of its own, behind the one that is being filled. */
    if (arena->blocks && room > BLOCK_BYTES) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *arena_alloc(struct arena *arena, size_t n)
{
    const size_t align = alignof(max_align_t);
    if (n > arena->limit - arena->bytes)
        return NULL;
    size_t padded =
        (n + align) / align * align; /* at least one byte: every piece has an address of its own */
    struct arena_block *block = arena->blocks;
    if (!block || padded > block->room - block->used)
        block = add_block(arena, padded > BLOCK_BYTES ? padded : BLOCK_BYTES);
    if (!block)
        return NULL;
    void *piece = block->data + block->used;
    block->used += padded;
    arena->bytes = arena->limit - arena->bytes < padded ? arena->limit : arena->bytes + padded;
    return piece;
}

void *arena_copy(struct arena *arena, const void *data, size_t n)
{
    void *piece = arena_alloc(arena, n);
    if (piece && n > 0)
        memcpy(piece, data, n);
    return piece;
}

void arena_done(struct arena *arena)
{
    for (struct arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (struct arena){0};
}
