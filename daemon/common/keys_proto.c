/* SPDX-License-Identifier: MIT */
#include "daemon/common/keys_proto.h"

#include <errno.h>
#include <string.h>

_Static_assert((int)KEYS_REQUEST_MAX > 2 + (int)KEYS_RECORD_MAX, "the longest request holds a roster");

void keys_trust_encode(struct buf_out *out, const struct keys_trust *t)
{
    buf_out_bytes(out, t->cluster, sizeof t->cluster);
    buf_out_bytes(out, t->cert, sizeof t->cert);
    buf_out_u8(out, t->authority);
    buf_out_u16(out, t->generation);
    buf_out_bytes(out, t->beacon, sizeof t->beacon);
    buf_out_bytes(out, t->psk, sizeof t->psk);
    buf_out_bytes(out, t->roster, t->n);
}

int keys_trust_decode(const uint8_t *body, size_t n, struct keys_trust *ret)
{
    struct buf_in in;
    buf_in_init(&in, body, n);
    buf_in_bytes(&in, ret->cluster, sizeof ret->cluster);
    buf_in_bytes(&in, ret->cert, sizeof ret->cert);
    const uint8_t authority = buf_in_u8(&in);
    ret->authority = authority;
    ret->generation = buf_in_u16(&in);
    buf_in_bytes(&in, ret->beacon, sizeof ret->beacon);
    buf_in_bytes(&in, ret->psk, sizeof ret->psk);
    ret->roster = in.at;
    ret->n = in.left;
    return in.bad || authority > 1 || in.left > ROSTER_BYTES_MAX ? -EPROTO : 0;
}

void keys_name_encode(struct buf_out *out, const char *name)
{
    const size_t n = strnlen(name, CERT_NAME);
    if (n == CERT_NAME)
        out->bad = true;
    buf_out_u8(out, (uint8_t)n);
    buf_out_bytes(out, name, n);
}

void keys_name_decode(struct buf_in *in, char ret[static CERT_NAME])
{
    const uint8_t n = buf_in_u8(in);
    memset(ret, 0, CERT_NAME);
    if (n >= CERT_NAME)
        in->bad = true;
    else
        buf_in_bytes(in, ret, n);
}
