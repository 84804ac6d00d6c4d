/* SPDX-License-Identifier: MIT
 *
 * NAME.have: which blocks of NAME.part are there and were verified, in whatever order they came.
 * A head says for which content, and at which start of the machine it was written. Two bitmaps
 * follow. Bits of the first are written as blocks come, and count while the machine has not been
 * started again. Those of the second are written once the blocks are synced, and always count. One
 * thread. */
#ifndef DAEMON_FETCH_HAVE_MAP_H
#define DAEMON_FETCH_HAVE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/fetch/hub_listing.h"

struct have_map;

enum { HAVE_NAME = HUB_FILE_NAME + 8 };

/* folder: an open directory, borrowed. Of another content, or unreadable: no block is there. 0 or
 * −errno. */
int have_map_open(struct have_map **ret, int folder, const char *file, const char *content, uint32_t blocks);
bool have_map_has(const struct have_map *h, uint32_t block);
int have_map_set(struct have_map *h, uint32_t block);
/* All bits that are set now will survive a power cut: the file's bytes first. part: its
 * descriptor. */
int have_map_sync(struct have_map *h, int part);
void have_map_close(struct have_map *h); /* NULL is fine */

/* For who goes on in order: how many blocks from the first one on are there. */
uint32_t have_map_leading(int folder, const char *file, uint32_t blocks);
void have_map_remove(int folder, const char *file);

#endif
