/* SPDX-License-Identifier: MIT
 *
 * A node's statements: signatures by the Ed25519 key that its identity is, and how that key belongs
 * to the X25519 key that certificates and rosters name. Owns nothing; called by the daemon, on the
 * loop. */
#include "auth.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

_Static_assert(AUTH_SEED == crypto_sign_SEEDBYTES && AUTH_SIGNATURE == crypto_sign_BYTES &&
                   AUTH_KEY == crypto_sign_PUBLICKEYBYTES && 2 * AUTH_KEY == crypto_sign_SECRETKEYBYTES,
               "sizes of Ed25519");

int auth_pair_from_seed(struct auth_pair *pair, const uint8_t seed[static AUTH_SEED])
{
    if (sodium_init() < 0)
        return -EIO;
    crypto_sign_seed_keypair(pair->sign_pub, pair->sign_secret, seed);
    if (crypto_sign_ed25519_sk_to_curve25519(pair->secret, pair->sign_secret) ||
        crypto_scalarmult_base(pair->pub, pair->secret))
        return -EIO;
    return 0;
}

bool auth_is_signer(const uint8_t sign_pub[static AUTH_KEY], const uint8_t pub[static AUTH_KEY])
{
    uint8_t mapped[AUTH_KEY];

    return crypto_sign_ed25519_pk_to_curve25519(mapped, sign_pub) == 0 && !memcmp(mapped, pub, sizeof mapped);
}

void auth_hash(uint8_t ret[static AUTH_HASH], const void *text, size_t n)
{
    crypto_hash_sha512(ret, text, n);
}

static void begin(crypto_sign_state *s, enum auth_purpose what, const void *text, size_t n)
{
    static const char *const purposes[AUTH_PURPOSES] = {
        [AUTH_RECORD] = "ringd/1 record", [AUTH_MESSAGE] = "ringd/1 message", [AUTH_JOIN] = "ringd/1 join"};
    const char *purpose = purposes[what];

    crypto_sign_init(s);
    crypto_sign_update(s, (const uint8_t *)purpose, strlen(purpose) + 1); /* its NUL ends it */
    crypto_sign_update(s, text, n);
}

int auth_pair_sign(const struct auth_pair *pair, enum auth_purpose purpose, const void *text, size_t n,
                   uint8_t ret[static AUTH_SIGNATURE])
{
    crypto_sign_state s;

    begin(&s, purpose, text, n);
    return crypto_sign_final_create(&s, ret, NULL, pair->sign_secret) ? -EIO : 0;
}

bool auth_verify(const uint8_t sign_pub[static AUTH_KEY], enum auth_purpose purpose, const void *text,
                 size_t n, const uint8_t signature[static AUTH_SIGNATURE])
{
    crypto_sign_state s;

    begin(&s, purpose, text, n);
    return crypto_sign_final_verify(&s, signature, sign_pub) == 0;
}
