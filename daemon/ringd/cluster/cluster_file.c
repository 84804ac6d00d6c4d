/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/cluster_file.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/private_file.h"
#include "daemon/common/xalloc.h"
#include "net/buf.h"

static const uint8_t magic[4] = {'R', 'G', 'S', '2'};
enum {
    FILE_MAX = 4 + CERT_CLUSTER_KEY + CERT_BYTES + 1 + CLUSTER_KEYS * (2 + 64) + ROSTER_BYTES_MAX,
};

_Static_assert((int)FILE_MAX <= (int)TRUST_FILE_MAX, "the largest cluster can be written");

int cluster_trust_put(struct cluster_disk *disk, const struct cluster_trust *t, struct err *err)
{
    uint8_t *bytes = xmalloc(FILE_MAX);
    struct buf_out b;

    buf_out_init(&b, bytes, FILE_MAX);
    buf_out_bytes(&b, magic, sizeof magic);
    buf_out_bytes(&b, t->key, sizeof t->key);
    buf_out_bytes(&b, t->cert_bytes, sizeof t->cert_bytes);
    buf_out_u8(&b, (uint8_t)t->n_keys);
    for (size_t i = 0; i < t->n_keys; i++) {
        buf_out_u16(&b, t->keys[i].generation);
        buf_out_bytes(&b, t->keys[i].beacon, sizeof t->keys[i].beacon);
        buf_out_bytes(&b, t->keys[i].psk, sizeof t->keys[i].psk);
    }
    buf_out_bytes(&b, t->roster_bytes, t->roster_len);
    int n = buf_out_size(&b), r = n < 0 ? n : cluster_disk_put(disk, TRUST_CLUSTER, bytes, (size_t)n, err);
    sodium_memzero(bytes, FILE_MAX);
    free(bytes);
    return r;
}

static int parse(const uint8_t *data, size_t n, struct cluster_trust *t)
{
    uint8_t mark[sizeof magic];
    struct buf_in b;

    buf_in_init(&b, data, n);
    buf_in_bytes(&b, mark, sizeof mark);
    buf_in_bytes(&b, t->key, sizeof t->key);
    buf_in_bytes(&b, t->cert_bytes, sizeof t->cert_bytes);
    t->n_keys = buf_in_u8(&b);
    if (b.bad || memcmp(mark, magic, sizeof mark) || t->n_keys == 0 || t->n_keys > CLUSTER_KEYS)
        return -EPROTO;
    for (size_t i = 0; i < t->n_keys; i++) {
        t->keys[i].generation = buf_in_u16(&b);
        buf_in_bytes(&b, t->keys[i].beacon, sizeof t->keys[i].beacon);
        buf_in_bytes(&b, t->keys[i].psk, sizeof t->keys[i].psk);
    }
    t->roster_len = b.left;
    if (b.bad || b.left > sizeof t->roster_bytes || cert_open(t->cert_bytes, CERT_BYTES, t->key, &t->cert) ||
        roster_open(b.at, b.left, t->key, &t->roster))
        return -EPROTO;
    memcpy(t->roster_bytes, b.at, b.left);
    return 0;
}

int cluster_trust_load(const char *path, struct cluster_trust *ret, struct err *err)
{
    uint8_t *bytes = xmalloc(FILE_MAX + 1);
    ssize_t n = private_read(path, bytes, FILE_MAX + 1, err);
    int r = n < 0 ? (int)n : parse(bytes, (size_t)n, ret);

    sodium_memzero(bytes, FILE_MAX + 1);
    free(bytes);
    return r == -EPROTO
               ? err_set(
                     err, r,
                     "%s is damaged: restore it from a backup, or remove it and join again with a new token",
                     path)
               : r;
}
