/* SPDX-License-Identifier: MIT
 *
 * Signing and opening certificates. Owns nothing; called by the daemon's cluster and enrolment
 * code. */
#include "cert.h"

#include "buf.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

_Static_assert(CERT_BYTES == (int)LINK_CERT && CERT_CLUSTER_KEY == (int)LINK_CLUSTER_KEY,
               "a hello carries both");

static const uint8_t magic[4] = {'R', 'G', 'C', '1'}; /* unlike a roster's: one key signs both */
enum { BODY = CERT_BYTES - CERT_SIGNATURE };

void cert_cluster_keys(uint8_t ret_pub[static CERT_CLUSTER_KEY], uint8_t ret_secret[static CERT_SECRET],
                       const uint8_t seed[static CERT_SEED])
{
    crypto_sign_seed_keypair(ret_pub, ret_secret, seed);
}

void cert_cluster_id(uint8_t ret[static CERT_ID], const uint8_t cluster_key[static CERT_CLUSTER_KEY])
{
    crypto_generichash(ret, CERT_ID, cluster_key, CERT_CLUSTER_KEY, NULL, 0);
}

int cert_sign(const struct cert *c, const uint8_t secret[static CERT_SECRET], uint8_t out[static CERT_BYTES])
{
    size_t len = strnlen(c->name, CERT_NAME);
    char name[CERT_NAME] = "";
    struct buf_out b;

    if (len == 0 || len == CERT_NAME || !wire_is_text(c->name, len))
        return -EINVAL;
    memcpy(name, c->name, len);
    buf_out_init(&b, out, BODY);
    buf_out_bytes(&b, magic, sizeof magic);
    buf_out_u32(&b, c->flags);
    buf_out_bytes(&b, c->cluster_id, sizeof c->cluster_id);
    buf_out_bytes(&b, c->pub, sizeof c->pub);
    buf_out_u64(&b, c->serial);
    buf_out_u64(&b, c->issued_s);
    buf_out_bytes(&b, name, sizeof name);
    crypto_sign_detached(out + BODY, NULL, out, BODY, secret);
    return 0;
}

/* Text, then nothing but zeros: one name has one form. */
static int take_name(char to[static CERT_NAME], const uint8_t *from)
{
    size_t len = strnlen((const char *)from, CERT_NAME);

    if (len == 0 || len == CERT_NAME || !wire_is_text(from, len) ||
        !sodium_is_zero(from + len, CERT_NAME - len))
        return -EPROTO;
    memcpy(to, from, CERT_NAME);
    return 0;
}

int cert_open(const uint8_t *data, size_t n, const uint8_t cluster_key[static CERT_CLUSTER_KEY],
              struct cert *ret)
{
    uint8_t mark[sizeof magic], id[CERT_ID];
    struct cert c = {0};
    struct buf_in b;

    if (n != CERT_BYTES)
        return -EPROTO;
    buf_in_init(&b, data, BODY);
    buf_in_bytes(&b, mark, sizeof mark);
    c.flags = buf_in_u32(&b);
    buf_in_bytes(&b, c.cluster_id, sizeof c.cluster_id);
    buf_in_bytes(&b, c.pub, sizeof c.pub);
    c.serial = buf_in_u64(&b);
    c.issued_s = buf_in_u64(&b);
    if (memcmp(mark, magic, sizeof magic) != 0 || take_name(c.name, buf_in_view(&b, CERT_NAME)) < 0)
        return -EPROTO;
    cert_cluster_id(id, cluster_key);
    if (memcmp(id, c.cluster_id, sizeof id) != 0 ||
        crypto_sign_verify_detached(data + BODY, data, BODY, cluster_key) != 0)
        return -EBADMSG;
    *ret = c;
    return 0;
}
