/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

enum { READ_BYTES = 1 << 20, BOOT = 64 };

struct part_file {
    int folder, fd, synced; /* folder: borrowed */
    struct hub_file file;
    char part[HUB_FILE_NAME + 8], mark[HUB_FILE_NAME + 8];
    uint64_t at, at_sync; /* bytes on the disk, and of those that survive a power cut */
    EVP_MD_CTX *hash;     /* owned: of the first `at` bytes */
};

/* --- hashes ----------------------------------------------------------------------------------- */

static EVP_MD_CTX *hash_begin(const struct hub_file *file)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    char head[40];
    if (!c || EVP_DigestInit_ex(c, file->kind == HUB_HASH_GIT ? EVP_sha1() : EVP_sha256(), NULL) != 1)
        abort(); /* out of memory, or a libcrypto without SHA */
    if (file->kind == HUB_HASH_GIT) {
        const int n = snprintf(head, sizeof head, "blob %" PRIu64, file->size);
        EVP_DigestUpdate(c, head, (size_t)n + 1);
    }
    return c;
}

/* Frees the context. */
static bool hash_is(EVP_MD_CTX *c, const struct hub_file *file)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned n = 0;
    EVP_DigestFinal_ex(c, digest, &n);
    EVP_MD_CTX_free(c);
    for (unsigned i = 0; i < n; i++)
        sprintf(hex + 2 * (size_t)i, "%02x", digest[i]);
    return !strcmp(hex, file->hash);
}

/* Of the first `n` bytes. −EIO: there are fewer. */
static int hash_file(EVP_MD_CTX *c, int fd, uint64_t n)
{
    uint8_t *buf = xmalloc(READ_BYTES);
    int r = 0;
    for (uint64_t at = 0; at < n && !r;) {
        const size_t want = n - at < READ_BYTES ? (size_t)(n - at) : READ_BYTES;
        const ssize_t got = pread(fd, buf, want, (off_t)at);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            r = got ? -errno : -EIO;
        else if (got > 0)
            EVP_DigestUpdate(c, buf, (size_t)got);
        at += got > 0 ? (uint64_t)got : 0;
    }
    free(buf);
    return r;
}

int part_file_check(int folder, const struct hub_file *file, struct err *err)
{
    struct stat st;
    const int fd = openat(folder, file->name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, -errno, "%s cannot be opened: %s", file->name, strerror(errno));
    EVP_MD_CTX *c = hash_begin(file);
    int r = fstat(fd, &st) ? -errno : 0;
    if (!r && (uint64_t)st.st_size != file->size) {
        EVP_MD_CTX_free(c);
        r = -EBADMSG;
    } else {
        r = r ? r : hash_file(c, fd, file->size);
        r = !hash_is(c, file) && !r ? -EBADMSG : r;
    }
    close(fd);
    if (r == -EBADMSG)
        return err_set(err, r, "%s is not what was downloaded: it has been changed, or the disk is damaged",
                       file->name);
    return r ? err_set(err, r, "%s cannot be read: %s", file->name, strerror(-r)) : 0;
}

/* --- what survives ---------------------------------------------------------------------------- */

/* Another one after each start of the machine. */
static void boot_id(char ret[BOOT])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || fscanf(f, "%63s", ret) != 1)
        snprintf(ret, BOOT, "-");
    if (f)
        fclose(f);
}

static int write_mark(struct part_file *p)
{
    char boot[BOOT], text[BOOT + 40];
    boot_id(boot);
    const int n = snprintf(text, sizeof text, "%s %020" PRIu64 "\n", boot, p->at_sync);
    if (pwrite(p->synced, text, (size_t)n, 0) != n || fdatasync(p->synced))
        return -errno;
    return 0;
}

/* How much of what there is can be relied on. */
static uint64_t read_mark(const struct part_file *p, uint64_t size)
{
    char text[BOOT + 40] = "", boot[BOOT], then[BOOT] = "";
    uint64_t at = 0;
    const ssize_t n = pread(p->synced, text, sizeof text - 1, 0);
    boot_id(boot);
    if (n <= 0 || sscanf(text, "%63s %" SCNu64, then, &at) != 2)
        return 0;
    return strcmp(boot, then) ? (at < size ? at : size) : size;
}

static int sync_part(struct part_file *p)
{
    if (fdatasync(p->fd))
        return -errno;
    p->at_sync = p->at;
    return write_mark(p);
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

static int go_on(struct part_file *p)
{
    struct stat st;
    if (fstat(p->fd, &st))
        return -errno;
    p->at = read_mark(p, (uint64_t)st.st_size);
    if (p->at > p->file.size)
        p->at = 0;
    p->at_sync = p->at;
    if (ftruncate(p->fd, (off_t)p->at))
        return -errno;
    p->hash = hash_begin(&p->file);
    const int r = hash_file(p->hash, p->fd, p->at);
    return r ? r : sync_part(p);
}

int part_file_open(struct part_file **ret, int folder, const struct hub_file *file, uint64_t *ret_at,
                   struct err *err)
{
    struct part_file *p = xcalloc(1, sizeof *p);
    *p = (struct part_file){.folder = folder, .file = *file, .fd = -1, .synced = -1};
    snprintf(p->part, sizeof p->part, "%s.part", file->name);
    snprintf(p->mark, sizeof p->mark, "%s.synced", file->name);
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
    EVP_DigestUpdate(p->hash, bytes, n);
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
    const int r = p->at - p->at_sync >= PART_SYNC_BYTES ? sync_part(p) : 0;
    return r ? say(p, r, err) : 0;
}

uint64_t part_file_at(const struct part_file *p)
{
    return p->at;
}

int part_file_restart(struct part_file *p, struct err *err)
{
    EVP_MD_CTX_free(p->hash);
    p->hash = hash_begin(&p->file);
    p->at = p->at_sync = 0;
    const int r = ftruncate(p->fd, 0) ? -errno : write_mark(p);
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
    EVP_MD_CTX *hash = p->hash;
    int r = 0;
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
    } else if ((r = name_it(p))) {
        say(p, r, err);
    }
    part_file_close(p);
    return r;
}

void part_file_close(struct part_file *p)
{
    if (!p)
        return;
    EVP_MD_CTX_free(p->hash);
    if (p->fd >= 0)
        close(p->fd);
    if (p->synced >= 0)
        close(p->synced);
    free(p);
}
