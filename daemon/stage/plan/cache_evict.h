/* SPDX-License-Identifier: MIT
 *
 * Empties the CPU's caches of everything else before a layer is timed. In a job of many layers the
 * weights of each come from memory, so the timed layer must find its own there too. Called by
 * stage_cost.c; one thread at a time. */
#ifndef DAEMON_CACHE_EVICT_H
#define DAEMON_CACHE_EVICT_H

#include <stddef.h>

struct cache_evict {
    unsigned char *at; /* owned */
    size_t bytes;
};

/* The size in bytes of the first CPU's largest cache. `root` is the folder of sysfs that lists its
 * caches ("/sys/devices/system/cpu/cpu0/cache"). Without such a folder: 32 MiB. */
size_t cache_evict_cache_bytes(const char *root);

/* Memory of so many bytes, at most 256 MiB: what a job reads before it comes to a layer again; or
 * twice a cache, which does not give up the oldest first. −ENOMEM. */
int cache_evict_init(struct cache_evict *cold, size_t bytes);
void cache_evict_done(struct cache_evict *cold);
/* Reads all of it, which evicts as much else, and addresses that the CPU has looked up. The sum of
 * what it read means nothing: a compiler may drop reads whose result nobody gets. */
unsigned cache_evict_read(const struct cache_evict *cold);

#endif
