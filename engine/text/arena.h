/* SPDX-License-Identifier: MIT
 *
 * Memory that is given back all at once and never exceeds a limit: a template's tree, and the
 * values of one rendering. */
#ifndef TEXT_ARENA_H
#define TEXT_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* owned, the newest first */
    size_t bytes, limit;        /* handed out; at most this */
};

/* Zeroed and aligned for anything; NULL at the limit or without memory. */
void *arena_alloc(struct arena *arena, size_t n);
void *arena_copy(struct arena *arena, const void *data, size_t n);
void arena_done(struct arena *arena);

#endif
