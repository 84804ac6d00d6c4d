/* SPDX-License-Identifier: MIT
 *
 * Reads files of sysfs; owns what cold_init takes. */
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

size_t cold_cache_bytes(const char *root)
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

/* Twice the cache, which does not give up the oldest first. Written to, as what was never is one
 * page of zeros. */
int cold_init(struct cold *cold, size_t cache_bytes)
{
    const size_t bytes = cache_bytes < MOST / 2 ? 2 * cache_bytes : MOST;
    *cold = (struct cold){.at = malloc(bytes), .bytes = bytes};
    if (!cold->at)
        return -ENOMEM;
    memset(cold->at, 1, bytes);
    return 0;
}

void cold_done(struct cold *cold)
{
    free(cold->at);
    *cold = (struct cold){0};
}

/* Not in order: caches know what is read once from end to end, and keep what they have. */
unsigned cold_read(const struct cold *cold)
{
    const size_t lines = cold->bytes / LINE;
    unsigned sum = 0;
    for (size_t n = 0, i = 0; n < lines; n++, i = (i + STEP) % lines)
        sum += ((const volatile unsigned char *)cold->at)[i * LINE];
    return sum;
}
