/* SPDX-License-Identifier: MIT
 *
 * How a node gets into a cluster, on both ends. The joiner dials a member with the token's secret,
 * checks the cluster's key against the token before it shows anything of itself, and is then given
 * certificate, roster and network key. Any member can be that member: it knows the live tokens from
 * the authority that made them, and asks that authority to sign. Loop thread. */
#ifndef DAEMON_ENROL_H
#define DAEMON_ENROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/cluster.h"
#include "engine/err.h"
#include "net/link.h"
#include "net/token.h"

struct enrol;
struct event_base;

struct enrol_setup {
    struct event_base *base;        /* borrowed */
    const struct auth_identity *id; /* borrowed */
    struct cluster *cluster;        /* borrowed */
    const char *version;            /* borrowed: of ringd, for the joiner's hello */
    /* Messages to members; both take the reference. send: not 0 as peers_send. broadcast: to all
     * that can be reached. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    void (*broadcast)(void *owner, json_t *message);
    /* We have become a member, or a roster of others is news: neighbours should hear of it. What
     * this node made itself they hear when it is on the disk (cluster_set_kept). */
    void (*changed)(void *owner);
    void *owner;
    uint64_t (*now_s)(void *owner); /* wall clock; NULL = the system's */
    unsigned search_ms, answer_ms;  /* 0 = 30 s to find a member, 10 s from its answer to the end */
};
struct enrol *enrol_new(const struct enrol_setup *setup);
void enrol_free(struct enrol *e); /* a join under way is dropped without a word */

/* --- the joining end --- */
/* Joins with a token, by the name given (the cluster may put a number behind it). With host: that
 * member, now or not at all. Without: whoever discovery finds until search_ms are over. `done` is
 * called once, from the loop; error is NULL or a sentence. Refused: a token with a slip in it, a
 * member of another cluster, a join under way.
 */
int enrol_join(struct enrol *e, const char *token, const char *name, const char *host, uint16_t port,
               void (*done)(void *arg, const char *error), void *arg, struct err *err);
/* A token of the cluster that this node is a member of, as far as it knows. */
bool enrol_is_own(const struct enrol *e, const char *token);
/* For discovery, while a join looks for a member: what to ask on every cable (false: nothing is
 * looked for), whether an answer is one, and the address it came from. Called for any address that
 * may be a member's: a wrong one costs a handshake. */
bool enrol_question(const struct enrol *e, uint8_t ret[static TOKEN_TAG]);
bool enrol_is_answer(const struct enrol *e, const uint8_t answer[static TOKEN_TAG]);
void enrol_try(struct enrol *e, const char *host, uint16_t port);

/* --- the end of a member that was away while the network key changed --- */
/* A beacon was heard that no key opens: its sender may have a newer one. True: ask that on its
 * cable; answers are told as those to joiners are. */
bool enrol_missed(struct enrol *e, unsigned generation, uint8_t ret[static TOKEN_TAG]);
/* A member may be there that does not know our network key any more: goes there for the roster, now
 * and then. */
void enrol_return(struct enrol *e, const char *host, uint16_t port);

/* --- the member's end --- */
/* For discovery: does somebody ask for a token that lives here, or for the cluster that he is a
 * member of? Then what to answer. */
bool enrol_answers(const struct enrol *e, const uint8_t question[static TOKEN_TAG],
                   uint8_t ret[static TOKEN_TAG]);
/* Secrets of join links, to be tried beside the cluster's own; and whether a link's key is one of
 * them. */
size_t enrol_link_keys(const struct enrol *e, struct link_key *ret, size_t cap);
bool enrol_is_key(uint64_t tag);
/* A join link that came in: its hello (0, or why not), up, its frames, and down (whatever its state
 * was). Between up and down it may be closed from here. */
int enrol_hello(struct enrol *e, struct link *link, const struct link_hello *peer, char *why, size_t size);
void enrol_serve(struct enrol *e, struct link *link);
void enrol_frame(struct enrol *e, struct link *link, uint8_t type, const uint8_t *body, size_t n);
void enrol_left(struct enrol *e, const struct link *link);

/* Messages between members, whose senders and fields have been checked: "tokens" and "join-answer"
 * of an authority, "join-ask" of any member. */
void enrol_take_tokens(struct enrol *e, const uint8_t issuer[16], const json_t *body);
void enrol_take_join_ask(struct enrol *e, const uint8_t from[16], const json_t *body);
void enrol_take_join_answer(struct enrol *e, const json_t *body);
/* On an authority: tells all members the tokens (members came, or it promises to be worth it). */
void enrol_share(struct enrol *e);

#endif
