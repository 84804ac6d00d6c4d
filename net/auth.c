/* SPDX-License-Identifier: MIT
 *
 * ringd's handshake: one pattern on the Noise engine, node identities, session keys. Called by
 * link.c, on the loop; nothing here waits. */
#include "auth.h"

#include "noise.h"
#include "base/secret.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const struct noise_pattern pattern = {
    .name = "Noise_XXpsk0+psk3_25519_ChaChaPoly_SHA512",
    .messages = 3,
    .tokens =
        {
            {NOISE_PSK_TOKEN, NOISE_E},
            {NOISE_E, NOISE_EE, NOISE_S, NOISE_ES},
            {NOISE_S, NOISE_SE, NOISE_PSK_TOKEN},
        },
};

struct auth {
    struct noise noise;
};

void auth_node_id(uint8_t ret[static 16], const uint8_t pub[static AUTH_KEY])
{
    crypto_generichash(ret, 16, pub, AUTH_KEY, NULL, 0);
}

int auth_new(struct auth **ret, bool initiator, const struct auth_identity *id,
             const uint8_t psk[static AUTH_PSK], const void *prologue, size_t prologue_len)
{
    struct noise_static own = {.mix = id->mix, .holder = id->holder};
    struct noise_setup setup = {.pattern = &pattern,
                                .initiator = initiator,
                                .s = &own,
                                .prologue = prologue,
                                .prologue_len = prologue_len};
    struct auth *auth = secret_new(sizeof *auth);
    int r;

    if (!auth)
        return -ENOMEM;
    memcpy(own.pub, id->pub, sizeof own.pub);
    memcpy(setup.psk[0], psk, AUTH_PSK);
    memcpy(setup.psk[1], psk, AUTH_PSK);
    r = noise_init(&auth->noise, &setup);
    sodium_memzero(setup.psk, sizeof setup.psk);
    if (r < 0) {
        secret_free(auth);
        return r;
    }
    *ret = auth;
    return 0;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    secret_free(auth);
}

int auth_write(struct auth *auth, uint8_t *out, size_t cap, const void *payload, size_t n)
{
    if (n > AUTH_MAX_PAYLOAD)
        return -EMSGSIZE;
    return noise_write(&auth->noise, out, cap, payload, n);
}

int auth_read(struct auth *auth, const uint8_t *msg, size_t n, uint8_t *payload, size_t cap)
{
    if (n > AUTH_MAX_MESSAGE)
        return -EBADMSG;
    return noise_read(&auth->noise, msg, n, payload, cap);
}

int auth_read_any(struct auth *auth, const uint8_t (*psks)[AUTH_PSK], size_t n_psks, const uint8_t *msg,
                  size_t n, uint8_t *payload, size_t cap, size_t *ret_index)
{
    struct noise fresh = auth->noise;
    int r = -EBADMSG;

    for (size_t i = 0; i < n_psks; i++) {
        auth->noise = fresh;
        memcpy(auth->noise.psk[0], psks[i], AUTH_PSK);
        memcpy(auth->noise.psk[1], psks[i], AUTH_PSK);
        r = auth_read(auth, msg, n, payload, cap);
        if (r >= 0) {
            *ret_index = i;
            break;
        }
    }
    noise_wipe(&fresh);
    return r;
}

const uint8_t *auth_peer_key(const struct auth *auth)
{
    return auth->noise.has_rs && !auth->noise.dead ? auth->noise.rs : NULL;
}

int auth_split(struct auth *auth, struct auth_keys *ret)
{
    const struct noise *n = &auth->noise;

    if (!noise_is_done(n))
        return -EPROTO;
    if (n->initiator)
        noise_split(n, ret->tx, ret->rx);
    else
        noise_split(n, ret->rx, ret->tx);
    memcpy(ret->hash, n->h, sizeof ret->hash);
    return 0;
}
