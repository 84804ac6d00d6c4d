/* SPDX-License-Identifier: MIT
 *
 * STATE/cluster: the trust a node keeps, as bytes and on disk. Called by cluster.c alone, on the
 * loop. */
#ifndef DAEMON_CLUSTER_FILE_H
#define DAEMON_CLUSTER_FILE_H

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/cluster_disk.h"

struct cluster_trust {
    uint8_t key[CERT_CLUSTER_KEY]; /* the cluster's, public */
    bool authority;                /* not on disk: the keeper of the keys knows */
    struct cert cert;              /* ours */
    uint8_t cert_bytes[CERT_BYTES];
    size_t n_keys; /* of the network, newest first */
    struct cluster_net_key keys[CLUSTER_KEYS];
    struct roster roster;
    size_t roster_len;
    uint8_t roster_bytes[ROSTER_BYTES_MAX];
};

/* As cluster_disk_put. */
int cluster_trust_put(struct cluster_disk *disk, const struct cluster_trust *t, struct err *err);
/* −ENOENT as is; everything read is checked as if it came from the network. */
int cluster_trust_load(const char *path, struct cluster_trust *ret, struct err *err);

#endif
