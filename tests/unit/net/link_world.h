/* SPDX-License-Identifier: MIT
 *
 * A world of two links on one loop, a dialing, b accepting on loopback TCP, for the tests of links.
 * Every wait is for an event; a guard timer fails what never comes. */
#ifndef TESTS_UNIT_LINK_WORLD_H
#define TESTS_UNIT_LINK_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/auth.h"
#include "net/link.h"
#include "net/wire.h"
#include "tests/lib/own_keys.h"

enum { GUARD_S = 20 };

struct side;
typedef void side_fn(struct side *side);

/* One end and what it lived through. */
struct side {
    struct world *world;
    struct link_setup setup;
    struct auth_identity id;
    uint8_t psk[AUTH_PSK];
    struct link *link;                                          /* owned */
    const char *refusal, *turns_away;                           /* in hello, in vet */
    side_fn *on_hello, *on_up, *on_frame, *on_beaten, *on_down; /* what the test does there; NULL = nothing */
    unsigned vets, hellos, ups, frames, beats, downs;
    enum link_end end;
    char text[WIRE_TEXT_MAX + 1];
    uint8_t type;
    uint8_t *body; /* owned: a copy of the last frame */
    size_t body_len;
    char beat_text[32];
    int fd; /* after detaching */
    struct seal tx, rx;
};

struct world {
    struct event_base *base;
    struct event *guard;
    bool stuck;
    struct side a, b; /* a dials, b accepts */
    int listener;
    uint16_t port;
    struct event *incoming;
};

static inline void call(side_fn *fn, struct side *side)
{
    if (fn)
        fn(side);
}

static inline int side_hello(void *owner, struct link *link, const struct link_hello *peer, char *why,
                             size_t why_size)
{
    struct side *side = owner;

    side->hellos++;
    assert_ptr_equal(link_peer(link), peer);
    assert_int_equal(link_state(link), LINK_HELLO);
    side->link = link;
    call(side->on_hello, side);
    if (!side->refusal)
        return 0;
    snprintf(why, why_size, "%s", side->refusal);
    return -EPERM;
}

static inline void side_up(void *owner, struct link *link)
{
    struct side *side = owner;

    (void)link;
    side->ups++;
    call(side->on_up, side);
}

static inline void side_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct side *side = owner;

    (void)link;
    side->frames++;
    side->type = type;
    side->body = realloc(side->body, n + 1);
    memcpy(side->body, body, n);
    side->body_len = n;
    call(side->on_frame, side);
    if (n > 0)
        assert_int_equal(side->body[n - 1], body[n - 1]); /* still readable, whatever the callback did */
}

static inline size_t side_beat(void *owner, struct link *link, uint8_t *body, size_t cap)
{
    struct side *side = owner;

    (void)link;
    return (size_t)snprintf((char *)body, cap, "%c is well", side == &side->world->a ? 'a' : 'b');
}

static inline void side_beaten(void *owner, struct link *link, const uint8_t *body, size_t n)
{
    struct side *side = owner;

    (void)link;
    side->beats++;
    snprintf(side->beat_text, sizeof side->beat_text, "%.*s", (int)n, (const char *)body);
    call(side->on_beaten, side);
}

static inline void side_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct side *side = owner;

    assert_int_equal(link_state(link), LINK_DOWN);
    side->downs++;
    side->end = end;
    snprintf(side->text, sizeof side->text, "%s", text);
    call(side->on_down, side);
}

static inline int side_vet(void *owner, struct link *link, const struct link_hello *peer, char *why,
                           size_t why_size)
{
    struct side *side = owner;

    assert_true(link_dialed(link));
    assert_int_equal(link_state(link), LINK_HANDSHAKE);
    assert_ptr_equal(link_peer(link), peer);
    side->vets++;
    if (!side->turns_away)
        return 0;
    snprintf(why, why_size, "%s", side->turns_away);
    return -EPERM;
}

static const struct link_ops ops = {.vet = side_vet,
                                    .hello = side_hello,
                                    .up = side_up,
                                    .frame = side_frame,
                                    .beat = side_beat,
                                    .beaten = side_beaten,
                                    .down = side_down};

static inline void on_guard(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;

    (void)fd;
    (void)what;
    w->stuck = true;
    event_base_loopbreak(w->base);
}

static inline void on_incoming(evutil_socket_t listener, short what, void *arg)
{
    struct world *w = arg;
    int fd = accept(listener, NULL, NULL);

    (void)what;
    assert_true(fd >= 0);
    assert_int_equal(link_accept(&w->b.link, &w->b.setup, fd), 0);
}

static inline void side_init(struct side *side, struct world *w, const char *name)
{
    side->world = w;
    side->fd = -1;
    assert_int_equal(own_identity(&side->id), 0);
    memset(side->psk, 0x42, sizeof side->psk);
    side->setup = (struct link_setup){
        .base = w->base,
        .id = &side->id,
        .psk = side->psk,
        .kind = LINK_CONTROL,
        .hello = {.proto_min = 1, .proto_max = 2, .version = "0.1.0", .listen_port = 17464},
        .ops = &ops,
        .owner = side};
    snprintf(side->setup.hello.name, sizeof side->setup.hello.name, "%s", name);
}

static inline void listen_on_loopback(struct world *w)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sin;

    w->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(w->listener >= 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&sin, sizeof sin), 0);
    assert_int_equal(listen(w->listener, 8), 0);
    assert_int_equal(getsockname(w->listener, (struct sockaddr *)&sin, &len), 0);
    w->port = ntohs(sin.sin_port);
    w->incoming = event_new(w->base, w->listener, EV_READ | EV_PERSIST, on_incoming, w);
    event_add(w->incoming, NULL);
}

static inline int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->base = event_base_new();
    w->guard = evtimer_new(w->base, on_guard, w);
    side_init(&w->a, w, "anna");
    side_init(&w->b, w, "bert");
    listen_on_loopback(w);
    *state = w;
    return 0;
}

static inline void side_done(struct side *side)
{
    link_free(side->link);
    free(side->body);
    if (side->fd >= 0)
        close(side->fd);
}

static inline int world_teardown(void **state)
{
    struct world *w = *state;

    side_done(&w->a);
    side_done(&w->b);
    event_free(w->incoming);
    event_free(w->guard);
    close(w->listener);
    event_base_free(w->base);
    free(w);
    return 0;
}

static inline void stop(struct side *side)
{
    event_base_loopbreak(side->world->base);
}

/* Runs the loop until a callback breaks it. */
static inline void run(struct world *w)
{
    evtimer_add(w->guard, &(struct timeval){.tv_sec = GUARD_S});
    event_base_dispatch(w->base);
    event_del(w->guard);
    assert_false(w->stuck);
}

static inline void dial(struct world *w)
{
    assert_int_equal(link_dial(&w->a.link, &w->a.setup, "127.0.0.1", w->port), 0);
}

static inline void stop_when_both_up(struct side *side)
{
    if (side->world->a.ups && side->world->b.ups)
        stop(side);
}

static inline void stop_when_both_down(struct side *side)
{
    if (side->world->a.downs && side->world->b.downs)
        stop(side);
}

static inline void bring_up(struct world *w)
{
    w->a.on_up = w->b.on_up = stop_when_both_up;
    w->a.on_down = w->b.on_down = stop;
    dial(w);
    run(w);
    assert_int_equal(w->a.ups + w->b.ups, 2);
    w->a.on_up = w->b.on_up = NULL;
}

static inline void expect_end(const struct side *side, enum link_end end, const char *part)
{
    if (side->downs != 1 || side->end != end || !strstr(side->text, part))
        fail_msg("expected one end \"%s\" with \"%s\", got %u, the last \"%s\": %s", link_end_name(end), part,
                 side->downs, link_end_name(side->end), side->text);
}

static inline void write_all(int fd, const uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t r = write(fd, p, n);

        assert_true(r > 0);
        p += r;
        n -= (size_t)r;
    }
}

static inline void read_all(int fd, uint8_t *p, size_t n)
{
    while (n > 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t r = poll(&wait, 1, GUARD_S * 1000) == 1 ? read(fd, p, n) : -1;

        assert_true(r > 0);
        p += r;
        n -= (size_t)r;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
