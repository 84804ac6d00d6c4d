/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/cluster.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster_file.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/common/xalloc.h"

struct cluster {
    const struct auth_identity *id; /* borrowed */
    uint8_t node_id[16];
    char path[4096], tokens_path[4096];
    bool has;                 /* trust below is there */
    struct cluster_trust now; /* what is in force, and on disk */
    struct token_book tokens;
};

/* --- what it is ------------------------------------------------------------------------------- */

const char *cluster_state_name(enum cluster_state s)
{
    static const char *const names[] = {"none", "member", "removed"};

    return names[s];
}

enum cluster_state cluster_state(const struct cluster *c)
{
    const struct roster_entry *self = c->has ? roster_find(&c->now.roster, c->node_id) : NULL;

    /* Absent: a roster of another authority, which will hear of us; only being marked removed is
     * final. */
    return !c->has ? CLUSTER_NONE : self && self->status == ROSTER_REMOVED ? CLUSTER_REMOVED : CLUSTER_MEMBER;
}

bool cluster_is_authority(const struct cluster *c)
{
    return c->now.has_seed && cluster_state(c) == CLUSTER_MEMBER;
}

const struct roster *cluster_roster(const struct cluster *c)
{
    return c->has ? &c->now.roster : NULL;
}

const struct cert *cluster_cert(const struct cluster *c)
{
    return c->has ? &c->now.cert : NULL;
}

const uint8_t *cluster_cert_bytes(const struct cluster *c)
{
    return c->has ? c->now.cert_bytes : NULL;
}

const uint8_t *cluster_key(const struct cluster *c)
{
    return c->has ? c->now.key : NULL;
}

const uint8_t *cluster_roster_bytes(const struct cluster *c, size_t *ret_n)
{
    *ret_n = c->has ? c->now.roster_len : 0;
    return c->has ? c->now.roster_bytes : NULL;
}

const struct token_book *cluster_tokens(const struct cluster *c)
{
    return &c->tokens;
}

/* --- keys --- */

size_t cluster_net_keys(const struct cluster *c, struct cluster_net_key *ret, size_t cap)
{
    size_t n = cluster_state(c) == CLUSTER_MEMBER ? c->now.n_keys : 0;

    n = n < cap ? n : cap;
    memcpy(ret, c->now.keys, n * sizeof *ret);
    return n;
}

static void derive_psk(uint8_t ret[static AUTH_PSK], const struct cluster_net_key *key)
{
    static const uint8_t purpose[crypto_generichash_KEYBYTES_MIN] =
        "ringd/1 psk"; /* BLAKE2b keyed by what it is for */

    crypto_generichash(ret, AUTH_PSK, key->key, sizeof key->key, purpose, sizeof purpose);
}

int cluster_psk(const struct cluster *c, unsigned age, uint8_t ret[static AUTH_PSK])
{
    if (cluster_state(c) != CLUSTER_MEMBER || !c->now.n_keys)
        return -ENOTCONN;
    derive_psk(ret, &c->now.keys[age % c->now.n_keys]);
    return 0;
}

size_t cluster_link_keys(const struct cluster *c, struct link_key *ret, size_t cap)
{
    size_t n = cluster_state(c) == CLUSTER_MEMBER ? c->now.n_keys : 0;

    n = n < cap ? n : cap;
    for (size_t i = 0; i < n; i++) {
        derive_psk(ret[i].psk, &c->now.keys[i]);
        ret[i].tag = c->now.keys[i].generation;
    }
    return n;
}

int cluster_judge(const struct cluster *c, const uint8_t peer_key[static AUTH_KEY],
                  const struct link_hello *peer, char *why, size_t size)
{
    const char *cluster = c->now.roster.name;
    struct cert cert;

    if (cluster_state(c) != CLUSTER_MEMBER) {
        snprintf(why, size, "this node is in no cluster: join it with a token from `ringctl invite`");
        return -EPERM;
    }
    if (cert_open(peer->cert, sizeof peer->cert, c->now.key, &cert) ||
        sodium_memcmp(cert.pub, peer_key, sizeof cert.pub)) {
        snprintf(
            why, size,
            "%s has no certificate of cluster %s for its key: join it with a token from `ringctl invite`",
            peer->name, cluster);
        return -EPERM;
    }
    if (strcmp(cert.name, peer->name)) {
        snprintf(why, size, "a node calls itself %s and is certified as %s: restart ringd on it", peer->name,
                 cert.name);
        return -EPERM;
    }
    switch (roster_judge(&c->now.roster, &cert)) {
    case ROSTER_IS_MEMBER:
    case ROSTER_IS_NEW: return 0;
    case ROSTER_OLD_CERT:
        snprintf(why, size, "%s shows an outdated certificate of cluster %s: join it again with a new token",
                 peer->name, cluster);
        break;
    case ROSTER_WAS_REMOVED:
    case ROSTER_UNKNOWN:
        snprintf(why, size,
                 "%s was removed from cluster %s; to let it back in, make a token with `ringctl invite` and "
                 "give it to "
                 "`ringctl join` on %s",
                 peer->name, cluster, peer->name);
    }
    return -EPERM;
}

/* --- network keys in the roster --- */

static struct cluster_net_key *find_key(struct cluster_trust *t, uint16_t generation)
{
    for (size_t i = 0; i < t->n_keys; i++)
        if (t->keys[i].generation == generation)
            return &t->keys[i];
    return NULL;
}

/* The newest comes first; one of the same generation is replaced, the oldest falls off. */
static void add_key(struct cluster_trust *t, uint16_t generation, const uint8_t key[static 32])
{
    struct cluster_net_key *same = find_key(t, generation), add = {.generation = generation};

    memcpy(add.key, key, sizeof add.key);
    if (same) {
        *same = add;
        return;
    }
    if (t->n_keys < CLUSTER_KEYS)
        t->n_keys++;
    memmove(t->keys + 1, t->keys, (t->n_keys - 1) * sizeof *t->keys);
    t->keys[0] = add;
}

/* Seals this generation's key to every member, and the seed to every authority. */
static int seal_for_members(struct cluster_trust *t)
{
    const struct cluster_net_key *key = find_key(t, t->roster.generation);

    for (size_t i = 0; i < t->roster.n; i++) {
        struct roster_entry *e = &t->roster.at[i];

        if (e->status != ROSTER_ACTIVE)
            continue;
        if (crypto_box_seal(e->net_key, key->key, sizeof key->key, e->pub) ||
            (e->authority && crypto_box_seal(e->authority_key, t->seed, sizeof t->seed, e->pub)))
            return -EIO;
    }
    return 0;
}

/* What the roster holds for us: the network key, and the seed if we are an authority. */
static int take_sealed(const struct cluster *c, struct cluster_trust *t)
{
    const struct roster_entry *self = roster_find(&t->roster, c->node_id);
    uint8_t key[32], pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];

    if (!self || self->status != ROSTER_ACTIVE)
        return 0;
    if (crypto_box_seal_open(key, self->net_key, sizeof self->net_key, c->id->pub, c->id->secret))
        return -EBADMSG;
    add_key(t, t->roster.generation, key);
    sodium_memzero(key, sizeof key);
    if (!self->authority || t->has_seed)
        return 0;
    if (crypto_box_seal_open(t->seed, self->authority_key, sizeof self->authority_key, c->id->pub,
                             c->id->secret))
        return -EBADMSG;
    cert_cluster_keys(pub, secret, t->seed);
    sodium_memzero(secret, sizeof secret);
    t->has_seed = !memcmp(pub, t->key, sizeof pub);
    return t->has_seed ? 0 : -EBADMSG;
}

/* --- changing: on a copy, which replaces what is in force once it is on disk --- */

static struct cluster_trust *begin(const struct cluster *c)
{
    return xmemdup(&c->now, sizeof c->now);
}

/* Keeps the copy, or says why not; frees it either way. */
static int commit(struct cluster *c, struct cluster_trust *t, int r, struct err *err)
{
    if (!r)
        r = cluster_trust_save(c->path, t, err);
    if (!r) {
        c->now = *t;
        c->has = true;
    }
    sodium_memzero(t, sizeof *t);
    free(t);
    return r;
}

/* Seals and signs a roster that has been changed. */
static int sign(struct cluster_trust *t, struct err *err)
{
    uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET], key[32];
    int n;

    if (!find_key(t, t->roster.generation)) {
        randombytes_buf(key, sizeof key);
        add_key(t, t->roster.generation, key);
        sodium_memzero(key, sizeof key);
    }
    if (seal_for_members(t))
        return err_set(err, -EIO, "the network key cannot be sealed to a member: its public key is no key");
    cert_cluster_keys(pub, secret, t->seed);
    n = roster_sign(&t->roster, secret, t->roster_bytes, sizeof t->roster_bytes);
    sodium_memzero(secret, sizeof secret);
    if (n < 0)
        return err_set(err, n, "the roster cannot be signed: %s",
                       n == -EINVAL ? "a name is not printable text" : strerror(-n));
    t->roster_len = (size_t)n;
    return 0;
}

/* Who could do what we may not. */
static int not_authority(const struct cluster *c, struct err *err)
{
    char names[160] = "";

    if (cluster_state(c) != CLUSTER_MEMBER)
        return err_set(
            err, -EPERM,
            "this node is in no cluster: `ringctl init` makes one, `ringctl join TOKEN` enters one");
    for (size_t i = 0; i < c->now.roster.n; i++) {
        const struct roster_entry *e = &c->now.roster.at[i];
        size_t len = strlen(names);

        if (e->status == ROSTER_ACTIVE && e->authority)
            snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "", e->name);
    }
    return err_set(err, -EPERM,
                   "this node does not hold the key of cluster %s: run it on %s, or have it promoted there",
                   c->now.roster.name, *names ? names : "an authority");
}

static int issue(struct cluster_trust *t, const uint8_t pub[static AUTH_KEY], const char *name,
                 uint64_t now_s, uint8_t ret_cert[static CERT_BYTES], struct err *err)
{
    const struct roster_entry *e;
    struct cert cert = {.issued_s = now_s};
    uint8_t key[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    int r = roster_admit(&t->roster, pub, name, &e);

    if (r)
        return r == -ENOSPC
                   ? err_set(err, r, "cluster %s is full: it has %d nodes; remove one with `ringctl remove`",
                             t->roster.name, ROSTER_MAX)
                   : err_set(err, r,
                             "a node's name is printable text of 1 to %d bytes: set another with --name",
                             CERT_NAME - 1);
    if (t->roster.n == 1) /* who makes a cluster signs for it */
        t->roster.at[0].authority = true;
    cert.serial = e->serial;
    cert.flags = e->authority ? CERT_AUTHORITY : 0;
    memcpy(cert.cluster_id, t->roster.cluster_id, sizeof cert.cluster_id);
    memcpy(cert.pub, pub, sizeof cert.pub);
    memcpy(cert.name, e->name, sizeof cert.name);
    cert_cluster_keys(key, secret, t->seed);
    r = cert_sign(&cert, secret, ret_cert);
    sodium_memzero(secret, sizeof secret);
    return r ? err_set(err, r, "the certificate cannot be signed: %s", strerror(-r)) : 0;
}

static int save_tokens(struct cluster *c, struct err *err)
{
    uint8_t bytes[TOKEN_BOOK_BYTES];
    int n = token_book_encode(&c->tokens, bytes, sizeof bytes);
    int r = n < 0 ? n : private_write(c->tokens_path, bytes, (size_t)n, err);

    sodium_memzero(bytes, sizeof bytes);
    return r;
}

/* Another cluster: tokens of the one before let nobody in any more. */
static int void_tokens(struct cluster *c, struct err *err)
{
    if (!c->tokens.n)
        return 0;
    sodium_memzero(&c->tokens, sizeof c->tokens);
    return save_tokens(c, err);
}

int cluster_init(struct cluster *c, const char *cluster_name, const char *node_name, uint64_t now_s,
                 struct err *err)
{
    if (cluster_state(c) == CLUSTER_MEMBER)
        return err_set(
            err, -EEXIST,
            "this node is in cluster %s already: to take it out, run `ringctl remove` on another member",
            c->now.roster.name);
    struct cluster_trust *t = xcalloc(1, sizeof *t);
    uint8_t secret[CERT_SECRET];
    randombytes_buf(t->seed, sizeof t->seed);
    t->has_seed = true;
    cert_cluster_keys(t->key, secret, t->seed);
    sodium_memzero(secret, sizeof secret);
    cert_cluster_id(t->roster.cluster_id, t->key);
    snprintf(t->roster.name, sizeof t->roster.name, "%s", cluster_name);
    t->roster.generation = 1;
    int r = issue(t, c->id->pub, node_name, now_s, t->cert_bytes, err);
    if (!r)
        r = cert_open(t->cert_bytes, CERT_BYTES, t->key, &t->cert);
    r = commit(c, t, r ? r : sign(t, err), err);
    return r ? r : void_tokens(c, err);
}

int cluster_adopt(struct cluster *c, const uint8_t token_cluster[static CERT_ID],
                  const uint8_t key[static CERT_CLUSTER_KEY], const uint8_t *cert, const uint8_t *roster,
                  size_t n, struct err *err)
{
    static const char forged[] =
        "the answer of the cluster is inconsistent (%s): make a new token and try again";
    uint8_t id[CERT_ID];
    /* Back into the same cluster: what it knew of it stays, and the roster goes forward. */
    bool same = c->has && !memcmp(c->now.key, key, sizeof c->now.key);
    struct cluster_trust *t = same ? begin(c) : xcalloc(1, sizeof *t);
    uint64_t known = same ? c->now.roster.version : 0;
    int r = 0;
    cert_cluster_id(id, key);
    memcpy(t->key, key, sizeof t->key);
    memcpy(t->cert_bytes, cert, CERT_BYTES);
    if (memcmp(id, token_cluster, sizeof id))
        r = err_set(err, -EPERM, "this is not the cluster the token was made in");
    else if (cert_open(cert, CERT_BYTES, key, &t->cert) || memcmp(t->cert.pub, c->id->pub, AUTH_KEY))
        r = err_set(err, -EBADMSG, forged, "certificate");
    else if (n > sizeof t->roster_bytes || roster_open(roster, n, key, &t->roster) ||
             t->roster.version < known || roster_judge(&t->roster, &t->cert) != ROSTER_IS_MEMBER)
        r = err_set(err, -EBADMSG, forged, "roster");
    else if (take_sealed(c, t))
        r = err_set(err, -EBADMSG, forged, "network key");
    if (!r) {
        memcpy(t->roster_bytes, roster, n);
        t->roster_len = n;
    }
    r = commit(c, t, r, err);
    return r || same ? r : void_tokens(c, err);
}

int cluster_learn(struct cluster *c, const uint8_t *roster, size_t n, struct err *err)
{
    if (!c->has || n > ROSTER_BYTES_MAX)
        return 0;
    struct cluster_trust *t = begin(c);
    int r = roster_open(roster, n, t->key, &t->roster);
    if (r)
        err_set(err, r, "a roster that %s",
                r == -EBADMSG ? "is not signed with the cluster's key" : "this version cannot read");
    else if (roster_replaces(&t->roster, roster, n, &c->now.roster, c->now.roster_bytes, c->now.roster_len))
        r = 1;
    if (r <= 0) {
        sodium_memzero(t, sizeof *t);
        free(t);
        return r;
    }
    memcpy(t->roster_bytes, roster, n);
    t->roster_len = n;
    r = take_sealed(c, t)
            ? err_set(err, -EBADMSG, "a roster whose network key is not for this node's identity")
            : 0;
    if (!r && t->has_seed && roster_rebase(&t->roster, &c->now.roster))
        r = sign(t, err);
    r = commit(c, t, r, err);
    return r ? r : 1;
}

int cluster_issue(struct cluster *c, const uint8_t pub[static AUTH_KEY], const char *name, uint64_t now_s,
                  uint8_t ret_cert[static CERT_BYTES], struct err *err)
{
    if (!cluster_is_authority(c))
        return not_authority(c, err);
    struct cluster_trust *t = begin(c);
    int r = issue(t, pub, name, now_s, ret_cert, err);
    return commit(c, t, r ? r : sign(t, err), err);
}

static int change_node(struct cluster *c, const uint8_t id[static CERT_ID],
                       int (*change)(struct roster *, const uint8_t *), struct err *err)
{
    if (!cluster_is_authority(c))
        return not_authority(c, err);
    struct cluster_trust *t = begin(c);
    int r = change(&t->roster, id);
    if (r)
        err_set(err, r, "no member of cluster %s has that id: `ringctl members` lists them",
                c->now.roster.name);
    return commit(c, t, r ? r : sign(t, err), err);
}

int cluster_remove(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err)
{
    if (cluster_is_authority(c) && !memcmp(id, c->node_id, sizeof c->node_id))
        return err_set(err, -EPERM,
                       "a node cannot remove itself: promote another node, and remove this one there");
    return change_node(c, id, roster_remove, err);
}

int cluster_promote(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err)
{
    return change_node(c, id, roster_promote, err);
}

/* --- tokens --- */

int cluster_invite(struct cluster *c, uint64_t ttl_s, uint64_t now_s, char ret_text[static TOKEN_TEXT],
                   struct err *err)
{
    struct token t;
    if (!cluster_is_authority(c))
        return not_authority(c, err);
    memcpy(t.cluster_id, c->now.roster.cluster_id, sizeof t.cluster_id);
    do
        randombytes_buf(t.id, sizeof t.id);
    while (token_book_find(&c->tokens, t.id));
    randombytes_buf(t.secret, sizeof t.secret);
    int r = token_book_add(&c->tokens, &t, now_s, ttl_s);
    if (r)
        err_set(err, r, "%d tokens are waiting to be used: let some expire first", TOKENS_MAX);
    else if (!(r = save_tokens(c, err)))
        token_write(&t, ret_text);
    sodium_memzero(&t, sizeof t);
    return r;
}

/* A node that lost the answer may spend its token again, but not one that was removed since. */
static bool is_token_of_removed(struct cluster *c, const uint8_t token[static TOKEN_ID],
                                const uint8_t node_id[static CERT_ID])
{
    const struct token_entry *e = token_book_find(&c->tokens, token);
    const struct roster_entry *node = roster_find(&c->now.roster, node_id);
    return e && e->used && node && node->status == ROSTER_REMOVED;
}

int cluster_spend(struct cluster *c, const uint8_t token[static TOKEN_ID],
                  const uint8_t node_id[static CERT_ID], uint64_t now_s, struct err *err)
{
    if (!cluster_is_authority(c))
        return not_authority(c, err);
    enum token_verdict verdict = is_token_of_removed(c, token, node_id)
                                     ? TOKEN_USED
                                     : token_book_use(&c->tokens, token, node_id, now_s);
    switch (verdict) {
    case TOKEN_OK: return save_tokens(c, err);
    case TOKEN_USED:
        return err_set(err, -EPERM,
                       "this token has let a node in already: make a new one with `ringctl invite`");
    case TOKEN_EXPIRED:
        return err_set(err, -EPERM, "this token has expired: make a new one with `ringctl invite`");
    case TOKEN_NONE: break;
    }
    return err_set(err, -EPERM, "this token is no longer known: make a new one with `ringctl invite`");
}

bool cluster_token_failed(struct cluster *c, const uint8_t token[static TOKEN_ID], struct err *err)
{
    bool known = token_book_find(&c->tokens, token), killed = token_book_fail(&c->tokens, token);

    if (known)
        (void)save_tokens(
            c,
            err); /* what cannot be written now is written with the next change; the count holds till then */
    return killed;
}

/* --- opening --- */

static int load_tokens(struct cluster *c, struct err *err)
{
    uint8_t bytes[TOKEN_BOOK_BYTES + 1];
    ssize_t n = private_read(c->tokens_path, bytes, sizeof bytes, err);
    int r = n == -ENOENT ? 0 : n < 0 ? (int)n : token_book_decode(bytes, (size_t)n, &c->tokens);

    sodium_memzero(bytes, sizeof bytes);
    return r == -EPROTO ? err_set(err, r, "%s is damaged: remove it, and make new tokens for those given out",
                                  c->tokens_path)
                        : r;
}

int cluster_open(struct cluster **ret, const char *state_dir, const struct auth_identity *id, struct err *err)
{
    struct cluster *c = xcalloc(1, sizeof *c);
    c->id = id;
    auth_node_id(c->node_id, id->pub);
    snprintf(c->path, sizeof c->path, "%s/cluster", state_dir);
    snprintf(c->tokens_path, sizeof c->tokens_path, "%s/tokens", state_dir);
    int r = cluster_trust_load(c->path, &c->now, err);
    c->has = !r;
    if (c->has && memcmp(c->now.cert.pub, id->pub, AUTH_KEY))
        r = err_set(err, -EINVAL,
                    "%s belongs to another identity than %s/identity: restore that one, or remove both and "
                    "join again",
                    c->path, state_dir);
    if (!r || r == -ENOENT)
        r = load_tokens(c, err);
    if (r) {
        cluster_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

void cluster_close(struct cluster *c)
{
    if (!c)
        return;
    sodium_memzero(c, sizeof *c);
    free(c);
}
