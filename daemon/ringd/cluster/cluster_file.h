/* SPDX-License-Identifier: MIT
 *
 * STATE/cluster: the trust a node keeps, as bytes and on disk. Called by cluster.c alone, on the
 * loop. */
#ifndef DAEMON_CLUSTER_FILE_H
#define DAEMON_CLUSTER_FILE_H

#include "daemon/ringd/cluster/cluster.h"

struct cluster_trust {
    uint8_t key[CERT_CLUSTER_KEY]; /* the cluster's, public */
    bool has_seed;                 /* this node is an authority */
    uint8_t seed[CERT_SEED];
    struct cert cert; /* ours */
    uint8_t cert_bytes[CERT_BYTES];
    size_t n_keys; /* of the network, newest first */
    struct cluster_net_key keys[CLUSTER_KEYS];
    struct roster roster;
    size_t roster_len;
    uint8_t roster_bytes[ROSTER_BYTES_MAX];
};

int cluster_trust_save(const char *path, const struct cluster_trust *t, struct err *err);
/* −ENOENT as is; everything read is checked as if it came from the network. */
int cluster_trust_load(const char *path, struct cluster_trust *ret, struct err *err);

#endif
