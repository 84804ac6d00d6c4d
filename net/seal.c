/* SPDX-License-Identifier: MIT
 *
 * The record layer. Owns nothing but the caller's struct seal; called by link.c on the loop and by
 * the stage's channel threads. The ciphers are libcrypto's, which takes some 0.6 of the time
 * libsodium 1.0.18 needs for either. Its context is not kept: making and keying one costs a
 * microsecond per record, and without it the state is plain bytes that may cross to another
 * process. */
#include "seal.h"

#include "buf.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <string.h>

static const char *const suite_names[] = {
    [SEAL_CHACHA20_POLY1305] = "chacha20-poly1305", [SEAL_AES256_GCM] = "aes256-gcm"};

uint8_t seal_suites(void)
{
    uint8_t mask = 1 << SEAL_CHACHA20_POLY1305;

    /* sodium_init is what detects the CPU; −1 only when there is no source of randomness */
    if (sodium_init() >= 0 && crypto_aead_aes256gcm_is_available())
        mask |= 1 << SEAL_AES256_GCM;
    return mask;
}

enum seal_suite seal_choose(const struct seal_offer *mine, const struct seal_offer *theirs)
{
    const uint32_t chacha = (uint32_t)mine->chacha_ps + theirs->chacha_ps;
    const uint32_t aes = (uint32_t)mine->aes_ps + theirs->aes_ps;

    if (!(mine->suites & theirs->suites & 1 << SEAL_AES256_GCM))
        return SEAL_CHACHA20_POLY1305;
    return chacha < aes ? SEAL_CHACHA20_POLY1305 : SEAL_AES256_GCM;
}

const char *seal_suite_name(enum seal_suite suite)
{
    return suite == SEAL_CHACHA20_POLY1305 || suite == SEAL_AES256_GCM ? suite_names[suite] : "none";
}

void seal_init(struct seal *s, const uint8_t key[static 32], enum seal_suite suite)
{
    *s = (struct seal){.suite = suite};
    memcpy(s->key, key, sizeof s->key);
}

void seal_wipe(struct seal *s)
{
    sodium_memzero(s, sizeof *s);
}

static void make_nonce(uint8_t ret[static 12], uint64_t counter)
{
    struct buf_out out;

    buf_out_init(&out, ret, 12);
    buf_out_u32(&out, 0);
    buf_out_u64(&out, counter);
}

/* A context ready for one record, its head taken in; NULL: no memory. What the machine's
 * openssl.cnf says is for other programs: it could take a cipher away. */
static EVP_CIPHER_CTX *start_record(const struct seal *s, uint64_t counter, bool seals, const uint8_t *ad,
                                    size_t ad_len)
{
    uint8_t nonce[12];
    int taken;

    if (!OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL))
        return NULL;
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    if (!ctx)
        return NULL;
    make_nonce(nonce, counter);
    if (EVP_CipherInit_ex(ctx, s->suite == SEAL_AES256_GCM ? EVP_aes_256_gcm() : EVP_chacha20_poly1305(),
                          NULL, s->key, nonce, seals) == 1 &&
        (!ad_len || EVP_CipherUpdate(ctx, NULL, &taken, ad, (int)ad_len) == 1))
        return ctx;
    EVP_CIPHER_CTX_free(ctx);
    return NULL;
}

static int encrypt(const struct seal *s, uint64_t counter, uint8_t *out, uint8_t *tag, const uint8_t *plain,
                   size_t n, const uint8_t *ad, size_t ad_len)
{
    EVP_CIPHER_CTX *ctx = start_record(s, counter, true, ad, ad_len);
    uint8_t none[16];
    int made;

    if (!ctx)
        return -EIO;
    const bool ok = (!n || EVP_EncryptUpdate(ctx, out, &made, plain, (int)n) == 1) &&
                    EVP_EncryptFinal_ex(ctx, none, &made) == 1 &&
                    EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG, tag) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : -EIO;
}

/* In place. The bytes are changed before the tag is compared: of a forged record none are left. */
static int decrypt(const struct seal *s, const uint8_t *head, uint8_t *data, size_t n, const uint8_t *tag)
{
    EVP_CIPHER_CTX *ctx = start_record(s, s->counter, false, head, SEAL_HEAD);
    uint8_t none[16], expected[SEAL_TAG];
    int made;

    if (!ctx)
        return -EIO;
    memcpy(expected, tag, SEAL_TAG);
    const bool ok = (!n || EVP_DecryptUpdate(ctx, data, &made, data, (int)n) == 1) &&
                    EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG, expected) == 1 &&
                    EVP_DecryptFinal_ex(ctx, none, &made) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (!ok)
        sodium_memzero(data, n);
    return ok ? 0 : -EBADMSG;
}

static void replace_key(struct seal *s, uint8_t next[static 32])
{
    memcpy(s->key, next, sizeof s->key);
    sodium_memzero(next, sizeof s->key);
    s->bytes = 0;
}

/* Noise REKEY (§4.2): the new key is what the old one makes of 32 zeros under the last nonce, which
 * no record may use. */
int seal_ratchet(struct seal *s)
{
    uint8_t zeros[32] = {0}, next[32], tag[SEAL_TAG];
    int r;

    r = encrypt(s, UINT64_MAX, next, tag, zeros, sizeof zeros, NULL, 0);
    if (r < 0) {
        seal_wipe(s); /* an old key must not go on */
        return r;
    }
    replace_key(s, next);
    return 0;
}

int seal_mix(struct seal *s, const uint8_t secret[static 32])
{
    static const char purpose[] = "ringd/1 rekey"; /* its NUL ends it */
    crypto_generichash_state h;
    uint8_t next[32];

    if (crypto_generichash_init(&h, s->key, sizeof s->key, sizeof next) ||
        crypto_generichash_update(&h, (const uint8_t *)purpose, sizeof purpose) ||
        crypto_generichash_update(&h, secret, 32) || crypto_generichash_final(&h, next, sizeof next)) {
        seal_wipe(s);
        return -EIO;
    }
    sodium_memzero(&h, sizeof h);
    replace_key(s, next);
    return 0;
}

static int count_bytes(struct seal *s, size_t n)
{
    s->counter++;
    s->bytes += SEAL_HEAD + n + SEAL_TAG;
    return s->bytes < SEAL_REKEY_BYTES ? 0 : seal_ratchet(s);
}

static bool is_usable(const struct seal *s)
{
    return (s->suite == SEAL_CHACHA20_POLY1305 || s->suite == SEAL_AES256_GCM) && s->counter < UINT64_MAX;
}

int seal_turn(struct seal *s, size_t n, struct seal *ret)
{
    struct seal turn = *s;
    int r;

    if (n > SEAL_MAX)
        return -EMSGSIZE;
    if (!is_usable(s))
        return -EBADMSG;
    r = count_bytes(s, n);
    if (!r)
        *ret = turn;
    return r;
}

int seal_seal(struct seal *s, uint8_t *out, const uint8_t *plain, size_t n)
{
    struct buf_out head;
    struct seal turn;
    int r = seal_turn(s, n, &turn);

    if (r < 0)
        return r;
    buf_out_init(&head, out, SEAL_HEAD);
    buf_out_u32(&head, (uint32_t)n);
    r = encrypt(&turn, turn.counter, out + SEAL_HEAD, out + SEAL_HEAD + n, plain, n, out, SEAL_HEAD);
    seal_wipe(&turn);
    return r;
}

int seal_length(const uint8_t head[static SEAL_HEAD], size_t *ret)
{
    struct buf_in in;
    uint32_t n;

    buf_in_init(&in, head, SEAL_HEAD);
    n = buf_in_u32(&in);
    if (n > SEAL_MAX)
        return -EMSGSIZE;
    *ret = n;
    return 0;
}

int seal_open(struct seal *s, const uint8_t head[static SEAL_HEAD], uint8_t *data, size_t n,
              const uint8_t *tag)
{
    int r;

    if (n > SEAL_MAX || !is_usable(s))
        return -EBADMSG;
    r = decrypt(s, head, data, n, tag);
    if (r < 0) { /* one forgery ends the session: nobody gets to guess again */
        seal_wipe(s);
        return r;
    }
    return count_bytes(s, n);
}
