/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "engine/file/boot_id.h"
#include "engine/file/have_map.h"
#include "daemon/fetch/manifest.h"
#include "daemon/fetch/syncer.h"

enum { READ_BYTES = 1 << 20, MARK = BOOT_ID + 40 };

struct part_file {
    int folder, fd, synced; /* folder: borrowed */
    struct hub_file file;
    char part[HUB_FILE_NAME + 8], mark[HUB_FILE_NAME + 8];
    struct syncer *syncer; /* owned; NULL before the first block */
    uint64_t at, at_sync;  /* bytes on the disk; and of those that a sync was asked for */
    struct digest *hash;   /* owned: of the first `at` bytes */
    struct block_hasher blocks;
    uint8_t (*hashes)[DIGEST]; /* borrowed; NULL */
};

/* --- hashes ----------------------------------------------------------------------------------- */

/* Frees the digest. */
static bool hash_is(struct digest *d, const struct hub_file *file)
{
    char hex[DIGEST_HEX];
    digest_end(d, hex);
    return !strcmp(hex, file->hash);
}

/* Of the first `n` bytes. −EIO: there are fewer. */
static int hash_file(struct digest *d, struct block_hasher *blocks, int fd, uint64_t n)
{
    uint8_t *buf = xmalloc(READ_BYTES);
    int r = 0;
    for (uint64_t at = 0; at < n && !r;) {
        const size_t want = n - at < READ_BYTES ? (size_t)(n - at) : READ_BYTES;
        const ssize_t got = pread(fd, buf, want, (off_t)at);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            r = got ? -errno : -EIO;
        } else if (got > 0) {
            digest_add(d, buf, (size_t)got);
            block_hasher_add(blocks, buf, (size_t)got);
            at += (uint64_t)got;
        }
    }
    free(buf);
    return r;
}

static int check_hash(struct digest *d, struct hub_file *file)
{
    char hex[DIGEST_HEX];
    digest_end(d, hex);
    if (file->kind == HUB_HASH_UNKNOWN) {
        file->kind = HUB_HASH_SHA256;
        memcpy(file->hash, hex, sizeof hex);
    }
    return strcmp(hex, file->hash) ? -EBADMSG : 0;
}

int part_file_check(int folder, struct hub_file *file, uint8_t (*blocks)[DIGEST], struct err *err)
{
    struct stat st;
    struct block_hasher hasher;
    const int fd = openat(folder, file->name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, -errno, "%s cannot be opened: %s", file->name, strerror(errno));
    struct digest *d = digest_new_of(file);
    block_hasher_begin(&hasher, blocks, file->size);
    int r = fstat(fd, &st) ? -errno : (uint64_t)st.st_size != file->size ? -EBADMSG : 0;
    r = r ? r : hash_file(d, &hasher, fd, file->size);
    if (r)
        digest_free(d);
    else
        r = check_hash(d, file);
    block_hasher_done(&hasher);
    close(fd);
    if (r == -EBADMSG)
        return err_set(err, r, "%s is not what was downloaded: it has been changed, or the disk is damaged",
                       file->name);
    return r ? err_set(err, r, "%s cannot be read: %s", file->name, strerror(-r)) : 0;
}

/* --- what survives ---------------------------------------------------------------------------- */

static size_t mark_text(const struct part_file *p, char ret[MARK])
{
    char boot[BOOT_ID];
    boot_id(boot);
    return (size_t)snprintf(ret, MARK, "%s %020" PRIu64 "\n", boot, p->at_sync);
}

static int write_mark(struct part_file *p)
{
    char text[MARK];
    const size_t n = mark_text(p, text);
    return sync_note(p->synced, text, n, 0);
}

/* How much of what there is can be relied on. */
static uint64_t read_mark(int synced, uint64_t size)
{
    char text[MARK] = "", boot[BOOT_ID], then[BOOT_ID] = "";
    uint64_t at = 0;
    const ssize_t n = pread(synced, text, sizeof text - 1, 0);
    boot_id(boot);
    if (n <= 0 || sscanf(text, "%63s %" SCNu64, then, &at) != 2)
        return 0;
    return strcmp(boot, then) ? (at < size ? at : size) : size;
}

void part_file_name(char ret[HUB_FILE_NAME + 8], const char *name)
{
    snprintf(ret, HUB_FILE_NAME + 8, "%.*s.part", HUB_FILE_NAME, name);
}

static void mark_name(char ret[HUB_FILE_NAME + 8], const char *name)
{
    snprintf(ret, HUB_FILE_NAME + 8, "%.*s.synced", HUB_FILE_NAME, name);
}

uint64_t part_file_left(int folder, const char *name)
{
    char part[HUB_FILE_NAME + 8], mark[HUB_FILE_NAME + 8];
    struct stat st;
    part_file_name(part, name);
    mark_name(mark, name);
    const int synced = openat(folder, mark, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t left = 0;
    if (synced >= 0 && !fstatat(folder, part, &st, AT_SYMLINK_NOFOLLOW))
        left = read_mark(synced, (uint64_t)st.st_size);
    if (synced >= 0)
        close(synced);
    return left;
}

void part_file_forget(int folder, const char *name)
{
    char mark[HUB_FILE_NAME + 8];
    mark_name(mark, name);
    unlinkat(folder, mark, 0);
}

static int sync_part(struct part_file *p)
{
    if (fdatasync(p->fd))
        return -errno;
    p->at_sync = p->at;
    return write_mark(p);
}

/* Beside what comes. */
static int ask_sync(struct part_file *p)
{
    char text[MARK];
    const uint64_t fresh = p->at - p->at_sync;
    const int r = p->syncer ? 0 : syncer_new(&p->syncer);
    if (r)
        return r;
    p->at_sync = p->at;
    const size_t n = mark_text(p, text);
    return syncer_ask(
        p->syncer,
        &(struct sync_order){
            .before = -1, .file = p->fd, .note = p->synced, .bytes = text, .n = n, .fresh = fresh});
}

/* What was asked for and has not begun says more than will be there. */
static int forget_sync(struct part_file *p)
{
    return p->syncer ? syncer_forget(p->syncer, p->fd) : 0;
}

static int say(const struct part_file *p, int r, struct err *err)
{
    return r == -ENOSPC || r == -EDQUOT ? err_set(err, r,
                                                  "the disk is full, %s has %" PRIu64 " of %" PRIu64
                                                  " bytes: free some, and pull again; what is here stays",
                                                  p->file.name, p->at, p->file.size)
                                        : err_set(err, r, "%s cannot be written: %s", p->part, strerror(-r));
}

/* --- its life --------------------------------------------------------------------------------- */

/* What other nodes have brought counts up to the first gap. */
static uint64_t find_end(const struct part_file *p, uint64_t size)
{
    const uint32_t blocks = (uint32_t)((p->file.size + BLOCK_BYTES - 1) / BLOCK_BYTES),
                   leading = have_map_leading(p->folder, p->file.name, blocks);
    const uint64_t marked = read_mark(p->synced, size);
    uint64_t carried = (uint64_t)leading * BLOCK_BYTES;
    carried = carried < p->file.size ? carried : p->file.size;
    carried = carried < size ? carried : size;
    return carried > marked || marked > p->file.size ? carried : marked;
}

static void begin_hashes(struct part_file *p)
{
    p->hash = digest_new_of(&p->file);
    block_hasher_done(&p->blocks);
    block_hasher_begin(&p->blocks, p->hashes, p->file.size);
}

static int go_on(struct part_file *p)
{
    struct stat st;
    if (fstat(p->fd, &st))
        return -errno;
    p->at = find_end(p, (uint64_t)st.st_size);
    p->at_sync = p->at;
    if (ftruncate(p->fd, (off_t)p->at) || fsync(p->folder)) /* its own name and the mark's survive, too */
        return -errno;
    begin_hashes(p);
    int r = hash_file(p->hash, &p->blocks, p->fd, p->at);
    r = r ? r : sync_part(p);
    if (!r)
        have_map_remove(p->folder, p->file.name);
    return r;
}

int part_file_open(struct part_file **ret, int folder, const struct hub_file *file, uint8_t (*blocks)[DIGEST],
                   uint64_t *ret_at, struct err *err)
{
    struct part_file *p = xcalloc(1, sizeof *p);
    *p = (struct part_file){.folder = folder, .file = *file, .fd = -1, .synced = -1, .hashes = blocks};
    part_file_name(p->part, file->name);
    mark_name(p->mark, file->name);
    p->fd = openat(folder, p->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    p->synced = p->fd < 0 ? -1 : openat(folder, p->mark, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    int r = p->synced < 0 ? -errno : go_on(p);
    if (r) {
        say(p, r, err);
        part_file_close(p);
        return r;
    }
    *ret_at = p->at;
    *ret = p;
    return 0;
}

int part_file_write(struct part_file *p, const void *bytes, size_t n, struct err *err)
{
    const char *from = bytes;
    if (n > p->file.size - p->at)
        return err_set(err, -E2BIG, "%s: more comes than the %" PRIu64 " bytes that were announced",
                       p->file.name, p->file.size);
    digest_add(p->hash, bytes, n);
    block_hasher_add(&p->blocks, bytes, n);
    while (n) {
        const ssize_t put = pwrite(p->fd, from, n, (off_t)p->at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return say(p, put ? -errno : -EIO, err);
        from += put;
        n -= (size_t)put;
        p->at += (uint64_t)put;
    }
    const int r = p->at - p->at_sync >= BLOCK_BYTES ? ask_sync(p) : 0;
    return r ? say(p, r, err) : 0;
}

uint64_t part_file_at(const struct part_file *p)
{
    return p->at;
}

int part_file_restart(struct part_file *p, struct err *err)
{
    digest_free(p->hash);
    begin_hashes(p);
    int r = forget_sync(p);
    p->at = p->at_sync = 0;
    if (!r)
        r = ftruncate(p->fd, 0) ? -errno : write_mark(p);
    return r ? say(p, r, err) : 0;
}

static int name_it(const struct part_file *p)
{
    if (fsync(p->fd) || renameat(p->folder, p->part, p->folder, p->file.name) || fsync(p->folder))
        return -errno;
    unlinkat(p->folder, p->mark, 0);
    return 0;
}

int part_file_finish(struct part_file *p, struct err *err)
{
    struct digest *hash = p->hash;
    int r = forget_sync(p);
    p->hash = NULL;
    const bool is_right = hash_is(hash, &p->file) && p->at == p->file.size;
    if (!is_right) {
        unlinkat(p->folder, p->part, 0);
        unlinkat(p->folder, p->mark, 0);
        r = err_set(
            err, -EBADMSG,
            "%s: the bytes that came are not those that the hub announced, for their hash differs: they "
            "were thrown away",
            p->file.name);
    } else if (r || (r = name_it(p))) {
        say(p, r, err);
    }
    part_file_close(p);
    return r;
}

void part_file_close(struct part_file *p)
{
    if (!p)
        return;
    syncer_free(p->syncer);
    digest_free(p->hash);
    block_hasher_done(&p->blocks);
    if (p->fd >= 0)
        close(p->fd);
    if (p->synced >= 0)
        close(p->synced);
    free(p);
}
