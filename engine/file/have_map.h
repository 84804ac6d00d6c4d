/* SPDX-License-Identifier: MIT
 *
 * FILE.have: which blocks of 4 MiB of a file are there and were verified, in whatever order they
 * came, and whether its head is: the first bytes, of a length that the file says itself. A file
 * without one beside it is whole. A head says for which content, and at which start of
 * the machine it was written. Two bitmaps follow. Bits of the first are written as blocks come, and
 * count while the machine has not been started again. Those of the second are written once the
 * blocks are synced, and always count. Another process may read it while one writes. One thread for
 * each map. */
#ifndef FILE_HAVE_MAP_H
#define FILE_HAVE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct have_map;

enum { HAVE_BLOCK = 4 << 20 };
#define HAVE_ENDING ".have"

/* folder: an open directory, borrowed. Of another content, or unreadable: no block is there. 0 or
 * −errno. */
int have_map_open(struct have_map **ret, int folder, const char *file, const char *content, uint32_t blocks);
/* To look at: that of the file at folder/file, which has so many bytes. −ENOENT: there is none, so
 * the file is whole. −errno. */
int have_map_read(struct have_map **ret, int folder, const char *file, uint64_t bytes);
/* The same of a map that is open already; takes the descriptor. */
int have_map_take(struct have_map **ret, int fd, uint64_t bytes);
bool have_map_has(const struct have_map *h, uint32_t block);
/* All bytes of [from, to) of the file are there. */
bool have_map_covers(const struct have_map *h, uint64_t from, uint64_t to);
/* How many bytes are there, of a file of so many. */
uint64_t have_map_bytes(const struct have_map *h, uint64_t bytes);
int have_map_set(struct have_map *h, uint32_t block);
/* The same of its head, which the blocks may lack. */
bool have_map_has_head(const struct have_map *h);
int have_map_set_head(struct have_map *h);
/* No block is there any more, and that survives a power cut. */
int have_map_clear(struct have_map *h, const char *content);
/* All bits that are set now will survive a power cut: the file's bytes first. part: its
 * descriptor. */
int have_map_sync(struct have_map *h, int part);
/* For who does that beside its other work: once the file's bytes are safe, n bytes have to be
 * written at `at` of fd, and synced. fd, bits: borrowed; bits change with the next block. */
struct have_note {
    int fd;
    const uint8_t *bits;
    size_t n;
    uint64_t at;
};
struct have_note have_map_note(const struct have_map *h);
/* The machine has been started again since the map was written: more may be there than it says. */
bool have_map_was_cut(const struct have_map *h);
void have_map_close(struct have_map *h); /* NULL is fine */

/* For who goes on in order: how many blocks from the first one on are there. */
uint32_t have_map_leading(int folder, const char *file, uint32_t blocks);
/* There is one: the file is not whole. */
bool have_map_is_there(int folder, const char *file);
void have_map_remove(int folder, const char *file);

#endif
