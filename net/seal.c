/* SPDX-License-Identifier: MIT
 *
 * The record layer. Owns nothing but the caller's struct seal; called by link.c on the loop and by the
 * stage's channel threads, one thread per direction. The expanded AES key is not kept: expanding costs well
 * under a microsecond per record, and without it the state is plain bytes that may cross to another process.
 */
#include "seal.h"

#include "buf.h"

#include <errno.h>
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

enum seal_suite seal_choose(uint8_t mine, uint8_t theirs)
{
    return mine & theirs & 1 << SEAL_AES256_GCM ? SEAL_AES256_GCM : SEAL_CHACHA20_POLY1305;
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

static int encrypt(const struct seal *s, uint64_t counter, uint8_t *out, uint8_t *tag, const uint8_t *plain,
                   size_t n, const uint8_t *ad, size_t ad_len)
{
    uint8_t nonce[12];

    make_nonce(nonce, counter);
    if (s->suite == SEAL_AES256_GCM)
        return crypto_aead_aes256gcm_encrypt_detached(out, tag, NULL, plain, n, ad, ad_len, NULL, nonce,
                                                      s->key);
    return crypto_aead_chacha20poly1305_ietf_encrypt_detached(out, tag, NULL, plain, n, ad, ad_len, NULL,
                                                              nonce, s->key);
}

/* Noise REKEY (§4.2): the new key is what the old one makes of 32 zeros under the last nonce, which no record
 * may use. */
static int count_bytes(struct seal *s, size_t n)
{
    uint8_t zeros[32] = {0}, next[32], tag[SEAL_TAG];
    int r;

    s->counter++;
    s->bytes += SEAL_HEAD + n + SEAL_TAG;
    if (s->bytes < SEAL_REKEY_BYTES)
        return 0;
    r = encrypt(s, UINT64_MAX, next, tag, zeros, sizeof zeros, NULL, 0);
    memcpy(s->key, next, sizeof next);
    sodium_memzero(next, sizeof next);
    s->bytes = 0;
    return r < 0 ? -EIO : 0;
}

static bool is_usable(const struct seal *s)
{
    return (s->suite == SEAL_CHACHA20_POLY1305 || s->suite == SEAL_AES256_GCM) && s->counter < UINT64_MAX;
}

int seal_seal(struct seal *s, uint8_t *out, const uint8_t *plain, size_t n)
{
    struct buf_out head;

    if (n > SEAL_MAX)
        return -EMSGSIZE;
    if (!is_usable(s))
        return -EBADMSG;
    buf_out_init(&head, out, SEAL_HEAD);
    buf_out_u32(&head, (uint32_t)n);
    if (encrypt(s, s->counter, out + SEAL_HEAD, out + SEAL_HEAD + n, plain, n, out, SEAL_HEAD) < 0)
        return -EIO;
    return count_bytes(s, n);
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
    uint8_t nonce[12];
    int r;

    if (n > SEAL_MAX || !is_usable(s))
        return -EBADMSG;
    make_nonce(nonce, s->counter);
    if (s->suite == SEAL_AES256_GCM)
        r = crypto_aead_aes256gcm_decrypt_detached(data, NULL, data, n, tag, head, SEAL_HEAD, nonce, s->key);
    else
        r = crypto_aead_chacha20poly1305_ietf_decrypt_detached(data, NULL, data, n, tag, head, SEAL_HEAD,
                                                               nonce, s->key);
    if (r < 0) { /* one forgery ends the session: nobody gets to guess again */
        seal_wipe(s);
        return -EBADMSG;
    }
    return count_bytes(s, n);
}
