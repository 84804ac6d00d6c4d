/* SPDX-License-Identifier: MIT
 *
 * What this node knows of its cluster, and keeps: the cluster's public key, its own certificate,
 * the signed roster, what follows from the network keys, on an authority the tokens given out.
 * One file for trust (STATE/cluster) and one for tokens (STATE/tokens), 0600, replaced whole. The
 * keeper of the keys makes what is signed (keys.h). It talks to nobody else: enrol.c and peers.c
 * do. Loop thread. */
#ifndef DAEMON_CLUSTER_H
#define DAEMON_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "net/auth.h"
#include "net/cert.h"
#include "net/link.h"
#include "net/roster.h"
#include "net/token.h"

struct cluster;
struct event_base;
struct keys;
struct mailbox;

enum cluster_state {
    CLUSTER_NONE, /* never in one: works alone, accepts and dials nobody */
    CLUSTER_MEMBER,
    CLUSTER_REMOVED, /* as NONE, but knows what it was thrown out of */
};
const char *cluster_state_name(enum cluster_state s); /* "none", "member", "removed" */

/* keys are needed for as long as the cluster is open. */
int cluster_open(struct cluster **ret, const char *state_dir, struct keys *keys, struct err *err);
void cluster_close(struct cluster *c);

/* --- the disk ---
 *
 * What is said below to change something counts here at once. What was made here is passed on only
 * when it is on the disk: a node that ends in between has then forgotten nothing that others know,
 * and does not make another roster of the same version. What others made is passed on at once: they
 * tell it again to a node that forgot it. */

/* Once a change that was made here is on the disk: `kept` is called, and then who waits for it. */
void cluster_set_kept(struct cluster *c, void (*kept)(void *owner), void *owner);
/* From here on a thread writes (cluster_disk.h), until cluster_stop_writing, which waits for the
 * disk. Before and after that, and without it, each change is written before it returns. */
int cluster_start_writing(struct cluster *c, struct event_base *base, struct mailbox *mailbox,
                          unsigned wait_ms);
void cluster_stop_writing(struct cluster *c);
/* Calls once: all that has changed until now is on the disk, or `error` says why it is not. What
 * could not be written before is tried once more. */
void cluster_when_kept(struct cluster *c, void (*fn)(void *arg, const char *error), void *arg);
void cluster_forget(struct cluster *c, const void *arg);

enum cluster_state cluster_state(const struct cluster *c);
bool cluster_is_authority(const struct cluster *c);
/* Of a member (or of what was left); NULL and zero without a cluster. */
const struct roster *cluster_roster(const struct cluster *c);
/* It was a member, and the roster says that it is one no more. */
bool cluster_has_removed(const struct cluster *c, const uint8_t id[static CERT_ID]);
const struct cert *cluster_cert(const struct cluster *c);
const uint8_t *cluster_cert_bytes(const struct cluster *c); /* [CERT_BYTES] */
const uint8_t *cluster_key(const struct cluster *c);        /* [CERT_CLUSTER_KEY] */
/* The roster as others may hear it. */
const uint8_t *cluster_roster_bytes(const struct cluster *c, size_t *ret_n);
/* The roster that is in force here, which may not be on the disk yet. */
const uint8_t *cluster_roster_made(const struct cluster *c, size_t *ret_n);

/* --- keys --- */
enum {
    CLUSTER_KEYS = 8
}; /* generations kept: beacons use the newest; links all, so that a node away for long can return */
struct cluster_net_key { /* what follows from a network key, which the keeper of the keys has */
    uint16_t generation;
    uint8_t beacon[32], psk[AUTH_PSK];
};
/* Newest first; at most `cap`. For beacons: the first. */
size_t cluster_net_keys(const struct cluster *c, struct cluster_net_key *ret, size_t cap);
/* The secret of a link to another member, `age` generations back (modulo those there are).
 * −ENOTCONN: no member. */
int cluster_psk(const struct cluster *c, unsigned age, uint8_t ret[static AUTH_PSK]);
/* All secrets of members, for accepting; the tags are generations. */
size_t cluster_link_keys(const struct cluster *c, struct link_key *ret, size_t cap);

/* Is the node at the other end a member? peer_key is proved by the handshake. 0, or why not, for
 * both ends to read. */
int cluster_judge(const struct cluster *c, const uint8_t peer_key[static AUTH_KEY],
                  const struct link_hello *peer, char *why, size_t size);

/* --- changes --- */
/* A new cluster, with this node as its authority. */
int cluster_init(struct cluster *c, const char *cluster_name, const char *node_name, uint64_t now_s,
                 struct err *err);
/* Joining: what a member answered, held against the token's hash of the cluster key. */
int cluster_adopt(struct cluster *c, const uint8_t token_cluster[static CERT_ID],
                  const uint8_t key[static CERT_CLUSTER_KEY], const uint8_t *cert, const uint8_t *roster,
                  size_t n, struct err *err);
/* A roster from another member: 1 news (hand it on: cluster_roster_bytes, which may be newer
 * still), 0 known or older, −EBADMSG forged, −errno not written. */
int cluster_learn(struct cluster *c, const uint8_t *roster, size_t n, struct err *err);

/* The following need the authority's key; otherwise −EPERM and a sentence naming who has it. */
int cluster_issue(struct cluster *c, const uint8_t pub[static AUTH_KEY], const char *name, uint64_t now_s,
                  uint8_t ret_cert[static CERT_BYTES], struct err *err);
/* A member's certificate as it stands, once more; nothing changes by that. −ENOENT: it is none. */
int cluster_issue_again(struct cluster *c, const uint8_t id[static CERT_ID], uint64_t now_s,
                        uint8_t ret_cert[static CERT_BYTES], struct err *err);
int cluster_remove(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err);
int cluster_promote(struct cluster *c, const uint8_t id[static CERT_ID], struct err *err);
int cluster_invite(struct cluster *c, uint64_t ttl_s, uint64_t now_s, char ret_text[static TOKEN_TEXT],
                   struct err *err);
/* Spends a token for a node, which may come by it again until it is removed: 1 then. −EPERM and why
 * it cannot. */
int cluster_spend(struct cluster *c, const uint8_t token[static TOKEN_ID],
                  const uint8_t node_id[static CERT_ID], uint64_t now_s, struct err *err);
const struct token_book *cluster_tokens(const struct cluster *c);

#endif
