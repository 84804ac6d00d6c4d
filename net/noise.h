/* SPDX-License-Identifier: MIT
 *
 * A small engine for Noise handshakes (noiseprotocol.org, revision 34) over X25519,
 * ChaCha20-Poly1305 and SHA-512, driven by a pattern table. ringd speaks one pattern (auth.c);
 * the engine runs any, so that it can be held against published vectors. The static key's secret
 * half is not the engine's: its owner is asked for the one step that needs it. */
#ifndef NET_NOISE_H
#define NET_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NOISE_KEY = 32,
    NOISE_HASH = 64,
    NOISE_TAG = 16,
    NOISE_MESSAGES = 4,
    NOISE_TOKENS = 8,
    NOISE_PSKS = 4
};

enum noise_token { NOISE_END, NOISE_E, NOISE_S, NOISE_EE, NOISE_ES, NOISE_SE, NOISE_SS, NOISE_PSK_TOKEN };
enum noise_known { NOISE_INITIATOR_KNOWN = 1, NOISE_RESPONDER_KNOWN = 2 };

struct noise_pattern {
    const char *name; /* the whole protocol name; hashed */
    uint8_t known;    /* static keys known beforehand: mask of enum noise_known */
    uint8_t messages;
    uint8_t tokens[NOISE_MESSAGES][NOISE_TOKENS]; /* enum noise_token; the initiator writes the even ones */
};

struct noise_pair {
    uint8_t secret[NOISE_KEY], pub[NOISE_KEY];
};

/* A static key of ours. `mix` is noise_mix with its secret, by whoever holds that. */
struct noise_static {
    uint8_t pub[NOISE_KEY];
    int (*mix)(void *holder, const uint8_t ck[static NOISE_HASH], const uint8_t peer[static NOISE_KEY],
               uint8_t ret_ck[static NOISE_HASH], uint8_t ret_key[static NOISE_KEY]);
    void *holder; /* borrowed for the handshake's life */
};

struct noise_setup {
    const struct noise_pattern *pattern; /* borrowed for the handshake's life */
    bool initiator;
    const struct noise_static *s; /* our static key, or NULL; copied */
    const uint8_t *e;  /* a fixed ephemeral secret for test vectors; NULL = random, as it must be */
    const uint8_t *rs; /* the peer's static public key where it is known beforehand */
    const void *prologue;
    size_t prologue_len;
    uint8_t psk[NOISE_PSKS][NOISE_KEY]; /* in the order of the psk tokens */
};

struct noise {
    const struct noise_pattern *pattern; /* borrowed */
    bool initiator, has_psk, has_e, has_rs, has_key, dead;
    uint8_t next; /* message */
    uint8_t next_psk;
    uint64_t nonce;
    uint8_t ck[NOISE_HASH], h[NOISE_HASH], key[NOISE_KEY];
    uint8_t psk[NOISE_PSKS][NOISE_KEY];
    struct noise_static s; /* mix: NULL without one */
    struct noise_pair e;
    uint8_t rs[NOISE_KEY], re[NOISE_KEY];
};

/* MixKey (§5.2) of the shared secret of two keys: the new chaining key, and the cipher's. −EBADMSG:
 * an all-zero shared secret. */
int noise_mix(const uint8_t ck[static NOISE_HASH], const uint8_t secret[static NOISE_KEY],
              const uint8_t peer[static NOISE_KEY], uint8_t ret_ck[static NOISE_HASH],
              uint8_t ret_key[static NOISE_KEY]);

int noise_init(struct noise *n, const struct noise_setup *setup);
void noise_wipe(struct noise *n);

bool noise_is_done(const struct noise *n);
bool noise_writes_next(const struct noise *n);
/* Bytes written (message) or read (payload), or −errno: −EPROTO out of turn, −ENOBUFS cap too
 * small, −EBADMSG forged, truncated or an all-zero shared secret. After a failure the handshake is
 * dead. */
int noise_write(struct noise *n, uint8_t *out, size_t cap, const void *payload, size_t len);
int noise_read(struct noise *n, const uint8_t *msg, size_t len, uint8_t *payload, size_t cap);
/* k1: initiator → responder, k2: the other way. */
void noise_split(const struct noise *n, uint8_t k1[static NOISE_KEY], uint8_t k2[static NOISE_KEY]);

#endif
