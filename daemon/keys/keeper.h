/* SPDX-License-Identifier: MIT
 *
 * The keeper of a node's secret keys: its identity, and on an authority the cluster's seed. It
 * answers requests (keys_proto.h), each for one purpose, and gives no secret away. Who asks may be
 * hostile: a ringd that somebody has taken over. So the keeper makes certificates and rosters
 * itself, out of what it knows, and goes from one roster to newer ones only.
 *
 * Pure: bytes in, bytes out; no file, no socket, no clock. One thread. */
#ifndef DAEMON_KEEPER_H
#define DAEMON_KEEPER_H

#include "daemon/common/keys_proto.h"

/* What it knows of the cluster. */
struct keeper_cluster {
    bool has;
    uint8_t key[CERT_CLUSTER_KEY]; /* public */
    bool has_seed;                 /* this node is an authority */
    uint8_t seed[CERT_SEED];
    uint16_t generation; /* of net_key; 0: none */
    uint8_t net_key[32];
    struct roster roster;
    size_t n;
    uint8_t bytes[ROSTER_BYTES_MAX]; /* the roster, signed */
};

struct keeper {
    struct auth_pair own;
    uint8_t id[CERT_ID];
    char trouble[256];               /* "": none; else the answer to all that is asked */
    struct keeper_cluster now, next; /* next: being made, wiped after each request */
    uint8_t request[KEYS_REQUEST_MAX + 1], answer[KEYS_ANSWER_MAX];
};

/* −EIO: no libsodium. */
int keeper_init(struct keeper *k, const uint8_t seed[static AUTH_SEED]);
/* Answers the first n bytes of k->request: the length of the answer in k->answer. */
size_t keeper_answer(struct keeper *k, size_t n);

#endif
