/* SPDX-License-Identifier: MIT
 *
 * Whoever dials or is dialled, and knows the secret: openings, hellos and what asks for a relay, in
 * every state before a session stands. Ciphers let everything through, so the payloads are the
 * input. Input: u8 which end, which kind ‖ bytes as they come from the socket. */
#include "net/base/secret.h"
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"
#include "tests/lib/own_keys.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "net/link_shake.c" /* its steps are not for others */

enum { DIALED = 1, RELAYS = 2, REFUSES = 4, ROUNDS = 8 };

struct seen {
    uint8_t mode;
    size_t downs, hellos;
};

static int judge(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct seen *seen = owner;
    (void)link;
    seen->hellos++;
    expect(memchr(peer->name, '\0', sizeof peer->name) && memchr(peer->version, '\0', sizeof peer->version));
    if (seen->mode & REFUSES)
        snprintf(why, size, "%s is not wanted", peer->name);
    return seen->mode & REFUSES ? -EPERM : 0;
}

static void relayed(void *owner, struct link *link)
{
    struct seen *seen = owner;
    expect(!link->has_peer && seen->hellos == 0);
    link_free(link);
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct seen *seen = owner;
    expect(link->state == LINK_DOWN && end != LINK_END_NONE && text && seen->downs++ == 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

static struct auth *auth_of(bool initiator)
{
    static struct auth_identity id;
    static const uint8_t psk[AUTH_PSK] = {1}, seed[AUTH_SEED] = {2};
    struct auth *auth = NULL;
    if (!id.pub[0])
        expect(own_identity_from_seed(&id, seed) == 0);
    expect(auth_new(&auth, initiator, &id, psk, WIRE_PROLOGUE, strlen(WIRE_PROLOGUE)) == 0);
    return auth;
}

static struct link *make(struct event_base *base, const struct link_ops *ops, struct seen *seen)
{
    struct link *link = secret_new(sizeof *link);
    expect(link != NULL);
    link->base = base;
    link->ops = ops;
    link->owner = seen;
    link->fd = -1;
    link->bev = bufferevent_socket_new(base, -1, 0);
    link->timer = evtimer_new(base, on_timer, link);
    link->dialed = seen->mode & DIALED;
    link->auth = auth_of(link->dialed);
    expect(link->bev && link->timer && link->auth);
    link->mine = (struct link_hello){
        .name = "self", .version = "1", .proto_min = 1, .proto_max = 1, .seal = {.suites = 1}};
    link->kind = link->dialed ? LINK_CONTROL + (seen->mode >> 4) % 3 : 0;
    snprintf(link->who, sizeof link->who, "the other");
    return link;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct event_base *base;
    static const struct link_ops relay_ops = {.hello = judge,
                                              .vet = judge,
                                              .relayed = relayed,
                                              .down = on_down},
                                 ops = {.hello = judge, .vet = judge, .down = on_down};
    base = base ? base : event_base_new();
    if (n < 1)
        return 0;
    struct seen seen = {.mode = data[0]};
    struct link *link = make(base, seen.mode & RELAYS ? &relay_ops : &ops, &seen);
    link_enter(link); /* as every entry from the loop has it */
    link_shake_start(link);
    struct evbuffer *in = bufferevent_get_input(link->bev);
    evbuffer_unfreeze(in, 0);
    evbuffer_add(in, data + 1, n - 1);
    evbuffer_freeze(in, 0);
    for (int i = 0;
         i < ROUNDS && !link->freed && link->state == LINK_HANDSHAKE && evbuffer_get_length(in) >= link->need;
         i++) {
        evbuffer_unfreeze(in, 1);
        link_shake_step(link);
    }
    expect(link->freed || link->state == LINK_HANDSHAKE || link->state == LINK_HELLO ||
           link->state == LINK_DOWN || link->state == LINK_UP || link->end != LINK_END_NONE);
    expect(!link->keyed || link->has_peer);
    link_free(link);
    link_exit(link); /* frees what a callback let go of */
    event_base_loop(base, EVLOOP_NONBLOCK);
    return 0;
}
