/* SPDX-License-Identifier: MIT */
#include "daemon/keys/keeper.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "net/beacon_wire.h"
#include "net/noise.h"

int keeper_init(struct keeper *k, const uint8_t seed[static AUTH_SEED])
{
    int r = auth_pair_from_seed(&k->own, seed);
    if (!r)
        auth_node_id(k->id, k->own.pub);
    return r;
}

/* --- the node's own key ----------------------------------------------------------------------- */

static int hello(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    if (!buf_in_is_done(in))
        return -EPROTO;
    buf_out_bytes(out, k->own.pub, sizeof k->own.pub);
    buf_out_bytes(out, k->own.sign_pub, sizeof k->own.sign_pub);
    return 0;
}

/* What comes out is a hash of the shared secret. With the secret itself, ringd could open what is
 * sealed to this node: the authority's seed. */
static int mix(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    uint8_t ck[NOISE_HASH], key[NOISE_KEY];
    const uint8_t *old = buf_in_view(in, NOISE_HASH), *peer = buf_in_view(in, NOISE_KEY);
    int r = buf_in_is_done(in) ? noise_mix(old, k->own.secret, peer, ck, key) : -EPROTO;
    if (!r) {
        buf_out_bytes(out, ck, sizeof ck);
        buf_out_bytes(out, key, sizeof key);
    }
    sodium_memzero(ck, sizeof ck);
    sodium_memzero(key, sizeof key);
    return r;
}

/* A token's claim is signed with the token's own key, so not here. */
static bool may_sign(const struct keeper *k, enum auth_purpose purpose, const uint8_t *text, size_t n)
{
    switch (purpose) {
    case AUTH_RECORD: return n <= KEYS_RECORD_MAX;
    case AUTH_MESSAGE: return n == KEYS_STATEMENT && !memcmp(text + KEYS_AUTHOR_AT, k->id, sizeof k->id);
    case AUTH_JOIN:
    case AUTH_PURPOSES: break;
    }
    return false;
}

static int sign(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    uint8_t signature[AUTH_SIGNATURE];
    const enum auth_purpose purpose = buf_in_u8(in);
    if (in->bad)
        return -EPROTO;
    if (!may_sign(k, purpose, in->at, in->left))
        return -EPERM;
    int r = auth_pair_sign(&k->own, purpose, in->at, in->left, signature);
    if (!r)
        buf_out_bytes(out, signature, sizeof signature);
    return r;
}

/* --- the cluster ------------------------------------------------------------------------------ */

/* Not in a roster: it is of an authority that has not heard of us yet. Only being marked removed is
 * final. */
static bool is_member(const struct keeper *k, const struct keeper_cluster *c)
{
    const struct roster_entry *self = c->has ? roster_find(&c->roster, k->id) : NULL;
    return c->has && !(self && self->status == ROSTER_REMOVED);
}

static int unseal(const struct keeper *k, uint8_t ret[static 32], const uint8_t sealed[static ROSTER_SEALED])
{
    return crypto_box_seal_open(ret, sealed, ROSTER_SEALED, k->own.pub, k->own.secret) ? -EBADMSG : 0;
}

/* What the new roster holds for us: the network key, and the seed if we are an authority. A node
 * that was removed has nothing left. */
static int take_sealed(const struct keeper *k, struct keeper_cluster *c)
{
    const struct roster_entry *self = roster_find(&c->roster, k->id);
    uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    if (self && self->status == ROSTER_REMOVED) {
        sodium_memzero(c->seed, sizeof c->seed);
        sodium_memzero(c->net_key, sizeof c->net_key);
        c->has_seed = false;
        c->generation = 0;
    }
    if (!self || self->status != ROSTER_ACTIVE)
        return 0;
    int r = unseal(k, c->net_key, self->net_key);
    if (!r)
        c->generation = c->roster.generation;
    if (r || !self->authority || c->has_seed)
        return r;
    r = unseal(k, c->seed, self->authority_key);
    if (r)
        return r;
    cert_cluster_keys(pub, secret, c->seed);
    sodium_memzero(secret, sizeof secret);
    c->has_seed = !memcmp(pub, c->key, sizeof pub);
    return c->has_seed ? 0 : -EBADMSG;
}

/* Seals this generation's key to every member, and the seed to every authority; then signs. */
static int sign_roster(struct keeper_cluster *c)
{
    uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    if (c->generation != c->roster.generation) {
        randombytes_buf(c->net_key, sizeof c->net_key);
        c->generation = c->roster.generation;
    }
    for (size_t i = 0; i < c->roster.n; i++) {
        struct roster_entry *e = &c->roster.at[i];
        if (e->status == ROSTER_ACTIVE &&
            (crypto_box_seal(e->net_key, c->net_key, sizeof c->net_key, e->pub) ||
             (e->authority && crypto_box_seal(e->authority_key, c->seed, sizeof c->seed, e->pub))))
            return -EIO;
    }
    cert_cluster_keys(pub, secret, c->seed);
    int n = roster_sign(&c->roster, secret, c->bytes, sizeof c->bytes);
    sodium_memzero(secret, sizeof secret);
    c->n = n < 0 ? 0 : (size_t)n;
    return n < 0 ? n : 0;
}

/* Puts what was made in force, and says what that is. */
static void settle(struct keeper *k, const uint8_t *cert, struct buf_out *out)
{
    static const uint8_t purpose[crypto_generichash_KEYBYTES_MIN] =
        "ringd/1 psk"; /* BLAKE2b keyed by what it is for */
    struct keeper_cluster *c = &k->now;
    k->now = k->next;
    struct keys_trust t = {.authority = c->has_seed && is_member(k, c), .roster = c->bytes, .n = c->n};
    memcpy(t.cluster, c->key, sizeof t.cluster);
    if (cert)
        memcpy(t.cert, cert, sizeof t.cert);
    if (c->generation && c->generation == c->roster.generation) {
        t.generation = c->generation;
        beacon_key_derive(t.beacon, c->net_key);
        crypto_generichash(t.psk, sizeof t.psk, c->net_key, sizeof c->net_key, purpose, sizeof purpose);
    }
    keys_trust_encode(out, &t);
    sodium_memzero(&t, sizeof t);
}

/* Nobody goes back to an older roster, and a member goes to no other cluster: else a ringd that was
 * taken over could sign once more what has been replaced. */
static int take(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    struct keeper_cluster *c = &k->next, *old = &k->now;
    const uint8_t *key = buf_in_view(in, CERT_CLUSTER_KEY);
    if (in->bad || in->left > ROSTER_BYTES_MAX)
        return -EPROTO;
    const bool same = old->has && !memcmp(old->key, key, sizeof old->key);
    if (!same && is_member(k, old))
        return -EPERM;
    if (same)
        *c = *old;
    c->has = true;
    memcpy(c->key, key, sizeof c->key);
    memcpy(c->bytes, in->at, in->left);
    c->n = in->left;
    int r = roster_open(c->bytes, c->n, c->key, &c->roster);
    const bool known = !r && same && c->n == old->n && !memcmp(c->bytes, old->bytes, c->n);
    if (!r && same && !known &&
        !roster_replaces(&c->roster, c->bytes, c->n, &old->roster, old->bytes, old->n))
        r = -ESTALE;
    if (!r)
        r = take_sealed(k, c);
    if (!r && same && !known && c->has_seed && is_member(k, c) && roster_rebase(&c->roster, &old->roster))
        r = sign_roster(c);
    if (!r)
        settle(k, NULL, out);
    return r;
}

/* What the roster says of a node. */
static int certify(const struct keeper_cluster *c, const struct roster_entry *e, uint64_t now_s,
                   uint8_t ret_cert[static CERT_BYTES])
{
    struct cert cert = {.serial = e->serial, .flags = e->authority ? CERT_AUTHORITY : 0, .issued_s = now_s};
    uint8_t key[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    memcpy(cert.cluster_id, c->roster.cluster_id, sizeof cert.cluster_id);
    memcpy(cert.pub, e->pub, sizeof cert.pub);
    memcpy(cert.name, e->name, sizeof cert.name);
    cert_cluster_keys(key, secret, c->seed);
    int r = cert_sign(&cert, secret, ret_cert);
    sodium_memzero(secret, sizeof secret);
    return r;
}

/* A place in the roster, and the certificate that goes with it. */
static int issue(struct keeper_cluster *c, const uint8_t pub[static AUTH_KEY], const char *name,
                 uint64_t now_s, uint8_t ret_cert[static CERT_BYTES])
{
    const struct roster_entry *e;
    int r = roster_admit(&c->roster, pub, name, &e);
    if (r)
        return r;
    if (c->roster.n == 1) /* who makes a cluster signs for it */
        c->roster.at[0].authority = true;
    r = certify(c, e, now_s, ret_cert);
    return r ? r : sign_roster(c);
}

static int found(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    struct keeper_cluster *c = &k->next;
    uint8_t cert[CERT_BYTES], secret[CERT_SECRET];
    char node[CERT_NAME];
    const uint64_t now_s = buf_in_u64(in);
    keys_name_decode(in, c->roster.name);
    keys_name_decode(in, node);
    if (!buf_in_is_done(in))
        return -EPROTO;
    if (is_member(k, &k->now))
        return -EEXIST;
    randombytes_buf(c->seed, sizeof c->seed);
    c->has = c->has_seed = true;
    cert_cluster_keys(c->key, secret, c->seed);
    sodium_memzero(secret, sizeof secret);
    cert_cluster_id(c->roster.cluster_id, c->key);
    c->roster.generation = 1;
    int r = issue(c, k->own.pub, node, now_s, cert);
    if (!r)
        settle(k, cert, out);
    return r;
}

static int admit(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    uint8_t cert[CERT_BYTES];
    char name[CERT_NAME];
    const uint64_t now_s = buf_in_u64(in);
    const uint8_t *pub = buf_in_view(in, AUTH_KEY);
    keys_name_decode(in, name);
    if (!buf_in_is_done(in))
        return -EPROTO;
    if (!k->now.has_seed || !is_member(k, &k->now))
        return -EPERM;
    k->next = k->now;
    int r = issue(&k->next, pub, name, now_s, cert);
    if (!r)
        settle(k, cert, out);
    return r;
}

static int certify_again(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    uint8_t cert[CERT_BYTES];
    const uint64_t now_s = buf_in_u64(in);
    const uint8_t *id = buf_in_view(in, CERT_ID);
    if (!buf_in_is_done(in))
        return -EPROTO;
    if (!k->now.has_seed || !is_member(k, &k->now))
        return -EPERM;
    const struct roster_entry *e = roster_find(&k->now.roster, id);
    if (!e || e->status != ROSTER_ACTIVE)
        return -ENOENT;
    int r = certify(&k->now, e, now_s, cert);
    k->next = k->now;
    if (!r)
        settle(k, cert, out);
    return r;
}

static int change(struct keeper *k, struct buf_in *in, struct buf_out *out,
                  int (*how)(struct roster *, const uint8_t *))
{
    const uint8_t *id = buf_in_view(in, CERT_ID);
    if (!buf_in_is_done(in))
        return -EPROTO;
    if (!k->now.has_seed || !is_member(k, &k->now))
        return -EPERM;
    k->next = k->now;
    int r = how(&k->next.roster, id);
    if (!r)
        r = sign_roster(&k->next);
    if (!r)
        settle(k, NULL, out);
    return r;
}

/* Of itself it stays a member: what it signs next would have no author. */
static int remove_node(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    const bool own = in->left == CERT_ID && !memcmp(in->at, k->id, CERT_ID);
    return own ? -EPERM : change(k, in, out, roster_remove);
}

static int promote(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    return change(k, in, out, roster_promote);
}

/* --- requests --------------------------------------------------------------------------------- */

static int obey(struct keeper *k, struct buf_in *in, struct buf_out *out)
{
    static int (*const does[])(struct keeper *, struct buf_in *,
                               struct buf_out *) = {[KEYS_HELLO] = hello,
                                                    [KEYS_MIX] = mix,
                                                    [KEYS_SIGN] = sign,
                                                    [KEYS_TAKE] = take,
                                                    [KEYS_FOUND] = found,
                                                    [KEYS_ADMIT] = admit,
                                                    [KEYS_CERTIFY] = certify_again,
                                                    [KEYS_REMOVE] = remove_node,
                                                    [KEYS_PROMOTE] = promote};
    const uint8_t kind = buf_in_u8(in);
    if (in->bad || kind >= sizeof does / sizeof *does || !does[kind])
        return -EPROTO;
    return does[kind](k, in, out);
}

size_t keeper_answer(struct keeper *k, size_t n)
{
    struct buf_in in;
    struct buf_out head, out;
    int r = n > KEYS_REQUEST_MAX ? -EMSGSIZE : *k->trouble ? -EIO : 0;
    buf_in_init(&in, k->request, n);
    buf_out_init(&out, k->answer + KEYS_ERROR, sizeof k->answer - KEYS_ERROR);
    if (!r)
        r = obey(k, &in, &out);
    else
        buf_out_bytes(&out, k->trouble, strlen(k->trouble));
    const size_t size = !r || *k->trouble ? out.used : 0;
    buf_out_init(&head, k->answer, KEYS_ERROR);
    buf_out_u16(&head, (uint16_t)-r);
    sodium_memzero(&k->next, sizeof k->next);
    return KEYS_ERROR + size;
}
