/* SPDX-License-Identifier: MIT */
#include "daemon/keys/key_file.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/private_file.h"

int key_file_load(uint8_t ret[static AUTH_SEED], const char *dir, struct err *err)
{
    char path[4096];
    struct auth_pair pair;
    uint8_t bytes[AUTH_SEED + AUTH_KEY + 1];
    snprintf(path, sizeof path, "%s/identity", dir);
    ssize_t n = private_read(path, bytes, sizeof bytes, err);
    int r = n < 0 && n != -ENOENT ? (int)n : 0;
    if (n == -ENOENT)
        randombytes_buf(bytes, AUTH_SEED);
    if (!r && auth_pair_from_seed(&pair, bytes)) {
        r = err_set(err, -EIO, "a key pair cannot be made: libsodium cannot start");
    } else if (!r && n == -ENOENT) {
        memcpy(bytes + AUTH_SEED, pair.pub, AUTH_KEY);
        r = private_write(path, bytes, AUTH_SEED + AUTH_KEY, err);
    } else if (!r && (n != AUTH_SEED + AUTH_KEY || memcmp(pair.pub, bytes + AUTH_SEED, AUTH_KEY))) {
        r = err_set(err, -EINVAL, "%s is damaged: remove it and the node gets a new identity", path);
    }
    if (!r)
        memcpy(ret, bytes, AUTH_SEED);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(&pair, sizeof pair);
    return r;
}
