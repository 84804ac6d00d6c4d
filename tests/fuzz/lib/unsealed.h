/* SPDX-License-Identifier: MIT
 *
 * Ciphers that let everything through, for targets of what lies behind a seal or a signature:
 * whoever holds the key may say anything there, and computing seals would take a hundred times as
 * long as decoding. What is defined in a program comes before what a library has. fuzz_outside.c
 * has the real ones. */
#ifndef TESTS_FUZZ_UNSEALED_H
#define TESTS_FUZZ_UNSEALED_H

#include <sodium.h>
#include <string.h>

typedef unsigned long long sodium_size; /* as libsodium has it */

int crypto_sign_verify_detached(const unsigned char *sig, const unsigned char *m, sodium_size n,
                                const unsigned char *pk)
{
    (void)sig, (void)m, (void)n, (void)pk;
    return 0;
}

int crypto_sign_detached(unsigned char *sig, sodium_size *ret_n, const unsigned char *m, sodium_size n,
                         const unsigned char *sk)
{
    (void)m, (void)n, (void)sk;
    memset(sig, 0, crypto_sign_BYTES);
    if (ret_n)
        *ret_n = crypto_sign_BYTES;
    return 0;
}

/* Statements (net/auth_sign.c): whatever is said was signed; the image of every key is zero. */
int crypto_sign_final_verify(crypto_sign_state *state, const unsigned char *sig, const unsigned char *pk)
{
    (void)state, (void)sig, (void)pk;
    return 0;
}

int crypto_sign_ed25519_pk_to_curve25519(unsigned char *to, const unsigned char *from)
{
    (void)from;
    memset(to, 0, crypto_scalarmult_BYTES);
    return 0;
}

/* Sealed is what was there, and a tag of zeros; opened is what was there, whatever its tag. */
static inline int unsealed_put(unsigned char *c, const unsigned char *m, sodium_size n)
{
    memmove(c, m ? m : c, n);
    memset(c + n, 0, 16);
    return 0;
}

static inline int unsealed_take(unsigned char *m, const unsigned char *c, sodium_size n)
{
    if (n < 16)
        return -1;
    if (n > 16)
        memmove(m, c, n - 16);
    return 0;
}

int crypto_aead_xchacha20poly1305_ietf_encrypt(unsigned char *c, sodium_size *ret_n, const unsigned char *m,
                                               sodium_size n, const unsigned char *ad, sodium_size ad_n,
                                               const unsigned char *nsec, const unsigned char *npub,
                                               const unsigned char *k)
{
    (void)ret_n, (void)ad, (void)ad_n, (void)nsec, (void)npub, (void)k;
    return unsealed_put(c, m, n);
}

int crypto_aead_xchacha20poly1305_ietf_decrypt(unsigned char *m, sodium_size *ret_n, unsigned char *nsec,
                                               const unsigned char *c, sodium_size n, const unsigned char *ad,
                                               sodium_size ad_n, const unsigned char *npub,
                                               const unsigned char *k)
{
    (void)ret_n, (void)nsec, (void)ad, (void)ad_n, (void)npub, (void)k;
    return unsealed_take(m, c, n);
}

int crypto_aead_chacha20poly1305_ietf_encrypt(unsigned char *c, sodium_size *ret_n, const unsigned char *m,
                                              sodium_size n, const unsigned char *ad, sodium_size ad_n,
                                              const unsigned char *nsec, const unsigned char *npub,
                                              const unsigned char *k)
{
    (void)ret_n, (void)ad, (void)ad_n, (void)nsec, (void)npub, (void)k;
    return unsealed_put(c, m, n);
}

int crypto_aead_chacha20poly1305_ietf_decrypt(unsigned char *m, sodium_size *ret_n, unsigned char *nsec,
                                              const unsigned char *c, sodium_size n, const unsigned char *ad,
                                              sodium_size ad_n, const unsigned char *npub,
                                              const unsigned char *k)
{
    (void)ret_n, (void)nsec, (void)ad, (void)ad_n, (void)npub, (void)k;
    return unsealed_take(m, c, n);
}

int crypto_scalarmult_base(unsigned char *q, const unsigned char *n)
{
    for (size_t i = 0; i < crypto_scalarmult_BYTES; i++)
        q[i] = (unsigned char)(n[i] ^ 9);
    return 0;
}

/* A secret that is no secret, but not the weak one that is refused. */
int crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p)
{
    for (size_t i = 0; i < crypto_scalarmult_BYTES; i++)
        q[i] = (unsigned char)(n[i] ^ p[i]);
    return 0;
}

#endif
