/* SPDX-License-Identifier: MIT */
#include "file/have_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/boot_id.h"

enum { HEAD = 160, CONTENT_MAX = 65, NAME = 4096 };

struct have_map {
    int fd;        /* owned */
    uint8_t *bits; /* owned: of all blocks that are there */
    uint32_t blocks;
    bool was_cut; /* of an earlier start of the machine */
};

/* The bit behind those of the blocks is the head's. */
static size_t bytes_of(uint32_t blocks)
{
    return (size_t)blocks / 8 + 1;
}

static int put(int fd, const void *bytes, size_t n, uint64_t at)
{
    const ssize_t done = pwrite(fd, bytes, n, (off_t)at);
    return done == (ssize_t)n ? 0 : done < 0 ? -errno : -EIO;
}

/* The first bitmap before the head: a head that says "of this start" never stands before bits of
 * an earlier one. */
static int write_whole(const struct have_map *h, const char *content)
{
    char boot[BOOT_ID], head[HEAD] = "";
    const size_t n = bytes_of(h->blocks);
    boot_id(boot);
    snprintf(head, sizeof head, "%s %s\n", content, boot);
    int r = ftruncate(h->fd, (off_t)(HEAD + 2 * n)) ? -errno : put(h->fd, h->bits, n, HEAD);
    return r ? r : put(h->fd, head, sizeof head, 0);
}

/* content: NULL: whichever it is. */
static void read_bits(struct have_map *h, const char *content)
{
    char head[HEAD] = "", of[CONTENT_MAX] = "", then[BOOT_ID] = "", boot[BOOT_ID];
    const size_t n = bytes_of(h->blocks);
    boot_id(boot);
    if (pread(h->fd, head, HEAD - 1, 0) != HEAD - 1 || sscanf(head, "%64s %63s", of, then) != 2 ||
        (content && strcmp(of, content) != 0))
        return;
    h->was_cut = strcmp(boot, then) != 0 || !strcmp(boot, "-");
    if (pread(h->fd, h->bits, n, (off_t)(HEAD + (h->was_cut ? n : 0))) != (ssize_t)n)
        memset(h->bits, 0, n);
}

static bool have_name(char ret[NAME], const char *file)
{
    return snprintf(ret, NAME, "%s" HAVE_ENDING, file) < NAME;
}

static int take(struct have_map **ret, int fd, uint32_t blocks)
{
    struct have_map *h = calloc(1, sizeof *h);
    uint8_t *bits = calloc(bytes_of(blocks), 1);
    if (!h || !bits) {
        close(fd);
        free(h);
        free(bits);
        return -ENOMEM;
    }
    *h = (struct have_map){.fd = fd, .bits = bits, .blocks = blocks};
    *ret = h;
    return 0;
}

static int open_it(struct have_map **ret, int folder, const char *file, int flags, uint32_t blocks)
{
    char name[NAME];
    if (!have_name(name, file))
        return -ENAMETOOLONG;
    const int fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW, 0640);
    return fd < 0 ? -errno : take(ret, fd, blocks);
}

/* Bits that do not count are gone from both maps before any block is written. */
static int begin(struct have_map *h, const char *content)
{
    read_bits(h, content);
    bool is_new = true;
    for (size_t i = 0; i < bytes_of(h->blocks); i++)
        is_new &= !h->bits[i];
    if (is_new && ftruncate(h->fd, 0))
        return -errno;
    return write_whole(h, content);
}

int have_map_open(struct have_map **ret, int folder, const char *file, const char *content, uint32_t blocks)
{
    int r = open_it(ret, folder, file, O_RDWR | O_CREAT, blocks);
    if (!r && (r = begin(*ret, content)))
        have_map_close(*ret);
    return r;
}

bool have_map_has(const struct have_map *h, uint32_t block)
{
    return h->bits[block / 8] & 1 << block % 8;
}

bool have_map_has_head(const struct have_map *h)
{
    return have_map_has(h, h->blocks);
}

int have_map_take(struct have_map **ret, int fd, uint64_t bytes)
{
    const uint64_t blocks = (bytes + HAVE_BLOCK - 1) / HAVE_BLOCK;
    if (blocks > UINT32_MAX) {
        close(fd);
        return -EFBIG;
    }
    const int r = take(ret, fd, (uint32_t)blocks);
    if (!r)
        read_bits(*ret, NULL);
    return r;
}

int have_map_read(struct have_map **ret, int folder, const char *file, uint64_t bytes)
{
    char name[NAME];
    if (!have_name(name, file))
        return -ENAMETOOLONG;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : have_map_take(ret, fd, bytes);
}

bool have_map_covers(const struct have_map *h, uint64_t from, uint64_t to)
{
    for (uint64_t b = from / HAVE_BLOCK; b * HAVE_BLOCK < to; b++)
        if (b >= h->blocks || !have_map_has(h, (uint32_t)b))
            return false;
    return true;
}

uint64_t have_map_bytes(const struct have_map *h, uint64_t bytes)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < h->blocks; b++) {
        const uint64_t at = (uint64_t)b * HAVE_BLOCK, left = at < bytes ? bytes - at : 0;
        if (have_map_has(h, b))
            sum += left < HAVE_BLOCK ? left : HAVE_BLOCK;
    }
    return sum;
}

int have_map_set(struct have_map *h, uint32_t block)
{
    h->bits[block / 8] |= (uint8_t)(1 << block % 8);
    return put(h->fd, &h->bits[block / 8], 1, HEAD + block / 8);
}

int have_map_set_head(struct have_map *h)
{
    return have_map_set(h, h->blocks);
}

int have_map_clear(struct have_map *h, const char *content)
{
    memset(h->bits, 0, bytes_of(h->blocks));
    int r = ftruncate(h->fd, 0) ? -errno : write_whole(h, content);
    return r ? r : fdatasync(h->fd) ? -errno : 0;
}

struct have_note have_map_note(const struct have_map *h)
{
    const size_t n = bytes_of(h->blocks);
    return (struct have_note){h->fd, h->bits, n, HEAD + n};
}

int have_map_sync(struct have_map *h, int part)
{
    const struct have_note note = have_map_note(h);
    int r = fdatasync(part) ? -errno : put(note.fd, note.bits, note.n, note.at);
    return r ? r : fdatasync(h->fd) ? -errno : 0;
}

bool have_map_was_cut(const struct have_map *h)
{
    return h->was_cut;
}

void have_map_close(struct have_map *h)
{
    if (!h)
        return;
    close(h->fd);
    free(h->bits);
    free(h);
}

uint32_t have_map_leading(int folder, const char *file, uint32_t blocks)
{
    struct have_map *h;
    uint32_t n = 0;
    if (open_it(&h, folder, file, O_RDONLY, blocks))
        return 0;
    read_bits(h, NULL);
    while (n < blocks && have_map_has(h, n))
        n++;
    have_map_close(h);
    return n;
}

bool have_map_is_there(int folder, const char *file)
{
    char name[NAME];
    struct stat st;
    return have_name(name, file) && !fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW);
}

void have_map_remove(int folder, const char *file)
{
    char name[NAME];
    if (have_name(name, file))
        unlinkat(folder, name, 0);
}
