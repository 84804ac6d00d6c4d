/* SPDX-License-Identifier: MIT
 *
 * Reads files of sysfs; owns what cache_evict_init takes. */
#include "daemon/stage/plan/cache_evict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE = 64,
    LEVELS = 8,
    STEP = 4099 /* lines; a prime, so that all are met */
};
static const size_t USUAL = 32u << 20, MOST = 256u << 20;

size_t cache_evict_cache_bytes(const char *root)
{
    size_t largest = 0;
    for (int i = 0; i < LEVELS; i++) {
        char path[4096];
        unsigned kib = 0;
        snprintf(path, sizeof path, "%s/index%d/size", root, i);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%8uK", &kib) == 1 && (size_t)kib << 10 > largest)
            largest = (size_t)kib << 10;
        if (f)
            fclose(f);
    }
    return largest ? largest : USUAL;
}

/* Written to, as what was never is one page of zeros. */
int cache_evict_init(struct cache_evict *cold, size_t bytes)
{
    bytes = bytes < MOST ? bytes : MOST;
    *cold = (struct cache_evict){.at = malloc(bytes), .bytes = bytes};
    if (!cold->at)
        return -ENOMEM;
    memset(cold->at, 1, bytes);
    return 0;
}

void cache_evict_done(struct cache_evict *cold)
{
    free(cold->at);
    *cold = (struct cache_evict){0};
}

/* Not in order: caches know what is read once from end to end, and keep what they have. */
unsigned cache_evict_read(const struct cache_evict *cold)
{
    const size_t lines = cold->bytes / LINE;
    unsigned sum = 0;
    for (size_t n = 0, i = 0; n < lines; n++, i = (i + STEP) % lines)
        sum += ((const volatile unsigned char *)cold->at)[i * LINE];
    return sum;
}
