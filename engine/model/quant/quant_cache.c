/* SPDX-License-Identifier: MIT
 *
 * When a file was used is its time of modification: times of access are not kept everywhere. Two
 * processes may trim at once: what the other deleted first was deleted. */
#include "model/quant/quant_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KEPT ".safetensors"

struct entry {
    char *name; /* owned */
    size_t bytes;
    struct timespec used;
    bool is_half; /* its process is gone, or has had long enough */
};

struct entries {
    struct entry *at; /* owned */
    size_t n, room, bytes;
};

void quant_cache_touch(const char *path)
{
    utimensat(AT_FDCWD, path, NULL, 0);
}

size_t quant_cache_available(const char *dir)
{
    struct statvfs fs;
    return statvfs(dir, &fs) ? 0 : (size_t)fs.f_bavail * fs.f_frsize;
}

/* "HASH-unit3-int4.safetensors", or that and more while it is made. */
static bool is_ours(const char *name, bool *ret_half)
{
    const char *unit = strstr(name, "-unit"), *end = unit ? strstr(unit, KEPT) : NULL;
    if (!end || unit - name != 32 || strspn(name, "0123456789abcdef") != 32)
        return false;
    *ret_half = end[strlen(KEPT)] != 0;
    return true;
}

static bool add(struct entries *list, const struct entry *e)
{
    if (list->n == list->room) {
        struct entry *grown = realloc(list->at, (2 * list->room + 16) * sizeof *grown);
        if (!grown)
            return false;
        list->at = grown;
        list->room = 2 * list->room + 16;
    }
    list->at[list->n] = *e;
    if (!(list->at[list->n].name = strdup(e->name)))
        return false;
    list->bytes += e->bytes;
    list->n++;
    return true;
}

/* Without memory a part of them, which only deletes less. */
static void read_entries(struct entries *list, DIR *d)
{
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        struct entry found = {.name = e->d_name};
        if (!is_ours(e->d_name, &found.is_half) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        found.bytes = (size_t)st.st_blocks * 512; /* what deleting it gives back */
        found.used = st.st_mtim;
        if (!add(list, &found))
            return;
    }
}

static int by_use(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

size_t quant_cache_trim(const char *dir, size_t need, size_t available, time_t now_s)
{
    struct entries list = {.at = NULL};
    size_t gone = 0;
    DIR *d = opendir(dir);
    if (!d)
        return 0;
    read_entries(&list, d);
    if (list.n)
        qsort(list.at, list.n, sizeof *list.at, by_use);
    for (size_t i = 0; i < list.n && now_s - list.at[i].used.tv_sec > QUANT_CACHE_SPARED_S; i++) {
        const bool fits = !available || list.bytes + 2 * need <= available + 2 * gone;
        if ((!fits || list.at[i].is_half) && !unlinkat(dirfd(d), list.at[i].name, 0))
            gone += list.at[i].bytes;
    }
    closedir(d);
    for (size_t i = 0; i < list.n; i++)
        free(list.at[i].name);
    free(list.at);
    return gone;
}
