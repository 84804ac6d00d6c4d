/* SPDX-License-Identifier: MIT
 *
 * A link's life: made, ended, freed, and what it answers about itself. Owns struct link; called by
 * the daemon's control and lane code, and by the other files of a link, on the loop. */
#include "link_impl.h"
#include "link_lookup.h"
#include "base/secret.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const state_names[] = {[LINK_DIALING] = "dialing",
                                          [LINK_HANDSHAKE] = "handshake",
                                          [LINK_HELLO] = "hello",
                                          [LINK_UP] = "up",
                                          [LINK_DOWN] = "down"};

/* The goodbye that goes with an end: 0 = none, there is nobody to hear it. */
static const struct {
    const char *name;
    uint8_t bye;
} ends[] = {
    [LINK_END_NONE] = {"none", WIRE_BYE_LEFT},
    [LINK_END_CONNECT] = {"connect", 0},
    [LINK_END_HANDSHAKE] = {"handshake", 0},
    [LINK_END_TIMEOUT] = {"timeout", WIRE_BYE_LEFT},
    [LINK_END_BAD_MAC] = {"bad-mac", WIRE_BYE_PROTOCOL},
    [LINK_END_PROTOCOL] = {"protocol", WIRE_BYE_PROTOCOL},
    [LINK_END_VERSION] = {"version", WIRE_BYE_VERSION},
    [LINK_END_REFUSED] = {"refused", WIRE_BYE_REFUSED},
    [LINK_END_PEER_LEFT] = {"peer-left", WIRE_BYE_LEFT},
    [LINK_END_LOST] = {"lost", 0},
    [LINK_END_ENDED] = {"ended", 0},
    [LINK_END_SILENT] = {"silent", 0},
    [LINK_END_LOCAL] = {"local", WIRE_BYE_LEFT},
};

const char *link_state_name(enum link_state s)
{
    return (size_t)s < sizeof state_names / sizeof state_names[0] ? state_names[s] : "unknown";
}

const char *link_end_name(enum link_end e)
{
    return (size_t)e < sizeof ends / sizeof ends[0] ? ends[e].name : "unknown";
}

static void destroy(struct link *link)
{
    if (link->timer)
        event_free(link->timer);
    free(link->record); /* only now: a frame's body may lie in it while its callback frees the link */
    free(link->parts);
    secret_free(link);
}

void link_enter(struct link *link)
{
    link->depth++;
}

void link_exit(struct link *link)
{
    if (--link->depth == 0 && link->freed)
        destroy(link);
}

void link_arm(struct link *link, uint64_t us)
{
    struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};

    link->due = (struct instant){clock_now().us + us};
    evtimer_add(link->timer, &tv);
}

void link_want(struct link *link, size_t n)
{
    const bool stays = link->state == LINK_UP && link->kind != LINK_DATA;

    link->need = n;
    /* libevent reads up to the high mark and no further: what follows a data link's last word
     * belongs to another process. A link that stays reads ahead: a mark that is reached costs calls
     * of the kernel. Of a long record libevent tells the beginning, and link_session_pull fetches
     * the rest. */
    bufferevent_setwatermark(link->bev, EV_READ, link_session_pulls(link) ? 1 : n,
                             stays && n < LINK_AHEAD ? LINK_AHEAD : n);
}

static uint64_t or_default(uint64_t us, uint64_t standard)
{
    return us ? us : standard;
}

/* Without any key, or before it is known which, the handshake is made with one that nobody has. */
static int take_secrets(struct link *link, const struct link_setup *setup)
{
    uint8_t nobodys[AUTH_PSK];
    bool tries = !link->dialed && setup->keys;
    int r;

    if (tries) {
        link->psks = secret_new((setup->n_keys + 1) * sizeof *link->psks);
        link->tags = calloc(setup->n_keys + 1, sizeof *link->tags);
        if (!link->psks || !link->tags)
            return -ENOMEM;
        link->n_psks = setup->n_keys;
        for (size_t i = 0; i < setup->n_keys; i++) {
            memcpy(link->psks[i], setup->keys[i].psk, AUTH_PSK);
            link->tags[i] = setup->keys[i].tag;
        }
    }
    randombytes_buf(nobodys, sizeof nobodys);
    r = auth_new(&link->auth, link->dialed, setup->id, tries ? nobodys : setup->psk, WIRE_PROLOGUE,
                 strlen(WIRE_PROLOGUE));
    sodium_memzero(nobodys, sizeof nobodys);
    return r;
}

static int link_new(struct link **ret, const struct link_setup *setup, bool dialed)
{
    struct link *link;
    int r;

    if ((dialed && (setup->kind < LINK_CONTROL || setup->kind > LINK_JOIN)) || setup->n_keys > LINK_KEYS_MAX)
        return -EINVAL;
    link = secret_new(sizeof *link);
    if (!link)
        return -ENOMEM;
    *link = (struct link){.base = setup->base,
                          .ops = setup->ops,
                          .owner = setup->owner,
                          .fd = -1,
                          .kind = dialed ? setup->kind : 0,
                          .dialed = dialed,
                          .seen = setup->seen,
                          .max_segment = setup->max_segment,
                          .mine = setup->hello,
                          .handshake_us = or_default(setup->handshake_us, LINK_HANDSHAKE_US),
                          .beat = setup->beat,
                          .beat_us = or_default(setup->beat_us, LINK_BEAT_US),
                          .suspect_us = or_default(setup->suspect_us, LINK_SUSPECT_US),
                          .dead_us = or_default(setup->dead_us, LINK_DEAD_US),
                          .rekey_us = or_default(setup->rekey_us, LINK_REKEY_US)};
    if (dialed && setup->preamble) {
        memcpy(link->preamble, setup->preamble, sizeof link->preamble);
        link->has_preamble = true;
    }
    auth_node_id(link->mine.node_id, setup->id->pub);
    link->mine.seal.suites =
        seal_suites() & (setup->hello.seal.suites ? setup->hello.seal.suites : UINT8_MAX);
    r = link_set_timer(link);
    if (!r)
        r = take_secrets(link, setup);
    if (r < 0) {
        link_free(link);
        return r;
    }
    *ret = link;
    return 0;
}

int link_dial(struct link **ret, const struct link_setup *setup, const char *host, uint16_t port)
{
    struct link *link;
    int r = link_new(&link, setup, true);

    if (r < 0)
        return r;
    link_enter(link); /* nothing may free it under us, and nothing is told before the owner has it */
    link_resolve(link, host, port);
    link_exit(link);
    *ret = link;
    return 0;
}

int link_accept(struct link **ret, const struct link_setup *setup, int fd)
{
    struct link *link;
    int r = link_new(&link, setup, false);

    if (r < 0) {
        close(fd);
        return r;
    }
    if (evutil_make_socket_nonblocking(fd) < 0 || link_attach(link, fd) < 0) {
        close(fd);
        link_free(link);
        return -ENOMEM;
    }
    link_tune_socket(fd);
    link_name_address(link, fd);
    link_shake_start(link);
    *ret = link;
    return 0;
}

/* Pushes out what the kernel takes at once; whether that was all. */
static bool flush(struct link *link)
{
    struct evbuffer *out = bufferevent_get_output(link->bev);

    evbuffer_unfreeze(out, 1); /* libevent's guard against writers other than itself */
    while (evbuffer_get_length(out) > 0 && evbuffer_write(out, link->fd) > 0)
        ;
    evbuffer_freeze(out, 1);
    return evbuffer_get_length(out) == 0;
}

/* Our kernel closes what is up without a goodbye when this process is killed, and then alone:
 * whatever else ends without one is reset. */
static bool is_to_be_reset(const struct link *link)
{
    return link->state == LINK_UP && link->kind != LINK_DATA && link->fd >= 0;
}

void link_stop(struct link *link)
{
    if (is_to_be_reset(link))
        setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    if (link->bev) {
        bufferevent_setfd(link->bev, -1);
        bufferevent_free(link->bev);
        link->bev = NULL;
    }
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

static void release(struct link *link)
{
    link_stop(link);
    if (link->timer)
        event_del(link->timer);
    auth_free(link->auth);
    link->auth = NULL;
    link_shake_forget(link);
    seal_wipe(&link->tx);
    seal_wipe(&link->rx);
    link_rekey_forget(link);
    link->keyed = false;
    lookup_free(link->lookup);
    link->lookup = NULL;
    if (link->addresses)
        evutil_freeaddrinfo(link->addresses);
    link->addresses = NULL;
}

void link_down(struct link *link, enum link_end end, const char *text)
{
    char copy[sizeof link->text];

    if (link->reported)
        return;
    snprintf(copy, sizeof copy, "%s", text); /* text may be link->text */
    memcpy(link->text, copy, sizeof copy);
    link->reported = true;
    link->end = end;
    link_stop(link);
    link->state = LINK_DOWN;
    release(link);
    link->ops->down(link->owner, link, end, link->text);
}

void link_end_later(struct link *link, enum link_end end, const char *text, uint64_t us)
{
    link->state = LINK_DOWN;
    link->end = end;
    snprintf(link->text, sizeof link->text, "%s", text);
    link_arm(link, us);
}

/* A data link that is up has handed its record stream to its owner: the link must not write into it
 * any more.
 */
static bool can_say_bye(const struct link *link)
{
    return link->keyed && link->bev &&
           (link->state == LINK_HELLO || (link->state == LINK_UP && link->kind != LINK_DATA));
}

/* Bytes that the peer's kernel has not confirmed. */
static size_t count_unsent(const struct link *link)
{
    int in_kernel = 0;

    if (ioctl(link->fd, SIOCOUTQ, &in_kernel))
        in_kernel = 0;
    return evbuffer_get_length(bufferevent_get_output(link->bev)) + (size_t)in_kernel;
}

bool link_lingers(struct link *link)
{
    const size_t unsent = link->bev ? count_unsent(link) : 0;

    if (unsent >= link->unsent || !link->lingers)
        return false;
    link->unsent = unsent;
    link->lingers--;
    link_arm(link, LINK_LINGER_US);
    return true;
}

/* Says goodbye and waits until the peer has closed too, a second at most after the last bytes left:
 * closing first, with bytes of the peer unread, would make the kernel throw away what is still on
 * its way out, the reason first of all. */
static void linger(struct link *link, uint8_t code, const char *text)
{
    link_session_bye(link, code, text);
    evbuffer_drain(bufferevent_get_input(link->bev), SIZE_MAX);
    bufferevent_setwatermark(link->bev, EV_READ, 0, 0);
    bufferevent_enable(link->bev, EV_READ | EV_WRITE);
    link->unsent = count_unsent(link);
    link->lingers = LINK_LINGERS;
}

void link_close(struct link *link, enum link_end end, const char *text)
{
    bool says = can_say_bye(link);

    if (link->state == LINK_DOWN)
        return;
    if (says)
        linger(link, ends[end].bye ? ends[end].bye : WIRE_BYE_LEFT, text);
    else
        link_stop(link);
    link_end_later(link, end, text, says ? LINK_LINGER_US : 0);
}

void link_fail(struct link *link, enum link_end end, const char *fmt, ...)
{
    char text[WIRE_TEXT_MAX + 1];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (ends[end].bye && can_say_bye(link))
        link_close(link, end, text);
    else
        link_down(link, end, text);
}

static void part(struct link *link, uint8_t code, const char *text)
{
    if (!link || link->freed)
        return;
    if (can_say_bye(link)) {
        link_session_bye(link, code, text);
        if (flush(link))
            link->state = LINK_DOWN; /* it is said: no reset */
    }
    link_stop(link);
    link->state = LINK_DOWN;
    link->freed = link->reported = true;
    release(link);
    if (link->depth == 0)
        destroy(link);
}

void link_free(struct link *link)
{
    part(link, WIRE_BYE_LEFT, "the other node closed the connection");
}

void link_leave(struct link *link)
{
    part(link, WIRE_BYE_ENDED, "its ringd was ended");
}

int link_detach(struct link *link, int *ret_fd, struct seal *ret_tx, struct seal *ret_rx)
{
    int flags;

    if (link->state != LINK_UP || link->kind != LINK_DATA)
        return -ENOTCONN;
    flags = fcntl(link->fd, F_GETFL);
    if (flags < 0 || fcntl(link->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    *ret_fd = link->fd;
    *ret_tx = link->tx;
    *ret_rx = link->rx;
    link->fd = -1;
    link_free(link);
    return 0;
}

int link_surrender(struct link *link)
{
    int fd = link->fd;

    link->fd = -1;
    link_free(link);
    return fd;
}

void link_name_peer(struct link *link)
{
    snprintf(link->who, sizeof link->who, "%s (%s)",
             link->peer.name[0] ? link->peer.name : "a node without a name", link->address);
}

enum link_kind link_kind(const struct link *link)
{
    return link->kind;
}

enum link_state link_state(const struct link *link)
{
    return link->state;
}

uint64_t link_key_tag(const struct link *link)
{
    return link->tag;
}

const uint8_t *link_peer_key(const struct link *link)
{
    return link->has_peer ? link->peer_key : NULL;
}

bool link_dialed(const struct link *link)
{
    return link->dialed;
}

const struct link_hello *link_peer(const struct link *link)
{
    return link->has_peer ? &link->peer : NULL;
}

const uint8_t *link_hash(const struct link *link)
{
    return link->hash;
}

const char *link_address(const struct link *link)
{
    return link->address;
}

/* What we send at most, or have told the other end that it may send. */
static uint32_t largest_packet(const struct tcp_info *info)
{
    const uint32_t sent = info->tcpi_snd_mss + (info->tcpi_options & TCPI_OPT_TIMESTAMPS ? 12 : 0);

    return (sent > info->tcpi_advmss ? sent : info->tcpi_advmss) + LINK_SEGMENT_HEADS;
}

void link_stats(const struct link *link, struct link_stats *ret)
{
    struct instant now = clock_now();
    bool up = link->state == LINK_UP;
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    bool known = link->fd >= 0 && !getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &n) && n == sizeof info;

    *ret = (struct link_stats){.tx_bytes = link->tx_bytes,
                               .rx_bytes = link->rx_bytes,
                               .tx_frames = link->tx_frames,
                               .retransmits = known ? info.tcpi_total_retrans : 0,
                               .packet = known ? largest_packet(&info) : 0,
                               .rx_frames = link->rx_frames,
                               .rtt_us = link->rtt_us,
                               .least_rtt_us = link->least_rtt_us,
                               .silent_us = link->last_heard.us ? clock_since_us(now, link->last_heard) : 0,
                               .up_us = up ? clock_since_us(now, link->up_since) : 0,
                               .key_us = up ? clock_since_us(now, link->keyed_at) : 0,
                               .rekeys = link->rekeys,
                               .suite = link->suite};
    ret->suspect = up && link->kind != LINK_DATA && ret->silent_us > link->suspect_us;
}

bool link_clock_offset(const struct link *link, struct instant now, struct clock_offset_bound *ret)
{
    return clock_offset_at(&link->clock_offset, now, ret);
}
