/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/cluster.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster_disk.h"
#include "daemon/ringd/cluster/cluster_file.h"
#include "daemon/ringd/cluster/keys.h"
#include "daemon/common/private_file.h"
#include "daemon/common/xalloc.h"
#include "net/base/secret.h"
#include "daemon/common/xsecret.h"

struct cluster {
    struct keys *keys;  /* borrowed */
    const uint8_t *pub; /* borrowed: ours */
    uint8_t node_id[16];
    struct cluster_disk *disk; /* owned */
    bool has;                  /* trust below is there */
    struct cluster_trust now;  /* what is in force */
    struct token_book tokens;
    bool is_own;       /* something was made here that is not on the disk yet */
    size_t shared_len; /* of the roster that others may hear */
    uint8_t shared[ROSTER_BYTES_MAX];
    void (*kept)(void *owner);
    void *owner; /* borrowed */
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
    return c->now.authority && cluster_state(c) == CLUSTER_MEMBER;
}

const struct roster *cluster_roster(const struct cluster *c)
{
    return c->has ? &c->now.roster : NULL;
}

bool cluster_has_removed(const struct cluster *c, const uint8_t id[static CERT_ID])
{
    const struct roster *roster = cluster_roster(c);
    const struct roster_entry *e = roster ? roster_find(roster, id) : NULL;
    return e && e->status == ROSTER_REMOVED;
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
    *ret_n = c->shared_len;
    return c->shared_len ? c->shared : NULL;
}

const uint8_t *cluster_roster_made(const struct cluster *c, size_t *ret_n)
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

int cluster_psk(const struct cluster *c, unsigned age, uint8_t ret[static AUTH_PSK])
{
    if (cluster_state(c) != CLUSTER_MEMBER || !c->now.n_keys)
        return -ENOTCONN;
    memcpy(ret, c->now.keys[age % c->now.n_keys].psk, AUTH_PSK);
    return 0;
}

size_t cluster_link_keys(const struct cluster *c, struct link_key *ret, size_t cap)
{
    size_t n = cluster_state(c) == CLUSTER_MEMBER ? c->now.n_keys : 0;

    n = n < cap ? n : cap;
    for (size_t i = 0; i < n; i++) {
        memcpy(ret[i].psk, c->now.keys[i].psk, AUTH_PSK);
        ret[i].tag = c->now.keys[i].generation;
    }
    return n;
}

/* --- changing ---------------------------------------------------------------------------------
 *
 * The keeper of the keys makes what is new, and what it answers is in force: it will not go back.
 * So it counts here too, also when it cannot be written; then it is written with the next change.
 * */

/* The newest comes first; one of the same generation is replaced, the oldest falls off. */
static void add_key(struct cluster_trust *t, const struct keys_trust *from)
{
    struct cluster_net_key add = {.generation = from->generation};
    size_t i = 0;

    memcpy(add.beacon, from->beacon, sizeof add.beacon);
    memcpy(add.psk, from->psk, sizeof add.psk);
    while (i < t->n_keys && t->keys[i].generation != add.generation)
        i++;
    if (i == t->n_keys) {
        if (t->n_keys < CLUSTER_KEYS)
            t->n_keys++;
        memmove(t->keys + 1, t->keys, (t->n_keys - 1) * sizeof *t->keys);
        i = 0;
    }
    t->keys[i] = add;
    sodium_memzero(&add, sizeof add);
}

/* Takes what the keeper says to be in force. */
static int apply(struct cluster *c, const struct keys_trust *from, struct err *err)
{
    struct cluster_trust *t = &c->now;
    struct roster *roster = xmalloc(sizeof *roster);
    int r = roster_open(from->roster, from->n, from->cluster, roster);

    if (r) {
        free(roster);
        return err_set(err, r, "ringd-keys answers with a roster that cannot be read: same version of both?");
    }
    if (!c->has || memcmp(t->key, from->cluster, sizeof t->key))
        t->n_keys = 0; /* those of the cluster before */
    memcpy(t->key, from->cluster, sizeof t->key);
    t->roster = *roster;
    free(roster);
    memcpy(t->roster_bytes, from->roster, from->n);
    t->roster_len = from->n;
    t->authority = from->authority;
    if (from->generation)
        add_key(t, from);
    c->has = true;
    return 0;
}

static void share(struct cluster *c)
{
    memcpy(c->shared, c->now.roster_bytes, c->now.roster_len);
    c->shared_len = c->now.roster_len;
}

/* own: it was made here. */
static int commit(struct cluster *c, const struct keys_trust *from, bool own, struct err *err)
{
    int r = apply(c, from, err);
    if (r)
        return r;
    c->is_own |= own;
    if (!c->is_own)
        share(c);
    return cluster_trust_put(c->disk, &c->now, err);
}

/* A file was written, or could not be. */
static void on_written(void *owner)
{
    struct cluster *c = owner;
    if (!c->is_own || !cluster_disk_has(c->disk, TRUST_CLUSTER))
        return;
    c->is_own = false;
    share(c);
    if (c->kept)
        c->kept(c->owner);
}

/* Why the keeper did not do it, where no better sentence is known. */
static int refused(int r, struct err *err)
{
    return err_set(err, r, "%s",
                   r == -EIO      ? "the network key cannot be sealed to a member: its public key is no key"
                   : r == -EPERM  ? "ringd-keys refuses that"
                   : r == -ESTALE ? "ringd-keys knows a newer roster"
                                  : "ringd-keys does not answer");
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

static int bad_name(int r, struct err *err)
{
    return err_set(err, r, "a node's name is printable text of 1 to %d bytes: set another with --name",
                   CERT_NAME - 1);
}

static int save_tokens(struct cluster *c, struct err *err)
{
    uint8_t bytes[TOKEN_BOOK_BYTES];
    int n = token_book_encode(&c->tokens, bytes, sizeof bytes);
    int r = n < 0 ? n : cluster_disk_put(c->disk, TRUST_TOKENS, bytes, (size_t)n, err);

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

static int keep_cert(struct cluster *c, const uint8_t bytes[static CERT_BYTES], const uint8_t *key)
{
    int r = cert_open(bytes, CERT_BYTES, key, &c->now.cert);

    if (!r)
        memcpy(c->now.cert_bytes, bytes, CERT_BYTES);
    return r;
}

int cluster_init(struct cluster *c, const char *cluster_name, const char *node_name, uint64_t now_s,
                 struct err *err)
{
    struct keys_trust t;

    if (cluster_state(c) == CLUSTER_MEMBER)
        return err_set(
            err, -EEXIST,
            "this node is in cluster %s already: to take it out, run `ringctl remove` on another member",
            c->now.roster.name);
    int r = keys_found(c->keys, cluster_name, node_name, now_s, &t);
    if (r)
        return r == -EINVAL ? bad_name(r, err) : refused(r, err);
    r = keep_cert(c, t.cert, t.cluster);
    r = r ? refused(r, err) : commit(c, &t, true, err);
    sodium_memzero(&t, sizeof t);
    return r ? r : void_tokens(c, err);
}

/* Is it the answer of the cluster that the token names, and of a roster in which this node is? */
static int judge_answer(const struct cluster *c, const uint8_t *key, const uint8_t *cert,
                        const uint8_t *roster, size_t n, struct err *err)
{
    static const char forged[] =
        "the answer of the cluster is inconsistent (%s): make a new token and try again";
    bool same = c->has && !memcmp(c->now.key, key, sizeof c->now.key);
    struct roster *opened = xmalloc(sizeof *opened);
    struct cert ours;
    int r = 0;

    if (cert_open(cert, CERT_BYTES, key, &ours) || memcmp(ours.pub, c->pub, AUTH_KEY))
        r = err_set(err, -EBADMSG, forged, "certificate");
    else if (n > ROSTER_BYTES_MAX || roster_open(roster, n, key, opened) ||
             (same && opened->version < c->now.roster.version) ||
             roster_judge(opened, &ours) != ROSTER_IS_MEMBER)
        r = err_set(err, -EBADMSG, forged, "roster");
    free(opened);
    return r;
}

int cluster_adopt(struct cluster *c, const uint8_t token_cluster[static CERT_ID],
                  const uint8_t key[static CERT_CLUSTER_KEY], const uint8_t *cert, const uint8_t *roster,
                  size_t n, struct err *err)
{
    uint8_t id[CERT_ID];
    struct keys_trust t;
    /* Back into the same cluster: what it knew of it stays, and the roster goes forward. */
    bool same = c->has && !memcmp(c->now.key, key, sizeof c->now.key);

    cert_cluster_id(id, key);
    if (memcmp(id, token_cluster, sizeof id))
        return err_set(err, -EPERM, "this is not the cluster the token was made in");
    int r = judge_answer(c, key, cert, roster, n, err);
    if (r)
        return r;
    r = keys_take(c->keys, key, roster, n, &t);
    if (r == -EBADMSG)
        return err_set(
            err, r,
            "the answer of the cluster is inconsistent (network key): make a new token and try again");
    if (r)
        return refused(r, err);
    r = keep_cert(c, cert, key);
    r = r ? refused(r, err) : commit(c, &t, false, err);
    sodium_memzero(&t, sizeof t);
    return r || same ? r : void_tokens(c, err);
}

/* 1: it replaces ours; 0: it does not; −errno with a sentence: it cannot be read. */
static int is_news(const struct cluster *c, const uint8_t *roster, size_t n, struct err *err)
{
    struct roster *opened = xmalloc(sizeof *opened);
    int r = roster_open(roster, n, c->now.key, opened);

    if (r)
        err_set(err, r, "a roster that %s",
                r == -EBADMSG ? "is not signed with the cluster's key" : "this version cannot read");
    else
        r = roster_replaces(opened, roster, n, &c->now.roster, c->now.roster_bytes, c->now.roster_len);
    free(opened);
    return r;
}

int cluster_learn(struct cluster *c, const uint8_t *roster, size_t n, struct err *err)
{
    struct keys_trust t;

    if (!c->has || n > ROSTER_BYTES_MAX)
        return 0;
    int r = is_news(c, roster, n, err);
    if (r <= 0)
        return r;
    r = keys_take(c->keys, c->now.key, roster, n, &t);
    if (r == -EBADMSG)
        return err_set(err, r, "a roster whose network key is not for this node's identity");
    if (r)
        return refused(r, err);
    r = commit(c, &t, false, err);
    sodium_memzero(&t, sizeof t);
    return r ? r : 1;
}

int cluster_issue(struct cluster *c, const uint8_t pub[static AUTH_KEY], const char *name, uint64_t now_s,
                  uint8_t ret_cert[static CERT_BYTES], struct err *err)
{
    struct keys_trust t;

    if (!cluster_is_authority(c))
        return not_authority(c, err);
    int r = keys_admit(c->keys, pub, name, now_s, &t);
    if (r == -ENOSPC)
        return err_set(err, r, "cluster %s is full: it has %d nodes; remove one with `ringctl remove`",
                       c->now.roster.name, ROSTER_MAX);
    if (r)
        return r == -EINVAL ? bad_name(r, err) : refused(r, err);
    memcpy(ret_cert, t.cert, CERT_BYTES);
    r = commit(c, &t, true, err);
    sodium_memzero(&t, sizeof t);
    return r;
}

int cluster_issue_again(struct cluster *c, const uint8_t id[static CERT_ID], uint64_t now_s,
                        uint8_t ret_cert[static CERT_BYTES], struct err *err)
{
    if (!cluster_is_authority(c))
        return not_authority(c, err);
    struct keys_trust t;
    int r = keys_certify(c->keys, id, now_s, &t);
    if (r)
        return r == -ENOENT ? r : refused(r, err);
    memcpy(ret_cert, t.cert, CERT_BYTES);
    sodium_memzero(&t, sizeof t);
    return 0;
}

static int change_node(struct cluster *c, const uint8_t id[static CERT_ID],
                       int (*change)(struct keys *, const uint8_t *, struct keys_trust *), struct err *err)
{
    struct keys_trust t;

    if (!cluster_is_authority(c))
        return not_authority(c, err);
    int r = change(c->keys, id, &t);
    if (r == -ENOENT)
        return err_set(err, r, "no member of cluster %s has that id: `ringctl members` lists them",
                       c->now.roster.name);
    if (r)
        return refused(r, err);
    r = commit(c, &t, true, err);
    sodium_memzero(&t, sizeof t);
    return r;
}

int cluster_remove(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err)
{
    if (cluster_is_authority(c) && !memcmp(id, c->node_id, sizeof c->node_id))
        return err_set(err, -EPERM,
                       "a node cannot remove itself: promote another node, and remove this one there");
    return change_node(c, id, keys_remove, err);
}

int cluster_promote(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err)
{
    return change_node(c, id, keys_promote, err);
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
    case TOKEN_AGAIN: return 1;
    case TOKEN_USED:
        return err_set(err, -EPERM,
                       "this token has let a node in already: make a new one with `ringctl invite`");
    case TOKEN_EXPIRED:
        return err_set(err, -EPERM, "this token has expired: make a new one with `ringctl invite`");
    case TOKEN_NONE: break;
    }
    return err_set(err, -EPERM, "this token is no longer known: make a new one with `ringctl invite`");
}

/* --- the disk --- */

void cluster_set_kept(struct cluster *c, void (*kept)(void *owner), void *owner)
{
    c->kept = kept;
    c->owner = owner;
}

int cluster_start_writing(struct cluster *c, struct event_base *base, struct mailbox *mailbox,
                          unsigned wait_ms)
{
    return cluster_disk_start(c->disk, base, mailbox, wait_ms);
}

void cluster_stop_writing(struct cluster *c)
{
    cluster_disk_stop(c->disk);
}

void cluster_when_kept(struct cluster *c, void (*fn)(void *arg, const char *error), void *arg)
{
    struct err err; /* with the thread, who waits hears of it */
    if (cluster_disk_lacks(c->disk, TRUST_TOKENS))
        (void)save_tokens(c, &err);
    if (cluster_disk_lacks(c->disk, TRUST_CLUSTER))
        (void)cluster_trust_put(c->disk, &c->now, &err);
    cluster_disk_when(c->disk, fn, arg);
}

void cluster_forget(struct cluster *c, const void *arg)
{
    cluster_disk_forget(c->disk, arg);
}

/* --- opening --- */

static int load_tokens(struct cluster *c, struct err *err)
{
    uint8_t bytes[TOKEN_BOOK_BYTES + 1];
    ssize_t n = private_read(cluster_disk_path(c->disk, TRUST_TOKENS), bytes, sizeof bytes, err);
    int r = n == -ENOENT ? 0 : n < 0 ? (int)n : token_book_decode(bytes, (size_t)n, &c->tokens);

    sodium_memzero(bytes, sizeof bytes);
    return r == -EPROTO ? err_set(err, r, "%s is damaged: remove it, and make new tokens for those given out",
                                  cluster_disk_path(c->disk, TRUST_TOKENS))
                        : r;
}

/* The keeper gets what is on disk. It may have newer trust, which was not written in time. */
static int load_trust(struct cluster *c, const char *state_dir, struct err *err)
{
    struct keys_trust t;
    const char *path = cluster_disk_path(c->disk, TRUST_CLUSTER);
    int r = cluster_trust_load(path, &c->now, err);

    if (r)
        return r;
    c->has = true;
    if (memcmp(c->now.cert.pub, c->pub, AUTH_KEY))
        return err_set(
            err, -EINVAL,
            "%s belongs to another identity than %s/identity: restore that one, or remove both and "
            "join again",
            path, state_dir);
    r = keys_take(c->keys, c->now.key, c->now.roster_bytes, c->now.roster_len, &t);
    r = r ? refused(r, err) : apply(c, &t, err);
    sodium_memzero(&t, sizeof t);
    if (!r)
        share(c);
    return r;
}

int cluster_open(struct cluster **ret, const char *state_dir, struct keys *keys, struct err *err)
{
    struct cluster *c = xsecret(sizeof *c);
    c->keys = keys;
    c->pub = keys_identity(keys)->pub;
    auth_node_id(c->node_id, c->pub);
    c->disk = cluster_disk_new(state_dir, on_written, c);
    int r = load_trust(c, state_dir, err);
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
    if (c)
        cluster_disk_free(c->disk);
    secret_free(c);
}
