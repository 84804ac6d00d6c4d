/* SPDX-License-Identifier: MIT
 *
 * What ringd asks of ringd-keys, the process that alone has the node's secret keys: one packet
 * for a request, one for its answer, over a socket that keeps packets apart. A request begins
 * with its kind, an answer with an error number, 0 if there is none. Numbers are little-endian,
 * as everywhere. No thread, no state. */
#ifndef DAEMON_KEYS_PROTO_H
#define DAEMON_KEYS_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/auth.h"
#include "net/buf.h"
#include "net/cert.h"
#include "net/roster.h"

enum keys_kind {
    KEYS_HELLO = 1, /* → public X25519 key, public Ed25519 key; on an error a sentence */
    KEYS_MIX,       /* chaining key, public key → chaining key, cipher key: a step of a handshake */
    KEYS_SIGN,      /* u8 enum auth_purpose, text → signature */
    /* These change what is known of the cluster, and answer with it: struct keys_trust. */
    KEYS_TAKE,    /* the cluster's public key, a signed roster: from now on that */
    KEYS_FOUND,   /* u64 now, name of the cluster, name of this node: a cluster of our own */
    KEYS_ADMIT,   /* u64 now, public key, name: lets a node in */
    KEYS_CERTIFY, /* u64 now, node id: the certificate of a member once more */
    KEYS_REMOVE,  /* node id */
    KEYS_PROMOTE, /* node id */
};

enum keys_limits {
    KEYS_FD = 3, /* where ringd-keys finds its end of the socket */
    KEYS_ERROR = 2,
    KEYS_STATEMENT = 2 * 24 + 8 + AUTH_HASH, /* the text of a signature for AUTH_MESSAGE, … */
    KEYS_AUTHOR_AT = 24,                     /* … and where in it the author's node id is */
    KEYS_RECORD_MAX = 16384,                 /* the text of a signature for AUTH_RECORD */
    KEYS_REQUEST_MAX = 1 + CERT_CLUSTER_KEY + ROSTER_BYTES_MAX,
    KEYS_ANSWER_MAX = KEYS_ERROR + CERT_CLUSTER_KEY + CERT_BYTES + 1 + 2 + 64 + ROSTER_BYTES_MAX,
};

/* Two keys follow from the network key, and ringd has only those two. With the network key itself
 * an attacker could seal something else in its place, and have ringd-keys open that. */
struct keys_trust {
    uint8_t cluster[CERT_CLUSTER_KEY]; /* the cluster's public key */
    uint8_t cert[CERT_BYTES];          /* KEYS_FOUND: ours; KEYS_ADMIT, KEYS_CERTIFY: that node's */
    bool authority;                    /* this node can sign for the cluster */
    uint16_t generation;               /* of the two keys; 0: this node is given none */
    uint8_t beacon[32], psk[AUTH_PSK]; /* zeros without a generation */
    const uint8_t *roster;             /* borrowed: signed, what is in force now */
    size_t n;
};

void keys_trust_encode(struct buf_out *out, const struct keys_trust *t);
int keys_trust_decode(const uint8_t *body, size_t n, struct keys_trust *ret); /* −EPROTO */
/* A name: its length in one byte, and shorter than CERT_NAME. */
void keys_name_encode(struct buf_out *out, const char *name);
void keys_name_decode(struct buf_in *in, char ret[static CERT_NAME]); /* too long: a bad cursor */

#endif
