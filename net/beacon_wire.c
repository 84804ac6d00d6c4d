/* SPDX-License-Identifier: MIT
 *
 * Bytes of a beacon. Owns nothing; called by beacon.c, any thread. */
#include "beacon_wire.h"

#include "buf.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

enum {
    TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES,
    SEALED_MIN = BEACON_HEAD + BEACON_NONCE + TAG,
    PLAIN_MAX = BEACON_MAX - SEALED_MIN,
    AD = BEACON_HEAD + 16,
    HOLD_MIN_MS = 1000, /* a peer must not make us forget it between two of its own beacons */

    TLV_NAME = 1,
    TLV_ATTEMPT = 2,
    TLV_MAX_MTU = 3,
    TLV_PORT_NAME = 4,
    TLV_POOL = 5,
    TLV_CRITICAL = 1 << 15, /* who does not know this one must not read on */
};

_Static_assert(BEACON_NONCE == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, "nonce of XChaCha20-Poly1305");
static const uint8_t magic[4] = {'R', 'N', 'G', 'B'};

void beacon_key_derive(uint8_t ret[static 32], const uint8_t network_key[static 32])
{
    crypto_generichash(ret, 32, (const uint8_t *)"beacon", 6, network_key, 32);
}

static void encode_head(struct buf_out *out, enum beacon_type type, uint16_t key_id)
{
    buf_out_bytes(out, magic, sizeof magic);
    buf_out_u8(out, BEACON_VERSION);
    buf_out_u8(out, (uint8_t)type);
    buf_out_u16(out, key_id);
}

static void make_ad(uint8_t ret[static AD], const uint8_t *head, const struct in6_addr *from)
{
    memcpy(ret, head, BEACON_HEAD);
    memcpy(ret + BEACON_HEAD, from, 16);
}

static void encode_tlvs(struct buf_out *out, const struct beacon *b)
{
    size_t name = strnlen(b->name, sizeof b->name - 1), port = strnlen(b->port_name, sizeof b->port_name - 1);

    buf_out_u16(out, TLV_NAME);
    buf_out_u16(out, (uint16_t)name);
    buf_out_bytes(out, b->name, name);
    buf_out_u16(out, TLV_ATTEMPT);
    buf_out_u16(out, 1);
    buf_out_u8(out, b->attempt);
    if (b->max_mtu > 0) {
        buf_out_u16(out, TLV_MAX_MTU);
        buf_out_u16(out, 4);
        buf_out_u32(out, b->max_mtu);
    }
    if (port > 0) {
        buf_out_u16(out, TLV_PORT_NAME);
        buf_out_u16(out, (uint16_t)port);
        buf_out_bytes(out, b->port_name, port);
    }
    if (b->pool.family == AF_INET) {
        buf_out_u16(out, TLV_POOL);
        buf_out_u16(out, 5);
        buf_out_u8(out, b->pool.plen);
        buf_out_bytes(out, b->pool.at, 4);
    }
}

static void encode_plain(struct buf_out *out, const struct beacon *b)
{

    buf_out_bytes(out, b->node_id, sizeof b->node_id);
    buf_out_u64(out, b->boot);
    buf_out_u64(out, b->seq);
    buf_out_u32(out, b->port_id);
    buf_out_u16(out, b->hold_ms);
    buf_out_u16(out, b->flags);
    buf_out_u8(out, b->kind);
    buf_out_u32(out, b->speed_mbps);
    buf_out_u32(out, b->mtu);
    buf_out_u16(out, b->tcp_port);
    buf_out_u8(out, b->proto_min);
    buf_out_u8(out, b->proto_max);
    buf_out_u8(out, (uint8_t)b->nheard);
    for (size_t i = 0; i < b->nheard; i++) {
        buf_out_bytes(out, b->heard[i].node_id, sizeof b->heard[i].node_id);
        buf_out_u64(out, b->heard[i].boot);
        buf_out_u32(out, b->heard[i].port_id);
        buf_out_u64(out, b->heard[i].seq);
    }
    encode_tlvs(out, b);
}

int beacon_encode(const struct beacon *beacon, const struct beacon_key *key, const struct in6_addr *from,
                  const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap)
{
    uint8_t plain[PLAIN_MAX], ad[AD];
    struct buf_out body, whole;
    int n;

    buf_out_init(&body, plain, sizeof plain);
    encode_plain(&body, beacon);
    n = buf_out_size(&body);
    if (n < 0 || cap < SEALED_MIN + (size_t)n)
        return -ENOBUFS;
    buf_out_init(&whole, out, cap);
    encode_head(&whole, beacon->type, key->id);
    buf_out_bytes(&whole, nonce, BEACON_NONCE);
    make_ad(ad, out, from);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + BEACON_HEAD + BEACON_NONCE, NULL, plain, (size_t)n, ad,
                                               sizeof ad, NULL, nonce, key->key);
    return SEALED_MIN + n;
}

/* Names are shown to people, on terminals too. */
static int decode_name(char *ret, size_t size, const uint8_t *text, size_t n)
{
    if (n >= size || !wire_is_text(text, n))
        return -EBADMSG;
    if (n > 0)
        memcpy(ret, text, n);
    ret[n] = '\0';
    return 0;
}

static int decode_pool(struct prefix *ret, const uint8_t *value, size_t n)
{
    struct prefix p = {.family = AF_INET};

    if (n != 5)
        return -EBADMSG;
    p.plen = *value;
    memcpy(p.at, value + 1, 4);
    if (!prefix_is_valid(&p) || p.plen > 31 || !prefix_is_private_network(&p))
        return -EBADMSG;
    *ret = p;
    return 0;
}

static int decode_tlv(struct beacon *b, uint16_t type, const uint8_t *value, size_t n)
{
    struct buf_in in;

    switch (type) {
    case TLV_NAME: return decode_name(b->name, sizeof b->name, value, n);
    case TLV_PORT_NAME: return decode_name(b->port_name, sizeof b->port_name, value, n);
    case TLV_POOL: return decode_pool(&b->pool, value, n);
    case TLV_ATTEMPT:
        if (n != 1)
            return -EBADMSG;
        b->attempt = *value;
        return 0;
    case TLV_MAX_MTU:
        buf_in_init(&in, value, n);
        b->max_mtu = buf_in_u32(&in);
        return buf_in_is_done(&in) ? 0 : -EBADMSG;
    default: return type & TLV_CRITICAL ? -EBADMSG : 0;
    }
}

static int decode_tlvs(struct beacon *b, struct buf_in *in)
{
    while (in->left > 0 && !in->bad) {
        uint16_t type = buf_in_u16(in), n = buf_in_u16(in);
        const uint8_t *value = buf_in_view(in, n);

        if (in->bad)
            break;
        if (decode_tlv(b, type, value, n) < 0)
            return -EBADMSG;
    }
    return buf_in_is_done(in) ? 0 : -EBADMSG;
}

static int decode_plain(struct beacon *b, const uint8_t *plain, size_t n)
{
    struct buf_in in;

    buf_in_init(&in, plain, n);
    buf_in_bytes(&in, b->node_id, sizeof b->node_id);
    b->boot = buf_in_u64(&in);
    b->seq = buf_in_u64(&in);
    b->port_id = buf_in_u32(&in);
    b->hold_ms = buf_in_u16(&in);
    b->flags = buf_in_u16(&in);
    b->kind = buf_in_u8(&in);
    b->speed_mbps = buf_in_u32(&in);
    b->mtu = buf_in_u32(&in);
    b->tcp_port = buf_in_u16(&in);
    b->proto_min = buf_in_u8(&in);
    b->proto_max = buf_in_u8(&in);
    b->nheard = buf_in_u8(&in);
    if (in.bad || b->nheard > BEACON_HEARD_MAX || b->hold_ms < HOLD_MIN_MS || b->proto_min > b->proto_max)
        return -EBADMSG;
    for (size_t i = 0; i < b->nheard; i++) {
        buf_in_bytes(&in, b->heard[i].node_id, sizeof b->heard[i].node_id);
        b->heard[i].boot = buf_in_u64(&in);
        b->heard[i].port_id = buf_in_u32(&in);
        b->heard[i].seq = buf_in_u64(&in);
    }
    return decode_tlvs(b, &in);
}

int beacon_peek(const void *data, size_t n)
{
    const uint8_t *at = data;

    if (n < BEACON_HEAD || n > BEACON_MAX || memcmp(at, magic, sizeof magic) != 0 || at[4] != BEACON_VERSION)
        return -EBADMSG;
    switch (at[5]) {
    case BEACON_HELLO:
    case BEACON_GOODBYE: return n >= SEALED_MIN ? at[5] : -EBADMSG;
    case BEACON_JOINQ:
    case BEACON_JOINA: return n <= BEACON_HEAD + BEACON_ASK_MAX ? at[5] : -EBADMSG;
    default: return -EBADMSG;
    }
}

unsigned beacon_generation(const uint8_t data[static BEACON_HEAD])
{
    return (unsigned)data[6] | (unsigned)data[7] << 8;
}

int beacon_decode(struct beacon *ret, const struct beacon_key *key, const struct in6_addr *from,
                  const void *data, size_t n)
{
    const uint8_t *at = data;
    struct beacon b = {.type = 0};
    uint8_t plain[PLAIN_MAX], ad[AD];
    int type = beacon_peek(data, n);

    if (type != BEACON_HELLO && type != BEACON_GOODBYE)
        return -EBADMSG;
    if (!key || key->id != beacon_generation(at))
        return -ENOKEY;
    make_ad(ad, at, from);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, at + BEACON_HEAD + BEACON_NONCE,
                                                   n - BEACON_HEAD - BEACON_NONCE, ad, sizeof ad,
                                                   at + BEACON_HEAD, key->key) != 0)
        return -EKEYREJECTED;
    b.type = (enum beacon_type)type;
    if (decode_plain(&b, plain, n - SEALED_MIN) < 0)
        return -EBADMSG;
    *ret = b;
    return 0;
}

int beacon_ask_encode(enum beacon_type type, const void *body, size_t n, uint8_t *out, size_t cap)
{
    struct buf_out whole;

    if ((type != BEACON_JOINQ && type != BEACON_JOINA) || n > BEACON_ASK_MAX)
        return -EINVAL;
    buf_out_init(&whole, out, cap);
    encode_head(&whole, type, 0);
    buf_out_bytes(&whole, body, n);
    return buf_out_size(&whole);
}

void beacon_size_encode(enum beacon_type type, uint64_t number, uint8_t out[static BEACON_SIZE_HEAD])
{
    memset(out, 0, BEACON_SIZE_HEAD);
    memcpy(out, magic, sizeof magic);
    out[4] = BEACON_VERSION;
    out[5] = (uint8_t)type;
    for (int i = 0; i < 8; i++)
        out[BEACON_HEAD + i] = (uint8_t)(number >> 8 * i);
}

int beacon_size_decode(const void *data, size_t n, uint64_t *ret_number)
{
    const uint8_t *at = data;

    if (n < BEACON_SIZE_HEAD || memcmp(at, magic, sizeof magic) != 0 || at[4] != BEACON_VERSION ||
        (at[5] != BEACON_SIZE && at[5] != BEACON_SIZE_BACK))
        return -EBADMSG;
    *ret_number = 0;
    for (int i = 0; i < 8; i++)
        *ret_number |= (uint64_t)at[BEACON_HEAD + i] << 8 * i;
    return at[5];
}
