/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/keys.h"

#include "net/base/secret.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

struct keys {
    struct keys_setup setup;
    struct auth_identity identity;
    uint8_t request[KEYS_REQUEST_MAX], answer[KEYS_ANSWER_MAX];
};

/* --- one request ------------------------------------------------------------------------------ */

static void begin(struct keys *k, struct buf_out *out, enum keys_kind kind)
{
    buf_out_init(out, k->request, sizeof k->request);
    buf_out_u8(out, (uint8_t)kind);
}

/* −errno of the keeper, of the way to it, or of a request too long to make. *ret is what follows
 * the error number, also after an error of the keeper. */
static int ask(struct keys *k, const struct buf_out *out, const uint8_t **ret, size_t *ret_n)
{
    const int size = buf_out_size(out);
    *ret = NULL;
    *ret_n = 0;
    if (size < 0)
        return -EINVAL;
    const ssize_t n = k->setup.ask(k->setup.owner, k->request, (size_t)size, k->answer, sizeof k->answer);
    if (n < KEYS_ERROR)
        return n < 0 ? (int)n : -EPROTO;
    struct buf_in in;
    buf_in_init(&in, k->answer, (size_t)n);
    const int r = -(int)buf_in_u16(&in);
    *ret = in.at;
    *ret_n = in.left;
    return r;
}

static int ask_fixed(struct keys *k, const struct buf_out *out, uint8_t *ret, size_t n)
{
    const uint8_t *body;
    size_t size;
    int r = ask(k, out, &body, &size);
    if (!r && size != n)
        r = -EPROTO;
    if (!r)
        memcpy(ret, body, n);
    sodium_memzero(k->request, out->used);
    sodium_memzero(k->answer, size + KEYS_ERROR);
    return r;
}

static int ask_trust(struct keys *k, const struct buf_out *out, struct keys_trust *ret)
{
    const uint8_t *body;
    size_t size;
    int r = ask(k, out, &body, &size);
    return r ? r : keys_trust_decode(body, size, ret);
}

/* --- who the node is -------------------------------------------------------------------------- */

static int mix(void *holder, const uint8_t ck[static AUTH_HASH], const uint8_t peer[static AUTH_KEY],
               uint8_t ret_ck[static AUTH_HASH], uint8_t ret_key[static AUTH_KEY])
{
    struct keys *k = holder;
    uint8_t both[AUTH_HASH + AUTH_KEY];
    struct buf_out out;
    begin(k, &out, KEYS_MIX);
    buf_out_bytes(&out, ck, AUTH_HASH);
    buf_out_bytes(&out, peer, AUTH_KEY);
    int r = ask_fixed(k, &out, both, sizeof both);
    if (!r) {
        memcpy(ret_ck, both, AUTH_HASH);
        memcpy(ret_key, both + AUTH_HASH, AUTH_KEY);
    }
    sodium_memzero(both, sizeof both);
    return r;
}

static int sign(void *holder, enum auth_purpose purpose, const void *text, size_t n,
                uint8_t ret[static AUTH_SIGNATURE])
{
    struct keys *k = holder;
    struct buf_out out;
    begin(k, &out, KEYS_SIGN);
    buf_out_u8(&out, (uint8_t)purpose);
    buf_out_bytes(&out, text, n);
    return ask_fixed(k, &out, ret, AUTH_SIGNATURE);
}

int keys_open(struct keys **ret, const struct keys_setup *setup, struct err *err)
{
    /* What passes through it are keys. */
    struct keys *k = secret_new(sizeof *k);
    const uint8_t *body;
    struct buf_out out;
    size_t n;
    if (!k)
        return err_set(err, -ENOMEM, "no memory for keys: %s", strerror(errno));
    k->setup = *setup;
    k->identity.mix = mix;
    k->identity.sign = sign;
    k->identity.holder = k;
    begin(k, &out, KEYS_HELLO);
    int r = ask(k, &out, &body, &n);
    if (r && n)
        err_set(err, r, "%.*s", (int)n, (const char *)body);
    else if (r || n != 2 * AUTH_KEY)
        r = err_set(err, r ? r : -EPROTO,
                    "ringd-keys does not answer as this ringd expects: same version of both?");
    if (r) {
        keys_close(k);
        return r;
    }
    memcpy(k->identity.pub, body, AUTH_KEY);
    memcpy(k->identity.sign_pub, body + AUTH_KEY, AUTH_KEY);
    *ret = k;
    return 0;
}

void keys_close(struct keys *k)
{
    secret_free(k);
}

const struct auth_identity *keys_identity(const struct keys *k)
{
    return &k->identity;
}

/* --- the cluster ------------------------------------------------------------------------------ */

int keys_take(struct keys *k, const uint8_t cluster[static CERT_CLUSTER_KEY], const uint8_t *roster, size_t n,
              struct keys_trust *ret)
{
    struct buf_out out;
    begin(k, &out, KEYS_TAKE);
    buf_out_bytes(&out, cluster, CERT_CLUSTER_KEY);
    buf_out_bytes(&out, roster, n);
    return ask_trust(k, &out, ret);
}

int keys_found(struct keys *k, const char *cluster, const char *node, uint64_t now_s, struct keys_trust *ret)
{
    struct buf_out out;
    begin(k, &out, KEYS_FOUND);
    buf_out_u64(&out, now_s);
    keys_name_encode(&out, cluster);
    keys_name_encode(&out, node);
    return ask_trust(k, &out, ret);
}

int keys_admit(struct keys *k, const uint8_t pub[static AUTH_KEY], const char *name, uint64_t now_s,
               struct keys_trust *ret)
{
    struct buf_out out;
    begin(k, &out, KEYS_ADMIT);
    buf_out_u64(&out, now_s);
    buf_out_bytes(&out, pub, AUTH_KEY);
    keys_name_encode(&out, name);
    return ask_trust(k, &out, ret);
}

int keys_certify(struct keys *k, const uint8_t id[static CERT_ID], uint64_t now_s, struct keys_trust *ret)
{
    struct buf_out out;
    begin(k, &out, KEYS_CERTIFY);
    buf_out_u64(&out, now_s);
    buf_out_bytes(&out, id, CERT_ID);
    return ask_trust(k, &out, ret);
}

static int ask_change(struct keys *k, enum keys_kind kind, const uint8_t id[static CERT_ID],
                      struct keys_trust *ret)
{
    struct buf_out out;
    begin(k, &out, kind);
    buf_out_bytes(&out, id, CERT_ID);
    return ask_trust(k, &out, ret);
}

int keys_remove(struct keys *k, const uint8_t id[static CERT_ID], struct keys_trust *ret)
{
    return ask_change(k, KEYS_REMOVE, id, ret);
}

int keys_promote(struct keys *k, const uint8_t id[static CERT_ID], struct keys_trust *ret)
{
    return ask_change(k, KEYS_PROMOTE, id, ret);
}
