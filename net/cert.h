/* SPDX-License-Identifier: MIT
 *
 * A node's certificate of membership: which cluster it belongs to, under which key and name, signed
 * with the cluster's Ed25519 key. No expiry date: home machines have bad clocks; whether a
 * certificate still counts is the roster's word (roster.h). PURE; any thread. PROTOCOL.md §5 has
 * the bytes. */
#ifndef NET_CERT_H
#define NET_CERT_H

#include <stddef.h>
#include <stdint.h>

enum {
    CERT_SEED = 32,        /* from which the cluster's key pair follows: what an authority keeps */
    CERT_CLUSTER_KEY = 32, /* Ed25519 public */
    CERT_SECRET = 64,      /* Ed25519 secret */
    CERT_ID = 16,          /* of a cluster or node: BLAKE2b-128 of its public key */
    CERT_NAME = 64,        /* with the NUL */
    CERT_BYTES = 200,
    CERT_SIGNATURE = 64,
};

void cert_cluster_keys(uint8_t ret_pub[static CERT_CLUSTER_KEY], uint8_t ret_secret[static CERT_SECRET],
                       const uint8_t seed[static CERT_SEED]);
void cert_cluster_id(uint8_t ret[static CERT_ID], const uint8_t cluster_key[static CERT_CLUSTER_KEY]);

enum cert_flags { CERT_AUTHORITY = 1 /* made the cluster; the roster says who else may sign */ };

struct cert {
    uint8_t cluster_id[CERT_ID];
    uint8_t pub[32]; /* the node's X25519 key */
    char name[CERT_NAME];
    uint64_t serial;   /* counted by the roster; a node's newer certificate has a higher one */
    uint64_t issued_s; /* the signer's wall clock, for people */
    uint32_t flags;    /* enum cert_flags; others are kept */
};
/* −EINVAL: the name is empty or not printable text. */
int cert_sign(const struct cert *c, const uint8_t secret[static CERT_SECRET], uint8_t out[static CERT_BYTES]);
/* −EPROTO: not a certificate; −EBADMSG: not signed with this cluster's key, or for another
 * cluster. */
int cert_open(const uint8_t *data, size_t n, const uint8_t cluster_key[static CERT_CLUSTER_KEY],
              struct cert *ret);

#endif
