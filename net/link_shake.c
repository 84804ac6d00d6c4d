/* SPDX-License-Identifier: MIT
 *
 * Handshake and hello: three Noise messages, each behind a u16 length, then each end's verdict on
 * the other as the first record. Called by link.c on the loop. An acceptor that cannot read message
 * 1 says nothing at all. */
#include "link_impl.h"

#include "buf.h"
#include "base/secret.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(LINK_RELAY > (int)AUTH_MAX_MESSAGE, "a message to a relay has a wrong length for a handshake");

/* Writes the next handshake message with the payload. */
static int say(struct link *link, const uint8_t *payload, int n)
{
    uint8_t message[WIRE_PREFIX + AUTH_MAX_MESSAGE];
    struct buf_out prefix;
    int r = n < 0 ? n : auth_write(link->auth, message + WIRE_PREFIX, AUTH_MAX_MESSAGE, payload, (size_t)n);

    if (r < 0) {
        link_fail(link, LINK_END_HANDSHAKE, "cannot shake hands with %s: %s", link->who,
                  r == -EBADMSG ? "its key is too weak to keep a secret"
                  : r == -EINVAL
                      ? "our own name or version is not printable text; correct it in the configuration"
                      : strerror(-r));
        return r;
    }
    buf_out_init(&prefix, message, WIRE_PREFIX);
    buf_out_u16(&prefix, (uint16_t)r);
    return bufferevent_write(link->bev, message, WIRE_PREFIX + (size_t)r);
}

static int say_opening(struct link *link)
{
    struct wire_opening o = {(uint8_t)link->kind, link->mine.proto_min, link->mine.proto_max};
    uint8_t payload[WIRE_OPENING];

    return say(link, payload, wire_opening_encode(&o, payload, sizeof payload));
}

static int say_hello(struct link *link)
{
    uint8_t payload[WIRE_HELLO_MAX];

    return say(link, payload, wire_hello_encode(&link->mine, link->kind, payload, sizeof payload));
}

void link_shake_start(struct link *link)
{
    link->state = LINK_HANDSHAKE;
    link_arm(link, link->handshake_us);
    link_want(link, WIRE_PREFIX);
    bufferevent_enable(link->bev, EV_READ | EV_WRITE);
    if (link->dialed) {
        if (link->has_preamble)
            bufferevent_write(link->bev, link->preamble, sizeof link->preamble);
        say_opening(link);
    }
}

static int read_opening(struct link *link, const uint8_t *payload, size_t n)
{
    if (wire_opening_decode(payload, n, &link->opening) < 0) {
        link_fail(link, LINK_END_PROTOCOL,
                  "%s opened with %zu bytes this version does not understand; update the older node",
                  link->who, n);
        return -EPROTO;
    }
    link->kind = link->opening.kind;
    return 0;
}

/* The peer's hello, and that it is the key's own: node ids are derived, not claimed. */
static int read_hello(struct link *link, const uint8_t *payload, size_t n)
{
    const char *what = "";
    uint8_t id[sizeof link->peer.node_id];

    if (wire_hello_decode(payload, n, link->kind, &link->peer, &what) < 0) {
        link_fail(link, LINK_END_PROTOCOL,
                  "the hello of %s is wrong or incomplete at %s; update the older node", link->who, what);
        return -EPROTO;
    }
    memcpy(link->peer_key, auth_peer_key(link->auth), sizeof link->peer_key);
    link->has_peer = true;
    link_name_peer(link);
    auth_node_id(id, link->peer_key);
    if (memcmp(id, link->peer.node_id, sizeof id) != 0) {
        link_fail(link, LINK_END_PROTOCOL,
                  "%s gives a node id that does not belong to its key: its identity file is mixed up",
                  link->who);
        return -EPROTO;
    }
    if (!link->dialed && (link->opening.proto_min != link->peer.proto_min ||
                          link->opening.proto_max != link->peer.proto_max)) {
        link_fail(link, LINK_END_PROTOCOL, "%s opened with protocols %u to %u and then said %u to %u",
                  link->who, link->opening.proto_min, link->opening.proto_max, link->peer.proto_min,
                  link->peer.proto_max);
        return -EPROTO;
    }
    return 0;
}

/* Keys for both directions; from here on everything is records. */
static int start_session(struct link *link)
{
    struct auth_keys keys;
    int r = auth_split(link->auth, &keys);

    link->record = malloc(SEAL_MAX + SEAL_TAG);
    if (r < 0 || !link->record) {
        sodium_memzero(&keys, sizeof keys);
        link_fail(link, LINK_END_LOCAL, "no memory for the session with %s", link->who);
        return -ENOMEM;
    }
    link->suite = seal_choose(&link->mine.seal, &link->peer.seal);
    seal_init(&link->tx, keys.tx, link->suite);
    seal_init(&link->rx, keys.rx, link->suite);
    memcpy(link->hash, keys.hash, sizeof link->hash);
    sodium_memzero(&keys, sizeof keys);
    auth_free(link->auth);
    link->auth = NULL;
    link->keyed = true;
    link->state = LINK_HELLO;
    link->last_heard = clock_now();
    link_want(link, SEAL_HEAD);
    return 0;
}

static void judge_hello(struct link *link)
{
    const struct link_hello *mine = &link->mine, *peer = &link->peer;
    char why[WIRE_TEXT_MAX + 1] = "";
    int r;

    if (peer->proto_min > mine->proto_max || mine->proto_min > peer->proto_max) {
        link_fail(link, LINK_END_VERSION,
                  "%s (version %s) speaks protocols %u to %u, %s (version %s) speaks %u to %u: install the "
                  "same ringd on both",
                  peer->name, peer->version, peer->proto_min, peer->proto_max, mine->name, mine->version,
                  mine->proto_min, mine->proto_max);
        return;
    }
    r = link->ops->hello(link->owner, link, peer, why, sizeof why);
    if (link->freed || link->state != LINK_HELLO)
        return;
    if (r != 0) {
        link_fail(link, LINK_END_REFUSED, "%s", why[0] ? why : "refused without a reason");
        return;
    }
    if (link_session_send(link, WIRE_ACCEPT, NULL, 0) < 0) {
        link_fail(link, LINK_END_LOCAL, "no memory for the session with %s", link->who);
        return;
    }
    link->said_accept = true;
}

/* Message 2 has been read, message 3 not yet written: the owner may turn away without having shown
 * itself. */
static bool vet_hello(struct link *link)
{
    char why[WIRE_TEXT_MAX + 1] = "";
    int r;

    if (!link->dialed || !link->ops->vet)
        return true;
    r = link->ops->vet(link->owner, link, &link->peer, why, sizeof why);
    if (link->freed || link->state != LINK_HANDSHAKE)
        return false;
    if (r != 0)
        link_fail(link, LINK_END_REFUSED, "%s", why[0] ? why : "refused without a reason");
    return r == 0;
}

static void take_message(struct link *link, const uint8_t *payload, size_t n)
{
    if (!link->dialed && link->kind == 0) { /* message 1 */
        if (read_opening(link, payload, n) == 0)
            say_hello(link);
        return;
    }
    if (read_hello(link, payload, n) < 0 || !vet_hello(link) || (link->dialed && say_hello(link) < 0))
        return;
    if (start_session(link) == 0)
        judge_hello(link);
}

static void take_prefix(struct link *link)
{
    uint8_t prefix[WIRE_PREFIX];
    struct buf_in in;
    uint16_t n;

    evbuffer_remove(bufferevent_get_input(link->bev), prefix, sizeof prefix);
    buf_in_init(&in, prefix, sizeof prefix);
    n = buf_in_u16(&in);
    if (n == LINK_RELAY && !link->dialed && link->kind == 0 && link->ops->relayed) {
        link->ops->relayed(link->owner, link);
        return;
    }
    if (n < LINK_SHAKE_MIN || n > AUTH_MAX_MESSAGE) {
        link_fail(link, LINK_END_HANDSHAKE,
                  "%s does not speak ringd's handshake: another program, or a wrong port", link->who);
        return;
    }
    link->in_body = true;
    link_want(link, n);
}

void link_shake_forget(struct link *link)
{
    secret_free(link->psks);
    free(link->tags);
    link->psks = NULL;
    link->tags = NULL;
}

/* Message 1 begins with the dialer's ephemeral key. */
static bool is_recording(struct link_seen *seen, const uint8_t *message)
{
    uint64_t word;

    memcpy(&word, message, sizeof word);
    for (size_t i = 0; i < LINK_SEEN && i < seen->n; i++)
        if (seen->words[i] == word)
            return true;
    seen->words[seen->n++ % LINK_SEEN] = word;
    return false;
}

static int read_message(struct link *link, const uint8_t *message, size_t n, uint8_t *payload, size_t cap)
{
    size_t fits;
    int r;

    if (!link->psks)
        return auth_read(link->auth, message, n, payload, cap);
    r = auth_read_any(link->auth, (const uint8_t(*)[AUTH_PSK])link->psks, link->n_psks, message, n, payload,
                      cap, &fits);
    if (r >= 0 && link->seen && is_recording(link->seen, message))
        r = -EALREADY;
    if (r >= 0)
        link->tag = link->tags[fits];
    link_shake_forget(link);
    return r;
}

void link_shake_step(struct link *link)
{
    uint8_t message[AUTH_MAX_MESSAGE], payload[AUTH_MAX_PAYLOAD];
    size_t n = link->need;
    int r;

    if (!link->in_body) {
        take_prefix(link);
        return;
    }
    evbuffer_remove(bufferevent_get_input(link->bev), message, n);
    link->in_body = false;
    link_want(link, WIRE_PREFIX);
    r = read_message(link, message, n, payload, sizeof payload);
    if (r == -EALREADY)
        link_fail(link, LINK_END_BAD_MAC, "%s repeated an old handshake: somebody plays a recording",
                  link->who);
    else if (r < 0)
        link_fail(link, LINK_END_BAD_MAC,
                  "%s does not know this cluster's secret: if it should belong here, join it with a token",
                  link->who);
    else
        take_message(link, payload, (size_t)r);
    sodium_memzero(payload, sizeof payload);
}
