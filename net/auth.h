/* SPDX-License-Identifier: MIT
 *
 * Noise_XXpsk0+psk3_25519_ChaChaPoly_SHA512 (noiseprotocol.org, revision 34) as pure numbered
 * steps: bytes in, bytes out, no sockets, no clock. PROTOCOL.md gives the byte tables.
 *
 *   -> psk, e          <- e, ee, s, es [responder's hello]          -> s, se, psk [initiator's
 *    hello]
 *
 * Every message payload is opaque to this file. Without the psk not even message 1 can be parsed,
 * so an outsider gets silence.
 *
 * A node's secret keys may lie in another process: `struct auth_identity` says what is asked of
 * whoever holds them, and `struct auth_pair` is what that one holds. */
#ifndef NET_AUTH_H
#define NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AUTH_KEY = 32,
    AUTH_PSK = 32,
    AUTH_SEED = 32,
    AUTH_SIGNATURE = 64,
    AUTH_HASH = 64,
    AUTH_TAG = 16,
    AUTH_MAX_PAYLOAD = 4096,
    AUTH_MAX_MESSAGE = AUTH_MAX_PAYLOAD + 128,
};

/* One seed, two key pairs: Ed25519, and the X25519 pair that belongs to it by the curves' common
 * map. The node's name in certificates and rosters is the X25519 key; whoever signs with the
 * Ed25519 key shows it, and the map tells whose it is. */
struct auth_pair {
    uint8_t secret[AUTH_KEY], pub[AUTH_KEY]; /* X25519: handshakes */
    uint8_t sign_secret[2 * AUTH_KEY],
        sign_pub[AUTH_KEY]; /* Ed25519: statements; sign_secret begins with the seed */
};
int auth_pair_from_seed(struct auth_pair *pair, const uint8_t seed[static AUTH_SEED]); /* −EIO */

/* A statement (auth_sign.c): its purpose keeps a signature from being taken for one of another
 * kind. */
enum auth_purpose { AUTH_RECORD, AUTH_MESSAGE, AUTH_JOIN, AUTH_PURPOSES };
int auth_pair_sign(const struct auth_pair *pair, enum auth_purpose purpose, const void *text, size_t n,
                   uint8_t ret[static AUTH_SIGNATURE]);
bool auth_verify(const uint8_t sign_pub[static AUTH_KEY], enum auth_purpose purpose, const void *text,
                 size_t n, const uint8_t signature[static AUTH_SIGNATURE]);

/* SHA-512 of what is signed by its hash: a text too long for whoever holds the key. */
void auth_hash(uint8_t ret[static AUTH_HASH], const void *text, size_t n);

/* Who a node is, and who holds the secret half. What is asked is answered before the call returns,
 * or fails with −errno. `mix`: the step of a handshake that needs the X25519 secret (noise_mix), so
 * that nobody gets the shared secret itself. */
struct auth_identity {
    uint8_t pub[AUTH_KEY], sign_pub[AUTH_KEY];
    int (*mix)(void *holder, const uint8_t ck[static AUTH_HASH], const uint8_t peer[static AUTH_KEY],
               uint8_t ret_ck[static AUTH_HASH], uint8_t ret_key[static AUTH_KEY]);
    int (*sign)(void *holder, enum auth_purpose purpose, const void *text, size_t n,
                uint8_t ret[static AUTH_SIGNATURE]);
    void *holder; /* borrowed */
};
/* Does this Ed25519 key belong to that X25519 key? (Two do, of opposite sign, and the owner has the
 * secrets of both.) */
bool auth_is_signer(const uint8_t sign_pub[static AUTH_KEY], const uint8_t pub[static AUTH_KEY]);

/* 16-byte node id = BLAKE2b-128 of the public key. */
void auth_node_id(uint8_t ret[static 16], const uint8_t pub[static AUTH_KEY]);

struct auth; /* one handshake; holds secrets, wiped by auth_free */

/* `prologue` binds what both sides must agree on (protocol version, cluster id, kind of
 * connection). */
int auth_new(struct auth **ret, bool initiator, const struct auth_identity *id,
             const uint8_t psk[static AUTH_PSK], const void *prologue, size_t prologue_len);
void auth_free(struct auth *auth);

/* Returns bytes written (≤ cap), or −errno; −EPROTO out of turn. */
int auth_write(struct auth *auth, uint8_t *out, size_t cap, const void *payload, size_t n);
/* Returns payload bytes, or −EBADMSG (forged, wrong psk, truncated). After a failure the handshake
 * is dead.
 */
int auth_read(struct auth *auth, const uint8_t *msg, size_t n, uint8_t *payload, size_t cap);
/* Message 1 by an acceptor that cannot know which of n secrets the dialer has: each is tried, the
 * one that fits is kept for the rest of the handshake and its index given back. −EBADMSG when none
 * does. */
int auth_read_any(struct auth *auth, const uint8_t (*psks)[AUTH_PSK], size_t n_psks, const uint8_t *msg,
                  size_t n, uint8_t *payload, size_t cap, size_t *ret_index);
/* Valid once the peer has sent its key. */
const uint8_t *auth_peer_key(const struct auth *auth);

struct auth_keys {                                       /* after the last message */
    uint8_t tx[AUTH_KEY], rx[AUTH_KEY], hash[AUTH_HASH]; /* hash binds later statements to this session */
};
int auth_split(struct auth *auth, struct auth_keys *ret);

#endif
