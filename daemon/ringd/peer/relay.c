/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/relay.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/peer/splice.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum { PATIENCE_US = 10000000, MAX_HOPS = 32, TOKEN = 16, TOKEN_AT = LINK_PREAMBLE - TOKEN };
static const uint8_t magic[TOKEN_AT] = {'R', 'N', 'G', 'R'};

struct relay_ask { /* ours, or a leg's for what lies behind it */
    LIST_ENTRY(relay_ask) link;
    struct relay *r; /* borrowed: owner of all asks' list */
    const struct relay_ask_ops *ops;
    void *owner;
    struct relay_way way;
    uint8_t token[TOKEN];
    bool ready;
    char why[256];       /* what is said if it does not become so */
    struct timer *timer; /* owned: the deadline; at once when the answer is there */
};
enum leg_state { LEG_ASKING, LEG_OFFERED, LEG_CONNECTING, LEG_SPLICING };
struct leg { /* our part of somebody's way */
    LIST_ENTRY(leg) link;
    struct relay *r; /* borrowed: owner */
    enum leg_state state;
    struct relay_want want;
    uint8_t asker[16], token[TOKEN]; /* the hop before us, and what it begins with */
    struct relay_ask *ask;           /* owned while ASKING */
    struct relay_way way;            /* onwards */
    uint64_t path_in;                /* over which the connection came; 0 = not known */
    int in, out;                     /* owned until they are spliced; −1 */
    struct splice *splice;           /* owned */
    struct timer *timer;             /* owned, as is the next */
    struct event *connected;
};
struct guest { /* a connection that still has to say its token */
    LIST_ENTRY(guest) link;
    struct relay *r; /* borrowed: owner */
    int fd;          /* owned */
    uint64_t path;
    uint8_t said[LINK_PREAMBLE];
    size_t n;
    struct event *event; /* owned */
};
struct relay {
    struct relay_setup s;
    LIST_HEAD(, relay_ask) asks;
    LIST_HEAD(, leg) legs;
    LIST_HEAD(, guest) guests;
    size_t nlegs, nguests;
};

static uint64_t patience(const struct relay *r)
{
    return r->s.patience_us ? r->s.patience_us : PATIENCE_US;
}

static void say(struct relay *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct relay *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->s.log(r->s.owner, text);
}

static bool read_id(uint8_t ret[16], const json_t *body, const char *key)
{
    const char *text = json_string_value(json_object_get(body, key));
    return text && !id_parse(ret, text);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void on_ask_timer(void *owner)
{
    struct relay_ask *ask = owner;
    if (ask->ready)
        ask->ops->ready(ask->owner, &ask->way);
    else
        ask->ops->refused(ask->owner, ask->why);
}

static void answer(struct relay_ask *ask)
{
    timer_set_us(ask->timer, 0);
}

static void send_open(struct relay_ask *ask, const struct relay_want *want, int hops)
{
    struct relay *r = ask->r;
    const char *name = r->s.name(r->s.owner, ask->way.hop.id);
    randombytes_buf(ask->token, sizeof ask->token);
    memcpy(ask->way.preamble, magic, sizeof magic);
    memcpy(ask->way.preamble + TOKEN_AT, ask->token, TOKEN);
    ask->way.relayed = true;
    json_t *message = json_pack("{s:s s:o s:o s:o s:o s:I s:i}", "kind", "relay-open", "token",
                                id_json(ask->token), "from", id_json(want->from), "to", id_json(want->to),
                                "head", id_json(want->head), "job", (json_int_t)want->job, "hops", hops);
    snprintf(ask->why, sizeof ask->why, "%s did not say within %.0f s whether it relays", name,
             (double)patience(r) / 1e6);
    const int error = message ? r->s.send(r->s.owner, ask->way.hop.id, message) : -ENOMEM;
    if (error) {
        snprintf(ask->why, sizeof ask->why, "%s cannot be asked to relay: it %s", name, unsent_why(error));
        answer(ask);
    } else {
        timer_set_us(ask->timer, patience(r));
    }
}

/* `not_back` is the hop that asks us: a way that turns round is none. */
static struct relay_ask *ask_next(struct relay *r, const struct relay_want *want, const uint8_t *not_back,
                                  int hops, const struct relay_ask_ops *ops, void *owner)
{
    struct relay_ask *ask = xcalloc(1, sizeof *ask);
    *ask = (struct relay_ask){.r = r, .ops = ops, .owner = owner};
    ask->timer = timer_new(r->s.base, on_ask_timer, ask);
    LIST_INSERT_HEAD(&r->asks, ask, link);
    int no_way = r->s.next(r->s.owner, want->to, &ask->way.hop);
    if (no_way || hops < 1 || (not_back && !memcmp(ask->way.hop.id, not_back, 16))) {
        snprintf(ask->why, sizeof ask->why, "no way leads from %s to %s", r->s.name(r->s.owner, NULL),
                 r->s.name(r->s.owner, want->to));
        answer(ask);
    } else if (!memcmp(ask->way.hop.id, want->to, 16)) {
        ask->ready = true;
        answer(ask);
    } else {
        send_open(ask, want, hops);
    }
    return ask;
}

struct relay_ask *relay_ask(struct relay *r, const struct relay_want *want, const struct relay_ask_ops *ops,
                            void *owner)
{
    return ask_next(r, want, NULL, MAX_HOPS, ops, owner);
}

void relay_ask_free(struct relay_ask *ask)
{
    if (!ask)
        return;
    LIST_REMOVE(ask, link);
    timer_free(ask->timer);
    sodium_memzero(ask, sizeof *ask);
    free(ask);
}

static void take_answer(struct relay *r, const uint8_t from[16], const json_t *body, bool ready)
{
    uint8_t token[TOKEN];
    struct relay_ask *ask;
    const char *text = json_string_value(json_object_get(body, ready ? "through" : "why"));
    if (!text || !read_id(token, body, "token"))
        return;
    LIST_FOREACH (ask, &r->asks, link)
        if (ask->way.relayed && !ask->ready && !memcmp(ask->way.hop.id, from, 16) &&
            !sodium_memcmp(ask->token, token, sizeof token)) {
            ask->ready = ready;
            if (ready)
                snprintf(ask->way.through, sizeof ask->way.through, "%s", text);
            else
                snprintf(ask->why, sizeof ask->why, "%s", text);
            answer(ask);
            return;
        }
}

void relay_take_ready(struct relay *r, const uint8_t from[16], const json_t *body)
{
    take_answer(r, from, body, true);
}

void relay_take_refused(struct relay *r, const uint8_t from[16], const json_t *body)
{
    take_answer(r, from, body, false);
}

/* --- being a hop ------------------------------------------------------------------------------ */

static void leg_free(struct leg *leg)
{
    LIST_REMOVE(leg, link);
    leg->r->nlegs--;
    relay_ask_free(leg->ask);
    splice_free(leg->splice);
    if (leg->connected)
        event_free(leg->connected);
    timer_free(leg->timer);
    if (leg->in >= 0)
        close(leg->in);
    if (leg->out >= 0)
        close(leg->out);
    sodium_memzero(leg, sizeof *leg);
    free(leg);
}

static void refuse(struct relay *r, const uint8_t asker[16], const uint8_t token[TOKEN], const char *why)
{
    json_t *message =
        json_pack("{s:s s:o s:s}", "kind", "relay-refused", "token", id_json(token), "why", why);
    if (message)
        r->s.send(r->s.owner, asker, message);
}

enum { WHAT = 32 };

static const char *what_of(const struct relay_want *want, char to[WHAT])
{
    if (want->job)
        snprintf(to, WHAT, "job %llu", (unsigned long long)want->job);
    else
        snprintf(to, WHAT, "a model");
    return to;
}

static void leg_end(struct leg *leg, const char *why)
{
    struct relay *r = leg->r;
    char from[64], what[WHAT];
    snprintf(from, sizeof from, "%s",
             r->s.name(r->s.owner, leg->want.from)); /* the next call may use the same place */
    if (leg->state == LEG_SPLICING)
        say(r, "%s: no longer relaying %s to %s, %.1f MB passed: %s", what_of(&leg->want, what), from,
            r->s.name(r->s.owner, leg->want.to), (double)splice_bytes(leg->splice) / 1e6, why);
    leg_free(leg);
}

static void on_leg_timer(void *owner)
{
    leg_free(owner);
}

static void on_way_ready(void *owner, const struct relay_way *way)
{
    struct leg *leg = owner;
    struct relay *r = leg->r;
    char through[2 * sizeof way->through];
    leg->way = *way;
    leg->state = LEG_OFFERED;
    relay_ask_free(leg->ask);
    leg->ask = NULL;
    snprintf(through, sizeof through, "%s%s%s", r->s.name(r->s.owner, NULL), *leg->way.through ? ", " : "",
             leg->way.through);
    timer_set_us(leg->timer, patience(leg->r));
    json_t *message =
        json_pack("{s:s s:o s:s}", "kind", "relay-ready", "token", id_json(leg->token), "through", through);
    if (!message || r->s.send(r->s.owner, leg->asker, message))
        leg_free(leg);
}

static void on_way_refused(void *owner, const char *why)
{
    struct leg *leg = owner;
    refuse(leg->r, leg->asker, leg->token, why);
    leg_free(leg);
}

static const struct relay_ask_ops leg_ask_ops = {on_way_ready, on_way_refused};

void relay_take_open(struct relay *r, const uint8_t asker[16], const json_t *body)
{
    struct relay_want want;
    uint8_t token[TOKEN];
    char why[200] = "";
    json_int_t hops = json_integer_value(json_object_get(body, "hops"));
    if (!read_id(token, body, "token") || !read_id(want.from, body, "from") ||
        !read_id(want.to, body, "to") || !read_id(want.head, body, "head"))
        return;
    want.job = (uint64_t)json_integer_value(json_object_get(body, "job"));
    const char *name = r->s.name(r->s.owner, NULL);
    if (r->nlegs == RELAY_MAX_LEGS)
        snprintf(why, sizeof why, "%s relays %d connections already", name, RELAY_MAX_LEGS);
    else if (!r->s.works(r->s.owner, want.from, want.head, want.job) ||
             !r->s.works(r->s.owner, want.to, want.head, want.job))
        snprintf(why, sizeof why,
                 want.job ? "%s has not heard that both ends work on job %llu"
                          : "%s does not reach both ends",
                 name, (unsigned long long)want.job);
    if (*why) {
        refuse(r, asker, token, why);
        return;
    }
    struct leg *leg = xcalloc(1, sizeof *leg);
    *leg = (struct leg){.r = r, .want = want, .in = -1, .out = -1};
    memcpy(leg->asker, asker, sizeof leg->asker);
    memcpy(leg->token, token, sizeof token);
    leg->timer = timer_new(r->s.base, on_leg_timer, leg);
    LIST_INSERT_HEAD(&r->legs, leg, link);
    r->nlegs++;
    leg->ask = ask_next(r, &want, asker, hops < 1 || hops > MAX_HOPS ? 0 : (int)hops - 1, &leg_ask_ops, leg);
}

/* --- the connection --------------------------------------------------------------------------- */

static void on_splice_end(void *owner)
{
    leg_end(owner, "an end closed the connection");
}

static void join(struct leg *leg)
{
    struct relay *r = leg->r;
    char from[64], what[WHAT];
    int in = leg->in, out = leg->out;
    leg->in = leg->out = -1;
    timer_stop(leg->timer);
    if (splice_new(&leg->splice, r->s.base, in, out, on_splice_end, leg)) {
        leg_free(leg);
        return;
    }
    leg->state = LEG_SPLICING;
    snprintf(from, sizeof from, "%s", r->s.name(r->s.owner, leg->want.from));
    say(r, "%s: relaying %s to %s", what_of(&leg->want, what), from, r->s.name(r->s.owner, leg->want.to));
}

static void on_connected(evutil_socket_t fd, short what, void *arg)
{
    struct leg *leg = arg;
    int error = 0;
    socklen_t size = sizeof error;
    (void)what;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) {
        leg_free(leg); /* the end that dialled sees its connection close, and asks again */
        return;
    }
    if (leg->way.relayed &&
        send(fd, leg->way.preamble, sizeof leg->way.preamble, MSG_NOSIGNAL) != sizeof leg->way.preamble) {
        leg_free(leg);
        return;
    }
    join(leg);
}

static void tune(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static int connect_to(const struct relay_hop *hop)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
    char service[8];
    const int segment = hop->max_segment;
    snprintf(service, sizeof service, "%u", hop->port);
    if (getaddrinfo(hop->host, service, &hints, &found))
        return -EINVAL;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && hop->max_segment)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    int r = fd < 0 || (connect(fd, found->ai_addr, found->ai_addrlen) && errno != EINPROGRESS) ? -errno : fd;
    freeaddrinfo(found);
    if (r < 0 && fd >= 0)
        close(fd);
    else if (r >= 0)
        tune(r);
    return r;
}

static void start_leg(struct leg *leg, int fd, uint64_t path)
{
    leg->state = LEG_CONNECTING;
    leg->in = fd;
    leg->path_in = path;
    tune(fd);
    leg->out = connect_to(&leg->way.hop);
    leg->connected = leg->out < 0 ? NULL : event_new(leg->r->s.base, leg->out, EV_WRITE, on_connected, leg);
    if (!leg->connected) {
        leg_free(leg);
        return;
    }
    event_add(leg->connected, NULL);
    timer_set_us(leg->timer, patience(leg->r));
}

static void guest_free(struct guest *g, bool keeps_socket)
{
    LIST_REMOVE(g, link);
    g->r->nguests--;
    event_free(g->event);
    if (!keeps_socket)
        close(g->fd);
    free(g);
}

/* A token is good for one connection. Whoever has none is sent away without a word. */
static void admit(struct guest *g)
{
    struct relay *r = g->r;
    struct leg *leg;
    int fd = g->fd;
    uint64_t path = g->path;
    LIST_FOREACH (leg, &r->legs, link)
        if (leg->state == LEG_OFFERED && !memcmp(g->said, magic, sizeof magic) &&
            !sodium_memcmp(g->said + TOKEN_AT, leg->token, TOKEN)) {
            guest_free(g, true);
            start_leg(leg, fd, path);
            return;
        }
    guest_free(g, false);
}

static void on_guest(evutil_socket_t fd, short what, void *arg)
{
    struct guest *g = arg;
    ssize_t n = what & EV_READ ? recv(fd, g->said + g->n, sizeof g->said - g->n, 0) : 0; /* not a byte more */
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        guest_free(g, false);
        return;
    }
    g->n += (size_t)n;
    if (g->n == sizeof g->said)
        admit(g);
}

void relay_accept(struct relay *r, int fd, const char *address)
{
    const uint64_t us = patience(r);
    const struct timeval wait = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    struct guest *g = xcalloc(1, sizeof *g);
    if (r->nguests == RELAY_MAX_GUESTS) { /* those who say nothing do not keep out who knows what to say */
        struct guest *oldest = LIST_FIRST(&r->guests);
        while (LIST_NEXT(oldest, link))
            oldest = LIST_NEXT(oldest, link);
        guest_free(oldest, false);
    }
    *g = (struct guest){.r = r, .fd = fd, .path = r->s.path_at(r->s.owner, address), .n = 2};
    memcpy(g->said, magic, 2); /* LINK_RELAY has been read */
    g->event = event_new(r->s.base, fd, EV_READ | EV_PERSIST, on_guest, g);
    LIST_INSERT_HEAD(&r->guests, g, link);
    r->nguests++;
    event_add(g->event, &wait);
}

/* --- changes and the end ---------------------------------------------------------------------- */

static const char *obstacle(const struct leg *leg)
{
    const struct relay_setup *s = &leg->r->s;
    if (!s->works(s->owner, leg->want.from, leg->want.head, leg->want.job) ||
        !s->works(s->owner, leg->want.to, leg->want.head, leg->want.job))
        return "an end has left the job";
    if (leg->state >= LEG_CONNECTING &&
        (!s->has_path(s->owner, leg->way.hop.path) || (leg->path_in && !s->has_path(s->owner, leg->path_in))))
        return "the cable it came or went over is out";
    return NULL;
}

void relay_changed(struct relay *r)
{
    struct leg *next;
    for (struct leg *leg = LIST_FIRST(&r->legs); leg; leg = next) {
        next = LIST_NEXT(leg, link);
        const char *why = obstacle(leg);
        if (why)
            leg_end(leg, why);
    }
}

size_t relay_count(const struct relay *r)
{
    return r->nlegs;
}

struct relay *relay_new(const struct relay_setup *setup)
{
    struct relay *r = xcalloc(1, sizeof *r);
    r->s = *setup;
    LIST_INIT(&r->asks);
    LIST_INIT(&r->legs);
    LIST_INIT(&r->guests);
    return r;
}

void relay_free(struct relay *r)
{
    if (!r)
        return;
    while (!LIST_EMPTY(&r->legs))
        leg_free(LIST_FIRST(&r->legs));
    while (!LIST_EMPTY(&r->guests))
        guest_free(LIST_FIRST(&r->guests), false);
    while (!LIST_EMPTY(&r->asks))
        relay_ask_free(LIST_FIRST(&r->asks));
    free(r);
}
