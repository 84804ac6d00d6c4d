/* SPDX-License-Identifier: MIT
 *
 * A member that was away while the network key changed, more than once perhaps: it can neither open
 * the others' beacons nor begin a handshake with what it has, and yet it has a certificate that
 * counts. The way back is a join connection whose secret every member can make from the cluster's
 * public key, and no outsider knows. Over it both ends judge each other's certificates, tell each
 * other the roster they have, and part: in the newer one is the network key, sealed for the other.
 * Called by enrol.c, cables.c and peers.c. Loop thread. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/enrol_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"

enum {
    NONCE = 8,
    ASK_US = 2000000,        /* between two questions at first; then twice as long each time */
    ASK_MOST_US = 120000000, /* beacons that do not open are another cluster's, mostly */
    TRY_US = 5000000,        /* between two calls */
};

/* 16 or 32 bytes made of the cluster's public key and a nonce, keyed by what they are for. */
static void derive(const struct enrol *e, uint8_t *out, size_t n, const char *purpose, const uint8_t *nonce)
{
    uint8_t key[crypto_generichash_KEYBYTES_MIN] = {0}, text[CERT_CLUSTER_KEY + NONCE] = {0};

    memcpy(key, purpose, strnlen(purpose, sizeof key));
    memcpy(text, cluster_key(e->setup.cluster), CERT_CLUSTER_KEY);
    if (nonce)
        memcpy(text + CERT_CLUSTER_KEY, nonce, NONCE);
    crypto_generichash(out, n, text, nonce ? sizeof text : CERT_CLUSTER_KEY, key, sizeof key);
}

static bool is_member(const struct enrol *e)
{
    return cluster_state(e->setup.cluster) == CLUSTER_MEMBER;
}

bool enrol_is_return(uint64_t tag)
{
    return tag == ENROL_TAG_RETURN;
}

void enrol_return_key(const struct enrol *e, struct link_key *ret)
{
    derive(e, ret->psk, sizeof ret->psk, "ringd/1 return", NULL);
    ret->tag = ENROL_TAG_RETURN;
}

/* --- asking who is there ---------------------------------------------------------------------- */

/* A nonce and what only a member can make of it, so that nobody can tell two questions of one
 * cluster apart from those of two. */
static void make_question(const struct enrol *e, const uint8_t nonce[static NONCE],
                          uint8_t ret[static TOKEN_TAG])
{
    uint8_t proof[16];

    derive(e, proof, sizeof proof, "ringd/1 lost", nonce);
    memcpy(ret, nonce, NONCE);
    memcpy(ret + NONCE, proof, TOKEN_TAG - NONCE);
}

bool enrol_missed(struct enrol *e, unsigned generation, uint8_t ret[static TOKEN_TAG])
{
    struct returning *r = &e->returning;
    const struct instant now = clock_now();

    if (!is_member(e) || generation < cluster_roster(e->setup.cluster)->generation || r->link ||
        now.us < r->ask_again.us)
        return false;
    r->pause_us = !r->pause_us ? ASK_US : r->pause_us * 2 < ASK_MOST_US ? r->pause_us * 2 : ASK_MOST_US;
    r->ask_again.us = now.us + r->pause_us;
    randombytes_buf(r->nonce, sizeof r->nonce);
    r->asked = true;
    make_question(e, r->nonce, ret);
    return true;
}

bool enrol_return_answers(const struct enrol *e, const uint8_t question[static TOKEN_TAG],
                          uint8_t ret[static TOKEN_TAG])
{
    uint8_t expected[TOKEN_TAG];

    if (!is_member(e))
        return false;
    make_question(e, question, expected);
    if (sodium_memcmp(expected, question, sizeof expected))
        return false;
    derive(e, ret, TOKEN_TAG, "ringd/1 found", question);
    return true;
}

bool enrol_return_is_answer(const struct enrol *e, const uint8_t answer[static TOKEN_TAG])
{
    uint8_t expected[TOKEN_TAG];

    if (!e->returning.asked || !is_member(e))
        return false;
    derive(e, expected, sizeof expected, "ringd/1 found", e->returning.nonce);
    return !sodium_memcmp(expected, answer, sizeof expected);
}

/* --- over the connection, at both ends -------------------------------------------------------- */

static int send_roster(struct enrol *e, struct link *link)
{
    size_t n;
    const uint8_t *roster = cluster_roster_bytes(e->setup.cluster, &n);

    return link_send(link, ENROL_FRAME_ROSTER, roster, n);
}

/* Was it news? */
static bool take_roster(struct enrol *e, const char *from, const uint8_t *body, size_t n)
{
    struct err err;
    const int r = cluster_learn(e->setup.cluster, body, n, &err);

    if (r < 0)
        log_warning("the roster that %s sent was not applied: %s", from, err.text);
    else if (r > 0)
        e->setup.changed(e->setup.owner);
    return r > 0;
}

void enrol_return_serve(struct enrol *e, struct link *link)
{
    if (send_roster(e, link))
        link_close(link, LINK_END_LOCAL, "the roster cannot be sent: no memory");
}

void enrol_return_frame(struct enrol *e, struct link *link, const uint8_t *body, size_t n)
{
    take_roster(e, link_peer(link)->name, body, n);
}

/* --- the end that was away -------------------------------------------------------------------- */

static void finish(struct enrol *e)
{
    link_free(e->returning.link);
    e->returning.link = NULL;
    timer_stop(e->returning.deadline);
}

static int return_vet(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct enrol *e = owner;

    return cluster_judge(e->setup.cluster, link_peer_key(link), peer, why, size);
}

static void return_up(void *owner, struct link *link)
{
    struct enrol *e = owner;

    if (send_roster(e, link))
        finish(e);
}

static void return_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct enrol *e = owner;
    char name[CERT_NAME];

    if (type != ENROL_FRAME_ROSTER)
        return;
    snprintf(name, sizeof name, "%s", link_peer(link)->name);
    finish(e);
    e->returning.pause_us = 0;
    if (take_roster(e, name, body, n))
        log_info("back in cluster %s: %s sent its present keys and members",
                 cluster_roster(e->setup.cluster)->name, name);
}

static void return_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct enrol *e = owner;
    struct returning *r = &e->returning;

    (void)link;
    if (end == LINK_END_REFUSED && strcmp(r->words, text)) {
        snprintf(r->words, sizeof r->words, "%s", text); /* the link's own goes with it */
        log_warning("this node cannot go back into cluster %s: %s", cluster_roster(e->setup.cluster)->name,
                    r->words);
    }
    finish(e);
}

static const struct link_ops return_ops = {.vet = return_vet,
                                           .hello = enrol_hello_vetted,
                                           .up = return_up,
                                           .frame = return_frame,
                                           .down = return_down};

void enrol_return(struct enrol *e, const char *host, uint16_t port)
{
    struct returning *r = &e->returning;
    struct link_key key;
    const struct instant now = clock_now();

    if (!is_member(e) || r->link || now.us < r->try_again.us)
        return;
    enrol_return_key(e, &key);
    struct link_setup setup = {.base = e->setup.base,
                               .id = e->setup.id,
                               .psk = key.psk,
                               .kind = LINK_JOIN,
                               .max_segment = LINK_SEGMENT_LEAST, /* whatever is between, it passes */
                               .hello = {.proto_min = 1, .proto_max = 1},
                               .ops = &return_ops,
                               .owner = e};
    snprintf(setup.hello.name, sizeof setup.hello.name, "%s", cluster_cert(e->setup.cluster)->name);
    snprintf(setup.hello.version, sizeof setup.hello.version, "%s", e->setup.version);
    memcpy(setup.hello.cert, cluster_cert_bytes(e->setup.cluster), CERT_BYTES);
    r->try_again.us = now.us + TRY_US;
    r->asked = false;
    if (!link_dial(&r->link, &setup, host, port))
        timer_set_ms(r->deadline, e->setup.answer_ms);
    sodium_memzero(&key, sizeof key);
}

static void on_deadline(void *owner)
{
    finish(owner);
}

void enrol_return_init(struct enrol *e)
{
    e->returning.deadline = timer_new(e->setup.base, on_deadline, e);
}

void enrol_return_done(struct enrol *e)
{
    link_free(e->returning.link);
    timer_free(e->returning.deadline);
}
