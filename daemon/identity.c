/* SPDX-License-Identifier: MIT */
#include "daemon/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads up to cap bytes; −ENOENT as is, everything else as a sentence. Keys that others can read are no keys.
 */
static ssize_t read_private(const char *path, uint8_t *to, size_t cap, struct err *err)
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

static int write_private(const char *path, const uint8_t *data, size_t n, struct err *err)
{
    char tmp[4104];
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, data, n) == (ssize_t)n && !fsync(fd);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (ok && !rename(tmp, path))
        return 0;
    return err_set(err, -(saved ? saved : EIO), "%s cannot be written: %s", path,
                   strerror(saved ? saved : EIO));
}

int identity_load(struct auth_identity *ret, const char *state_dir, struct err *err)
{
    char path[4096];
    uint8_t bytes[2 * AUTH_KEY + 1];
    snprintf(path, sizeof path, "%s/identity", state_dir);
    ssize_t n = read_private(path, bytes, sizeof bytes, err);
    if (n == 2 * AUTH_KEY) {
        memcpy(ret->secret, bytes, AUTH_KEY);
        memcpy(ret->pub, bytes + AUTH_KEY, AUTH_KEY);
        return 0;
    }
    if (n != -ENOENT)
        return n < 0
                   ? (int)n
                   : err_set(err, -EINVAL, "%s is damaged: remove it and the node gets a new identity", path);
    int r = auth_identity_generate(ret);
    if (r)
        return err_set(err, r, "a key pair cannot be made: %s", strerror(-r));
    memcpy(bytes, ret->secret, AUTH_KEY);
    memcpy(bytes + AUTH_KEY, ret->pub, AUTH_KEY);
    return write_private(path, bytes, 2 * AUTH_KEY, err);
}

int secret_load(uint8_t psk[static AUTH_PSK], const char *path, struct err *err)
{
    uint8_t bytes[4096];
    ssize_t n = read_private(path, bytes, sizeof bytes, err);
    if (n == -ENOENT) {
        n = 32;
        randombytes_buf(bytes, (size_t)n);
        int r = write_private(path, bytes, (size_t)n, err);
        if (r)
            return r;
    }
    if (n < 0)
        return (int)n;
    if (n < 16)
        return err_set(err, -EINVAL, "%s holds %zd bytes; a cluster secret has at least 16", path, n);
    static const uint8_t purpose[crypto_generichash_KEYBYTES_MIN] =
        "ringd/1 psk"; /* BLAKE2b keyed by what it is for */
    crypto_generichash(psk, AUTH_PSK, bytes, (size_t)n, purpose, sizeof purpose);
    sodium_memzero(bytes, sizeof bytes);
    return 0;
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
