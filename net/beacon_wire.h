/* SPDX-License-Identifier: MIT
 *
 * The beacon datagram as bytes (PROTOCOL.md, "Beacons"): struct, encode, decode. PURE. Called by
 * beacon.c, by tests and fuzzers. */
#ifndef NET_BEACON_WIRE_H
#define NET_BEACON_WIRE_H

#include "prefix.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum beacon_sizes {
    BEACON_MAX = 1200,     /* a datagram; below every MTU IPv6 allows */
    BEACON_HEAD = 8,       /* its clear part, without the nonce */
    BEACON_NONCE = 24,     /* random, never used twice under one key */
    BEACON_HEARD_MAX = 24, /* neighbours named in one beacon */
    BEACON_NAME = 64,
    BEACON_PORT_NAME = 16,
    BEACON_VERSION = 1,
    BEACON_ASK_MAX = 64,                /* body of the two clear kinds */
    BEACON_SIZE_HEAD = BEACON_HEAD + 8, /* of a probe: and its number */
};

enum beacon_type {
    BEACON_HELLO = 1,
    BEACON_GOODBYE = 2, /* the same datagram: nothing will follow on this port */
    BEACON_JOINQ = 3,   /* clear, for enrolment: this file carries their bodies and does not read them */
    BEACON_JOINA = 4,
    BEACON_SIZE = 5, /* clear: a probe of packet sizes, filled up with zeros to its size; answered with */
    BEACON_SIZE_BACK = 6, /* the same number in the same size */
};

enum beacon_flags {
    BEACON_HAS_DEFAULT_ROUTE = 1, /* the port leads to the internet: nobody's private cable */
};

struct beacon_key {
    uint16_t id;     /* generation of the network key */
    uint8_t key[32]; /* beacon_key_derive */
};
/* The beacons' key of a generation: BLAKE2b-256 of "beacon" under the network key. */
void beacon_key_derive(uint8_t ret[static 32], const uint8_t network_key[static 32]);

struct beacon_heard { /* "I hear that port of yours": proves that the cable works the other way round too */
    uint8_t node_id[16];
    uint64_t boot;
    uint32_t port_id;
    uint64_t seq; /* of the last beacon heard from there */
};

struct beacon {
    enum beacon_type type; /* HELLO or GOODBYE */
    uint8_t node_id[16];
    uint64_t boot, seq; /* seq grows with every beacon of a port and never starts again within a boot */
    uint32_t port_id;
    uint16_t hold_ms; /* silence from which on the sender counts as gone */
    uint16_t flags;   /* enum beacon_flags; others are ignored */
    uint8_t kind;     /* enum port_kind */
    uint32_t speed_mbps, mtu;
    uint16_t tcp_port;
    uint8_t proto_min, proto_max;
    size_t nheard;
    struct beacon_heard heard[BEACON_HEARD_MAX];
    char name[BEACON_NAME]; /* of the node; NUL-terminated UTF-8 */
    uint8_t attempt;        /* which IPv4 subnet of the pool this end wants for the cable: net/subnet.h */
    struct prefix pool;     /* of which IPv4 network it gives cables their subnets; family 0: of none */
    uint32_t max_mtu;       /* what its driver takes, 0 = unknown */
    char port_name[BEACON_PORT_NAME];
};

/* `from` is the sender's link-local address and is sealed in: a datagram repeated from another
 * address does not open. Bytes written, or −ENOBUFS. */
int beacon_encode(const struct beacon *beacon, const struct beacon_key *key, const struct in6_addr *from,
                  const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap);
/* 0, or −EBADMSG (not a beacon, or no beacon that this version can read), −ENOKEY (sealed under
 * another key than `key`, which may be NULL), −EKEYREJECTED (does not open: forged, damaged, or
 * from elsewhere). */
int beacon_decode(struct beacon *ret, const struct beacon_key *key, const struct in6_addr *from,
                  const void *data, size_t n);

/* The type if the clear part is sound, else −EBADMSG: cheap, for looking before opening. */
int beacon_peek(const void *data, size_t n);
/* Of a HELLO or GOODBYE whose clear part is sound: the generation of the key it is sealed with, as
 * anybody can claim. */
unsigned beacon_generation(const uint8_t data[static BEACON_HEAD]);
/* The clear kinds, JOINQ and JOINA. Bytes written, −EINVAL or −ENOBUFS. The body of one that
 * beacon_peek accepted follows its head. */
int beacon_ask_encode(enum beacon_type type, const void *body, size_t n, uint8_t *out, size_t cap);

/* Probes of packet sizes. The head of one; and of a datagram of at least BEACON_SIZE_HEAD bytes
 * whether it is BEACON_SIZE or BEACON_SIZE_BACK with its number, else −EBADMSG. */
void beacon_size_encode(enum beacon_type type, uint64_t number, uint8_t out[static BEACON_SIZE_HEAD]);
int beacon_size_decode(const void *data, size_t n, uint64_t *ret_number);

#endif
