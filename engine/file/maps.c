/* SPDX-License-Identifier: MIT */
#include "file/maps.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

struct map {
    struct map *next;
    void *at; /* owned */
    size_t bytes, users;
    struct maps_stamp stamp;
};

struct maps {
    struct map *first; /* owned, and all behind it */
};

struct maps *maps_new(void)
{
    return calloc(1, sizeof(struct maps));
}

static bool is_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_of(const struct map *map, size_t bytes, const struct maps_stamp *stamp)
{
    const struct maps_stamp *s = &map->stamp;
    return map->bytes == bytes && s->device == stamp->device && s->inode == stamp->inode &&
           is_time(s->written, stamp->written) && is_time(s->changed, stamp->changed);
}

static int map_file(void **ret, int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    *ret = at;
    return 0;
}

int maps_take(struct maps *m, void **ret, int fd, size_t bytes, const struct maps_stamp *stamp)
{
    if (!m)
        return map_file(ret, fd, bytes);
    for (struct map *map = m->first; map; map = map->next)
        if (is_of(map, bytes, stamp)) {
            map->users++;
            *ret = map->at;
            return 0;
        }
    struct map *map = malloc(sizeof *map);
    if (!map)
        return -ENOMEM;
    *map = (struct map){.next = m->first, .bytes = bytes, .users = 1, .stamp = *stamp};
    int r = map_file(&map->at, fd, bytes);
    if (r) {
        free(map);
        return r;
    }
    m->first = map;
    *ret = map->at;
    return 0;
}

void maps_give_back(struct maps *m, void *at, size_t bytes)
{
    if (!m) {
        munmap(at, bytes);
        return;
    }
    for (struct map *map = m->first; map; map = map->next)
        map->users -= map->at == at;
}

void maps_trim(struct maps *m)
{
    for (struct map **at = &m->first; *at;) {
        struct map *map = *at;
        if (map->users) {
            at = &map->next;
            continue;
        }
        *at = map->next;
        munmap(map->at, map->bytes);
        free(map);
    }
}

void maps_free(struct maps *m)
{
    if (!m)
        return;
    maps_trim(m);
    free(m);
}
