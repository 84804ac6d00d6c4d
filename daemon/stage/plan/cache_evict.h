/* SPDX-License-Identifier: MIT
 *
 * Memory that pushes everything else out of this CPU's caches, so that what is timed after that
 * finds its weights where a job of many layers finds them. Called by stage_cost.c; one thread at a
 * time. */
#ifndef DAEMON_CACHE_EVICT_H
#define DAEMON_CACHE_EVICT_H

#include <stddef.h>

struct cold {
    unsigned char *at; /* owned */
    size_t bytes;
};

/* Bytes of the largest cache that the first CPU has, as `root`
 * ("/sys/devices/system/cpu/cpu0/cache") says; where it does not, a usual one. */
size_t cold_cache_bytes(const char *root);

/* −ENOMEM. */
int cold_init(struct cold *cold, size_t cache_bytes);
void cold_done(struct cold *cold);
/* Reads all of it. The sum is nothing to anybody, but has to be somebody's. */
unsigned cold_read(const struct cold *cold);

#endif
