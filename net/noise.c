/* SPDX-License-Identifier: MIT
 *
 * The Noise state machine: symmetric state (ck, h, key, nonce), tokens, messages. Called by auth.c
 * alone; no sockets, no clock; any thread, one handshake at a time. Names follow the specification
 * so that it can be read side by side. */
#include "noise.h"

#include "buf.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

static void hmac(uint8_t out[static NOISE_HASH], const uint8_t key[static NOISE_HASH], const uint8_t *data,
                 size_t n)
{
    crypto_auth_hmacsha512_state st;

    crypto_auth_hmacsha512_init(&st, key, NOISE_HASH);
    crypto_auth_hmacsha512_update(&st, data, n);
    crypto_auth_hmacsha512_final(&st, out);
    sodium_memzero(&st, sizeof st);
}

/* HKDF (§4.3): out[i] = HMAC(HMAC(ck, ikm), out[i-1] ‖ i), i from 1; out holds `count` ≤ 3
 * blocks. */
static void hkdf(uint8_t (*out)[NOISE_HASH], size_t count, const uint8_t ck[static NOISE_HASH],
                 const uint8_t *ikm, size_t n)
{
    uint8_t temp[NOISE_HASH], chain[NOISE_HASH + 1];
    size_t have = 0;

    hmac(temp, ck, ikm, n);
    for (size_t i = 0; i < count; i++) {
        chain[have] = (uint8_t)(i + 1);
        hmac(out[i], temp, chain, have + 1);
        memcpy(chain, out[i], NOISE_HASH);
        have = NOISE_HASH;
    }
    sodium_memzero(temp, sizeof temp);
    sodium_memzero(chain, sizeof chain);
}

static void mix_hash(struct noise *n, const void *data, size_t len)
{
    crypto_hash_sha512_state st;

    crypto_hash_sha512_init(&st);
    crypto_hash_sha512_update(&st, n->h, sizeof n->h);
    crypto_hash_sha512_update(&st, data, len);
    crypto_hash_sha512_final(&st, n->h);
}

static void set_key(struct noise *n, const uint8_t key[static NOISE_KEY])
{
    memcpy(n->key, key, NOISE_KEY);
    n->nonce = 0;
    n->has_key = true;
}

static void mix_key(struct noise *n, const uint8_t *ikm)
{
    uint8_t out[2][NOISE_HASH];

    hkdf(out, 2, n->ck, ikm, NOISE_KEY);
    memcpy(n->ck, out[0], NOISE_HASH);
    set_key(n, out[1]);
    sodium_memzero(out, sizeof out);
}

static void mix_key_and_hash(struct noise *n, const uint8_t *ikm)
{
    uint8_t out[3][NOISE_HASH];

    hkdf(out, 3, n->ck, ikm, NOISE_KEY);
    memcpy(n->ck, out[0], NOISE_HASH);
    mix_hash(n, out[1], NOISE_HASH);
    set_key(n, out[2]);
    sodium_memzero(out, sizeof out);
}

static void next_nonce(struct noise *n, uint8_t ret[static 12])
{
    struct buf_out out;

    buf_out_init(&out, ret, 12);
    buf_out_u32(&out, 0);
    buf_out_u64(&out, n->nonce++);
}

static void encrypt_and_hash(struct noise *n, struct buf_out *out, const void *plain, size_t len)
{
    size_t sealed = len + (n->has_key ? NOISE_TAG : 0);
    uint8_t nonce[12];

    if (out->bad || sealed > out->cap - out->used) {
        out->bad = true;
        return;
    }
    if (n->has_key) {
        next_nonce(n, nonce);
        crypto_aead_chacha20poly1305_ietf_encrypt(out->start + out->used, NULL, plain, len, n->h, sizeof n->h,
                                                  NULL, nonce, n->key);
    } else if (len > 0) {
        memcpy(out->start + out->used, plain, len);
    }
    mix_hash(n, out->start + out->used, sealed);
    out->used += sealed;
}

/* Opens the next `sealed` bytes of the message into `plain`. */
static int decrypt_and_hash(struct noise *n, struct buf_in *in, size_t sealed, uint8_t *plain)
{
    const uint8_t *at = buf_in_view(in, sealed);
    uint8_t nonce[12];

    if (in->bad || (n->has_key && sealed < NOISE_TAG))
        return -EBADMSG;
    if (n->has_key) {
        next_nonce(n, nonce);
        if (crypto_aead_chacha20poly1305_ietf_decrypt(plain, NULL, NULL, at, sealed, n->h, sizeof n->h, nonce,
                                                      n->key) < 0)
            return -EBADMSG;
    } else if (sealed > 0) {
        memcpy(plain, at, sealed);
    }
    mix_hash(n, at, sealed);
    return 0;
}

int noise_mix(const uint8_t ck[static NOISE_HASH], const uint8_t secret[static NOISE_KEY],
              const uint8_t peer[static NOISE_KEY], uint8_t ret_ck[static NOISE_HASH],
              uint8_t ret_key[static NOISE_KEY])
{
    uint8_t shared[NOISE_KEY], out[2][NOISE_HASH];
    /* libsodium refuses points of small order: an all-zero secret would be known to everybody */
    int r = crypto_scalarmult(shared, secret, peer) < 0 ? -EBADMSG : 0;

    if (r == 0) {
        hkdf(out, 2, ck, shared, NOISE_KEY);
        memcpy(ret_ck, out[0], NOISE_HASH);
        memcpy(ret_key, out[1], NOISE_KEY);
        sodium_memzero(out, sizeof out);
    }
    sodium_memzero(shared, sizeof shared);
    return r;
}

/* With the ephemeral key, which is ours, or with the static one, whose owner is asked. */
static int mix_dh(struct noise *n, bool is_static, const uint8_t *peer)
{
    uint8_t ck[NOISE_HASH], key[NOISE_KEY];
    int r = -EPROTO;

    if (!is_static)
        r = noise_mix(n->ck, n->e.secret, peer, ck, key);
    else if (n->s.mix)
        r = n->s.mix(n->s.holder, n->ck, peer, ck, key);
    if (r == 0) {
        memcpy(n->ck, ck, NOISE_HASH);
        set_key(n, key);
    }
    sodium_memzero(ck, sizeof ck);
    sodium_memzero(key, sizeof key);
    return r;
}

static int mix_token(struct noise *n, enum noise_token token)
{
    switch (token) {
    case NOISE_EE: return mix_dh(n, false, n->re);
    case NOISE_ES: return n->initiator ? mix_dh(n, false, n->rs) : mix_dh(n, true, n->re);
    case NOISE_SE: return n->initiator ? mix_dh(n, true, n->re) : mix_dh(n, false, n->rs);
    case NOISE_SS: return mix_dh(n, true, n->rs);
    case NOISE_PSK_TOKEN: mix_key_and_hash(n, n->psk[n->next_psk++ % NOISE_PSKS]); return 0;
    case NOISE_END:
    case NOISE_E:
    case NOISE_S: break;
    }
    return -EPROTO;
}

static int load_pair(struct noise_pair *pair, const uint8_t *secret)
{
    memcpy(pair->secret, secret, NOISE_KEY);
    return crypto_scalarmult_base(pair->pub, pair->secret) < 0 ? -EINVAL : 0;
}

static bool pattern_has(const struct noise_pattern *p, enum noise_token token)
{
    for (size_t m = 0; m < p->messages; m++)
        for (size_t t = 0; t < NOISE_TOKENS && p->tokens[m][t] != NOISE_END; t++)
            if (p->tokens[m][t] == token)
                return true;
    return false;
}

static int load_keys(struct noise *n, const struct noise_setup *setup)
{
    int r;

    if (setup->s)
        n->s = *setup->s;
    if (setup->e && (r = load_pair(&n->e, setup->e)) < 0)
        return r;
    n->has_e = setup->e;
    if (setup->rs)
        memcpy(n->rs, setup->rs, NOISE_KEY);
    n->has_rs = setup->rs;
    memcpy(n->psk, setup->psk, sizeof n->psk);
    return 0;
}

int noise_init(struct noise *n, const struct noise_setup *setup)
{
    const struct noise_pattern *p = setup->pattern;
    size_t name = strlen(p->name);
    int r;

    if (p->messages > NOISE_MESSAGES)
        return -EINVAL;
    if (sodium_init() < 0)
        return -EIO;
    *n = (struct noise){.pattern = p, .initiator = setup->initiator};
    n->has_psk = pattern_has(p, NOISE_PSK_TOKEN);
    if ((r = load_keys(n, setup)) < 0) {
        noise_wipe(n);
        return r;
    }
    if (name <= NOISE_HASH)
        memcpy(n->h, p->name, name);
    else
        crypto_hash_sha512(n->h, (const uint8_t *)p->name, name);
    memcpy(n->ck, n->h, NOISE_HASH);
    mix_hash(n, setup->prologue, setup->prologue_len);
    if (p->known & NOISE_INITIATOR_KNOWN)
        mix_hash(n, n->initiator ? n->s.pub : n->rs, NOISE_KEY);
    if (p->known & NOISE_RESPONDER_KNOWN)
        mix_hash(n, n->initiator ? n->rs : n->s.pub, NOISE_KEY);
    return 0;
}

void noise_wipe(struct noise *n)
{
    sodium_memzero(n, sizeof *n);
    n->dead = true;
}

bool noise_is_done(const struct noise *n)
{
    return !n->dead && n->next == n->pattern->messages;
}

bool noise_writes_next(const struct noise *n)
{
    return !n->dead && n->next < n->pattern->messages && n->initiator == (n->next % 2 == 0);
}

static int write_token(struct noise *n, struct buf_out *out, enum noise_token token)
{
    uint8_t secret[NOISE_KEY];
    int r = 0;

    if (token == NOISE_E) {
        if (!n->has_e) {
            randombytes_buf(secret, sizeof secret);
            r = load_pair(&n->e, secret);
            sodium_memzero(secret, sizeof secret);
            n->has_e = true;
        }
        buf_out_bytes(out, n->e.pub, NOISE_KEY);
        mix_hash(n, n->e.pub, NOISE_KEY);
        if (n->has_psk)
            mix_key(n, n->e.pub);
        return r;
    }
    if (token == NOISE_S) {
        encrypt_and_hash(n, out, n->s.pub, NOISE_KEY);
        return 0;
    }
    return mix_token(n, token);
}

int noise_write(struct noise *n, uint8_t *out, size_t cap, const void *payload, size_t len)
{
    const uint8_t *tokens;
    struct buf_out cursor;
    int r = 0;

    if (!noise_writes_next(n))
        return -EPROTO;
    tokens = n->pattern->tokens[n->next];
    buf_out_init(&cursor, out, cap);
    for (size_t t = 0; r == 0 && t < NOISE_TOKENS && tokens[t] != NOISE_END; t++)
        r = write_token(n, &cursor, tokens[t]);
    if (r == 0) {
        encrypt_and_hash(n, &cursor, payload, len);
        r = buf_out_size(&cursor);
    }
    if (r < 0)
        n->dead = true;
    else
        n->next++;
    return r;
}

static int read_token(struct noise *n, struct buf_in *in, enum noise_token token)
{
    int r;

    if (token == NOISE_E) {
        buf_in_bytes(in, n->re, NOISE_KEY);
        if (in->bad)
            return -EBADMSG;
        mix_hash(n, n->re, NOISE_KEY);
        if (n->has_psk)
            mix_key(n, n->re);
        return 0;
    }
    if (token == NOISE_S) {
        if ((r = decrypt_and_hash(n, in, NOISE_KEY + (n->has_key ? NOISE_TAG : 0), n->rs)) < 0)
            return r;
        n->has_rs = true;
        return 0;
    }
    return mix_token(n, token);
}

int noise_read(struct noise *n, const uint8_t *msg, size_t len, uint8_t *payload, size_t cap)
{
    const uint8_t *tokens;
    struct buf_in in;
    size_t sealed, plain = 0;
    int r = 0;

    if (n->dead || noise_is_done(n) || noise_writes_next(n))
        return -EPROTO;
    tokens = n->pattern->tokens[n->next];
    buf_in_init(&in, msg, len);
    for (size_t t = 0; r == 0 && t < NOISE_TOKENS && tokens[t] != NOISE_END; t++)
        r = read_token(n, &in, tokens[t]);
    if (r == 0) {
        sealed = in.left;
        plain = sealed - (n->has_key && sealed >= NOISE_TAG ? NOISE_TAG : 0);
        r = plain > cap ? -ENOBUFS : decrypt_and_hash(n, &in, sealed, payload);
    }
    if (r < 0) {
        n->dead = true;
        return r;
    }
    n->next++;
    return (int)plain;
}

void noise_split(const struct noise *n, uint8_t k1[static NOISE_KEY], uint8_t k2[static NOISE_KEY])
{
    uint8_t out[2][NOISE_HASH];

    hkdf(out, 2, n->ck, NULL, 0);
    memcpy(k1, out[0], NOISE_KEY);
    memcpy(k2, out[1], NOISE_KEY);
    sodium_memzero(out, sizeof out);
}
