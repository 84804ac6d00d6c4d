/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_AHEAD_US (UINT64_C(50) * 365 * 86400 * 1000000) /* no clock was ever set back by so much */

/* Reads up to cap bytes; −ENOENT as is, everything else as a sentence. Keys that others can read
 * are no keys. */
ssize_t private_read(const char *path, uint8_t *to, size_t cap, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT
                               : err_set(err, -errno, "%s cannot be read: %s", path, strerror(errno));
    struct stat st;
    ssize_t n = fstat(fd, &st) ? -1 : read(fd, to, cap);
    int saved = errno;
    close(fd);
    if (n < 0)
        return err_set(err, -saved, "%s cannot be read: %s", path, strerror(saved));
    if (st.st_mode & 077)
        return err_set(err, -EPERM, "%s can be read by others: chmod 600 %s", path, path);
    return n;
}

/* The name is only safe on disk when its directory is. */
static int sync_directory(const char *path)
{
    char dir[4104];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return 0;
    slash[slash == dir] = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 || fsync(fd) ? -1 : 0;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return r;
}

int private_write(const char *path, const uint8_t *data, size_t n, struct err *err)
{
    char tmp[4104];
    errno = 0;
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, data, n) == (ssize_t)n && !fsync(fd);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (ok && !rename(tmp, path) && !sync_directory(path))
        return 0;
    saved = ok ? errno : saved ? saved : ENOSPC; /* a short write leaves no reason behind, and has only one */
    unlink(tmp);
    return err_set(err, -saved, "%s cannot be written: %s", path, strerror(saved));
}

int identity_load(struct auth_identity *ret, const char *state_dir, struct err *err)
{
    char path[4096];
    uint8_t bytes[AUTH_SEED + AUTH_KEY + 1]; /* the key beside the seed shows that neither is damaged */
    snprintf(path, sizeof path, "%s/identity", state_dir);
    ssize_t n = private_read(path, bytes, sizeof bytes, err);
    int r = n < 0 && n != -ENOENT ? (int)n : 0;
    if (n == -ENOENT) {
        r = auth_identity_generate(ret);
        memcpy(bytes, ret->sign_secret, AUTH_SEED);
        memcpy(bytes + AUTH_SEED, ret->pub, AUTH_KEY);
        r = r ? err_set(err, r, "a key pair cannot be made: %s", strerror(-r))
              : private_write(path, bytes, AUTH_SEED + AUTH_KEY, err);
    } else if (!r && (n != AUTH_SEED + AUTH_KEY || auth_identity_from_seed(ret, bytes) ||
                      memcmp(ret->pub, bytes + AUTH_SEED, AUTH_KEY))) {
        r = err_set(err, -EINVAL, "%s is damaged: remove it and the node gets a new identity", path);
    }
    sodium_memzero(bytes, sizeof bytes);
    return r;
}

int identity_boot(uint64_t *ret, const char *state_dir, uint64_t wall_us, struct err *err)
{
    char path[4096];
    uint8_t bytes[8];
    uint64_t last = 0;
    struct err ignored; /* what cannot be read is written anew */
    snprintf(path, sizeof path, "%s/boot", state_dir);
    if (private_read(path, bytes, sizeof bytes, &ignored) == sizeof bytes)
        for (int i = 0; i < 8; i++)
            last |= (uint64_t)bytes[i] << 8 * i;
    /* A number from the far future (a damaged file, a clock gone mad) would count up from there for
     * ever. */
    bool sane = last < wall_us + BOOT_AHEAD_US;
    *ret = sane && last >= wall_us ? last + 1 : wall_us;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(*ret >> 8 * i);
    return private_write(path, bytes, sizeof bytes, err);
}

void id_hex(char buf[33], const uint8_t id[static 16])
{
    sodium_bin2hex(buf, 33, id, 16);
}

int id_parse(uint8_t id[static 16], const char *hex)
{
    size_t n;
    if (!hex || strlen(hex) != 32 || sodium_hex2bin(id, 16, hex, 32, NULL, &n, NULL) || n != 16)
        return -EINVAL;
    return 0;
}
