/* SPDX-License-Identifier: MIT
 *
 * Who belongs to a cluster: one list, numbered, signed with the cluster's key, known to all
 * members. The newest wins and nobody goes back to an older one; a node is revoked by a roster in
 * which it is marked removed. With it travels the cluster's network key, sealed to each member
 * alone. PURE: no keys are made here, no sealing is done, no clock is read; any thread. PROTOCOL.md
 * §5 has the bytes. */
#ifndef NET_ROSTER_H
#define NET_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cert.h"

enum {
    ROSTER_MAX = 128,   /* entries, removed ones included: a ring has 16 nodes, and machines are replaced */
    ROSTER_SEALED = 80, /* 32 bytes in a libsodium sealed box */
    ROSTER_ENTRY_MAX = 32 + 1 + 1 + 8 + 1 + (CERT_NAME - 1) + 2 * ROSTER_SEALED,
    ROSTER_BYTES_MAX =
        4 + CERT_ID + 8 + 8 + 2 + 2 + 1 + (CERT_NAME - 1) + ROSTER_MAX * ROSTER_ENTRY_MAX + CERT_SIGNATURE,
};

enum roster_status { ROSTER_ACTIVE = 1, ROSTER_REMOVED = 2 };

struct roster_entry {
    uint8_t pub[32], id[CERT_ID]; /* id follows from pub and is not on the wire */
    char name[CERT_NAME];
    uint8_t status;                       /* enum roster_status */
    bool authority;                       /* holds the cluster's secret key */
    uint64_t serial;                      /* of its certificate */
    uint8_t net_key[ROSTER_SEALED];       /* active: the network key of this generation, to this node */
    uint8_t authority_key[ROSTER_SEALED]; /* active authorities: the cluster's seed, to this node */
};

struct roster {
    uint8_t cluster_id[CERT_ID];
    char name[CERT_NAME]; /* of the cluster */
    uint64_t version;     /* from 1 */
    uint64_t last_serial; /* highest ever given out */
    uint16_t generation;  /* of the network key, from 1; its id in beacons */
    size_t n;
    struct roster_entry at[ROSTER_MAX];
};

/* Bytes written, −EINVAL (a name), −ENOBUFS. */
int roster_sign(const struct roster *r, const uint8_t secret[static CERT_SECRET], uint8_t *out, size_t cap);
/* −EBADMSG: not signed with this cluster's key; −EPROTO: signed, but not a roster this version
 * understands.
 */
int roster_open(const uint8_t *data, size_t n, const uint8_t cluster_key[static CERT_CLUSTER_KEY],
                struct roster *ret);
/* Does the signed roster a (already opened as `ra`) replace b? Higher version; two authorities that
 * signed the same version at once are told apart by their signatures, so that all nodes choose
 * alike. */
bool roster_replaces(const struct roster *ra, const uint8_t *a, size_t na, const struct roster *rb,
                     const uint8_t *b, size_t nb);

const struct roster_entry *roster_find(const struct roster *r, const uint8_t id[static CERT_ID]);
/* By name among the active, then by full hex id among all; NULL. */
const struct roster_entry *roster_named(const struct roster *r, const char *name);

/* Changes: each makes a new version, to be sealed (cluster.c) and signed. */
/* Lets a node in, or in again, with a new serial; a name that is taken gets a number behind it.
 * *ret is the entry. −ENOSPC: ROSTER_MAX active nodes; −EINVAL: name. */
int roster_admit(struct roster *r, const uint8_t pub[static 32], const char *name,
                 const struct roster_entry **ret);
/* −ENOENT: no active node of that id. The generation goes up: everyone left needs a new network
 * key. */
int roster_remove(struct roster *r, const uint8_t id[static CERT_ID]);
int roster_promote(struct roster *r, const uint8_t id[static CERT_ID]);
/* Two authorities changed the roster at once and `mine` lost to `now`: takes into `now` what it
 * lacks of mine. True: something was taken, and `now` is a new version. */
bool roster_rebase(struct roster *now, const struct roster *mine);

enum roster_verdict {
    ROSTER_IS_MEMBER,
    ROSTER_IS_NEW, /* certified after this roster: its own is newer */
    ROSTER_WAS_REMOVED,
    ROSTER_OLD_CERT, /* a member, but not by this certificate */
    ROSTER_UNKNOWN,  /* certified once, long forgotten */
};
/* What the roster says of a certificate that cert_open accepted. */
enum roster_verdict roster_judge(const struct roster *r, const struct cert *c);

#endif
