/* SPDX-License-Identifier: MIT
 *
 * A link's keys are changed while it is up: both ends make a pair of X25519 for this change alone,
 * and what the two have in common goes into the keys of both directions. Who learns the keys of one
 * moment reads neither what was said before the last change nor, unless it stands in between, what
 * is said after the next. The dialer asks, so that the two never cross. Nothing waits for it: each
 * direction goes on, and has the new key from the record behind its own step on. Called by
 * link_session.c, on the loop. */
#include "link_impl.h"

#include <sodium.h>
#include <string.h>

void link_rekey_forget(struct link *link)
{
    sodium_memzero(&link->rekey, sizeof link->rekey);
}

void link_rekey_begin(struct link *link)
{
    link->keyed_at = clock_now();
    link_rekey_forget(link);
}

static int say(struct link *link, uint8_t step, const uint8_t *key)
{
    struct wire_rekey r = {.step = step};
    uint8_t body[WIRE_REKEY_MAX];

    if (key)
        memcpy(r.key, key, sizeof r.key);
    return link_session_send(link, WIRE_REKEY, body, (size_t)wire_rekey_encode(&r, body));
}

/* What both ends know, and nobody else: of our secret, their key, and both keys in order. */
static int agree(uint8_t ret[static 32], const uint8_t secret[static AUTH_KEY],
                 const uint8_t theirs[static AUTH_KEY], const uint8_t dialers[static AUTH_KEY],
                 const uint8_t acceptors[static AUTH_KEY])
{
    uint8_t shared[3 * AUTH_KEY];
    int r = crypto_scalarmult(shared, secret, theirs);

    memcpy(shared + AUTH_KEY, dialers, AUTH_KEY);
    memcpy(shared + (size_t)2 * AUTH_KEY, acceptors, AUTH_KEY);
    if (!r)
        r = crypto_generichash(ret, 32, shared, sizeof shared, NULL, 0);
    sodium_memzero(shared, sizeof shared);
    return r;
}

static void make_pair(struct link_rekey *k)
{
    randombytes_buf(k->secret, sizeof k->secret);
    (void)crypto_scalarmult_base(k->own, k->secret);
}

static void fail_memory(struct link *link)
{
    link_fail(link, LINK_END_LOCAL, "no memory to change keys with %s", link->who);
}

static void fail_peer(struct link *link)
{
    link_fail(link, LINK_END_PROTOCOL, "%s changes keys in a way that makes none", link->who);
}

void link_rekey(struct link *link)
{
    struct link_rekey *k = &link->rekey;

    if (!link->dialed || link->state != LINK_UP || link->kind == LINK_DATA || k->asked)
        return;
    make_pair(k);
    k->asked = true;
    if (say(link, WIRE_REKEY_ASK, k->own) < 0)
        link_close(link, LINK_END_LOCAL, "no memory to change keys");
}

static void finish(struct link *link)
{
    link->rekeys++;
    link_rekey_begin(link);
}

/* The acceptor: it answers, and seals with the new key from the next record on; it opens with it
 * once the dialer says that it does. */
static void take_ask(struct link *link, const uint8_t *theirs)
{
    struct link_rekey *k = &link->rekey;

    if (link->dialed || k->answered) {
        fail_peer(link);
        return;
    }
    make_pair(k);
    if (agree(k->mix, k->secret, theirs, theirs, k->own)) {
        fail_peer(link);
        return;
    }
    k->answered = true;
    if (say(link, WIRE_REKEY_ANSWER, k->own) < 0 || seal_mix(&link->tx, k->mix) < 0)
        fail_memory(link);
}

static void take_answer(struct link *link, const uint8_t *theirs)
{
    struct link_rekey *k = &link->rekey;

    if (!link->dialed || !k->asked || agree(k->mix, k->secret, theirs, k->own, theirs)) {
        fail_peer(link);
        return;
    }
    if (seal_mix(&link->rx, k->mix) < 0 || say(link, WIRE_REKEY_DONE, NULL) < 0 ||
        seal_mix(&link->tx, k->mix) < 0) {
        fail_memory(link);
        return;
    }
    finish(link);
}

static void take_done(struct link *link)
{
    if (link->dialed || !link->rekey.answered)
        fail_peer(link);
    else if (seal_mix(&link->rx, link->rekey.mix) < 0)
        fail_memory(link);
    else
        finish(link);
}

void link_rekey_take(struct link *link, const uint8_t *body, size_t n)
{
    struct wire_rekey r;

    if (wire_rekey_decode(body, n, &r) < 0 || link->kind == LINK_DATA)
        fail_peer(link);
    else if (r.step == WIRE_REKEY_ASK)
        take_ask(link, r.key);
    else if (r.step == WIRE_REKEY_ANSWER)
        take_answer(link, r.key);
    else
        take_done(link);
    sodium_memzero(&r, sizeof r);
}

bool link_rekey_tick(struct link *link, struct instant now)
{
    const uint64_t age_us = clock_since_us(now, link->keyed_at);

    if (age_us >= link->rekey_us)
        link_rekey(link);
    if (age_us < link->rekey_us + link->rekey_us / 2)
        return link->state == LINK_UP;
    link_fail(link, LINK_END_PROTOCOL, "%s did not change keys in time", link->who);
    return false;
}
